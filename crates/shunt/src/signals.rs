//! The signals that end a command: SIGINT (Ctrl-C), SIGTERM (`kill`), and SIGHUP (the terminal or the ssh connection is
//! gone).

use shunt_api::FailureCode;
use shunt_lab::net::is_ignored;
use std::{
    fs,
    future::pending,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::{
    select,
    signal::unix::{Signal, SignalKind, signal},
    task::spawn_blocking,
};

/// Handlers for SIGINT, SIGTERM and SIGHUP. Once installed, these signals no longer end the process by themselves.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// None if the process ignores SIGHUP, as under `nohup`.
    hangup: Option<Signal>,
}

impl Signals {
    pub(crate) fn install() -> io::Result<Self> {
        // The parent may have blocked these signals, and a process inherits the signal mask.
        use nix::sys::signal::{SIGHUP, SIGINT, SIGTERM, SigSet};
        SigSet::from_iter([SIGHUP, SIGINT, SIGTERM]).thread_unblock()?;
        let hangup = if ignores_hangup() { None } else { Some(signal(SignalKind::hangup())?) };
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(Self { interrupt, terminate, hangup })
    }

    /// Waits for the next signal. Its failure code has the exit code that a shell reports for a process ended by that
    /// signal.
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

/// Runs blocking work that must stop early, but orderly, at the first signal.
pub(crate) struct Interruptible {
    stop: Arc<AtomicBool>,
    signals: Signals,
    signal: Option<FailureCode>,
}

impl Interruptible {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { stop: Arc::default(), signals: Signals::install()?, signal: None })
    }

    /// The first signal that arrived while work ran, if any.
    pub(crate) fn signal(&self) -> Option<FailureCode> {
        self.signal
    }

    /// Runs `work` on another thread. A signal sets the flag that `work` gets; `work` must then return soon.
    pub(crate) async fn run<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&Arc<AtomicBool>) -> anyhow::Result<T> + Send + 'static,
    ) -> anyhow::Result<T> {
        let Self { stop, signals, signal } = self;
        let flag = stop.clone();
        let mut working = spawn_blocking(move || work(&flag));
        loop {
            select! {
                result = &mut working => return result?,
                received = signals.next() => {
                    signal.get_or_insert(received);
                    stop.store(true, Ordering::Relaxed);
                }
            }
        }
    }
}

fn ignores_hangup() -> bool {
    fs::read_to_string("/proc/self/status").is_ok_and(|status| is_ignored(&status, nix::sys::signal::SIGHUP))
}
