//! Starts an agent on the DUT with `ssh` and connects to its standard input and output.

use super::http::Sender;
use http_body_util::Full;
use hyper::{
    Request, Response, Uri,
    body::{Bytes, Incoming},
};
use shunt_api::{Failure, FailureCode};
use std::{
    io,
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt},
    },
    process::{Child, Command, Stdio},
    time::Duration,
};
use tokio::time::sleep;

const PROGRAM: &str = "ssh";

/// The DUT: `[USER@]HOST[:PORT]`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Destination {
    /// `[USER@]HOST`, as ssh takes it; an IPv6 address without brackets.
    host: String,
    port: Option<u16>,
}

impl Destination {
    /// Reads `ssh://[USER@]HOST[:PORT]`; none if the URL has another form.
    pub(super) fn from_url(uri: &Uri) -> Option<Self> {
        let authority = uri.authority()?;
        let plain =
            uri.scheme_str() == Some("ssh") && matches!(uri.path(), "" | "/") && uri.query().is_none();
        let bare = |host: &str| host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let host = match authority.as_str().rsplit_once('@') {
            // A password in the URL is refused: ssh takes none on its command line.
            Some((user, _)) if user.is_empty() || user.contains(':') => return None,
            Some((user, _)) => format!("{user}@{}", bare(authority.host())),
            None => bare(authority.host()),
        };
        // ssh would take a host that begins with `-` as an option.
        let fit = plain && !authority.host().is_empty() && !host.starts_with('-');
        fit.then_some(Self { host, port: authority.port_u16() })
    }
}

/// A running `ssh`, and the connection through it. Dropping it ends both.
#[derive(Debug)]
pub(super) struct Ssh {
    child: Child,
    sender: Sender,
}

impl Ssh {
    /// Starts ssh, and there the agent by this command line. Call this within the runtime that drives the connection.
    /// ssh must log in without a password; its messages and those of the agent go to standard error.
    pub(super) async fn start(to: &Destination, agent: &str) -> Result<Self, Failure> {
        let (ours, theirs) = UnixStream::pair().map_err(|error| internal(&error))?;
        let input = theirs.try_clone().map_err(|error| internal(&error))?;
        let mut command = Command::new(PROGRAM);
        command.args(["-T", "-o", "BatchMode=yes"]).args(to.port.map(|port| format!("-p{port}")));
        command.args(["--", &to.host, agent]);
        command.stdin(Stdio::from(OwnedFd::from(input))).stdout(Stdio::from(OwnedFd::from(theirs)));
        // Keep Ctrl-C from ending ssh: the measurement ends first and still reads the last counters.
        command.process_group(0);
        let child = command.spawn().map_err(|error| {
            Failure::new(FailureCode::DutUnavailable, format!("{PROGRAM}: {error}; install an ssh client"))
        })?;
        // Close our copies of the other end; otherwise the end of ssh would go unnoticed.
        drop(command);
        let connected = async {
            ours.set_nonblocking(true)?;
            Sender::new(tokio::net::UnixStream::from_std(ours)?).await.map_err(io::Error::other)
        };
        match connected.await {
            Ok(sender) => Ok(Self { child, sender }),
            Err(error) => Err(internal(&error)),
        }
    }

    pub(super) async fn send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        self.sender.send(request).await
    }

    /// Waits up to one second for ssh to end, and returns its exit status as text; none if it still runs.
    pub(super) async fn exit_text(&mut self) -> Option<String> {
        for _ in 0..50 {
            if let Some(status) = self.child.try_wait().ok()? {
                return Some(format!("{PROGRAM} ended with {status}"));
            }
            sleep(Duration::from_millis(20)).await;
        }
        None
    }
}

impl Drop for Ssh {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn internal(error: &io::Error) -> Failure {
    Failure::new(FailureCode::Internal, format!("{PROGRAM}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_user_a_host_and_a_port_and_nothing_else() {
        let read = |url: &str| Destination::from_url(&url.parse().unwrap()).map(|to| (to.host, to.port));
        assert_eq!(read("ssh://router"), Some(("router".to_owned(), None)));
        assert_eq!(read("ssh://root@10.0.0.2:2222/"), Some(("root@10.0.0.2".to_owned(), Some(2222))));
        assert_eq!(read("ssh://root@[fd00::2]"), Some(("root@fd00::2".to_owned(), None)));
        for url in [
            "http://router",
            "ssh://router/x",
            "ssh://router?x",
            "ssh://-oProxyCommand=x",
            "ssh://a:b@c",
            "ssh://@c",
        ] {
            assert_eq!(read(url), None, "{url}");
        }
    }
}
