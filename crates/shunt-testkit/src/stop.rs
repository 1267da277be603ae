//! An end for threads that run beside a test.

use std::sync::atomic::{AtomicBool, Ordering};

/// Tells threads to end. A scope waits for its threads also when the test fails, so a test that fails must tell them, too.
#[derive(Debug, Default)]
pub struct Stop(AtomicBool);

/// Tells them when it is dropped, be it by a panic.
#[derive(Debug)]
pub struct StopOnDrop<'a>(&'a Stop);

impl Stop {
    /// Whether to end.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Tells the threads to end.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Tells them at the end of what holds this.
    #[must_use]
    pub fn on_drop(&self) -> StopOnDrop<'_> {
        StopOnDrop(self)
    }
}

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.set();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{panic, thread};

    #[test]
    fn a_failure_ends_what_runs_beside_it() {
        let stop = Stop::default();
        let failing = || {
            thread::scope(|scope| {
                scope.spawn(|| {
                    while !stop.is_set() {
                        thread::yield_now();
                    }
                });
                let _end = stop.on_drop();
                panic::resume_unwind(Box::new("as a test does"));
            });
        };
        assert!(panic::catch_unwind(panic::AssertUnwindSafe(failing)).is_err());
    }
}
