//! Waiting for conditions.

use std::{
    thread,
    time::{Duration, Instant},
};

/// Interval between two checks.
const INTERVAL: Duration = Duration::from_millis(2);

/// Calls `ask` until it returns something or `timeout` has passed.
pub fn wait_for<T>(timeout: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        if Instant::now() >= deadline {
            return None;
        }
        thread::sleep(INTERVAL);
    }
}

/// Waits until `fact` holds.
///
/// # Panics
/// Panics if `fact` does not hold within ten seconds; `what` names it in the message.
#[track_caller]
pub fn wait_until(what: &str, mut fact: impl FnMut() -> bool) {
    let seen = wait_for(Duration::from_secs(10), || fact().then_some(()));
    assert!(seen.is_some(), "after ten seconds, this does not hold: {what}");
}
