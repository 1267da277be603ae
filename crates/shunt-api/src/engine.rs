//! The engines of the fast path.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The part of the kernel that sends packets of the fast path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// tc programs, on the skb, through the egress qdisc.
    Tc,
    /// XDP programs, in the driver.
    Xdp,
    /// A process that polls AF_XDP sockets on a core of its own, and has queues of its own.
    External,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Tc => "tc",
            Self::Xdp => "xdp",
            Self::External => "external",
        })
    }
}
