//! Traffic: what to send and when, apart from how. No I/O, no clock.
//!
//! [`Traffic`] says what the packets look like, [`Rate`] and [`Schedule`] when they go. Who sends them, by which means, is
//! not known here.

mod capture;
mod grid;
mod range;
mod rate;
mod sizes;
mod traffic;

pub use capture::{Capture, Captured, Pace, Round, Unfit};
pub use grid::Grid;
pub use range::{Addresses, Ports};
pub use rate::{Rate, Schedule};
pub use sizes::Sizes;
pub use traffic::{Field, Shape, Traffic};

use std::fmt;

/// Why traffic cannot be as it was asked for: one line that says what would do.
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

/// What a packet must carry so that its receiver knows its flow, its number and when it was sent.
pub const STAMP_BYTES: u32 = 12;
/// The flow's number has 24 bits, and each flow takes some memory.
pub const FLOWS_MAX: u32 = 1 << 20;
