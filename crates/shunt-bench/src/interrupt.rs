//! Handling of SIGINT, SIGTERM and panics: results are kept, and nothing is left behind.

use nix::sys::signal::{SigSet, Signal};
use shunt_testkit::delete_namespaces_of_this_process;
use std::{
    panic, process,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicI32, Ordering},
    },
    thread,
};

type Hook = Box<dyn FnOnce() + Send>;

static HOOK: Mutex<Option<Hook>> = Mutex::new(None);
static DEFERRED: AtomicBool = AtomicBool::new(false);
static STOP: AtomicBool = AtomicBool::new(false);
/// The signal that set `STOP`.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// Deletes the namespaces of this process when a thread panics, if a panic ends the process without dropping anything.
/// Printing to a closed pipe panics, as in `cargo xtask demo | head`.
pub fn clean_up_on_panic() {
    if cfg!(panic = "abort") {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |why| {
            report(why);
            delete_namespaces_of_this_process();
        }));
    }
}

/// Starts a thread that waits for SIGINT and SIGTERM. On either, it calls the hook of [`before_exit`], kills what runs
/// in the namespaces of this process, deletes them, and exits with 128 plus the signal's number. After [`stop_flag`]
/// was called, the first signal only sets that flag.
///
/// Call this before any other thread is started: threads inherit the signal mask.
pub fn clean_up_on_signals() -> anyhow::Result<()> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    signals.thread_block()?;
    thread::spawn(move || {
        loop {
            let signal = signals.wait().map_or(Signal::SIGTERM as i32, |signal| signal as i32);
            if DEFERRED.load(Ordering::Relaxed) && !STOP.swap(true, Ordering::Relaxed) {
                SIGNAL.store(signal, Ordering::Relaxed);
                eprintln!("interrupted: finishing this run; interrupt again to stop at once");
                continue;
            }
            let hook = HOOK.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(hook) = hook {
                hook();
            }
            // Other threads panic when their namespaces vanish, so suppress their messages.
            panic::set_hook(Box::new(|_| {}));
            delete_namespaces_of_this_process();
            process::exit(128 + signal);
        }
    });
    Ok(())
}

/// Sets what is done first when a signal ends the process, such as printing the results so far.
pub fn before_exit(hook: impl FnOnce() + Send + 'static) {
    *HOOK.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(hook));
}

/// From now on, the first signal only sets the returned flag, and the second one ends the process.
pub fn stop_flag() -> &'static AtomicBool {
    DEFERRED.store(true, Ordering::Relaxed);
    &STOP
}

/// The exit status of a command that a signal ended early: 128 plus the signal's number.
pub fn exit_status() -> Option<u8> {
    match SIGNAL.load(Ordering::Relaxed) {
        0 => None,
        signal => u8::try_from(128 + signal).ok(),
    }
}
