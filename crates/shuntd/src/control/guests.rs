//! On whose behalf clients ask, and what they may.

use axum::http::Method;
use nix::unistd::geteuid;
use shunt_api::{Failure, FailureCode};
use tokio::net::UnixStream;

/// On whose behalf a client asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Who {
    /// Root, or whom the daemon runs as.
    Owner,
    /// Another user, whom the socket's group lets in.
    Reader(u32),
    /// Whoever reaches the address of the metrics.
    Network,
}

impl Who {
    /// The process at the other end, as the kernel knows it.
    pub(super) fn is_at(stream: &UnixStream) -> Self {
        match stream.peer_cred().map(|peer| peer.uid()) {
            Ok(uid) if uid == 0 || uid == geteuid().as_raw() => Self::Owner,
            Ok(uid) => Self::Reader(uid),
            // It has gone.
            Err(_) => Self::Reader(u32::MAX),
        }
    }

    /// Why it may not do this; none if it may.
    pub(super) fn refused(self, method: &Method) -> Option<Failure> {
        if self == Self::Owner || *method == Method::GET || *method == Method::HEAD {
            return None;
        }
        let why = match self {
            Self::Network => "this address is for reading metrics only (GET)".to_owned(),
            _ => format!("members of the read_group may only read (GET); use sudo for {method}"),
        };
        Some(Failure::new(FailureCode::ReadOnly, why))
    }
}
