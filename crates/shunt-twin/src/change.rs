//! Changes of a router's configuration. Each can be made in any state, so that sequences can be shortened.

use crate::{
    flow::{Flow, SOURCES},
    ruleset::SLOTS,
    site::{FAR_V4, FAR_V6, Site, Wires},
};
use fastrand::Rng;
use shunt_wire::Mac;
use std::{
    collections::BTreeSet,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// The object of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Subject {
    Rule,
    Set,
    Route,
    IpRule,
    Address,
    Neighbour,
    Bridge,
    Mtu,
    Link,
    Qdisc,
    Conntrack,
    Forwarding,
    /// The IPsec policies of a flow.
    Ipsec,
    /// The daemon is killed and started again.
    Daemon,
}

/// A change, made on both routers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) subject: Subject,
    pub(crate) commands: Vec<String>,
    /// The site of the LAN host from now on.
    pub(crate) moves: Option<Site>,
    /// The site whose wire is up from now on.
    pub(crate) raises: Option<Site>,
    /// The new MAC of the host at a site, which the host announces.
    pub(crate) announces: Option<(Site, Mac)>,
    /// Whether Linux does not announce the change, so that Shunt acts on it at the next proof of each flow.
    pub(crate) is_silent: bool,
}

impl Change {
    fn new(subject: Subject, commands: Vec<String>) -> Self {
        Self { subject, commands, moves: None, raises: None, announces: None, is_silent: false }
    }

    /// Whether the change is atomic: no packet is handled in a third way, and Linux loses none.
    pub(crate) fn is_at_once(&self) -> bool {
        match self.subject {
            Subject::Rule | Subject::Set | Subject::Neighbour => true,
            Subject::Route | Subject::Mtu | Subject::Forwarding | Subject::Conntrack => {
                self.commands.len() == 1 && !self.is_silent
            }
            // Adding an IPv6 address also adds a route that for a moment answers "no route".
            Subject::Address => false,
            Subject::IpRule | Subject::Bridge | Subject::Link | Subject::Qdisc => false,
            Subject::Ipsec | Subject::Daemon => false,
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.subject, self.moves) {
            (Subject::Daemon, _) => write!(f, "the daemon is killed and started again"),
            (_, Some(site)) => write!(f, "the LAN host moves to {site:?}; {}", self.commands.join("; ")),
            _ => write!(f, "{}", self.commands.join("; ")),
        }
    }
}

/// Generates changes, limited so that some traffic always passes.
#[derive(Debug)]
pub(crate) struct Changes<'a> {
    flows: &'a [Flow],
    wires: Wires,
    /// Whether the kernel has IPsec.
    ipsec: bool,
    down: BTreeSet<&'static str>,
    unforwarded: BTreeSet<&'static str>,
    /// Whether the two ports of the bridge forward nothing to each other.
    isolated: bool,
    lan_at: Site,
    other_macs: BTreeSet<&'static str>,
}

/// Relative frequency of each kind of change.
const WEIGHTS: &[(Subject, usize)] = &[
    (Subject::Rule, 24),
    (Subject::Set, 14),
    (Subject::Route, 12),
    (Subject::IpRule, 8),
    (Subject::Address, 6),
    (Subject::Neighbour, 10),
    (Subject::Bridge, 6),
    (Subject::Mtu, 6),
    (Subject::Link, 5),
    (Subject::Qdisc, 6),
    (Subject::Conntrack, 3),
    (Subject::Forwarding, 3),
    (Subject::Ipsec, 8),
    (Subject::Daemon, 1),
];

impl<'a> Changes<'a> {
    pub(crate) fn new(flows: &'a [Flow], wires: Wires, ipsec: bool) -> Self {
        let nothing = BTreeSet::new;
        Self {
            flows,
            wires,
            ipsec,
            down: nothing(),
            unforwarded: nothing(),
            isolated: false,
            lan_at: Site::Lan,
            other_macs: nothing(),
        }
    }

