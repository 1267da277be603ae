//! What is known about one direction of a connection.

use shunt_api::{DirectionName, Family, FilterHook, FlowState, PortFilter, Tracked};
use std::net::IpAddr;

/// The name of a reason (`miss`, `no-conntrack`, ...), as `shunt status` counts it.
pub type Reason = &'static str;

/// Everything that is known about one direction of a connection.
#[derive(Debug, Clone)]
pub struct DirectionFacts<'a> {
    /// The IP protocol number.
    pub protocol: u8,
    /// The direction that the verdict is about.
    pub dir: DirectionName,
    /// The conntrack entry of the connection; `None` if conntrack has none.
    pub tracked: Option<&'a Tracked>,
    /// The direction's flow; `None` if the table has none.
    pub flow: Option<FlowFacts>,
    /// The reason why the last packet of the direction that Linux forwarded taught nothing; `None` if there was no such
    /// packet, or if the direction was fast or proved after it.
    pub refused: Option<Reason>,
    /// Whether `refused` was recorded after the flow was retired.
    pub refused_after_retirement: bool,
    /// Packets of the direction that arrived on a port within the last [`WINDOW_S`] seconds.
    pub packets_seen: u32,
    /// Seconds since a packet of the direction last began a window in which packets are counted.
    pub window_age_s: u64,
    /// The last use or proof of a flow of this direction; `None` if there was none, or if it is forgotten.
    pub last_use: Option<LastUse>,
    /// Packets that must be seen within [`WINDOW_S`] seconds before the direction is learned.
    pub packets_needed: u32,
    /// The reason why nothing is learned from this address family or from a port; `None` if learning is on everywhere.
    pub learning_blocked: Option<LearningBlocked>,
    /// Whether the configuration excludes the mark of the connection.
    pub excluded: bool,
    /// The rule by which somebody has turned the connection off; `None` if there is none.
    pub off: Option<TurnedOff>,
    /// Why UDP directions without a reply are not learned; `None` if they are.
    pub needs_reply: Option<String>,
    /// Whether flows are learned at all (`learn`).
    pub learns: bool,
    /// Whether the connection begins or ends at the router itself.
    pub local: bool,
    /// Whether its packets are for a group of hosts: broadcast or multicast.
    pub to_group: bool,
    /// The devices that may forward packets but are not ports.
    pub beside_ports: Vec<String>,
    /// The devices by which Linux routes to the sender and to the receiver, where they are neither ports nor on top of
    /// ports.
    pub off_ports: [Option<String>; 2],
    /// Where Linux routes to the sender and to the receiver by a bridge: its members that are not ports.
    pub bridged_off_ports: [Vec<String>; 2],
    /// The next hop to the receiver, as `192.0.2.1 on lan0`, if it does not answer; `None` before a second look.
    pub silent_hop: Option<String>,
    /// What a second look has seen; `None` before it.
    pub look: Option<Look>,
    /// Seconds since conntrack last saw a packet of the connection, as far as its timeout tells.
    pub tracked_ago_s: Option<u64>,
    /// The same, if the flows of both directions were used before that: whose packet it was is not known.
    pub later_ago_s: Option<u64>,
    /// For how long the daemon has run, in seconds.
    pub up_s: u64,
    /// How often a flow in use is proved, in seconds.
    pub reprove_s: u64,
    /// The receiver, if Linux has no route to it.
    pub no_route_to: Option<IpAddr>,
    /// The ports that are down or have no carrier.
    pub down_ports: Vec<String>,
    /// What keeps every packet of the direction from being forwarded; `None` if nothing is known to.
    pub obstacle: Option<Obstacle>,
    /// Seconds since packets of the direction have come again after its last fast one; `None` if that is not sure.
    pub later_packets_s: Option<u64>,
    /// Seconds since the epoch last moved, and the cause; `None` if it has not moved since the daemon started.
    pub epoch_moved: Option<(u64, String)>,
    /// Seconds since a capture, a filter or a rule that blocked learning has ended; `None` if none has.
    pub unblocked_s: Option<u64>,
}

