//! The socket options that return tables of legacy iptables. No safe interface supports them: the request is in the
//! buffer that receives the answer.
#![expect(unsafe_code, reason = "getsockopt with a request in its buffer, which nix does not support")]

use super::Family;
use nix::libc;
use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

/// The socket option to read.
#[derive(Debug, Clone, Copy)]
pub(super) enum Request {
    /// IPT_SO_GET_INFO and IP6T_SO_GET_INFO.
    Info = 64,
    /// IPT_SO_GET_ENTRIES and IP6T_SO_GET_ENTRIES.
    Entries = 65,
}

/// Puts a request to the kernel, which answers in its place.
pub(super) fn get(
    socket: BorrowedFd<'_>,
    family: Family,
    request: Request,
    buffer: &mut [u8],
) -> io::Result<()> {
    let level = match family {
        Family::V4 => libc::IPPROTO_IP,
        Family::V6 => libc::IPPROTO_IPV6,
    };
    let mut length = libc::socklen_t::try_from(buffer.len()).map_err(io::Error::other)?;
    // SAFETY: the kernel reads and writes at most `length` bytes of the buffer, which has that many and for which any
    // bytes are valid. It keeps neither pointer.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            request as libc::c_int,
            buffer.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
