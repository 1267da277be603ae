//! SIGHUP asks for a reload, which can wait for what a signal would disturb.

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use std::io;

/// Does something on this thread while SIGHUP waits: a process that is started inherits this, and the kernel's verifier
/// gives up with EAGAIN whenever a signal arrives, which libbpf takes for a failure after five attempts.
///
/// # Errors
/// If the kernel refuses the mask.
pub(crate) fn without_hangups<T>(act: impl FnOnce() -> T) -> io::Result<T> {
    let before = SigSet::from(Signal::SIGHUP).thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let done = act();
    before.thread_set_mask()?;
    Ok(done)
}
