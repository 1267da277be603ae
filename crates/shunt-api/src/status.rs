//! What `shunt status` shows.

use serde::{Deserialize, Serialize};
use shunt_wire::Mac;
use std::{collections::BTreeMap, fmt};

/// The state of an instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Of the daemon.
    pub version: String,
    /// [`crate::API`] of the daemon.
    pub api: u32,
    /// Its name.
    pub instance: String,
    /// Its process.
    pub pid: u32,
    /// Since the ports were attached.
    pub uptime_s: u64,
    /// The present epoch.
    pub epoch: u32,
    /// How often the epoch moved, by cause.
    pub epoch_moves: BTreeMap<String, u64>,
    /// In the order of their names.
    pub ports: Vec<PortStatus>,
    /// Over all ports.
    pub packets: PacketTotals,
    /// Over all ports, from the L3 header on.
    pub bytes: ByteTotals,
    /// The flow table; a connection has up to two flows.
    pub flows: FlowCounts,
    /// Flows put into the table.
    pub learned: u64,
    /// Actions that were proved again.
    pub proved: u64,
    /// Flows taken out of use.
    pub retired: u64,
    /// Packets sent to the slow path, by reason; reasons that never occurred are left out.
    pub reasons: BTreeMap<String, u64>,
    /// Packets that Linux forwarded and that taught nothing, by reason; reasons that never occurred are left out.
    pub refusals: BTreeMap<String, u64>,
    /// What the kernel was asked, and its answers.
    pub kernel: Vec<Probe>,
}

/// Packets of all ports. A GRO or GSO aggregate is one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct PacketTotals {
    /// Sent by the fast path.
    pub fast: u64,
    /// Given to Linux.
    pub slow: u64,
    /// Dropped by the data plane.
    pub dropped: u64,
    /// fast / (fast + slow), from 0 to 1; 0 when there were none.
    pub fast_share: f64,
}

/// Bytes of all ports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByteTotals {
    /// Sent by the fast path.
    pub fast: u64,
    /// Given to Linux.
    pub slow: u64,
}

/// The flow table by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowCounts {
    /// In use.
    pub active: u64,
    /// Proved once, not yet in use.
    pub pending: u64,
    /// No longer in use, not yet removed.
    pub retired: u64,
    /// Put in by hand.
    #[serde(rename = "static")]
    pub static_: u64,
    /// The size of the table.
    pub max: u64,
}

/// A way to run the data plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// On the skb, through the egress qdisc.
    Tc,
    /// In the driver.
    Xdp,
}

/// How the programs on the skb are attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Attach {
    /// As TCX links.
    Tcx,
    /// As filters of a clsact qdisc.
    Clsact,
}

/// One port.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PortStatus {
    /// Its present name.
    pub name: String,
    /// Its number.
    pub ifindex: u32,
    /// How packets that leave by this port are sent.
    pub engine: Engine,
    /// Why this engine, in one sentence.
    pub engine_reason: String,
    /// How the programs on the skb are attached.
    pub attach: Attach,
    /// Whether the XDP program is attached.
    pub xdp_attached: bool,
    /// Up and with a carrier.
    pub up: bool,
    /// The largest L3 packet.
    pub mtu: u32,
    /// Its own address.
    pub mac: Mac,
    /// Packets that came in by it.
    pub packets: PortPackets,
    /// Bytes that came in by it, from the L3 header on.
    pub bytes: ByteTotals,
    /// As in [`Status::reasons`].
    pub reasons: BTreeMap<String, u64>,
    /// As in [`Status::refusals`].
    pub refusals: BTreeMap<String, u64>,
}

/// Packets of one port. A GRO or GSO aggregate is one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortPackets {
    /// Sent on by the XDP engine.
    pub xdp: u64,
    /// Sent on by the tc engine.
    pub tc: u64,
    /// Given to Linux.
    pub slow: u64,
    /// Dropped by the data plane.
    pub dropped: u64,
}

/// A question to the kernel, answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// What was asked for.
    pub name: String,
    /// Whether it is there.
    pub answer: ProbeAnswer,
    /// How it is used, what stands in for it, or why it could not be told; may be empty.
    pub detail: String,
}

/// The answer to a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProbeAnswer {
    /// It is there.
    Yes,
    /// It is not there.
    No,
    /// It could not be told.
    Unknown,
}

/// How many things a request changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// That many.
    pub count: u64,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Tc => "tc",
            Self::Xdp => "xdp",
        })
    }
}

impl fmt::Display for Attach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Tcx => "tcx",
            Self::Clsact => "clsact",
        })
    }
}

impl fmt::Display for ProbeAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Unknown => "unknown",
        })
    }
}
