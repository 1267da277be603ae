//! A flag that ends threads of a test.

use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that tells threads to end. `thread::scope` waits for its threads even if the test fails, so the flag must be
/// set then, too: see [`Stop::on_drop`].
#[derive(Debug, Default)]
pub struct Stop(AtomicBool);

/// Sets the flag when dropped, also by a panic.
#[derive(Debug)]
pub struct StopOnDrop<'a>(&'a Stop);

impl Stop {
    /// Whether the threads must end.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Tells the threads to end.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns a guard that sets the flag when dropped.
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
    fn a_failure_ends_the_threads_of_the_test() {
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
