//! What a test needs of the machine, and how it says that it is missing.

use std::{env, io::Write};

/// Whether this process is root. When it is not, says so aloud as [`skip`] does.
///
/// ```no_run
/// # fn a_test() {
/// if !shunt_testkit::require_root() {
///     return;
/// }
/// # }
/// ```
#[must_use]
#[track_caller]
pub fn require_root() -> bool {
    nix::unistd::geteuid().is_root() || {
        skip("it needs root");
        false
    }
}

/// Says on stderr, past the capture of the test harness, that a test does not run.
///
/// # Panics
/// When `SHUNT_NO_SKIP=1`: then a test that cannot run has failed.
#[track_caller]
pub fn skip(why: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    assert!(!env::var("SHUNT_NO_SKIP").is_ok_and(|v| v == "1"), "{test} must not be skipped: {why}");
    // A closed stderr must not fail a test that is skipped anyway.
    let _ = writeln!(std::io::stderr(), "SKIP {test}: {why}");
}
