//! Reports of `shunt verify`.

use crate::golden::sample;
use shunt_inspect::verify::Report;

/// A fast path that is equal to Linux.
pub(crate) fn equal() -> Report {
    sample(include_str!("golden/equal.json"))
}

/// A fast path that changes bytes and loses packets.
pub(crate) fn broken() -> Report {
    sample(include_str!("golden/broken.json"))
}
