//! The external engine (`bpf/external`) compiled for this machine: the packet core and the flow table of the kernel
//! programs, a loop that forwards batches between rings, and the egress scheduler. The engine's process connects the
//! rings with AF_XDP sockets; the daemon starts it and talks to it (`protocol`).
#![allow(unsafe_code, reason = "the engine is C, and works on memory that it shares with its owner")]

mod abi;
mod confine;
mod engine;
mod fixed;
mod kernel_ring;
mod process;
pub mod protocol;
mod ring;
pub mod sched;
mod socket;
mod tables;
mod worker;

pub use abi::{BATCH, IngressCounters};
pub use engine::{Engine, Sent};
pub use process::run;
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
