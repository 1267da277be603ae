//! What a device takes beside its own.

use super::Error;
use nix::{
    libc, setsockopt_impl, sockopt_impl,
    sys::socket::{self, AddressFamily, SockFlag, SockProtocol, SockType},
};
use std::os::fd::OwnedFd;

sockopt_impl!(
    /// Has the device take more, as long as the socket is open.
    AddMembership, SetOnly, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, libc::packet_mreq
);

/// Has a device of the caller's namespace take all multicast (`PACKET_MR_ALLMULTI`) or everything (`PACKET_MR_PROMISC`), as long
/// as what is returned is open.
pub(super) fn join(ifname: &str, ifindex: u32, kind: i32) -> Result<OwnedFd, Error> {
    let told = |e: nix::Error| Error::Machine(format!("{ifname}: taking frames that are for others: {e}"));
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket::socket(AddressFamily::Packet, SockType::Raw, flags, None::<SockProtocol>);
    let socket = socket.map_err(told)?;
    let wanted = libc::packet_mreq {
        mr_ifindex: ifindex as i32,
        mr_type: kind as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    socket::setsockopt(&socket, AddMembership, &wanted).map_err(told)?;
    Ok(socket)
}
