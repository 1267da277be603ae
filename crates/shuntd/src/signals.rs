//! Signals: SIGTERM and SIGINT end the daemon, also while it hands over to the next one. SIGHUP asks for a reload,
//! which can wait for what a signal would disturb.

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use std::{future, io};
use tokio::{
    signal::unix::{Signal as Signals, SignalKind, signal},
    task::yield_now,
};

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

/// Starts a thread by `start`. It takes none of the signals that the main thread waits for, so that
/// [`StopSignals::hold`] can hold them.
pub(crate) fn start_thread<T>(start: impl FnOnce() -> T) -> T {
    let before = for_main_thread().thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let started = start();
    // Fails for no set that there is.
    let _ = before.map(|before| before.thread_set_mask());
    started
}

/// Lets the calling thread take none of the signals that the main thread waits for.
pub(crate) fn leave_to_main_thread() {
    // Fails for no set that there is.
    let _ = for_main_thread().thread_block();
}

fn for_main_thread() -> SigSet {
    SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP])
}

/// SIGTERM and SIGINT. From when this is made, they do not end the process by themselves.
#[derive(Debug)]
pub(crate) struct StopSignals {
    terminate: Signals,
    interrupt: Signals,
}

impl StopSignals {
    /// Installs the handlers.
    ///
    /// # Errors
    /// If the kernel refuses them.
    pub(crate) fn listen() -> io::Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        Ok(Self { terminate, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for one. May be dropped at any time.
    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            Some(()) = self.terminate.recv() => Signal::SIGTERM,
            Some(()) = self.interrupt.recv() => Signal::SIGINT,
            else => future::pending().await,
        }
    }

    /// Whether one has come, which is taken.
    pub(crate) async fn has_come(&mut self) -> bool {
        self.noted().await.is_some()
    }

    /// Takes the one that has come.
    async fn noted(&mut self) -> Option<Signal> {
        // The runtime reads now what the handlers have noted.
        yield_now().await;
        tokio::select! {
            biased;
            signal = self.next() => Some(signal),
            () = future::ready(()) => None,
        }
    }

    /// Keeps them pending from now on, for the program that replaces this one. Returns one that came before. To be
    /// called by the main thread.
    ///
    /// # Errors
    /// If the kernel refuses the mask.
    pub(crate) async fn hold(&mut self) -> io::Result<Option<Signal>> {
        for_main_thread().thread_block()?;
        Ok(self.noted().await)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::raise;
    use std::thread;

    #[tokio::test]
    async fn a_signal_that_came_before_is_returned_and_a_later_one_stays_pending() {
        let pending = || SigSet::from(Signal::SIGTERM).wait().unwrap();
        let mut signals = StopSignals::listen().unwrap();
        assert_eq!(signals.hold().await.unwrap(), None);
        for_main_thread().thread_unblock().unwrap();
        raise(Signal::SIGTERM).unwrap();
        assert_eq!(signals.hold().await.unwrap(), Some(Signal::SIGTERM));
        raise(Signal::SIGTERM).unwrap();
        assert_eq!(signals.hold().await.unwrap(), None);
        assert_eq!(pending(), Signal::SIGTERM);
    }

    #[test]
    fn threads_leave_signals_to_the_main_thread() {
        let blocked = || SigSet::thread_get_mask().unwrap();
        let here = blocked();
        let there = start_thread(|| thread::spawn(blocked)).join().unwrap();
        assert!(for_main_thread().iter().all(|signal| there.contains(signal)), "{there:?}");
        assert_eq!(blocked(), here);
    }
}
