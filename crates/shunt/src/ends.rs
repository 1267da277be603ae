//! What ends a command that has something to undo: Ctrl-C, `kill`, and a terminal that is gone, as when ssh is cut off.

use shunt_api::{Failure, FailureCode};
use std::{fs, future::pending, io};
use tokio::{
    select,
    signal::unix::{Signal, SignalKind, signal},
};

/// From when it is made, these signals end nothing by themselves.
pub(crate) struct Ends {
    interrupt: Signal,
    terminate: Signal,
    /// None under `nohup`.
    hangup: Option<Signal>,
}

impl Ends {
    pub(crate) fn new() -> io::Result<Self> {
        let hangup = if ignores_hangup() { None } else { Some(signal(SignalKind::hangup())?) };
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(Self { interrupt, terminate, hangup })
    }

    /// Waits for the next, and says what it is by exit code: that of a process which the signal has ended, in a shell.
    pub(crate) async fn next(&mut self) -> FailureCode {
        let Self { interrupt, terminate, hangup } = self;
        let hung_up = async {
            match hangup {
                Some(hangup) => hangup.recv().await,
                None => pending().await,
            }
        };
        select! {
            _ = interrupt.recv() => FailureCode::Interrupted,
            _ = terminate.recv() => FailureCode::Terminated,
            _ = hung_up => FailureCode::HungUp,
        }
    }
}

/// Of what was ended so and is shown all the same.
pub(crate) fn cut_short(by: FailureCode) -> Failure {
    Failure::new(by, format!("{by}: this is what was measured until then"))
}

fn ignores_hangup() -> bool {
    fs::read_to_string("/proc/self/status").is_ok_and(|status| is_hangup_among_ignored(&status))
}

fn is_hangup_among_ignored(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bit_of_the_ignored_signals_is_a_hangup() {
        let status = |ignored: &str| format!("SigBlk:\t0000000000000001\nSigIgn:\t{ignored}\nSigCgt:\t0\n");
        assert!(is_hangup_among_ignored(&status("0000000000001001")));
        assert!(!is_hangup_among_ignored(&status("0000000000001000")));
    }
}
