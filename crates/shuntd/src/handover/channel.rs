//! The socket between the running daemon and the next one: a pair without a name, so that nobody else can connect.

use super::pidfd::open_process;
use rustix::net::sockopt::socket_peercred;
use serde::{Serialize, de::DeserializeOwned};
use shunt_xsk::protocol;
use std::{
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net,
    },
    time::Duration,
};
use tokio::{io::Interest, net::UnixDatagram, time::timeout};

/// One end. It keeps the bounds of messages.
#[derive(Debug)]
pub(crate) struct Channel(UnixDatagram);

impl Channel {
    /// A channel, and the other end.
    ///
    /// # Errors
    /// If the kernel has no such sockets.
    pub(crate) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = protocol::socket_pair()?;
        Ok((Self::open(ours)?, theirs))
    }

    /// The end behind a descriptor. To be called within a tokio runtime.
    ///
    /// # Errors
    /// If the descriptor is not that of a socket.
    pub(crate) fn open(socket: OwnedFd) -> io::Result<Self> {
        let socket = net::UnixDatagram::from(socket);
        // Fails if this is no Unix socket.
        socket.peer_addr()?;
        socket.set_nonblocking(true)?;
        UnixDatagram::from_std(socket).map(Self)
    }

    /// The process that made the channel; `None` if it has ended.
    ///
    /// # Errors
    /// If the process has too many descriptors.
    pub(crate) fn peer_process(&self) -> io::Result<Option<OwnedFd>> {
        open_process(socket_peercred(&self.0)?.pid)
    }

    /// Sends a message with descriptors.
    ///
    /// # Errors
    /// If the other end is gone.
    pub(crate) fn send(&self, message: &impl Serialize, handles: &[BorrowedFd<'_>]) -> io::Result<()> {
        protocol::send(self.0.as_fd(), message, handles)
    }

    /// Waits for a message; `None` if the other end is gone. May be dropped at any time.
    ///
    /// # Errors
    /// If the message is malformed or too long.
    pub(crate) async fn receive<T: DeserializeOwned>(&self) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        match self.0.async_io(Interest::READABLE, || protocol::receive(&self.0)).await {
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(None),
            received => received,
        }
    }

    /// Waits for a message, but only so long.
    ///
    /// # Errors
    /// As for [`Channel::receive`], if the other end is gone, or if no message comes.
    pub(crate) async fn expect<T: DeserializeOwned>(
        &self,
        within: Duration,
    ) -> io::Result<(T, Vec<OwnedFd>)> {
        match timeout(within, self.receive()).await {
            Ok(Ok(Some(received))) => Ok(received),
            Ok(Ok(None)) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it has ended")),
            Ok(Err(error)) => Err(error),
            Err(_) => {
                let why = format!("no answer within {} s", within.as_secs());
                Err(io::Error::new(io::ErrorKind::TimedOut, why))
            }
        }
    }

    /// Waits until the other end is gone.
    pub(crate) async fn closed(&self) {
        while let Ok(Some(_)) = self.receive::<serde_json::Value>().await {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs::File, os::unix::net::UnixStream};

    #[tokio::test]
    async fn messages_bring_their_descriptors_and_the_end_is_seen() {
        let (ours, theirs) = Channel::pair().unwrap();
        let theirs = Channel::open(theirs).unwrap();
        let file = File::open("/dev/null").unwrap();
        ours.send(&"a", &[file.as_fd(), file.as_fd()]).unwrap();
        ours.send(&"b", &[]).unwrap();
        let (text, handles): (String, _) = theirs.expect(Duration::from_secs(5)).await.unwrap();
        assert_eq!((text.as_str(), handles.len()), ("a", 2));
        let (text, handles): (String, _) = theirs.expect(Duration::from_secs(5)).await.unwrap();
        assert_eq!((text.as_str(), handles.len()), ("b", 0));
        drop(ours);
        let ended = theirs.expect::<String>(Duration::from_secs(5)).await.unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[tokio::test]
    async fn malformed_and_oversized_messages_are_errors() {
        let (ours, theirs) = Channel::pair().unwrap();
        let theirs = Channel::open(theirs).unwrap();
        ours.send(&7, &[]).unwrap();
        assert!(theirs.expect::<String>(Duration::from_secs(5)).await.is_err());
        // Longer than the receiver's buffer, if the kernel sends it at all.
        if ours.send(&"x".repeat(200_000), &[]).is_ok() {
            assert!(theirs.expect::<String>(Duration::from_secs(5)).await.is_err());
        }
        ours.send(&"next", &[]).unwrap();
        assert_eq!(theirs.expect::<String>(Duration::from_secs(5)).await.unwrap().0, "next");
    }

    #[tokio::test]
    async fn what_is_no_socket_is_refused() {
        assert!(Channel::open(File::open("/dev/null").unwrap().into()).is_err());
        let (one, _other) = UnixStream::pair().unwrap();
        assert!(Channel::open(one.into()).is_ok());
    }
}
