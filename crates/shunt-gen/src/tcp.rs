//! TCP connections with requests and responses: both ends of many connections, as events in and segments out. No I/O
//! and no clock; times are durations since the start of the run.

mod endpoint;
mod ends;
mod fleet;
mod outcome;
mod packets;
mod payload;
mod peers;
mod profile;
mod receiving;
mod sending;
mod spec;

pub use fleet::{Fleet, Side};
pub use outcome::{Failures, Outcome, Way};
pub use profile::{ByteRange, PAYLOAD_MIN, Profile};
pub use spec::FleetSpec;

#[cfg(test)]
mod tests;
