//! Who a client is, and which requests it may make.

use axum::http::Method;
use nix::unistd::geteuid;
use shunt_api::{Failure, FailureCode};
use tokio::net::UnixStream;

/// Who a client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Client {
    /// Root, or the user that the daemon runs as.
    Owner,
    /// The uid of another user, who is a member of `read_group`.
    Reader(u32),
    /// A client of the metrics address, over TCP.
    Network,
}

impl Client {
    /// The user at the other end of the socket, as the kernel reports it.
    pub(super) fn from_peer(stream: &UnixStream) -> Self {
        match stream.peer_cred().map(|peer| peer.uid()) {
            Ok(uid) if uid == 0 || uid == geteuid().as_raw() => Self::Owner,
            Ok(uid) => Self::Reader(uid),
            // The client has gone.
            Err(_) => Self::Reader(u32::MAX),
        }
    }

    /// Why the client may not make a request with this method; `None` if it may.
    pub(super) fn refusal(self, method: &Method) -> Option<Failure> {
        if self == Self::Owner || *method == Method::GET || *method == Method::HEAD {
            return None;
        }
        let why = match self {
            Self::Network => "this address serves metrics only (GET)".to_owned(),
            _ => format!("members of the read_group may only read (GET); use sudo for {method}"),
        };
        Some(Failure::new(FailureCode::ReadOnly, why))
    }
}
