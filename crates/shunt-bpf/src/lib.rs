//! Builds, loads and attaches the fast path. With `shunt-traffic`, the only user of libbpf.
#![allow(unsafe_code, reason = "libbpf is C, and map values are plain memory shared with the kernel")]

pub mod abi;
pub mod attach;
mod control;
pub mod core;
mod error;
mod external;
mod filter;
mod flows;
mod hook;
mod maps;
mod object;
mod plane;
mod ports;
mod ring;
pub mod schedule;
mod shared;
mod table;
mod verifier;
pub mod wire;

pub use control::{ControlBlock, Masked};
pub use error::Error;
pub use external::{EngineSide, HANDLES, Tables};
pub use flows::{Entry, FlowTable, Key};
pub use maps::CONTROL_MAP;
pub use object::Size;
pub use plane::{Changes, DataPlane, LoadOptions, XdpProgram};
pub use ring::Ring;
