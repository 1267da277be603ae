//! A report of `shunt bench sweep`.

use crate::golden::sample;
use shunt_lab::sweep::Report;

/// The rates of an i.MX6 around the knee.
pub(crate) fn sweep() -> Report {
    sample(include_str!("golden/bench-sweep.json"))
}
