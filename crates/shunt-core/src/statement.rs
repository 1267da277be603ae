//! The statements of a ruleset, and how they affect the fast path.

use crate::Traffic;
use std::time::Duration;

/// A statement of the ruleset that a forwarded packet may meet.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Statement {
    /// The family of its table: `ip`, `ip6`, `inet`, `bridge`, `netdev`.
    pub family: String,
    /// The name of its table.
    pub table: String,
    /// The name of its chain.
    pub chain: String,
    /// The handle of its rule; with legacy iptables, the number of the rule in its chain.
    pub handle: u64,
    /// Whether it belongs to legacy iptables, which has rules of its own in addition to those of nftables.
    pub legacy: bool,
    /// The keyword of nft, or the name of an iptables target or match.
    pub name: String,
    /// The devices whose packets meet the statement; empty for all devices. A name that ends in `*` is a prefix.
    pub devices: Vec<String>,
    /// With [`Effect::Limits`], the traffic that the statement may drop; with [`Effect::Rewrites`],
    /// the traffic that the statement may change. None of the others have any.
    pub concerns: Traffic,
    /// With [`Effect::Refreshes`], the time after which an element that no packet refreshes leaves its set.
    pub timeout: Option<Duration>,
}

/// How a statement affects the fast path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Redirects, copies or answers packets, so it must see every packet: nothing is learned where the statement
    /// applies.
    Stops,
    /// Matches by the number of packets, bytes or connections, or at random. It must see every packet of the traffic
    /// that it drops or saves from a drop, and misses the packets of the fast path otherwise.
    Limits,
    /// Counts or logs packets, and misses those of the fast path.
    Bypassed,
    /// Changes packets as no action can, so the packets that it changes stay slow.
    Rewrites,
    /// Refreshes an element of a set before it expires, for which it must see packets often enough.
    Refreshes,
    /// In a bridge table: it makes conntrack track bridged packets.
    Tracks,
}

/// The effect of a statement on the fast path; `None` for statements that treat every packet alike, which actions
/// repeat.
pub fn effect(statement: &str) -> Option<Effect> {
    Some(match statement {
        "queue" | "dup" | "fwd" | "tproxy" | "synproxy" => Effect::Stops,
        // Its answer changes with every socket that opens and closes, and no event reports that.
        "socket" => Effect::Stops,
        // Conntrack then does not report the end of a connection.
        "ct event" | "CT --ctevents" => Effect::Stops,
        "NFQUEUE" | "QUEUE" | "TEE" | "TPROXY" | "SYNPROXY" => Effect::Stops,
        "limit" | "quota" | "numgen" | "meta random" | "ct count" | "ct packets" | "ct bytes"
        | "ct avgpkt" => Effect::Limits,
        "hashlimit" | "statistic" | "recent" | "connbytes" | "connlimit" | "rateest" => Effect::Limits,
        // An object of nfacct may have a quota.
        "nfacct" | "set counters" => Effect::Limits,
        "log" | "counter" | "last" | "meta nftrace" => Effect::Bypassed,
        "LOG" | "NFLOG" | "AUDIT" | "TRACE" | "RATEEST" | "IDLETIMER" | "LED" => Effect::Bypassed,
        "ip ttl set" | "ip6 hoplimit set" | "ip dscp set" | "ip6 dscp set" | "payload set" => {
            Effect::Rewrites
        }
        "TTL" | "HL" | "DSCP" | "TOS" => Effect::Rewrites,
        "update" => Effect::Refreshes,
        "ct" => Effect::Tracks,
        _ => return None,
    })
}

/// Whether a statement counts connections, which conntrack knows, instead of packets.
pub(crate) fn counts_connections(statement: &str) -> bool {
    matches!(statement, "ct count" | "connlimit")
}