    pub(crate) fn next(&mut self, rng: &mut Rng) -> Change {
        // A change that cuts off a port is soon reverted.
        if !self.down.is_empty() && rng.u8(..4) > 0 {
            return self.link(rng);
        }
        if !self.unforwarded.is_empty() && rng.u8(..3) > 0 {
            return self.forwarding(rng);
        }
        let total: usize = WEIGHTS.iter().map(|(_, weight)| weight).sum();
        let mut at = rng.usize(..total);
        let subject = WEIGHTS.iter().find(|(_, weight)| {
            let here = at < *weight;
            at = at.wrapping_sub(*weight);
            here
        });
        match subject.map_or(Subject::Rule, |(subject, _)| *subject) {
            Subject::Rule => self.rule(rng),
            Subject::Set => self.set(rng),
            Subject::Route => route(rng),
            Subject::IpRule => self.ip_rule(rng),
            Subject::Address => address(rng),
            Subject::Neighbour => self.neighbour(rng),
            Subject::Bridge => self.bridge(rng),
            Subject::Mtu => self.mtu(rng),
            Subject::Link => self.link(rng),
            Subject::Qdisc => self.qdisc(rng),
            Subject::Conntrack => self.conntrack(rng),
            Subject::Forwarding => self.forwarding(rng),
            Subject::Ipsec if self.ipsec => self.ipsec_policy(rng),
            Subject::Ipsec => self.mtu(rng),
            Subject::Daemon => Change::new(Subject::Daemon, Vec::new()),
        }
    }

    /// A range of flows, as a range of source ports.
    fn ports(&self, rng: &mut Rng) -> (u16, u16) {
        let count = self.flows.len() as u16;
        let from = rng.u16(..count);
        (SOURCES + from, SOURCES + (from + rng.u16(1..=count / 8 + 1)).min(count))
    }

