//! A report of `shunt bench tcp`.

use crate::golden::sample;
use shunt_lab::tcp::Report;

/// Two engines; with the second, some connections fail.
pub(crate) fn tcp() -> Report {
    sample(include_str!("golden/bench-tcp.json"))
}
