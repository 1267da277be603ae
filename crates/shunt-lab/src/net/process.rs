//! Child processes that do not outlive their owner.

use nix::{
    sys::signal::{SigSet, SigmaskHow, Signal, kill},
    unistd::Pid,
};
use std::{
    fs,
    io::{self, Read},
    process::{Child, Command, ExitStatus, Stdio},
    sync::Once,
    time::Duration,
};

/// A process in the background. On drop it gets SIGTERM, and SIGKILL after three seconds.
#[derive(Debug)]
pub struct Process {
    child: Child,
    line: String,
}

impl Process {
    /// Starts `command` with no input and default signal actions ([`reset_ignored_signals_in_children`]). Its output
    /// goes where `command` says.
    ///
    /// # Panics
    /// Panics if the command cannot be started.
    #[track_caller]
    pub fn start(command: Command) -> Self {
        reset_ignored_signals_in_children();
        Self::try_start(command).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Starts `command` with no input. It ignores the signals that this process ignores, so a process under `nohup`
    /// stays protected.
    ///
    /// # Errors
    /// Fails if the command cannot be started.
    pub fn try_start(mut command: Command) -> io::Result<Self> {
        let line = format!("{command:?}");
        // A child inherits the signal mask, and xtask blocks the signals that must end the child.
        let blocked = SigSet::empty().thread_swap_mask(SigmaskHow::SIG_SETMASK);
        let child = command.stdin(Stdio::null()).spawn();
        if let Ok(blocked) = blocked {
            let _ = blocked.thread_set_mask();
        }
        let child = child.map_err(|e| io::Error::new(e.kind(), format!("{line}: {e}")))?;
        Ok(Self { child, line })
    }

    /// The process ID.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The exit status, if the process has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Sends a signal to the process.
    ///
    /// # Errors
    /// Fails if the process has ended and was waited for.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill(self.nix_pid(), signal)?)
    }

    /// Waits for the end of the process, and returns its standard output if that is a pipe.
    ///
    /// # Panics
    /// Panics if the process cannot be waited for.
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

/// Gives all children started from now on the default action for SIGHUP, SIGINT, SIGQUIT and SIGTERM. Under `nohup`,
/// and in background jobs of a script, some of these signals are ignored, and a child that a test ends by such a signal
/// would never end.
///
/// The kernel keeps an ignored signal ignored in a new program, but resets a signal that has a handler. So a handler
/// that does nothing replaces "ignore", and this process goes on as before.
pub fn reset_ignored_signals_in_children() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM] {
            if is_ignored(&status, signal) {
                let _ = signal_hook::flag::register(signal as i32, Default::default());
            }
        }
    });
}

/// Whether the text of `/proc/PID/status` lists this signal as ignored.
pub fn is_ignored(status: &str, signal: Signal) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (signal as u32 - 1)) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bit_of_the_ignored_signals_is_a_signal() {
        let status = |ignored: &str| format!("SigBlk:\t0000000000000003\nSigIgn:\t{ignored}\nSigCgt:\t0\n");
        assert!(is_ignored(&status("0000000000001001"), Signal::SIGHUP));
        assert!(!is_ignored(&status("0000000000001000"), Signal::SIGHUP));
        assert!(is_ignored(&status("0000000000000006"), Signal::SIGINT));
    }
}
