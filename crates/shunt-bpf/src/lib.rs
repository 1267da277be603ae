//! Builds, loads and attaches the eBPF data plane; the only user of libbpf.
#![allow(unsafe_code, reason = "libbpf is C, and map values are plain memory shared with the kernel")]

pub mod abi;
pub mod attach;
mod control;
pub mod core;
mod error;
pub mod livegen;
mod plane;
pub mod testrun;

pub use control::ControlBlock;
pub use error::Error;
pub use plane::{DataPlane, Entry, Events, Key, Size};
