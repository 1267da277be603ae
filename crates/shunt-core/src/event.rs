//! Events: the kernel's state and its changes, as plain values.

use crate::{BridgePort, Cause, Choice, Netconf, RouteDetails, Scope, Statement, TcChange};
use serde::{Deserialize, Serialize};
use shunt_api::Proto;
use shunt_wire::Mac;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    time::Duration,
};

/// The header that a device's packets have before their IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkLayer {
    /// An Ethernet header (ARPHRD_ETHER).
    Ethernet,
    /// None: packets begin with their IP header (ppp, WireGuard, tun, IPIP, ...).
    Absent,
    /// Any or none, and the driver sends each packet to where its route says: a tunnel without a remote address, or
    /// with `external`.
    WithoutRemote,
    /// Another header, or a loopback device.
    Other,
}

/// A network device, with the properties that forwarding depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The kernel's number of the device, which stays the same after a rename.
    pub ifindex: u32,
    /// The present name.
    pub name: String,
    /// `veth`, `bridge`, `vlan`, ...; `None` for most physical devices.
    pub kind: Option<String>,
    /// The bus of the underlying hardware (`pci`, `usb`, `virtio`, ...); `None` for software devices.
    pub bus: Option<String>,
    /// The header before the IP header of the device's packets.
    pub layer: LinkLayer,
    /// IFF_UP: whether the administrator has set the device up.
    pub up: bool,
    /// Whether the device can carry packets: IFF_LOWER_UP, and operstate up or unknown.
    pub carrier: bool,
    /// The largest L3 packet, in bytes.
    pub mtu: u32,
    /// The device's own MAC address.
    pub mac: Mac,
    /// The ifindex of the bridge, bond or VRF that the device belongs to.
    pub master: Option<u32>,
    /// The ifindex of the lower device in the same namespace (the parent of a VLAN or macvlan); `None` for a veth,
    /// whose other end is a peer.
    pub lower: Option<u32>,
    /// The ID of the attached XDP program.
    pub xdp_prog: Option<u32>,
    /// The settings of a bridge; `None` if the device is not a bridge.
    pub bridge: Option<Bridge>,
    /// The device as a port of a bridge; `None` if it is none.
    pub bridge_port: Option<BridgePort>,
    /// A hash of everything that the kernel reports about the device, except for values that change by themselves:
    /// counters, timers, IFF_UP and the carrier. A different value means a changed setting: the group, a bond's active
    /// member, a VLAN's QoS map, ...
    pub digest: u64,
}

impl Link {
    /// Whether packets are treated the same by both. XDP programs do not count, because engines attach and detach them.
    /// Names count, because rules match names.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        Self { xdp_prog: other.xdp_prog, ..self.clone() } == *other
    }

    /// Whether the frames of an Ethernet device are not those of the device below it: a tunnel's are payload there, and
    /// those of a switch's port have a tag of DSA.
    pub(crate) fn hides_lower(&self) -> bool {
        matches!(self.kind.as_deref(), Some("vxlan" | "geneve" | "gretap" | "ip6gretap" | "dsa"))
    }

    /// Whether no driver of such devices has XDP, so that an engine chosen for all ports leaves them to tc.
    pub fn is_left_to_tc(&self) -> bool {
        self.layer != LinkLayer::Ethernet || self.hides_lower() || self.kind.as_deref() == Some("netkit")
    }
}

/// A queueing discipline on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qdisc {
    /// The ifindex of the device.
    pub ifindex: u32,
    /// `noqueue`, `fq_codel`, `htb`, `clsact`, ...
    pub kind: String,
    /// Major and minor number; 0 for a qdisc that the kernel created by default.
    pub handle: u32,
    /// The handle of the parent; TC_H_ROOT (0xffff_ffff) for the root.
    pub parent: u32,
}

/// A TCX program that is not Shunt's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Program {
    /// The ifindex of the device.
    pub ifindex: u32,
    /// Whether the program is on egress (not on ingress).
    pub egress: bool,
    /// The name of the program.
    pub name: String,
}

