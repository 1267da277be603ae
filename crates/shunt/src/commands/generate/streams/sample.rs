//! A report of `shunt gen --streams`.

use crate::golden::sample;
use shunt_lab::traffic::StreamsReport;

/// A stream without loss, and one that loses packets.
pub(crate) fn streams() -> StreamsReport {
    sample(include_str!("../golden/streams.json"))
}
