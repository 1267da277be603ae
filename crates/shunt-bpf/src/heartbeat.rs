//! The heartbeat, without which the programs stop forwarding. A program writes it, by the clock that the others read.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
};

/// The program that writes a heartbeat, to be run by any thread.
#[derive(Debug)]
pub struct Heartbeat(OwnedFd);

impl Heartbeat {
    pub(crate) fn by(program: OwnedFd) -> Self {
        Self(program)
    }

    /// Writes the heartbeat.
    ///
    /// # Errors
    /// If the kernel does not run the program.
    pub fn beat(&self) -> io::Result<()> {
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
            ..Default::default()
        };
        // SAFETY: the descriptor is open, there is no input or output, and libbpf reads at most `sz` bytes.
        let err = unsafe { libbpf_sys::bpf_prog_test_run_opts(self.0.as_raw_fd(), &raw mut options) };
        if err != 0 { Err(io::Error::from_raw_os_error(-err)) } else { Ok(()) }
    }
}