/// A connection, named by its original direction as conntrack has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Connection {
    /// TCP or UDP.
    pub proto: Proto,
    /// The source of its first packet.
    pub src: SocketAddr,
    /// The destination of its first packet, before translation.
    pub dst: SocketAddr,
}

/// A TCP connection that conntrack tracks, named by either of its directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrackedDirection {
    /// The direction, as its packets come in.
    pub direction: Connection,
    /// Whether it is the reply direction.
    pub reply: bool,
}

/// A correction of a TCP connection's conntrack entry, which may be wrong because conntrack has missed most packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Correction {
    /// The direction that the packet in question belongs to.
    pub of: TrackedDirection,
    /// The packet or state that requires the correction.
    pub kind: CorrectionKind,
    /// Seconds since the last packet of the connection before that one.
    pub idle_s: u32,
}

/// The event that may have made a conntrack entry wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CorrectionKind {
    /// Conntrack no longer follows the acknowledgements of this direction.
    Lags,
    /// A genuine RST, or a genuine FIN soon after a forged packet.
    Ended,
    /// An RST within the window, which its receiver answers with a challenge ACK (RFC 5961).
    Near,
    /// A FIN or RST outside the window, which its receiver ignores.
    Blind,
}

/// A source of events. Each has a socket of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventSource {
    /// NETLINK_ROUTE.
    Route,
    /// NETLINK_NETFILTER, nftables.
    Nftables,
    /// NETLINK_XFRM, policies.
    Xfrm,
    /// NETLINK_GENERIC, the families `netdev` and `ethtool`.
    Netdev,
    /// The data plane's ring buffer.
    DataPlane,
}

/// The settings of a bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bridge {
    /// How long the bridge remembers a silent station; 0 if it learns no stations.
    pub ageing: Duration,
    /// Whether VLAN filtering is on.
    pub vlan_filtering: bool,
    /// The EtherType of the VLAN tags.
    pub vlan_protocol: u16,
    /// The bits of IFLA_BR_MULTI_BOOLOPT.
    pub options: u32,
    /// The families whose packets br_netfilter hands of this bridge to iptables, in addition to those set by sysctl.
    pub calls: BridgeCalls,
    /// Whether the bridge is promiscuous and so receives packets that it only forwards.
    pub promiscuous: bool,
}

/// The packets that a port has received during surveys. An aggregate counts as its segments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SurveyCounts {
    /// All packets.
    pub packets: u64,
    /// Packets that arrived in aggregates.
    pub aggregated: u64,
    /// Packets in buffers that native XDP of a virtual device would have to copy.
    pub copied: u64,
}

/// The sessions of PPPoE.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sessions {
    /// The names of the devices that carry one.
    pub devices: BTreeSet<String>,
    /// The Ethernet port by which packets of a ppp port were seen to leave, by ifindex.
    pub below: BTreeMap<u32, u32>,
}

/// The address families of which br_netfilter hands bridged packets to the IP hooks, and so to conntrack.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BridgeCalls {
    /// IPv4.
    pub v4: bool,
    /// IPv6.
    pub v6: bool,
}

