//! The causes of epoch moves.

use std::fmt;

/// The cause of an epoch move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// An address came or went.
    Address,
    /// A change of which bridged traffic may be learned, or how.
    Bridge,
    /// A packet socket began to capture on a port.
    Capture,
    /// Somebody changed the configuration, in a way that any flow may depend on.
    Config,
    /// A port changed its engine.
    Engine,
    /// A bridge learned a station, found it at another port, or forgot it.
    Fdb,
    /// A client asked for a flush.
    Flush,
    /// Somebody turned the fast path off for some connections, or on again.
    Off,
    /// An IPsec policy changed.
    Ipsec,
    /// A link changed or went.
    Link,
    /// The MAC of a neighbour changed or became unknown.
    Neighbour,
    /// A per-device forwarding setting changed.
    Netconf,
    /// A nexthop object changed.
    Nexthop,
    /// Netlink messages were lost.
    Overrun,
    /// A route changed.
    Route,
    /// A policy routing rule changed.
    Rule,
    /// The nftables ruleset or the rules of legacy iptables changed.
    Ruleset,
    /// tc filters of a port changed, or TCX programs were attached.
    Filter,
}

impl Cause {
    /// All causes.
    pub const ALL: [Self; 18] = [
        Self::Address,
        Self::Bridge,
        Self::Capture,
        Self::Config,
        Self::Engine,
        Self::Fdb,
        Self::Flush,
        Self::Off,
        Self::Ipsec,
        Self::Link,
        Self::Neighbour,
        Self::Netconf,
        Self::Nexthop,
        Self::Overrun,
        Self::Route,
        Self::Rule,
        Self::Ruleset,
        Self::Filter,
    ];
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Address => "address",
            Self::Bridge => "bridge",
            Self::Capture => "capture",
            Self::Config => "config",
            Self::Engine => "engine",
            Self::Fdb => "fdb",
            Self::Flush => "flush",
            Self::Off => "off",
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
