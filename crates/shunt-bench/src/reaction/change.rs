//! The changes in Linux whose reaction time is measured. Each change has a flow of its own, which Linux forwards before
//! the change and no longer forwards in the same way after it.

use crate::reaction::requests::{Requests, Verdict};
use anyhow::ensure;
use serde::Serialize;
use shunt_testkit::{Frame, Host, Segment, Topology, wait_for};
use shunt_wire::{Checksum, Mac, Packet};
use std::{
    collections::BTreeMap,
    fmt,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

/// Destination port of the first change's flow; the others follow.
const FIRST_PORT: u16 = 5000;
/// Source port of all flows.
const SOURCE_PORT: u16 = 4000;
/// A network behind both WANs.
const FAR: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 0);
const OTHER_MAC: Mac = Mac([2, 0, 0, 0, 2, 0x99]);
const MARK: u32 = 7;
const TABLE: u32 = 100;

/// A change in Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// A rule that drops is added.
    RuleAdded,
    /// A rule that accepts is deleted.
    RuleDeleted,
    /// An element is added to a set of dropped ports.
    ElementAdded,
    /// An element is deleted from a set of accepted ports.
    ElementDeleted,
    /// A route gets another next hop on another link.
    Route,
    /// A policy routing rule for a mark is added.
    IpRule,
    /// A neighbour gets another MAC.
    Neighbour,
    /// A station moves to another port of a bridge.
    Fdb,
    /// The egress link is set down.
    LinkDown,
    /// The egress device loses its address, and with it the route to its subnet.
    AddressRemoved,
    /// A connection is deleted that the rules no longer accept as a new one.
    ConntrackDeleted,
    /// A prefix is added to a set of sources whose packets are dropped. About half of the flows have such a source.
    ElementForHalf,
    /// A route to a prefix is added. About half of the flows have an address in it.
    RouteForHalf,
}

/// The network in which changes are made.
pub struct Lab {
    topology: Topology,
    requests: Requests,
    /// Indexes of the router's ports by name.
    ports: BTreeMap<&'static str, u32>,
}

/// Rules that each match the flow of one change. The flows that fill the table are masqueraded, as in a home router.
fn ruleset() -> String {
    let port = Change::port;
    format!(
        r#"
table inet filter {{
	set blocked {{ type inet_service; }}
	set allowed {{ type inet_service; elements = {{ {allowed} }} }}
	set fresh {{ type inet_service; elements = {{ {forgotten} }} }}
	set outcasts {{ type ipv4_addr; flags interval; }}
	chain doomed {{ }}
	chain spared {{ accept; }}
	chain forward {{
		type filter hook forward priority filter; policy drop;
		udp dport {doomed} jump doomed
		udp dport {spared} jump spared
		udp dport {spared} drop
		udp dport @blocked drop
		ip saddr @outcasts drop
		udp dport {allowed} udp dport != @allowed drop
		ct state established,related accept
		udp dport {forgotten} udp dport != @fresh drop
		ct state new accept
	}}
}}
table inet mangle {{
	chain prerouting {{
		type filter hook prerouting priority mangle; policy accept;
		udp dport {marked} meta mark set {MARK}
	}}
}}
table ip nat {{
	chain postrouting {{
		type nat hook postrouting priority srcnat; policy accept;
		oifname "r1" udp dport >= 6000 masquerade
	}}
}}
"#,
        doomed = port(Change::RuleAdded),
        spared = port(Change::RuleDeleted),
        allowed = port(Change::ElementDeleted),
        marked = port(Change::IpRule),
        forgotten = port(Change::ConntrackDeleted),
    )
}

impl Change {
    fn port(self) -> u16 {
        FIRST_PORT + self as u16
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::RuleAdded => "nft rule added",
            Self::RuleDeleted => "nft rule deleted",
            Self::ElementAdded => "set element added",
            Self::ElementDeleted => "set element deleted",
            Self::Route => "route",
            Self::IpRule => "ip rule",
            Self::Neighbour => "neighbour's MAC",
            Self::Fdb => "FDB move",
            Self::LinkDown => "link down",
            Self::AddressRemoved => "address removed",
            Self::ConntrackDeleted => "conntrack -D",
            Self::ElementForHalf => "set element, half of the flows",
            Self::RouteForHalf => "route, half of the flows",
        })
    }
}

impl Lab {
    /// A bridged LAN with two hosts, and two WANs.
    pub fn new() -> anyhow::Result<Self> {
        let lan = [Segment::LAN, Segment::THIRD_LAN].map(|segment| segment.bridged("br0"));
        let topology = Topology::new(&[lan[0], lan[1], Segment::WAN, Segment::SECOND_WAN]);
        topology.pin_neighbours();
        for host in topology.hosts() {
            host.be_silent();
            // IPv6 packets that the host sends by itself would move its FDB entry back.
            host.ns.sysctl("ipv6/conf/all/disable_ipv6", 1);
        }
        let router = topology.router();
        router.nft(&ruleset());
        // Keep connections while something else is measured.
        for timeout in ["udp_timeout", "udp_timeout_stream"] {
            router.sysctl(&format!("netfilter/nf_conntrack_{timeout}"), 600);
        }
        let second = topology.host("wan2").v4;
        router.try_run(&format!("ip route add default via {second} table {TABLE}"))?;
        let requests = Requests::open(router)?;
        let ports = topology.hosts().iter().map(|host| (host.port, router.ifindex(host.port))).collect();
        let mut lab = Self { topology, requests, ports };
        lab.undo(Change::Route)?;
        Ok(lab)
    }

    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The host that sends a change's flow.
    pub fn source(&self, change: Change) -> &Host {
        match change {
            Change::Fdb | Change::RouteForHalf => self.topology.wan(),
            _ => self.topology.lan(),
        }
    }