/// A change or a reading of kernel state, a request of the data plane or of a client, or the passing of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A device was created or changed.
    Link(Link),
    /// A device was removed.
    LinkGone {
        /// The ifindex of the device.
        ifindex: u32,
    },
    /// An address was added, or its lifetimes changed.
    Address {
        /// The ifindex of the device that has the address.
        ifindex: u32,
        /// The address.
        addr: IpAddr,
        /// The prefix length.
        prefix: u8,
    },
    /// An address was removed.
    AddressGone {
        /// The ifindex of the device that had the address.
        ifindex: u32,
        /// The address.
        addr: IpAddr,
        /// The prefix length.
        prefix: u8,
    },
    /// A route was added or changed. The filter on the socket passes only default routes, and routes that may concern
    /// learned flows.
    Route(Scope, RouteDetails),
    /// A route is about to be removed.
    RouteGone(Scope, RouteDetails),
    /// A policy routing rule was added or removed.
    Rule,
    /// A nexthop object was added, changed or removed.
    Nexthop,
    /// A neighbour entry was added or changed.
    Neighbour {
        /// The ifindex of the device.
        ifindex: u32,
        /// The IP address of the neighbour.
        addr: IpAddr,
        /// The MAC address; `None` while it is being resolved, or after resolution failed.
        mac: Option<Mac>,
    },
    /// A neighbour entry was removed.
    NeighbourGone {
        /// The ifindex of the device.
        ifindex: u32,
        /// The IP address of the neighbour.
        addr: IpAddr,
    },
    /// A bridge has learned the port of a station.
    Fdb {
        /// The ifindex of the bridge port.
        ifindex: u32,
        /// The VLAN ID; 0 without VLAN filtering.
        vlan: u16,
        /// The MAC address of the station.
        mac: Mac,
    },
    /// A bridge forgot a station.
    FdbGone {
        /// The ifindex of the bridge port where the station was.
        ifindex: u32,
        /// The VLAN ID; 0 without VLAN filtering.
        vlan: u16,
        /// The MAC address of the station.
        mac: Mac,
    },
    /// A qdisc was added or changed.
    Qdisc(Qdisc),
    /// A qdisc was removed.
    QdiscGone(Qdisc),
    /// A tc filter or class was added, changed or removed.
    Filter {
        /// The ifindex of the device.
        ifindex: u32,
        /// Whether the filter is on egress (not on ingress).
        egress: bool,
        /// `u32`, `flower`, `bpf`, ...; `None` for classes, chains and actions.
        kind: Option<String>,
        /// What has changed; `None` if a message about a chain says that less than those about its filters, or if the
        /// event is a part of a dump.
        change: Option<TcChange>,
    },
    /// A per-device forwarding setting changed.
    Netconf(Netconf),
    /// A bridge reports one of its ports: its settings, its state, or that it joined or left.
    BridgePort {
        /// The ifindex of the device.
        ifindex: u32,
        /// The port; `None` if it left, or if the message is about the bridge itself.
        port: Option<BridgePort>,
        /// Whether the device is up and has a carrier.
        runs: bool,
    },
    /// The VLANs of a bridge or of one of its ports changed.
    BridgeVlans {
        /// The ifindex of the device.
        ifindex: u32,
    },
    /// The nftables ruleset has a new generation.
    Ruleset,
    /// Chains, rules or verdict maps of nftables changed, not only elements of sets. The new generation follows.
    Rules,
    /// The same, of a single chain or set. It concerns forwarded packets only if they may come there.
    RulesAt(RulesPlace),
    /// Where forwarded packets may come, in the ruleset of the [`Event::RulesetRead`] that follows.
    RulesetPath(BTreeSet<RulesPlace>),
    /// The ruleset was read: the statements that forwarded packets may meet.
    RulesetRead(Vec<Statement>),
    /// The ruleset could not be read; the text says why.
    RulesetUnread(String),
    /// The statements of legacy iptables that forwarded packets may meet. Reported at the start, and whenever any of
    /// its rules has changed.
    LegacyRead(Vec<Statement>),
    /// The rules of legacy iptables could not be read; the text says why.
    LegacyUnread(String),
    /// An IPsec policy was added, changed or removed.
    IpsecPolicy,
    /// The XDP features of a device. Reported at the start and on each change.
    XdpFeatures {
        /// The ifindex of the device.
        ifindex: u32,
        /// Native XDP programs can run on the device and redirect from it.
        native: bool,
        /// Frames can be redirected to the device (for a veth this depends on the peer).
        target: bool,
        /// Frames in several buffers can be redirected to the device.
        target_frags: bool,
        /// The driver tells programs of the VLAN tags that it has taken out of frames.
        vlan_tags: bool,
        /// AF_XDP sockets of the device work without a copy, says its driver.
        zero_copy: bool,
    },
    /// The offloads of a NIC that change what XDP programs see. Reported at the start and on each change.
    Offloads {
        /// The ifindex of the device.
        ifindex: u32,
        /// Whether it merges received packets before Linux sees them (`rx-gro-hw`). Many drivers do not while an XDP
        /// program is attached.
        merges: bool,
        /// Whether it takes VLAN tags out of received frames (`rx-vlan-offload`).
        strips_tags: bool,
    },
    /// The driver of a device refused frames that XDP redirected to it.
    TxError {
        /// The ifindex of the device.
        ifindex: u32,
        /// The error, as the text of strerror(3).
        error: String,
    },
    /// The driver of a device refused Shunt's XDP program.
    XdpRefused {
        /// The ifindex of the device.
        ifindex: u32,
        /// The error, as the text of strerror(3).
        error: String,
    },
    /// The devices on which packet sockets capture now; 0 stands for all devices.
    Captures(BTreeSet<u32>),
    /// The TCX programs of others that are now on the devices of [`crate::Action::FindPrograms`].
    Programs(BTreeSet<Program>),
    /// The packets that ports have received during surveys so far, by ifindex.
    Surveyed(BTreeMap<u32, SurveyCounts>),
    /// The external engine began or ceased to serve ports.
    External(ExternalState),
    /// The data plane rests from now on, or no longer: there is no flow, and nothing to learn.
    Rests(bool),
    /// The sysctls of br_netfilter; `None` if br_netfilter is not loaded.
    BridgeCalls(Option<BridgeCalls>),
    /// The sessions of PPPoE.
    Sessions(Sessions),
    /// Somebody changed the configuration.
    Chosen(Choice),
    /// Messages from a source were lost.
    Overrun(EventSource),
    /// A TCP connection cannot be learned before BE_LIBERAL is set on both its directions.
    WantLiberal(Connection),
    /// A connection whose last packets conntrack has not seen has fallen silent.
    Silent(TrackedDirection),
    /// The conntrack entry of a connection may be wrong.
    Correct(Correction),
    /// The whole present state of the kernel, after the start or an overrun. Replaces everything known before.
    Dump(Vec<Event>),
    /// The data plane could not be attached to a port; the error was logged.
    AttachFailed {
        /// The ifindex of the device.
        ifindex: u32,
    },
    /// The kernel has finished the change that [`crate::Action::AwaitKernel`] waited for.
    Finished(Cause, Scope),
    /// A client asked to retire every learned flow.
    Flush,
    /// The connections for which the fast path is off have changed.
    Off,
    /// The regular tick of the daemon, every half second.
    Tick,
}

