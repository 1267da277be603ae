//! The two paths, and what can be wrong with a packet.

use serde::{Deserialize, Serialize};

/// The path that a packet took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// By one of Shunt's programs.
    Fast,
    /// By Linux.
    Slow,
}

impl Way {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Fast, Self::Slow];
}

/// What was found wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// Bytes changed that a router does not change.
    Bytes,
    /// A right checksum became wrong.
    Checksum,
    /// Addresses, ports, MACs, tags, TTL, DSCP or the egress port are not those that Linux gives.
    Headers,
    /// The packet entered, and did not leave.
    Lost,
    /// A later packet of the same path left before it.
    Order,
}