    fn flow(&self, rng: &mut Rng) -> &'a Flow {
        &self.flows[rng.usize(..self.flows.len())]
    }

    fn rule(&self, rng: &mut Rng) -> Change {
        let slot = rng.usize(..SLOTS);
        let flush = format!("nft flush chain inet twin slot{slot}");
        if rng.u8(..5) < 2 {
            return Change::new(Subject::Rule, vec![flush]);
        }
        let (from, to) = self.ports(rng);
        let flow = self.flow(rng);
        let flows = match rng.u8(..4) {
            0 => format!("meta l4proto {{ tcp, udp }} th sport {from}-{to}"),
            1 => format!("meta l4proto {{ tcp, udp }} th dport {from}-{to}"),
            2 => format!("ct original proto-src {from}-{to}"),
            _ => format!("ct original proto-src {}", flow.port()),
        };
        // No rule drops `established` alone: see docs/limitations.md on UDP before its first answer.
        let act = [
            "drop",
            "ct state new drop",
            "ct direction reply drop",
            "ip dscp set 10",
            "ip6 dscp set 12",
            "ip ttl set 33",
            "ip6 hoplimit set 33",
            "meta mark set 5",
            "meta priority set 1:7",
            "ct mark set 9",
            "counter accept",
            "reject",
            "tcp option maxseg size set 1200",
            "ip dscp 10 drop",
            "ip ttl lt 40 drop",
            "meta l4proto tcp reject with tcp reset",
        ];
        let act = act[rng.usize(..act.len())];
        Change::new(Subject::Rule, vec![flush, format!("nft add rule inet twin slot{slot} {flows} {act}")])
    }

    fn set(&self, rng: &mut Rng) -> Change {
        let flow = self.flow(rng);
        let port = flow.port();
        if rng.u8(..4) == 0 {
            return ranges(flow, rng);
        }
        let (set, element, value) = match rng.u8(..8) {
            0 | 1 => {
                let address = flow.inner.map_or(flow.destination.ip(), |inner| inner.ip());
                let set = if address.is_ipv4() { "blocked4" } else { "blocked6" };
                (set, address.to_string(), String::new())
            }
            2 | 3 => ("blocked", port.to_string(), String::new()),
            4 | 5 => ("verdicts", port.to_string(), [" : drop", " : accept"][rng.usize(..2)].to_owned()),
            _ => ("marks", port.to_string(), " : 7".to_owned()),
        };
        let kind = if matches!(set, "verdicts" | "marks") { "map" } else { "set" };
        let flush = format!("nft flush {kind} inet twin {set}");
        let add = format!("nft add element inet twin {set} {{ {element}{value} }}");
        let commands = match rng.u8(..8) {
            0..=2 => vec![flush],
            3 => vec![format!("nft delete element inet twin {set} {{ {element} }}")],
            // A set that only grew would soon block everything.
            4..=5 => vec![flush, add],
            _ => vec![add],
        };
        Change::new(Subject::Set, commands)
    }

    fn neighbour(&mut self, rng: &mut Rng) -> Change {
        let site = [Site::Wan, Site::Wan2, Site::Dmz, Site::Lan2][rng.usize(..4)];
        let other = toggle(&mut self.other_macs, site.port());
        let mac = if other { site.other_mac() } else { site.mac() };
        let device = self.wires.device(site);
        let command =
            |v6| format!("ip neigh replace {} lladdr {mac} dev {device} nud permanent", site.address(v6));
        let announces = Some((site, mac));
        Change { announces, ..Change::new(Subject::Neighbour, vec![command(false), command(true)]) }
    }

    fn bridge(&mut self, rng: &mut Rng) -> Change {
        match rng.u8(..6) {
            0 => {
                return Change::new(
                    Subject::Bridge,
                    vec!["ip link set dev br0 type bridge fdb_flush".to_owned()],
                );
            }
            1 => {
                self.isolated = !self.isolated;
                let state = if self.isolated { "on" } else { "off" };
                let isolate = |port| format!("bridge link set dev {port} isolated {state}");
                return Change::new(Subject::Bridge, ["r0", "r2"].map(isolate).to_vec());
            }
            _ => {}
        }
        self.lan_at = if self.lan_at == Site::Lan { Site::Lan2 } else { Site::Lan };
        let (mac, port) = (Site::Lan.mac(), self.lan_at.port());
        // Bridges learn of the move from a broadcast of the host, or from a static FDB entry.
        let static_entry = vec![format!("bridge fdb replace {mac} dev {port} master static")];
        let commands = if rng.bool() { static_entry } else { Vec::new() };
        Change { moves: Some(self.lan_at), ..Change::new(Subject::Bridge, commands) }
    }

    /// Takes a link down, or up again with the routes and neighbours that Linux deletes with a link.
    fn link(&mut self, rng: &mut Rng) -> Change {
        let site = match self.down.first() {
            Some(port) => Site::ALL.into_iter().find(|site| site.port() == *port).unwrap_or(Site::Wan2),
            None => [Site::Wan2, Site::Wan2, Site::Wan, Site::Dmz, Site::Lan2][rng.usize(..5)],
        };
        let port = site.port();
        if toggle(&mut self.down, port) {
            // A work queue deletes the conntrack entries of flows masqueraded by this link, and drops a packet of each
            // until then. On a busy machine it may come after the link is up again, and delete new entries.
            let forget = [("ipv4", false), ("ipv6", true)].map(|(family, v6)| {
                let entries = format!("-f {family} --reply-dst {}", site.gateway(v6));
                format!(
                    "timeout 1 sh -c 'while conntrack -L {entries} 2>/dev/null | grep -q .; do sleep 0.01; done'; \
                     conntrack -D {entries} || true"
                )
            });
            let down = format!("ip link set dev {port} down");
            return Change::new(Subject::Link, [vec![down], forget.to_vec()].concat());
        }
        self.other_macs.remove(port);
        let mut commands = vec![format!("ip link set dev {port} up")];
        if !site.is_bridged() {
            let device = self.wires.device(site);
            commands.push(until_local(site.gateway(true)));
            for v6 in [false, true] {
                let (address, mac) = (site.address(v6), site.mac());
                commands.push(format!("ip neigh replace {address} lladdr {mac} dev {device} nud permanent"));
            }
            if site == Site::Wan {
                commands.push(format!("ip route replace {FAR_V4} via {}", site.address(false)));
                commands.push(format!("ip -6 route replace {FAR_V6} via {}", site.address(true)));
            }
        }
        Change { raises: Some(site), ..Change::new(Subject::Link, commands) }
    }

    fn conntrack(&self, rng: &mut Rng) -> Change {
        let flow = self.flow(rng);
        let port = flow.port();
        let protocol = flow.protocol();
        let command = match rng.u8(..4) {
            0 => "conntrack -F".to_owned(),
            1 => format!("conntrack -D -s {}", flow.source.ip()),
            _ => format!("conntrack -D -p {protocol} --orig-port-src {port}"),
        };
        // conntrack -D fails if there is nothing to delete.
        Change::new(Subject::Conntrack, vec![format!("{command} || true")])
    }

    fn forwarding(&mut self, rng: &mut Rng) -> Change {
        let device = match self.unforwarded.first() {
            Some(device) => *device,
            None => self.wires.device([Site::Dmz, Site::Wan, Site::Lan][rng.usize(..3)]),
        };
        let on = u8::from(!toggle(&mut self.unforwarded, device));
        Change::new(Subject::Forwarding, vec![format!("sysctl -q -w net/ipv4/conf/{device}/forwarding={on}")])
    }

    fn ip_rule(&self, rng: &mut Rng) -> Change {
        let v6 = rng.bool();
        let family = if v6 { "-6 " } else { "" };
        let via = [Site::Wan, Site::Wan2][rng.usize(..2)].address(v6);
        let clear = format!("ip {family}rule del pref 100");
        if rng.u8(..3) == 0 {
            return Change::new(Subject::IpRule, vec![clear]);
        }
        let table = format!("ip {family}route replace default via {via} table 100");
        let from_dmz = format!("iif {}", self.wires.device(Site::Dmz));
        let what =
            ["fwmark 7", "fwmark 7", &from_dmz, "from 192.168.1.3"][rng.usize(..if v6 { 3 } else { 4 })];
        let add = format!("ip {family}rule add {what} table 100 pref 100");
        Change::new(Subject::IpRule, vec![clear, table, add])
    }

    /// Forbids a flow, or demands that its packets come from a tunnel, which none does.
    fn ipsec_policy(&self, rng: &mut Rng) -> Change {
        if rng.u8(..3) == 0 {
            return Change::new(Subject::Ipsec, vec!["ip xfrm policy flush".to_owned()]);
        }
        let flow = self.flow(rng);
        let (source, port) = (flow.source.ip(), flow.port());
        let destination = flow.inner.unwrap_or(flow.destination).ip();
        let protocol = flow.protocol();
        let selector = format!("src {source} dst {destination} proto {protocol} sport {port}");
        let act = [
            "dir fwd action block",
            "dir out action block",
            "dir fwd tmpl proto esp mode transport",
            "dir fwd action allow",
        ];
        let act = act[rng.usize(..act.len())];
        Change::new(Subject::Ipsec, vec![format!("ip xfrm policy update {selector} {act}")])
    }

    fn mtu(&self, rng: &mut Rng) -> Change {
        let site = [Site::Wan, Site::Wan2, Site::Wan, Site::Dmz][rng.usize(..4)];
        if rng.u8(..3) == 0 {
            return self.mtu_of_ipv6(site, rng);
        }
        let mtu = [1500, 1500, 1400, 1280, 2000][rng.usize(..5)];
        let set = |device: &str| format!("ip link set dev {device} mtu {mtu}");
        let mut commands = vec![set(site.port())];
        if self.wires.device(site) != site.port() {
            commands.push(set(self.wires.device(site)));
        }
        Change::new(Subject::Mtu, commands)
    }

    /// Sets the MTU of IPv6 alone to its minimum, or to that of the device.
    fn mtu_of_ipv6(&self, site: Site, rng: &mut Rng) -> Change {
        let device = self.wires.device(site);
        let mtu = ["1280".to_owned(), format!("$(cat /sys/class/net/{device}/mtu)")];
        let set = format!("sysctl -q -w net/ipv6/conf/{device}/mtu={}", mtu[rng.usize(..2)]);
        Change { is_silent: true, ..Change::new(Subject::Mtu, vec![set]) }
    }

    fn qdisc(&self, rng: &mut Rng) -> Change {
        let site = [Site::Wan, Site::Wan2, Site::Dmz, Site::Lan][rng.usize(..4)];
        let device = [site.port(), self.wires.device(site)][rng.usize(..2)];
        let root = format!("tc qdisc replace dev {device} root handle");
        let commands = match rng.u8(..4) {
            0 => vec![format!("{root} 7: tbf rate 4gbit burst 4mb limit 8mb")],
            1 => vec![format!("{root} 9: pfifo limit 5000")],
            2 => vec![
                format!("{root} 8: htb default 1"),
                format!("tc class replace dev {device} parent 8: classid 8:1 htb rate 4gbit burst 4mb"),
            ],
            _ => vec![format!("tc qdisc del dev {device} root")],
        };
        Change::new(Subject::Qdisc, commands)
    }
}

