//! What a change concerns.

use shunt_wire::Mac;
use std::net::IpAddr;

/// What a change concerns: flows that do not depend on it stay fast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Every flow may be concerned.
    Everything,
    /// Flows that have an address of this prefix, before or after translation.
    Prefix {
        /// An address of the prefix.
        addr: IpAddr,
        /// The length of the prefix.
        len: u8,
    },
    /// Flows whose packets come from this MAC or are sent to it.
    Station(Mac),
}
