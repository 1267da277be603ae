//! The state of an instance: the answer of `GET /v1/status`.

use crate::{
    config::UnusedKey, costs::OwnCosts, engine::Engine, flows::Family, off::OffRule, qos::UnusedQueues,
    reload::ConfigStatus, restart::RestartKind, savings::Savings,
};
use serde::{Deserialize, Serialize};
use shunt_wire::Mac;
use std::{collections::BTreeMap, fmt, net::IpAddr};

/// The state of an instance.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Status {
    /// The version of the daemon.
    pub version: String,
    /// The version of the messages that the daemon speaks, [`crate::API`].
    pub api: u32,
    /// The name of the instance.
    pub instance: String,
    /// The process ID of the daemon.
    pub pid: u32,
    /// Seconds since the daemon started.
    pub uptime_s: u64,
    /// Seconds over which packets and bytes were counted: since the start of the daemon, or of the first one whose
    /// counters were taken over by restarts since then; absent if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_s: Option<u64>,
    /// What became of the flows of the daemon before; absent if this one was not started to follow another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<RestartKind>,
    /// The present epoch. Actions of earlier epochs are not used.
    pub epoch: u32,
    /// How often the epoch moved since the start, by cause, such as `route` or `ruleset`. Causes that never occurred
    /// are left out.
    pub epoch_moves: BTreeMap<String, u64>,
    /// The ports, sorted by name.
    pub ports: Vec<PortStatus>,
    /// Packets that arrived through the present ports, all ports together.
    pub packets: PacketTotals,
    /// Bytes that arrived through the present ports, all ports together, counted from the L3 header on.
    pub bytes: ByteTotals,
    /// The numbers of flows in the table. A connection has up to two flows, one for each direction.
    pub flows: FlowCounts,
    /// Number of flows added to the table since the start.
    pub learned: u64,
    /// Number of actions that were proved again since the start.
    pub proved: u64,
    /// Number of flows taken out of use since the start.
    pub retired: u64,
    /// Number of removed flows whose counters were lost because their table was full. `shunt conntrack` shows too low
    /// counts for their connections.
    pub counts_lost: u64,
    /// Number of lines of the log that were dropped since the start, since they could not be written or the file was
    /// full.
    #[serde(default)]
    pub log_lines_lost: u64,
    /// Packets sent to the slow path since the start, by reason. Reasons that never occurred are left out.
    pub reasons: BTreeMap<String, u64>,
    /// Packets that Linux forwarded and from which nothing was learned, since the start, by reason. Reasons that never
    /// occurred are left out.
    pub refusals: BTreeMap<String, u64>,
    /// Packets that the fast path dropped since the start, by reason. Reasons that never occurred are left out.
    pub drops: BTreeMap<String, u64>,
    /// The lasting causes that keep traffic on the slow path, those that concern most traffic first; empty if none is
    /// known.
    #[serde(default)]
    pub slow_causes: Vec<SlowCause>,
    /// The connections for which somebody has turned the fast path off; empty if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub off: Vec<OffRule>,
    /// Queues of the configuration that are not in use; empty if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unused_queues: Vec<UnusedQueues>,
    /// Keys of the configuration that have no effect; empty if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unused_keys: Vec<UnusedKey>,
    /// Files that the daemon could not write when it last tried; empty if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_kept: Vec<NotKept>,
    /// The main reasons why packets did not take the fast path: first those that the operator can end, then the others,
    /// each by number of packets.
    pub top_reasons: Vec<TopReason>,
    /// The firewall rules that stop learning, and those that the fast path bypasses.
    pub ruleset: RulesetStatus,
    /// The features of the kernel that the daemon looked for.
    pub kernel: Vec<Probe>,
    /// Stations that keep changing, so that their traffic stays on the slow path; empty if there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unstable_stations: Vec<UnstableStation>,
    /// The longest step of the daemon's event loop in the last minute; absent before the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_step: Option<LongestStep>,
    /// What Shunt itself costs; absent in answers of older daemons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub costs: Option<OwnCosts>,
    /// The configuration file, and whether it differs from what runs; absent in answers of older daemons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<ConfigStatus>,
    /// What the fast path saves; absent in answers of older daemons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub savings: Option<Savings>,
}

/// A station that has kept moving between ports of a bridge, or whose IP address has kept moving between MACs, within
/// the last minute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UnstableStation {
    /// The MAC of the station.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub mac: Mac,
    /// The addresses that the router has for this MAC now.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub addresses: Vec<IpAddr>,
    /// Number of changes that were counted before the station was left to Linux.
    pub changes: u32,
}

/// A step of the daemon's event loop: what it does between two waits. During a step, the daemon handles no other
/// change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LongestStep {
    /// The kind of step, such as `tick` or `kernel-changes`.
    pub name: String,
    /// The time that the step took, in seconds.
    pub seconds: f64,
    /// The CPU time that the step took, in seconds. If it is much less, the step waited or did not get a CPU.
    pub cpu_seconds: f64,
}

