//! An end by a signal that leaves nothing behind.

use nix::sys::signal::{SigSet, Signal};
use shunt_testkit::delete_namespaces_of_this_process;
use std::{process, thread};

/// From now on SIGINT and SIGTERM end what runs in our namespaces, delete these, and then end this process.
///
/// To be called before any thread is started: threads inherit the mask.
pub fn clean_up_on_signals() -> anyhow::Result<()> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    signals.thread_block()?;
    thread::spawn(move || {
        let signal = signals.wait().map_or(Signal::SIGTERM as i32, |signal| signal as i32);
        delete_namespaces_of_this_process();
        process::exit(128 + signal);
    });
    Ok(())
}
