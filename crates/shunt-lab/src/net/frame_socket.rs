//! A raw socket that only sends.

use super::link_address;
use nix::{
    errno::Errno,
    libc, setsockopt_impl, sockopt_impl,
    sys::socket::{self, AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType},
};
use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
    thread,
};

sockopt_impl!(
    /// Packets bypass the qdisc.
    QdiscBypass, SetOnly, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, bool
);

/// Sends frames on one interface, without its qdisc if the device supports that.
#[derive(Debug)]
pub(crate) struct FrameSocket(OwnedFd);

impl FrameSocket {
    /// Opens a socket on an interface of the caller's namespace.
    pub(crate) fn open(ifname: &str) -> io::Result<Self> {
        // A socket without a protocol receives nothing.
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket = socket::socket(AddressFamily::Packet, SockType::Raw, flags, None::<SockProtocol>)?;
        socket::bind(socket.as_raw_fd(), &link_address(ifname)?)?;
        // Not every device supports this; otherwise packets pass the qdisc.
        let _ = socket::setsockopt(&socket, QdiscBypass, &true);
        Ok(Self(socket))
    }

    /// Sends a frame without FCS; waits until there is room.
    pub(crate) fn send(&self, frame: &[u8]) -> io::Result<()> {
        loop {
            match socket::send(self.0.as_raw_fd(), frame, MsgFlags::empty()) {
                Ok(_) => return Ok(()),
                Err(Errno::EINTR | Errno::ENOBUFS | Errno::EAGAIN) => thread::yield_now(),
                Err(e) => return Err(io::Error::other(format!("sending {} bytes: {e}", frame.len()))),
            }
        }
    }
}
