//! Time of the model: picoseconds since the run began.

/// A moment, or a duration, in picoseconds.
pub(crate) type Ps = u64;

/// Later than the end of any run.
pub(crate) const NEVER: Ps = Ps::MAX;

/// Picoseconds in a second.
pub(crate) const SECOND: f64 = 1e12;

/// A duration from nanoseconds; durations that are not positive are 0.
pub(crate) fn from_ns(ns: f64) -> Ps {
    (ns * 1e3) as Ps
}

/// The time that some bytes take at a rate in bit/s.
pub(crate) fn of_bytes(bytes: u32, rate: f64) -> Ps {
    (f64::from(bytes) * 8.0 / rate * SECOND) as Ps
}