/// A rule by which somebody has turned a connection off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnedOff {
    /// The rule, as `by the rule ...`.
    pub rule: String,
    /// For how long it has held, in seconds; `None` if that is not known.
    pub for_s: Option<u64>,
}

/// What keeps every packet of a direction from being forwarded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// The device of the sender or of the receiver is not up.
    Down(String),
    /// The device of the sender or of the receiver is up and has no carrier.
    NoCarrier(String),
    /// Linux forwards no packet of this address family.
    NotForwarding(Family),
}

/// What was seen of a direction while somebody watched it for a moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Look {
    /// For how long.
    pub over_ms: u64,
    /// Packets that conntrack has counted meanwhile; `None` if it does not count.
    pub counted: Option<u64>,
    /// Their mean size from the IP header on, in bytes.
    pub mean_bytes: u64,
    /// The largest MTU of a port.
    pub mtu: u32,
    /// Packets that arrived on a port meanwhile and were passed to Linux, as far as they were seen.
    pub arrived: u64,
    /// The last packet that was passed to Linux, if it has not left through a port.
    pub stayed: Option<Stayed>,
    /// Packets of any connection that arrived on ports meanwhile and were passed to Linux, by reason: fragments, for
    /// one, which have no ports.
    pub passed: Vec<(Reason, u64)>,
}

impl Look {
    /// Whether packets came meanwhile.
    pub(super) fn has_packets(&self) -> bool {
        self.arrived > 0 || self.counted.is_some_and(|packets| packets > 0)
    }
}

/// A packet that has arrived, and has not left through a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stayed {
    /// The port by which it arrived.
    pub port: String,
    /// Seconds since then.
    pub ago_s: u64,
}

/// Packets of a tuple count together for this many seconds, as in bpf/include/learn/watch.h.
pub const WINDOW_S: u64 = 10;

/// The last use or proof of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastUse {
    /// Seconds since then.
    pub ago_s: u64,
    /// Whether any packet took the fast path until then.
    pub fast: bool,
}

/// A flow in the table.
#[derive(Debug, Clone, Copy)]
pub struct FlowFacts {
    /// The state of the flow.
    pub state: FlowState,
    /// The reason why the flow was retired; `None` unless the state is retired.
    pub retired_why: Option<Reason>,
    /// Whether the flow's action is of the current epoch.
    pub current: bool,
    /// Seconds since the flow was retired, or since it was learned if it is not retired.
    pub since_s: u64,
}

/// The reason why nothing is learned from an address family or from a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LearningBlocked {
    /// The reason that packets are counted under.
    pub reason: Reason,
    /// The rule, port or filter that blocks learning.
    pub place: String,
}

/// The properties of a port that can block learning.
#[derive(Debug, Clone)]
pub struct PortFacts<'a> {
    /// The name of the port.
    pub name: &'a str,
    /// Whether a packet socket captures on the port.
    pub captured: bool,
    /// The first filter on the port that is not Shunt's; `None` if there is none.
    pub filter: Option<&'a PortFilter>,
    /// Whether Linux routes to the receiver, and not to the sender, by the port.
    pub leaves: bool,
}

impl LearningBlocked {
    /// The first thing that blocks learning. `rule` is the rule for which the data plane learns nothing from the
    /// connection. A blocked port counts for every connection, because the port that a connection comes in by is not
    /// known before the connection is learned.
    pub fn find<'a>(rule: Option<String>, mut ports: impl Iterator<Item = PortFacts<'a>>) -> Option<Self> {
        if let Some(place) = rule {
            return Some(Self { reason: "ruleset", place });
        }
        ports.find_map(|port| {
            if port.captured {
                let reason = if port.leaves { "egress-capture" } else { "capture" };
                return Some(Self { reason, place: format!("on {}", port.name) });
            }
            let filter = port.filter?;
            let reason = match filter.hook {
                FilterHook::Ingress => "ingress-filter",
                FilterHook::Egress | FilterHook::Qdisc => "egress-filter",
            };
            Some(Self { reason, place: filter.to_string() })
        })
    }
}
