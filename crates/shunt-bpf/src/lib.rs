//! Builds, loads and attaches the eBPF data plane; the only user of libbpf.
#![allow(unsafe_code, reason = "libbpf is C, and map values are plain memory shared with the kernel")]

pub mod abi;
pub mod attach;
pub mod bystander;
mod control;
pub mod core;
mod error;
mod filter;
mod flows;
mod plane;
mod ring;
pub mod schedule;
mod shared;
pub mod testrun;
pub mod traffic;
mod verifier;

pub use control::{ControlBlock, Masked};
pub use error::Error;
pub use flows::{Entry, FlowTable, Key};
pub use plane::{Changes, DataPlane, Size, Wanted};
pub use ring::Ring;
