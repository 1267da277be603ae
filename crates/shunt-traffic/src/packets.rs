//! Sockets for IP packets of a device, of any kind: without an Ethernet header.

use nix::libc;
use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

/// A packet socket of the calling thread's network namespace, for packets of one EtherType of a device. It receives and
/// sends them from their IP header on.
///
/// # Errors
/// If the kernel refuses the socket, or has no such device.
pub fn packet_socket(ifindex: u32, ethertype: u16) -> io::Result<OwnedFd> {
    let protocol = ethertype.to_be();
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    // SAFETY: the call has no pointers.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, protocol.into()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made `fd`, and nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: zeros are a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol;
    address.sll_ifindex = ifindex as i32;
    let bytes = size_of_val(&address) as u32;
    // SAFETY: the kernel reads as many bytes from `address` as it has.
    let err = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), bytes) };
    if err == 0 { Ok(socket) } else { Err(io::Error::last_os_error()) }
}
