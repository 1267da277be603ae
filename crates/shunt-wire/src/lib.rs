//! Packet formats (parsing and building packets) and line-rate arithmetic. No I/O, no unsafe.

mod build;
mod checksum;
mod emit;
pub mod encap;
pub mod ipfix;
pub mod line;
mod mac;
pub mod natural_order;
mod packet;
mod parse;
pub mod quantity;
pub mod units;

pub use checksum::{Checksum, Sum, adjusted, ones_complement_sum};
pub use encap::{Ethernet, Tag};
pub use mac::{Mac, ParseMacError};
pub use packet::{Extension, Ipv4, Ipv6, Network, Packet, Tcp, Transport, Udp};
pub use parse::ParseError;
