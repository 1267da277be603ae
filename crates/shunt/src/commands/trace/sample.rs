//! A report of `shunt trace`.

use crate::golden::sample;
use shunt_inspect::trace::Report;

/// Packets of the slow path and of the fast path, one of which was delayed in the qdisc; the search for the culprit.
pub(crate) fn traced() -> Report {
    sample(include_str!("golden/trace.json"))
}
