//! The traffic and the path that a reading is of, for programs. The name of a reading is for people.

pub(crate) mod earlier_names;

use serde::{Deserialize, Serialize};
use std::fmt;

/// Labels of a reading. One that is absent does not apply to the reading, or is unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Labels {
    /// The measured quantity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantity: Option<Measured>,
    /// The path through the router.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<PathLabel>,
    /// The transport protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// The version of IP, 4 or 6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip: Option<u8>,
    /// Whether the router translates addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nat: Option<bool>,
    /// VLAN tags of each frame on the side that has more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<u8>,
    /// The direction of the traffic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// The way that the reading is of, if the traffic goes both ways.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub way: Option<FlowDirection>,
    /// Bytes of each frame with FCS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame_bytes: Option<u32>,
    /// MTU of all links, if it was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Bytes of each write of the sending program, if they were chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_bytes: Option<u32>,
    /// Number of flows in each direction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flows: Option<u32>,
    /// The offered rate in bit/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<f64>,
}

/// A quantity that readings of several measurements share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measured {
    /// Payload that arrived, without headers.
    Goodput,
    /// The goodput relative to that of another path.
    GoodputRatio,
    /// Frames that arrived, whatever they carry.
    Received,
    /// Share of lost packets.
    Loss,
    /// Variation of the delay.
    Jitter,
    /// CPU load by the calibrated meter.
    CpuLoad,
    /// CPU load by /proc/stat.
    ProcStat,
}

/// A path through the router.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PathLabel {
    /// Linux without Shunt.
    Slow,
    /// Shunt's tc programs.
    Tc,
    /// Shunt's XDP programs.
    Xdp,
    /// Shunt's external engine.
    External,
    /// The engine that Shunt chooses for each port.
    Auto,
}

/// The direction of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// From the client to the server.
    Forward,
    /// From the server to the client (`-R`).
    Reverse,
    /// Both ways at once (`--bidir`).
    Duplex,
}

/// One of the two ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowDirection {
    /// From the client to the server.
    Forward,
    /// From the server to the client.
    Reverse,
}

/// A transport protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Transmission Control Protocol, IP protocol 6.
    Tcp,
    /// User Datagram Protocol, IP protocol 17.
    Udp,
}

impl PathLabel {
    /// Every path, in the order of the tables.
    pub const ALL: [Self; 5] = [Self::Slow, Self::Tc, Self::Xdp, Self::External, Self::Auto];

    /// The name: `slow`, `tc`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Slow => "slow",
            Self::Tc => "tc",
            Self::Xdp => "xdp",
            Self::External => "external",
            Self::Auto => "auto",
        }
    }

    /// The path of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|path| path.name() == name)
    }
}

impl fmt::Display for PathLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Protocol {
    /// The name: `TCP`, `UDP`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        }
    }
}

impl Labels {
    /// Whether no label is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Direction {
    /// The ways of this direction, one or two.
    pub const fn ways(self) -> &'static [FlowDirection] {
        match self {
            Self::Forward => &[FlowDirection::Forward],
            Self::Reverse => &[FlowDirection::Reverse],
            Self::Duplex => &[FlowDirection::Forward, FlowDirection::Reverse],
        }
    }

    /// The name: `forward`, `reverse`, `duplex`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Reverse => "reverse",
            Self::Duplex => "duplex",
        }
    }
}
