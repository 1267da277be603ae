//! A report of `shunt gen --streams`.

use crate::golden::sample;
use shunt_lab::traffic::StreamsReport;

/// Two streams, one of which loses packets, and one that a ramp brings to its rate.
pub(crate) fn streams() -> StreamsReport {
    sample(include_str!("../golden/streams.json"))
}