/// Inserts an element, or removes it if it is in the set; returns whether it is in the set now.
fn toggle(set: &mut BTreeSet<&'static str>, what: &'static str) -> bool {
    set.insert(what) || !set.remove(what)
}

/// Blocks a network: one that only the flow and few others have, or one that no flow has.
fn ranges(flow: &Flow, rng: &mut Rng) -> Change {
    let address = match (flow.inner.map_or(flow.destination.ip(), |inner| inner.ip()), rng.bool()) {
        (address, true) => address,
        (IpAddr::V4(_), false) => Ipv4Addr::new(192, 0, 2, 77).into(),
        (IpAddr::V6(_), false) => Ipv6Addr::new(0x2001, 0xdb8, 0xeeee, 0, 0, 0, 0, 0x77).into(),
    };
    let (set, network) = match address {
        IpAddr::V4(address) => {
            let len = [32, 31, 29][rng.usize(..3)];
            let first = address.to_bits() >> (32 - len) << (32 - len);
            ("ranges4", format!("{}/{len}", Ipv4Addr::from_bits(first)))
        }
        IpAddr::V6(address) => {
            let len = [128, 127, 125][rng.usize(..3)];
            let first = address.to_bits() >> (128 - len) << (128 - len);
            ("ranges6", format!("{}/{len}", Ipv6Addr::from_bits(first)))
        }
    };
    let flush = format!("nft flush set inet twin {set}");
    let add = format!("nft add element inet twin {set} {{ {network} }}");
    Change::new(Subject::Set, if rng.u8(..3) == 0 { vec![flush] } else { vec![flush, add] })
}