impl LongestStep {
    /// What the daemon did, in words.
    #[must_use]
    pub fn work(&self) -> &str {
        match self.name.as_str() {
            "tick" => "its regular checks",
            "signal" => "a signal",
            "reload" => "a reload",
            "kernel-changes" | "finished-changes" => "changes of links, routes or neighbours",
            "legacy-rules" => "rules of iptables",
            "watch" => "the end of `shunt watch`",
            "flow-events" => "new flows",
            "external-engine" => "the external engine",
            "conntrack" => "states and timeouts of conntrack",
            "sweep" => "the removal of idle flows",
            "static-flows" => "flows added by hand",
            "ruleset" => "the firewall rules",
            "restart" => "a restart",
            "client" => "the request of a command or a page",
            other => other,
        }
    }

    /// Longer steps are a fault of the daemon, or of a machine that gives it no CPU.
    pub const BOUND_SECONDS: f64 = 0.005;
}

/// A reason with its number of packets and an explanation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TopReason {
    /// The name of the reason.
    pub reason: String,
    /// Number of packets. A packet that is sent to the slow path and then not learned from counts for both reasons.
    pub packets: u64,
    /// The meaning of the reason, in one sentence.
    pub meaning: String,
    /// The remedy, as an instruction to the operator.
    pub remedy: String,
}

/// A file of the daemon that does not have what it should.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NotKept {
    /// The path of the file, and why it could not be written.
    pub why: String,
    /// What a restart would lose.
    pub loss: String,
}

/// A lasting cause that keeps traffic on the slow path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SlowCause {
    /// The traffic that stays slow, and the cause, in one sentence.
    pub what: String,
    /// A remedy that keeps the purpose of the cause, as an instruction to the operator.
    pub remedy: String,
}

/// Firewall rules that stop learning, and rules that packets of the fast path bypass.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RulesetStatus {
    /// The address families, 4 and 6, for which learning is off: because of `stops` or `limits`, or while the ruleset
    /// is being read.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<u8>))]
    pub held: Vec<Family>,
    /// Why the ruleset could not be read; absent if it was read. The daemon tries again.
    pub unread: Option<String>,
    /// Statements that must see every packet, and therefore stop learning.
    pub stops: Vec<RuleNote>,
    /// Statements that drop traffic, or save it from a drop, by its rate, its amount, its connections or at random. The
    /// traffic that they name is not learned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<RuleNote>,
    /// Statements that change packets as the fast path cannot. The packets that they change are not learned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rewrites: Vec<RuleNote>,
    /// Statements that packets of established connections bypass on the fast path.
    pub bypassed: Vec<RuleNote>,
}

/// The rules of one chain that have the same statement.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RuleNote {
    /// The family of the table: `ip`, `ip6`, `inet`, `bridge` or `netdev`.
    pub family: String,
    /// The name of the table.
    pub table: String,
    /// The name of the chain.
    pub chain: String,
    /// The number of the first of these rules: its handle, as `nft -a list ruleset` shows it; for legacy iptables, its
    /// line, as `iptables-legacy -L --line-numbers` shows it.
    pub handle: u64,
    /// Whether these are rules of legacy iptables (`ip`) or ip6tables (`ip6`) instead of nftables.
    pub legacy: bool,
    /// The statement, as nft names it; for legacy iptables, the name of the target or match.
    pub statement: String,
    /// The number of rules of the chain that have this statement.
    pub rules: u64,
    /// For `limits` and `rewrites`, the traffic that the rules concern, such as `UDP over IPv4`; otherwise absent.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub traffic: String,
}

/// Packets since the start. A GRO or GSO aggregate counts as one packet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PacketTotals {
    /// Packets that the fast path sent.
    pub fast: u64,
    /// Packets that took the slow path.
    pub slow: u64,
    /// Packets that the fast path dropped.
    pub dropped: u64,
    /// The share of packets on the fast path: `fast / (fast + slow + dropped)`, from 0 to 1. It is 0 if no packet has
    /// arrived.
    pub fast_share: f64,
}

/// Bytes since the start, counted from the L3 header on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ByteTotals {
    /// Bytes that the fast path sent.
    pub fast: u64,
    /// Bytes that took the slow path.
    pub slow: u64,
    /// The share of bytes on the fast path: `fast / (fast + slow)`, from 0 to 1; dropped packets are in neither. It is
    /// 0 if no packet has arrived.
    pub fast_share: f64,
}

/// The numbers of flows by state, IPv4 and IPv6 together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FlowCounts {
    /// Flows in use.
    pub active: u64,
    /// Flows that were proved but are not yet in use.
    pub pending: u64,
    /// Flows that are no longer in use and not yet removed.
    pub retired: u64,
    /// Flows in use that were added by hand.
    #[serde(rename = "static")]
    pub static_: u64,
    /// The most flows of each address family: `max_flows` of the configuration. IPv4 and IPv6 have a table of this size
    /// each.
    pub max: u64,
}

