//! Packet formats: bytes to values and back. No I/O, no unsafe.

mod mac;

pub use mac::{Mac, ParseMacError};
