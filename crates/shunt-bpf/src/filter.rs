//! Socket filters on netlink sockets. A filter runs while the kernel sends a message.

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

/// Attaches a program as the filter of a socket. The socket holds a reference to the program.
pub(crate) fn attach(program: BorrowedFd<'_>, socket: BorrowedFd<'_>) -> io::Result<()> {
    let program = program.as_raw_fd();
    // SAFETY: the option value is one descriptor, of the size given.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_BPF,
            std::ptr::from_ref(&program).cast(),
            size_of_val(&program) as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Opens a socket whose filter sees conntrack's DESTROY events, in the calling thread's network namespace.
pub(crate) fn open_conntrack_listener(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let listener = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkNetFilter,
    )?;
    attach(program, listener.as_fd())?;
    // Subscribe after attaching, so that every message is filtered.
    bind(listener.as_raw_fd(), &NetlinkAddr::new(0, CONNTRACK_DESTROY))?;
    Ok(listener)
}
