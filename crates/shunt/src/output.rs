//! Output of a command: answers through a callback, notes for the operator on standard error, and a progress bar.

#[cfg(feature = "full")]
mod progress;
mod screen;
#[cfg(feature = "full")]
mod terminal;

use crate::render::Answer;
#[cfg(feature = "full")]
pub(crate) use progress::Bar;
pub(crate) use screen::{Screen, has_colour, width};
use std::{
    io::{self, Write},
    thread::sleep,
    time::{Duration, Instant},
};
#[cfg(feature = "full")]
pub(crate) use terminal::Terminal;

/// Shows one answer on standard output. Most commands call it once; `shunt watch`, `shunt load` and `shunt status
/// --watch` call it for each event.
pub(crate) type Show<'s> = &'s mut dyn FnMut(&dyn Answer) -> anyhow::Result<()>;

/// How long [`write_stderr`] retries after ENOMEM.
const RETRY_TIME: Duration = Duration::from_secs(10);

/// Writes a note on standard error, and ignores most errors: the exit code still reports the outcome.
///
/// Retries after ENOMEM. When a daemon ends for lack of memory, the kernel frees its memory a moment later, and a write
/// to a pipe needs some.
pub(crate) fn write_stderr(text: &str) {
    let until = Instant::now() + RETRY_TIME;
    while let Err(error) = io::stderr().lock().write_all(text.as_bytes()) {
        if error.kind() != io::ErrorKind::OutOfMemory || Instant::now() > until {
            return;
        }
        sleep(Duration::from_millis(10));
    }
}
