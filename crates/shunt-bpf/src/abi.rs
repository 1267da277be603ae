//! The Rust side of `bpf/abi/shunt_abi.h`. A unit test compares every size, offset and constant with the C compiler's.

mod control;
mod external;
mod flows;
pub mod layout;
mod plain;
mod reasons;

pub use control::*;
pub use external::*;
pub use flows::*;
pub use plain::Plain;
pub use reasons::{REASONS, Reason, ReasonKind};
