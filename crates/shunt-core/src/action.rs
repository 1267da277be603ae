//! What the policy wants done.

use crate::{Bridged, Connection, Hold, Silent};
use serde::{Deserialize, Serialize};
use shunt_api::Engine;
use std::{collections::BTreeSet, fmt, time::Duration};

/// Something to do, in the order given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Make every learned action unusable until it is proved again.
    MoveEpoch(Cause),
    /// Read the whole state of the kernel and come back with [`crate::Event::Dump`].
    Resync,
    /// Read the nftables ruleset after this time, and come back with [`crate::Event::RulesetRead`] or
    /// [`crate::Event::RulesetUnread`].
    ReadRuleset {
        /// From now on.
        after: Duration,
    },
    /// Learn nothing of these address families, and of others again.
    Hold(Hold),
    /// Attach the tc programs to a device.
    Attach(PortSetting),
    /// Change what a port does.
    Set(PortSetting),
    /// Detach from a device.
    Detach {
        /// The device.
        ifindex: u32,
    },
    /// Set BE_LIBERAL on both directions of a connection.
    SetLiberal(Connection),
    /// Look who captures packets and come back with [`crate::Event::Captures`].
    FindCaptures,
    /// Look for TCX programs of others on these devices, and come back with [`crate::Event::Programs`].
    FindPrograms(BTreeSet<u32>),
    /// Look at the sysctls of br_netfilter and come back with [`crate::Event::BridgeCalls`].
    FindBridgeCalls,
    /// Give a connection the time in conntrack that it would have if all its packets had been seen.
    KeepSilent(Silent),
    /// Say that we are alive.
    Beat,
    /// Retire what is idle, remove what was retired.
    Sweep,
}

/// What a port does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortSetting {
    /// The device.
    pub ifindex: u32,
    /// How packets leave by it.
    pub engine: Engine,
    /// Whether the XDP program runs on it, for packets that come in.
    pub xdp_in: bool,
    /// Whether its driver may hand up unfinished checksums.
    pub partial: bool,
    /// Whether it is up.
    pub up: bool,
    /// Whether somebody captures on it, so that its flows must take the slow path.
    pub captured: bool,
    /// Whether packets that come in by it go through tc filters or TCX programs of others.
    pub filtered: bool,
    /// Whether packets that leave by it go through TCX programs of others.
    pub filtered_out: bool,
    /// What may be learned of packets that come in by it and are bridged.
    pub bridged: Bridged,
}

/// Why the epoch moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// An address came or went.
    Address,
    /// Other bridged traffic may be learned than before, or otherwise.
    Bridge,
    /// Somebody began to capture on a port.
    Capture,
    /// A port changed its engine.
    Engine,
    /// A bridge has learned a station, found it at another port, or forgotten it.
    Fdb,
    /// Somebody asked for it.
    Flush,
    /// An IPsec policy changed.
    Ipsec,
    /// A link changed or went.
    Link,
    /// A neighbour has another MAC, or none any more.
    Neighbour,
    /// A per-device forwarding setting changed.
    Netconf,
    /// A nexthop object changed.
    Nexthop,
    /// Messages of the kernel were lost.
    Overrun,
    /// A route changed.
    Route,
    /// A policy routing rule changed.
    Rule,
    /// The nftables ruleset changed, or the rules of legacy iptables.
    Ruleset,
    /// tc filters of a port changed, or TCX programs came.
    Filter,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Address => "address",
            Self::Bridge => "bridge",
            Self::Capture => "capture",
            Self::Engine => "engine",
            Self::Fdb => "fdb",
            Self::Flush => "flush",
            Self::Ipsec => "ipsec",
            Self::Link => "link",
            Self::Neighbour => "neighbour",
            Self::Netconf => "netconf",
            Self::Nexthop => "nexthop",
            Self::Overrun => "overrun",
            Self::Route => "route",
            Self::Rule => "rule",
            Self::Ruleset => "ruleset",
            Self::Filter => "filter",
        })
    }
}
