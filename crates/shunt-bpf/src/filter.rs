//! Programs as filters of netlink sockets: they see a message while the kernel sends it.

use nix::{
    libc,
    sys::socket::{AddressFamily, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, socket},
};
use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

/// NFNLGRP_CONNTRACK_DESTROY, as a bit of the groups that a bind can name.
const CONNTRACK_DESTROY: u32 = 1 << 2;

/// Has the program see every message that comes to the socket, which keeps the program.
pub(crate) fn attach(program: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<()> {
    let program = program.as_raw_fd();
    // SAFETY: the value is one descriptor, of the size that is given.
    let done = unsafe {
        libc::setsockopt(
            to.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_BPF,
            std::ptr::from_ref(&program).cast(),
            size_of_val(&program) as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A socket whose filter sees the connections that conntrack forgets, in the calling thread's network namespace.
pub(crate) fn hear_conntrack(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let listener = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkNetFilter,
    )?;
    attach(program, listener.as_fd())?;
    // Only now, so that nothing comes in unfiltered.
    bind(listener.as_raw_fd(), &NetlinkAddr::new(0, CONNTRACK_DESTROY))?;
    Ok(listener)
}