impl Event {
    /// Whether an event is about a default route.
    pub(crate) fn is_default_route(&self) -> bool {
        matches!(
            self,
            Self::Route(Scope::Prefix { len: 0, .. }, _) | Self::RouteGone(Scope::Prefix { len: 0, .. }, _)
        )
    }
}

/// A chain of nftables, or a set or map.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RulesPlace {
    /// The address family of its table (NFPROTO_*).
    pub family: u8,
    /// Its table.
    pub table: String,
    /// Its name.
    pub name: String,
    /// Whether it is a set or map.
    pub is_set: bool,
}

/// What the external engine does now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExternalState {
    /// The ports that it serves, by ifindex.
    pub serves: BTreeSet<u32>,
    /// The ports that it cannot serve, and why.
    pub fails: BTreeMap<u32, String>,
    /// Why it does not run; None if it runs or starts.
    pub down: Option<String>,
}

impl ExternalState {
    /// Why the engine does not serve a port; None if it does.
    pub(crate) fn why_not(&self, ifindex: u32) -> Option<String> {
        if self.serves.contains(&ifindex) {
            return None;
        }
        let starts = || "the external engine is starting".to_owned();
        let fails = self.fails.get(&ifindex).map(|why| format!("the external engine cannot serve it: {why}"));
        Some(fails.or_else(|| self.down.clone()).unwrap_or_else(starts))
    }
}
