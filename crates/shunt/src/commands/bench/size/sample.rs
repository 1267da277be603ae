//! A report of `shunt bench size`.

use crate::golden::sample;
use shunt_lab::frame_size::Report;

/// Two routers at two frame sizes; the faster router forwards all large frames.
pub(crate) fn sizes() -> Report {
    sample(include_str!("golden/bench-size.json"))
}
