//! Conntrack's table with the packets of the fast path: the answer of `GET /v1/conntrack`.

use crate::flows::{Family, Proto, Tuple};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Conntrack's table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TrackedTable {
    /// Whether conntrack counts packets (net.netfilter.nf_conntrack_acct). Entries from before counting was turned on
    /// have no counts.
    pub counted: bool,
    /// The entries, in the order of the kernel.
    pub entries: Vec<Tracked>,
}

/// An entry of conntrack's table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Tracked {
    /// The IP version, 4 or 6.
    #[cfg_attr(feature = "openapi", schema(value_type = u8))]
    pub family: Family,
    /// The IP protocol number, such as 6 for TCP.
    pub protocol: u8,
    /// The original direction: that of the first packet.
    pub orig: TrackedDirection,
    /// The reply direction.
    pub reply: TrackedDirection,
    /// Seconds until the entry expires if no packet arrives; absent if the kernel reports none.
    pub timeout_s: Option<u32>,
    /// The state, such as `ESTABLISHED`; absent for protocols without states.
    pub state: Option<String>,
    /// The status bits, as in the kernel's `enum ip_conntrack_status`.
    pub status: u32,
    /// The connection mark; absent if the kernel reports none.
    pub mark: Option<u32>,
    /// The security context; absent without one.
    pub secctx: Option<String>,
    /// The zone of both directions; absent for the default zone.
    pub zone: Option<u16>,
    /// Seconds since the first packet; absent unless net.netfilter.nf_conntrack_timestamp is on.
    pub age_s: Option<u64>,
    /// The name of the conntrack helper; absent without one.
    pub helper: Option<String>,
    /// The number of references to the entry.
    #[serde(rename = "use")]
    pub used: u32,
}

/// One direction of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TrackedDirection {
    /// Source address.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub src: IpAddr,
    /// Destination address.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub dst: IpAddr,
    /// Source port, or GRE key; absent for protocols without ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sport: Option<u16>,
    /// Destination port, or GRE key; absent for protocols without ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dport: Option<u16>,
    /// Type, code and identifier; absent unless the protocol is ICMP or ICMPv6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp: Option<Icmp>,
    /// The zone of this direction, if only this direction has one; otherwise absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<u16>,
    /// All packets of this direction, slow and fast; absent if conntrack does not count.
    pub count: Option<Counted>,
    /// The packets of this direction that took the fast path.
    pub fast: Counted,
}

/// The fields that identify an ICMP exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Icmp {
    /// ICMP type.
    #[serde(rename = "type")]
    pub kind: u8,
    /// ICMP code.
    pub code: u8,
    /// ICMP identifier.
    pub id: u16,
}

/// A count of packets and bytes. A GRO or GSO aggregate counts as one packet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Counted {
    /// Number of packets.
    pub packets: u64,
    /// Number of bytes, counted from the L3 header on.
    pub bytes: u64,
}

impl Tracked {
    /// Bit of `status`: packets were seen in both directions.
    pub const SEEN_REPLY: u32 = 1 << 1;
    /// Bit of `status`: the entry is not dropped early when the table is full.
    pub const ASSURED: u32 = 1 << 2;
    /// Bit of `status`: a packet of the connection has left the router.
    pub const CONFIRMED: u32 = 1 << 3;
    /// Bit of `status`: the entry is about to be removed.
    pub const DYING: u32 = 1 << 9;
    /// Bit of `status`: the entry has a helper.
    pub const HELPER: u32 = 1 << 13;
    /// Bit of `status`: the connection is in a flowtable of nftables.
    pub const OFFLOAD: u32 = 1 << 14;
    /// Bit of `status`: a flowtable has offloaded the connection to hardware.
    pub const HW_OFFLOAD: u32 = 1 << 15;

    /// States of TCP connections that end or have ended.
    pub const ENDING: [&str; 5] = ["FIN_WAIT", "CLOSE_WAIT", "LAST_ACK", "TIME_WAIT", "CLOSE"];

    /// Whether this bit of `status` is set.
    pub const fn is(&self, bit: u32) -> bool {
        self.status & bit != 0
    }

    /// The protocol as TCP or UDP; none for other protocols.
    pub const fn proto(&self) -> Option<Proto> {
        match self.protocol {
            6 => Some(Proto::Tcp),
            17 => Some(Proto::Udp),
            _ => None,
        }
    }
}

impl TrackedDirection {
    /// Addresses and ports; the ports are 0 for protocols without ports.
    pub fn tuple(&self) -> Tuple {
        let (sport, dport) = (self.sport.unwrap_or(0), self.dport.unwrap_or(0));
        Tuple { src: self.src, dst: self.dst, sport, dport }
    }
}

impl Counted {
    /// The sum of both counts.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self { packets: self.packets + other.packets, bytes: self.bytes + other.bytes }
    }
}
