//! What the policy is told: the kernel's state and its changes, as plain values.

use crate::{Bridge, BridgeCalls, Statement};
use serde::{Deserialize, Serialize};
use shunt_api::Proto;
use shunt_wire::Mac;
use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
};

/// A network device, with what forwarding depends on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The kernel's number for it, stable over renames.
    pub ifindex: u32,
    /// Its present name.
    pub name: String,
    /// `veth`, `bridge`, `vlan`, ...; none for most physical devices.
    pub kind: Option<String>,
    /// The bus of the device that it belongs to (`pci`, `usb`, `virtio`, ...); none for what software made.
    pub bus: Option<String>,
    /// ARPHRD_ETHER and not a loopback.
    pub ethernet: bool,
    /// IFF_UP: switched on by the administrator.
    pub up: bool,
    /// IFF_LOWER_UP and operstate up or unknown: it can carry packets.
    pub carrier: bool,
    /// The largest L3 packet.
    pub mtu: u32,
    /// Its own address.
    pub mac: Mac,
    /// The bridge, bond or VRF it belongs to.
    pub master: Option<u32>,
    /// The device below it in the same namespace (a VLAN's or macvlan's parent); none for a veth, whose other end is a
    /// peer and not a lower device.
    pub lower: Option<u32>,
    /// The XDP program attached to it, by id.
    pub xdp_prog: Option<u32>,
    /// What it has as a bridge, if it is one.
    pub bridge: Option<Bridge>,
}

/// A queueing discipline on a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Qdisc {
    /// The device.
    pub ifindex: u32,
    /// `noqueue`, `fq_codel`, `htb`, `clsact`, ...
    pub kind: String,
    /// major:minor; 0 for those that the kernel put there by itself.
    pub handle: u32,
    /// TC_H_ROOT (0xffff_ffff) for the root.
    pub parent: u32,
}

/// A program of somebody else on a TCX hook.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Program {
    /// The device.
    pub ifindex: u32,
    /// Whether packets go through it on their way out (not in).
    pub egress: bool,
    /// Its name.
    pub name: String,
}

/// A connection by its original direction, as conntrack has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Connection {
    /// Its protocol.
    pub proto: Proto,
    /// Where its first packet came from.
    pub src: SocketAddr,
    /// Where that packet was sent to, before any translation.
    pub dst: SocketAddr,
}

/// A TCP connection on which nobody has sent for a while, after all that was sent had been answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Silent {
    /// One direction of it, as its packets come in.
    pub direction: Connection,
    /// Whether that is the reply direction.
    pub reply: bool,
}

/// Where events come from; one socket each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// NETLINK_ROUTE.
    Route,
    /// NETLINK_NETFILTER, nftables generations.
    Nftables,
    /// NETLINK_XFRM, policies.
    Xfrm,
    /// NETLINK_GENERIC, the `netdev` family.
    Netdev,
    /// The data plane's ring buffer.
    DataPlane,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A link is there, new or changed.
    Link(Link),
    /// A link went away.
    LinkGone {
        /// Its number.
        ifindex: u32,
    },
    /// An address was added, or is seen again with other lifetimes.
    Address {
        /// The device that has it.
        ifindex: u32,
        /// The address.
        addr: IpAddr,
        /// Its prefix length.
        prefix: u8,
    },
    /// An address was removed.
    AddressGone {
        /// The device that had it.
        ifindex: u32,
        /// The address.
        addr: IpAddr,
        /// Its prefix length.
        prefix: u8,
    },
    /// A route came, changed or went.
    Route,
    /// A policy routing rule came or went.
    Rule,
    /// A nexthop object came, changed or went.
    Nexthop,
    /// A neighbour is there, with its MAC if that is known.
    Neighbour {
        /// The device.
        ifindex: u32,
        /// Its address.
        addr: IpAddr,
        /// None while it is being resolved, or where resolution failed.
        mac: Option<Mac>,
    },
    /// A neighbour was forgotten.
    NeighbourGone {
        /// The device.
        ifindex: u32,
        /// Its address.
        addr: IpAddr,
    },
    /// A bridge knows behind which of its ports a MAC is.
    Fdb {
        /// The bridge port.
        ifindex: u32,
        /// The VLAN, 0 without VLAN filtering.
        vlan: u16,
        /// The station.
        mac: Mac,
    },
    /// A bridge forgot a MAC.
    FdbGone {
        /// The bridge port it was behind.
        ifindex: u32,
        /// The VLAN.
        vlan: u16,
        /// The station.
        mac: Mac,
    },
    /// A qdisc is there.
    Qdisc(Qdisc),
    /// A qdisc went away.
    QdiscGone(Qdisc),
    /// A tc filter or class came, changed or went.
    Filter {
        /// The device.
        ifindex: u32,
        /// Whether it is a filter on egress (not on ingress).
        egress: bool,
        /// `u32`, `flower`, `bpf`, ...; none for what only belongs to filters.
        kind: Option<String>,
    },
    /// A per-device setting of forwarding changed.
    Netconf,
    /// The nftables ruleset has a new generation.
    Ruleset,
    /// nftables' chains, rules or maps of verdicts changed, and not only elements of sets. The generation follows.
    Rules,
    /// The ruleset was read; what packets may meet on their way through the router.
    RulesetRead(Vec<Statement>),
    /// The ruleset could not be read, and why.
    RulesetUnread(String),
    /// Legacy iptables has these statements on the way through the router: told at the start, and whenever any of its
    /// rules is another than before.
    LegacyRead(Vec<Statement>),
    /// The rules of legacy iptables cannot be read, and why.
    LegacyUnread(String),
    /// An IPsec policy came, changed or went.
    IpsecPolicy,
    /// What XDP can do with a device; told at the start and on each change.
    XdpFeatures {
        /// The device.
        ifindex: u32,
        /// Native XDP programs can run on it and may redirect from it.
        native: bool,
        /// Frames can be redirected to it (for a veth this depends on the peer).
        target: bool,
    },
    /// The devices on which packets are captured now; 0 is all devices.
    Captures(BTreeSet<u32>),
    /// The TCX programs of others that the devices have now that were asked for.
    Programs(BTreeSet<Program>),
    /// What the sysctls of br_netfilter say; none where it is not there.
    BridgeCalls(Option<BridgeCalls>),
    /// Messages of a source were lost.
    Overrun(Source),
    /// A TCP connection waits for BE_LIBERAL on both its directions.
    WantLiberal(Connection),
    /// A connection of which conntrack has not seen the last packets has fallen silent.
    Silent(Silent),
    /// The whole present state, after the start or an overrun. It replaces what was known of the kernel.
    Dump(Vec<Event>),
    /// A port could not be attached to; the reason was logged.
    AttachFailed {
        /// The device.
        ifindex: u32,
    },
    /// Somebody asked that everything learned be forgotten.
    Flush,
    /// Time has passed.
    Tick,
}
