//! The external engine (`bpf/external`) compiled for this machine: the packet core and the flow table of the kernel
//! programs, a loop that forwards batches between rings in memory, and the egress scheduler.
//!
//! No kernel is involved: nothing here opens a socket or attaches a program.
#![allow(unsafe_code, reason = "the engine is C, and works on memory that it shares with its owner")]

mod abi;
mod engine;
mod mirror;
pub mod sched;
mod tables;

pub use abi::{BATCH, LaneCounters};
pub use engine::{Engine, Sent};
pub use tables::{Outcome, Tables};

/// Errors of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No entry of the flow table, or no slot of its index, is free.
    #[error("the flow table is full")]
    Full,
    /// The configuration of a scheduler is invalid.
    #[error("the scheduler's configuration is invalid: {0}")]
    Scheduler(&'static str),
}