/// How the tc programs are attached to a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Attach {
    /// As TCX links.
    Tcx,
    /// As filters of a `clsact` qdisc, on kernels without TCX.
    Clsact,
}

/// How AF_XDP moves packets between a NIC and the external engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum AfXdpMode {
    /// The NIC reads and writes the engine's memory.
    ZeroCopy,
    /// The kernel copies each packet.
    Copy,
}

impl fmt::Display for AfXdpMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ZeroCopy => "zero copy",
            Self::Copy => "copy",
        })
    }
}

/// The state of a port.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PortStatus {
    /// The present name of the device.
    pub name: String,
    /// The interface index of the device.
    pub ifindex: u32,
    /// The engine that sends packets out of this port.
    pub engine: Engine,
    /// The reason for the engine, in one sentence.
    pub engine_reason: String,
    /// The mode of the external engine's sockets, which is the same for all its ports; absent if another engine sends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub af_xdp_mode: Option<AfXdpMode>,
    /// How the tc programs are attached to a port.
    pub attach: Attach,
    /// Whether the XDP program is attached, too.
    pub xdp_attached: bool,
    /// Whether the XDP program loads the flows of waiting packets ahead: see `look_ahead_flows` of the configuration.
    #[serde(default)]
    pub looks_ahead: bool,
    /// Whether the port rests: it has only the hooks that look for something to learn. See `rest_after` of the
    /// configuration.
    #[serde(default)]
    pub rests: bool,
    /// Whether a packet socket captures on the port, so that its flows take the slow path.
    pub captured: bool,
    /// tc filters, TCX programs and qdiscs of others through which packets of this port pass. Learning is off for
    /// packets that arrive (or leave) through them.
    pub filters: Vec<PortFilter>,
    /// Whether the device is up and has a carrier.
    pub up: bool,
    /// The MTU of the device, in bytes.
    pub mtu: u32,
    /// The MAC address of the device.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub mac: Mac,
    /// Packets that arrived through the port.
    pub packets: PortPackets,
    /// Bytes that arrived through the port, counted from the L3 header on.
    pub bytes: ByteTotals,
    /// Packets of this port that were sent to the slow path, by reason; see [`Status::reasons`].
    pub reasons: BTreeMap<String, u64>,
    /// Packets of this port that Linux forwarded and from which nothing was learned, by reason; see
    /// [`Status::refusals`].
    pub refusals: BTreeMap<String, u64>,
    /// Packets of this port that the fast path dropped, by reason; see [`Status::drops`].
    pub drops: BTreeMap<String, u64>,
}

/// A program or qdisc of others that packets of a port pass through: tc filters on ingress, a TCX program, or, on a
/// device on top of the port, a qdisc or tc filters on egress.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PortFilter {
    /// The name of the port, or of a device on top of it.
    pub device: String,
    /// The hook that the filter is attached to.
    pub hook: FilterHook,
    /// The kind, as `tc` names filters (`u32`, `flower`, `bpf`, ...) and qdiscs (`htb`, ...); `tcx` for a TCX program.
    pub kind: String,
    /// The name of the TCX program; absent for tc filters and qdiscs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
}

/// The hook of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum FilterHook {
    /// For packets that arrive.
    Ingress,
    /// For packets that leave.
    Egress,
    /// A qdisc, for packets that leave.
    Qdisc,
}

/// Packets that arrived through one port since the start. A GRO or GSO aggregate counts as one packet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PortPackets {
    /// Packets that the XDP engine forwarded.
    pub xdp: u64,
    /// Packets that the tc engine forwarded.
    pub tc: u64,
    /// Packets that the external engine forwarded.
    #[serde(default)]
    pub external: u64,
    /// Packets that took the slow path.
    pub slow: u64,
    /// Packets that the fast path dropped.
    pub dropped: u64,
}

impl PortPackets {
    /// Packets that the fast path forwarded, by any engine.
    pub const fn fast(&self) -> u64 {
        self.xdp + self.tc + self.external
    }

    /// All packets.
    pub const fn all(&self) -> u64 {
        self.fast() + self.slow + self.dropped
    }
}

/// A feature of the kernel that the daemon looked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Probe {
    /// The name of the feature.
    pub name: String,
    /// Whether the kernel has the feature.
    pub answer: ProbeAnswer,
    /// How the feature is used, what is used instead, or why the answer is unknown; may be empty.
    pub detail: String,
}

/// The answer to a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ProbeAnswer {
    /// The kernel has the feature.
    Yes,
    /// The kernel lacks the feature.
    No,
    /// The probe failed.
    Unknown,
}

/// The number of flows or routes that a request changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Count {
    /// The number.
    pub count: u64,
}

impl RuleNote {
    /// The location of the first of these rules, in terms of `nft` or of legacy iptables.
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