    /// The host that receives a change's flow before the change.
    pub fn exit(&self, change: Change) -> &Host {
        match change {
            Change::Fdb | Change::RouteForHalf => self.topology.lan(),
            Change::LinkDown | Change::AddressRemoved => self.topology.host("wan2"),
            _ => self.topology.wan(),
        }
    }

    fn destination(&self, change: Change) -> SocketAddr {
        match change {
            Change::Route | Change::IpRule => (Ipv4Addr::from_bits(FAR.to_bits() + 9), change.port()).into(),
            _ => self.exit(change).at(change.port()),
        }
    }

    /// A packet of a change's flow, with room for a number that no checksum covers.
    pub fn packet(&self, change: Change) -> Packet {
        let packet = self.source(change).udp_to(SOURCE_PORT, self.destination(change));
        packet.payload([0; 8]).with_l4_checksum(Checksum::Zero)
    }

    /// Whether a frame at the exit is of the change's flow and was handled as before the change.
    pub fn is_old(&self, change: Change, frame: &Frame) -> bool {
        let exit = self.exit(change);
        frame.packet().is_some_and(|packet| {
            packet.destination().is_some_and(|to| to.port() == change.port())
                && packet.ethernet.destination == exit.mac
        })
    }

    /// Prepares the flow so that the change ends it.
    pub fn prepare(&mut self, change: Change) -> anyhow::Result<()> {
        if change != Change::ConntrackDeleted {
            return Ok(());
        }
        // The connection must be established, so it needs an answer.
        let (source, exit) = (self.source(change), self.exit(change));
        let (there, back) = (self.packet(change), exit.udp_to(change.port(), source.at(SOURCE_PORT)));
        let (from, to) = (source.tap(), exit.tap());
        let crossed = wait_for(Duration::from_secs(5), || {
            from.send(&there);
            to.capture(Duration::from_millis(20), |frame| self.is_old(change, frame))
        });
        ensure!(crossed.is_some(), "{change}: Linux does not forward the change's flow");
        to.send(&back.payload("an answer"));
        let answered = from.capture_packet(Duration::from_secs(1), |seen| seen.payload == b"an answer");
        ensure!(answered.is_some(), "{change}: Linux does not forward the answer");
        Ok(self.requests.element("fresh", change.port(), false)?)
    }

    /// Makes the change. It is in effect for Linux when this returns.
    pub fn make(&mut self, change: Change) -> anyhow::Result<()> {
        let Self { topology, requests, ports } = self;
        let (lan, wan, second) = (topology.lan(), topology.wan(), topology.host("wan2"));
        match change {
            Change::RuleAdded => requests.add_rule("doomed", Verdict::Drop)?,
            Change::RuleDeleted => requests.flush_chain("spared")?,
            Change::ElementAdded => requests.element("blocked", change.port(), true)?,
            Change::ElementDeleted => requests.element("allowed", change.port(), false)?,
            Change::Route => requests.route((FAR, 24), second.v4, ports["r2"])?,
            Change::IpRule => requests.rule(MARK, TABLE, true)?,
            Change::Neighbour => requests.neighbour(wan.v4, OTHER_MAC, ports["r1"])?,
            Change::Fdb => requests.station(lan.mac, ports["r3"])?,
            Change::LinkDown => requests.link(ports["r2"], false)?,
            Change::AddressRemoved => requests.remove_address(second.gateway_v4, ports["r2"])?,
            Change::ConntrackDeleted => {
                requests.forget((lan.v4, SOURCE_PORT), (wan.v4, change.port()))?;
            }
            Change::ElementForHalf => requests.prefix("outcasts", half(lan), true)?,
            Change::RouteForHalf => requests.route(half(lan), second.v4, ports["r2"])?,
        }
        Ok(())
    }

    /// Undoes the change.
    pub fn undo(&mut self, change: Change) -> anyhow::Result<()> {
        let Self { topology, requests, ports } = self;
        let (lan, wan, second) = (topology.lan(), topology.wan(), topology.host("wan2"));
        match change {
            Change::RuleAdded => requests.flush_chain("doomed")?,
            Change::RuleDeleted => requests.add_rule("spared", Verdict::Accept)?,
            Change::ElementAdded => requests.element("blocked", change.port(), false)?,
            Change::ElementDeleted => requests.element("allowed", change.port(), true)?,
            Change::Route => requests.route((FAR, 24), wan.v4, ports["r1"])?,
            Change::IpRule => requests.rule(MARK, TABLE, false)?,
            Change::Neighbour => requests.neighbour(wan.v4, wan.mac, ports["r1"])?,
            Change::Fdb => requests.station(lan.mac, ports["r0"])?,
            Change::LinkDown => {
                requests.link(ports["r2"], true)?;
                requests.neighbour(second.v4, second.mac, ports["r2"])?;
            }
            Change::AddressRemoved => {
                topology.router().try_run(&format!("ip address add {}/24 dev r2", second.gateway_v4))?;
                requests.neighbour(second.v4, second.mac, ports["r2"])?;
            }
            Change::ConntrackDeleted => requests.element("fresh", change.port(), true)?,
            Change::ElementForHalf => requests.prefix("outcasts", half(lan), false)?,
            Change::RouteForHalf => requests.remove_route(half(lan))?,
        }
        Ok(())
    }
}

/// The prefix of the LAN's first 64 addresses. The flows that fill the table have the 100 sources from the host's
/// address on.
fn half(lan: &Host) -> (Ipv4Addr, u8) {
    (Ipv4Addr::from_bits(lan.v4.to_bits() & !63), 26)
}
