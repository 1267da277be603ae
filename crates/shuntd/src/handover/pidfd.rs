//! Descriptors of processes that are nobody's children here.

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, retry_on_intr},
    process::{Pid, PidfdFlags, pidfd_open},
};
use std::{io, os::fd::OwnedFd};

/// A descriptor of a process; `None` if it has ended.
///
/// # Errors
/// If this process has too many descriptors.
pub(super) fn open_process(pid: Pid) -> io::Result<Option<OwnedFd>> {
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) => Ok(Some(process)),
        Err(Errno::SRCH) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether a process has ended.
pub(crate) fn has_ended(process: &OwnedFd) -> bool {
    wait_for_end(process, Some(&Timespec::default())).is_ok_and(|ended| ended)
}

/// Waits until a process has ended, but only so long. Returns whether it has.
pub(super) fn wait_for_end(process: &OwnedFd, within: Option<&Timespec>) -> io::Result<bool> {
    Ok(retry_on_intr(|| poll(&mut [PollFd::new(process, PollFlags::IN)], within))? > 0)
}