fn route(rng: &mut Rng) -> Change {
    let v6 = rng.bool();
    let (family, network) = if v6 { ("-6 ", FAR_V6) } else { ("", FAR_V4) };
    let host = Site::Wan.far(v6);
    let (wan, wan2) = (Site::Wan.address(v6), Site::Wan2.address(v6));
    // One with the host, and one without.
    let (near, other) = if v6 {
        ("2001:db8:f::4/126", "2001:db8:f:0:8000::/65")
    } else {
        ("203.0.113.4/30", "203.0.113.128/25")
    };
    let to_all = match rng.u8(..12) {
        0 => format!("ip {family}route replace {network} via {wan2}"),
        1 | 2 => format!("ip {family}route replace {network} via {wan}"),
        3 => format!("ip {family}route replace {host} via {wan2}"),
        4 => format!("ip {family}route replace blackhole {host}"),
        5 => format!("ip {family}route replace unreachable {host}"),
        6 => format!("ip {family}route replace {near} via {wan2}"),
        7 | 8 => format!("ip {family}route replace blackhole {other}"),
        9 => format!("ip {family}route flush exact {near}"),
        10 => format!("ip {family}route flush exact {other}"),
        _ => format!("ip {family}route flush exact {host}"),
    };
    Change::new(Subject::Route, vec![to_all])
}

/// Makes the destination of forwarded packets a local address, or removes that address.
fn address(rng: &mut Rng) -> Change {
    let (v6, add) = (rng.bool(), rng.bool());
    let (far, length) = (Site::Wan.far(v6), if v6 { 128 } else { 32 });
    let how = if add { "replace" } else { "del" };
    let mut commands = vec![format!("ip address {how} {far}/{length} dev lo")];
    if v6 && add {
        commands.push(until_local(far));
    }
    Change::new(Subject::Address, commands)
}

/// A command that waits until an IPv6 address is local, which a work queue does some time after the command.
fn until_local(address: IpAddr) -> String {
    format!(
        "timeout 3 sh -c 'until ip -6 route show table local {address} | grep -q .; do sleep 0.005; done'"
    )
}
