//! What a host is known by.

use serde::{Deserialize, Serialize};
use shunt_wire::Mac;
use std::{fmt, net::IpAddr};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum HostId {
    Mac(Mac),
    Address(IpAddr),
}

impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mac(mac) => mac.fmt(f),
            Self::Address(addr) => addr.fmt(f),
        }
    }
}
