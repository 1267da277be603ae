//! Time of the model: picoseconds since the run began.

/// A moment, or a duration, in picoseconds.
pub(crate) type Ps = u64;

/// Later than the end of any run.
pub(crate) const NEVER: Ps = Ps::MAX;

/// Picoseconds in a second.
pub(crate) const SECOND: f64 = 1e12;

/// Longer than any run. Durations end here, so that sums of a few of them do not overflow.
const LONGEST: f64 = 1e3 * SECOND;

/// A duration from picoseconds; durations that are not positive are 0.
pub(crate) fn from_ps(ps: f64) -> Ps {
    ps.min(LONGEST) as Ps
}

/// A duration from nanoseconds.
pub(crate) fn from_ns(ns: f64) -> Ps {
    from_ps(ns * 1e3)
}

/// A duration from microseconds.
pub(crate) fn from_us(us: f64) -> Ps {
    from_ps(us * 1e6)
}

/// The time that some bytes take at a rate in bit/s.
pub(crate) fn of_bytes(bytes: u32, rate: f64) -> Ps {
    from_ps(f64::from(bytes) * 8.0 / rate * SECOND)
}
