//! A report of `shunt check`.

use crate::golden::sample;
use shunt_inspect::check::Report;

/// A port that counts wrongly, and whose driver has no rings.
pub(crate) fn checks() -> Report {
    sample(include_str!("golden/check.json"))
}
