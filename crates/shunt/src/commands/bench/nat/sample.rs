//! A report of `shunt bench nat`.

use crate::golden::sample;
use shunt_lab::nat::Report;

/// Two engines; one loses a session during the search, and empties its table too fast to tell.
pub(crate) fn nat() -> Report {
    sample(include_str!("golden/bench-nat.json"))
}
