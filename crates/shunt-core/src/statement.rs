//! The statements of a ruleset, how they affect the fast path, and the address families that they hold.

/// A statement of the ruleset that a forwarded packet may meet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Statement {
    /// The family of its table: `ip`, `ip6`, `inet`, `bridge`, `netdev`.
    pub family: String,
    /// The name of its table.
    pub table: String,
    /// The name of its chain.
    pub chain: String,
    /// The handle of its rule; with legacy iptables, the number of the rule in its chain.
    pub handle: u64,
    /// Whether it belongs to legacy iptables, which has rules of its own beside those of nftables.
    pub legacy: bool,
    /// The keyword of nft, or the name of an iptables target or match.
    pub name: String,
    /// The devices whose packets meet the statement; empty for all devices. A name that ends in `*` is a prefix.
    pub devices: Vec<String>,
}

/// How a statement affects the fast path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Redirects, copies or answers packets, so it must see every packet: nothing is learned where the statement
    /// applies.
    Stops,
    /// Counts, limits, samples or logs packets, and misses those of the fast path.
    Bypassed,
    /// In a bridge table: it makes conntrack track bridged packets.
    Tracks,
}

/// The effect of a statement on the fast path; `None` for statements that treat every packet alike, which actions repeat.
///
/// `ct count` and connlimit do not count as [`Effect::Bypassed`]: they count connections, not packets.
pub fn effect(statement: &str) -> Option<Effect> {
    Some(match statement {
        "queue" | "dup" | "fwd" | "tproxy" | "synproxy" => Effect::Stops,
        "NFQUEUE" | "QUEUE" | "TEE" | "TPROXY" | "SYNPROXY" => Effect::Stops,
        "limit" | "quota" | "numgen" | "meta random" | "log" | "counter" | "last" | "ct packets"
        | "ct bytes" | "ct avgpkt" => Effect::Bypassed,
        "ct" | "connlimit" => Effect::Tracks,
        "hashlimit" | "statistic" | "recent" | "connbytes" | "nfacct" | "rateest" | "LOG" | "NFLOG"
        | "AUDIT" | "TRACE" | "RATEEST" | "IDLETIMER" | "LED" => Effect::Bypassed,
        _ => return None,
    })
}

/// The address families whose packets must all go to Linux.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hold {
    /// IPv4.
    pub v4: bool,
    /// IPv6.
    pub v6: bool,
}

impl Hold {
    pub(crate) const ALL: Self = Self { v4: true, v6: true };

    /// Whether it holds a family that `other` does not hold.
    pub(crate) fn exceeds(self, other: Self) -> bool {
        self.v4 && !other.v4 || self.v6 && !other.v6
    }

    pub(crate) fn add(&mut self, family: &str) {
        self.v4 |= family != "ip6";
        self.v6 |= family != "ip";
    }
}
