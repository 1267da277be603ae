//! Packets that a device receives beside those for its own addresses.

use super::Error;
use nix::{
    libc, setsockopt_impl, sockopt_impl,
    sys::socket::{self, AddressFamily, SockFlag, SockProtocol, SockType},
};
use std::os::fd::OwnedFd;

sockopt_impl!(
    /// Makes the device receive more as long as the socket is open.
    AddMembership, SetOnly, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, libc::packet_mreq
);

/// Makes a device of the caller's namespace receive all multicast (`PACKET_MR_ALLMULTI`) or all packets
/// (`PACKET_MR_PROMISC`) until the returned socket is closed.
pub(super) fn join(ifname: &str, ifindex: u32, kind: i32) -> Result<OwnedFd, Error> {
    let error =
        |e: nix::Error| Error::Machine(format!("{ifname}: cannot receive frames for other addresses: {e}"));
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket::socket(AddressFamily::Packet, SockType::Raw, flags, None::<SockProtocol>);
    let socket = socket.map_err(error)?;
    let wanted = libc::packet_mreq {
        mr_ifindex: ifindex as i32,
        mr_type: kind as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    socket::setsockopt(&socket, AddMembership, &wanted).map_err(error)?;
    Ok(socket)
}
