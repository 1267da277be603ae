//! Waiting for facts.

use std::{
    thread,
    time::{Duration, Instant},
};

/// How often a fact is looked at.
const INTERVAL: Duration = Duration::from_millis(2);

/// Asks until there is an answer or `timeout` has passed.
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
/// When it does not hold within ten seconds; `what` names it.
#[track_caller]
pub fn wait_until(what: &str, mut fact: impl FnMut() -> bool) {
    let seen = wait_for(Duration::from_secs(10), || fact().then_some(()));
    assert!(seen.is_some(), "waited ten seconds in vain until {what}");
}
