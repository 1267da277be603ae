//! Builds, loads and attaches the fast path. With `shunt-traffic`, the only user of libbpf.
#![allow(unsafe_code, reason = "libbpf is C, and map values are plain memory shared with the kernel")]

pub mod abi;
pub mod attach;
mod control;
pub mod core;
mod costs;
mod dependencies;
mod epochs;
mod error;
mod external;
mod filter;
mod flows;
mod former_ports;
mod hook;
pub mod kernel_types;
mod look_ahead;
mod maps;
mod net_time;
mod object;
mod off;
mod owner;
mod pending;
mod plane;
mod ports;
mod ring;
pub mod schedule;
mod shared;
mod table;
pub mod verifier;
pub mod wire;

pub use control::{ControlBlock, Masked, RuleChanges};
pub use costs::{ProgramMeter, ProgramRuns};
pub use dependencies::Dependency;
pub use epochs::Epochs;
pub use error::Error;
pub use external::{EngineSide, HANDLES, Tables};
pub use flows::{Entry, EntryIndex, FlowTable, Key};
pub use look_ahead::{LookAhead, LookAheadSource, XdpExchange};
pub use maps::CONTROL_MAP;
pub use net_time::{NetReading, NetTimeLinks, NetTimeLoader, NetTimeMeter, SlowSample};
pub use object::Size;
pub use off::OffMatch;
pub use pending::{AttachedTc, AttachedXdp, FreeSlot, LeavingPort, TcPrograms, XdpChange, XdpProgram};
pub use plane::{Changes, DataPlane, LoadOptions, OwnPrograms, TypesSource};
pub use ring::Ring;
