//! The socket option that gives tables of legacy iptables. No safe interface has it: the question is in the buffer that
//! the answer comes in.
#![expect(unsafe_code, reason = "getsockopt with a question; nix knows only options that ask nothing")]

use super::Family;
use nix::libc;
use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Question {
    /// IPT_SO_GET_INFO and IP6T_SO_GET_INFO.
    Info = 64,
    /// IPT_SO_GET_ENTRIES and IP6T_SO_GET_ENTRIES.
    Entries = 65,
}

/// Puts a question to the kernel, which answers in its place.
pub(super) fn get(
    socket: BorrowedFd<'_>,
    family: Family,
    question: Question,
    buffer: &mut [u8],
) -> io::Result<()> {
    let level = match family {
        Family::V4 => libc::IPPROTO_IP,
        Family::V6 => libc::IPPROTO_IPV6,
    };
    let mut length = libc::socklen_t::try_from(buffer.len()).map_err(io::Error::other)?;
    // SAFETY: the kernel reads and writes no more than `length` bytes of the buffer, which has so many and may hold any,
    // and it keeps neither pointer.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            question as libc::c_int,
            buffer.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
