//! The Rust twin of `bpf/abi/shunt_abi.h`. Sizes and offsets are asserted on both sides.

mod control;
mod flows;
mod plain;
mod reasons;

pub use control::*;
pub use flows::*;
pub use plain::Plain;
pub use reasons::{FIRST_REFUSAL, REASONS};
