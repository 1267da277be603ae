//! A child process that does not outlive its owner.

use nix::{
    sys::signal::{SigSet, SigmaskHow, Signal, kill},
    unistd::Pid,
};
use std::{
    io::{self, Read},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

/// A process in the background. Dropping it ends it: SIGTERM, and SIGKILL after three seconds.
#[derive(Debug)]
pub struct Process {
    child: Child,
    line: String,
}

impl Process {
    /// Starts `command` with no input. Its output goes where `command` says.
    ///
    /// # Panics
    /// When it cannot be started.
    #[track_caller]
    pub fn start(command: Command) -> Self {
        Self::try_start(command).unwrap_or_else(|e| panic!("{e}"))
    }

    /// As [`Process::start`].
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn try_start(mut command: Command) -> io::Result<Self> {
        let line = format!("{command:?}");
        // A child inherits what is blocked here, and xtask blocks the signals that shall end it.
        let blocked = SigSet::empty().thread_swap_mask(SigmaskHow::SIG_SETMASK);
        let child = command.stdin(Stdio::null()).spawn();
        if let Ok(blocked) = blocked {
            let _ = blocked.thread_set_mask();
        }
        let child = child.map_err(|e| io::Error::new(e.kind(), format!("{line}: {e}")))?;
        Ok(Self { child, line })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its exit status, if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// When it has ended and was waited for.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill(self.nix_pid(), signal)?)
    }

    /// Waits for its end; all of its standard output, if that was piped.
    ///
    /// # Panics
    /// When it cannot be waited for.
    pub fn finish(mut self) -> (ExitStatus, String) {
        let mut output = String::new();
        if let Some(mut stdout) = self.child.stdout.take() {
            let _ = stdout.read_to_string(&mut output);
        }
        let status = self.child.wait().unwrap_or_else(|e| panic!("{}: {e}", self.line));
        (status, output)
    }

    fn nix_pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended().is_some() {
            return;
        }
        let _ = kill(self.nix_pid(), Signal::SIGTERM);
        if super::wait_for(Duration::from_secs(3), || self.ended()).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
