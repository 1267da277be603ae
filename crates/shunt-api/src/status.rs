//! What `shunt status` shows.

use crate::flows::Family;
use serde::{Deserialize, Serialize};
use shunt_wire::Mac;
use std::{collections::BTreeMap, fmt};

/// The state of an instance.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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
    /// Flows that are gone and whose counts found no place: `shunt conntrack` shows less than passed of their connections.
    pub counts_lost: u64,
    /// Packets sent to the slow path, by reason; reasons that never occurred are left out.
    pub reasons: BTreeMap<String, u64>,
    /// Packets that Linux forwarded and that taught nothing, by reason; reasons that never occurred are left out.
    pub refusals: BTreeMap<String, u64>,
    /// Why the rest is not on the fast path: what occurred most often, most often first.
    pub top_reasons: Vec<TopReason>,
    /// What the firewall's rules mean for the fast path.
    pub ruleset: RulesetStatus,
    /// What the kernel was asked, and its answers.
    pub kernel: Vec<Probe>,
}

/// A reason, and how often.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TopReason {
    /// Its name.
    pub reason: String,
    /// So many packets. One that is sent to the slow path and then not learned from counts for both reasons.
    pub packets: u64,
    /// What it means.
    pub meaning: String,
    /// What would change it.
    pub remedy: String,
}

/// Rules that stop learning, and rules that do not see the packets of the fast path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RulesetStatus {
    /// Nothing is learned of these address families, because of `stops` or while the ruleset is read.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<u8>))]
    pub held: Vec<Family>,
    /// Why the ruleset could not be read; it is tried again.
    pub unread: Option<String>,
    /// Statements that must see every packet.
    pub stops: Vec<RuleNote>,
    /// Statements that established traffic on the fast path goes past.
    pub bypassed: Vec<RuleNote>,
}

/// The rules of a chain that have the same statement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RuleNote {
    /// Of the table: `ip`, `ip6`, `inet`, `bridge` or `netdev`.
    pub family: String,
    /// The table.
    pub table: String,
    /// The chain.
    pub chain: String,
    /// The first of the rules, as `nft -a list ruleset` numbers them; those of legacy iptables as
    /// `iptables-legacy -L --line-numbers` does.
    pub handle: u64,
    /// They are rules of legacy iptables (`ip`) or ip6tables (`ip6`), and not of nftables.
    pub legacy: bool,
    /// What they do, in the words of nft; targets and matches of iptables by their own names.
    pub statement: String,
    /// How many rules of the chain have it.
    pub rules: u64,
}

/// Packets of all ports. A GRO or GSO aggregate is one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ByteTotals {
    /// Sent by the fast path.
    pub fast: u64,
    /// Given to Linux.
    pub slow: u64,
    /// fast / (fast + slow), from 0 to 1; 0 when there were none.
    pub fast_share: f64,
}

/// The flow table by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// On the skb, through the egress qdisc.
    Tc,
    /// In the driver.
    Xdp,
}

/// How the programs on the skb are attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Attach {
    /// As TCX links.
    Tcx,
    /// As filters of a clsact qdisc.
    Clsact,
}

/// One port.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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
    /// Whether somebody captures on it, so that its flows take the slow path.
    pub captured: bool,
    /// tc filters and TCX programs of others that its packets go through, so that those which come in (or leave) by it
    /// take the slow path.
    pub filters: Vec<PortFilter>,
    /// Up and with a carrier.
    pub up: bool,
    /// The largest L3 packet.
    pub mtu: u32,
    /// Its own address.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
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

/// What somebody else has put in the way of a port's packets: tc filters on ingress, a TCX program, or on a device on top of
/// the port a qdisc or tc filters on egress.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PortFilter {
    /// The port, or a device on top of it.
    pub device: String,
    /// Which way packets go through it.
    pub hook: FilterHook,
    /// As `tc` names filters (`u32`, `flower`, `bpf`, ...) and qdiscs (`htb`, ...); `tcx` for a TCX program.
    pub kind: String,
    /// The name of a TCX program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
}

/// Which way packets go through a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum FilterHook {
    /// In.
    Ingress,
    /// Out.
    Egress,
    /// Out, and it is a qdisc.
    Qdisc,
}

/// Packets of one port. A GRO or GSO aggregate is one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Count {
    /// That many.
    pub count: u64,
}

impl RuleNote {
    /// Where the first of the rules is, as the command knows it that made it.
    pub fn place(&self) -> String {
        let Self { family, table, chain, handle, .. } = self;
        match (self.legacy, family.as_str()) {
            (false, _) => format!("{family} {table} {chain} handle {handle}"),
            (true, "ip6") => format!("ip6tables-legacy -t {table} {chain} rule {handle}"),
            (true, _) => format!("iptables-legacy -t {table} {chain} rule {handle}"),
        }
    }
}

impl fmt::Display for FilterHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
            Self::Qdisc => "qdisc",
        })
    }
}

impl fmt::Display for PortFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, hook, kind, program } = self;
        match program {
            _ if *hook == FilterHook::Qdisc => write!(f, "{hook} {kind} of {device}"),
            Some(program) => write!(f, "{kind} program {program} on {device} {hook}"),
            None => write!(f, "tc {kind} filter on {device} {hook}"),
        }
    }
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
