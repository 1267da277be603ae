//! Descriptions of traffic: which packets to send, and when. No I/O, no clock.
//!
//! [`Traffic`] describes the packets, [`Rate`] and [`Schedule`] the times. How packets are sent is the sender's
//! concern.

mod capture;
mod grid;
mod range;
mod rate;
mod shape;
mod sizes;
pub mod tcp;
mod timetable;

pub use capture::{Capture, Captured, Pace, Round, Unfit};
pub use grid::Grid;
pub use range::{Addresses, Ports};
pub use rate::{Rate, Schedule};
pub use shape::{Field, Shape, Traffic};
pub use sizes::{FrameSizes, Sizes};
pub use timetable::{Course, RAMP_STEPS_MAX, Ramp, Step, Timetable};

use std::fmt;

/// A request for traffic that is not possible; the message says what would be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong(String);

impl Wrong {
    fn because(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Wrong {}

/// Bytes of payload that hold a packet's flow, number and time of sending.
pub const STAMP_BYTES: u32 = 12;
/// Largest number of flows: the flow's number has 24 bits, and each flow takes some memory.
pub const FLOWS_MAX: u32 = 1 << 22;
