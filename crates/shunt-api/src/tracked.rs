//! What `shunt conntrack` shows.

use crate::flows::{Family, Proto, Tuple};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Conntrack's table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TrackedTable {
    /// Whether Linux counts packets: net.netfilter.nf_conntrack_acct. Entries from before it did have no counts.
    pub counted: bool,
    /// In the order of the kernel.
    pub entries: Vec<Tracked>,
}

/// An entry of conntrack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Tracked {
    /// 4 or 6.
    #[cfg_attr(feature = "openapi", schema(value_type = u8))]
    pub family: Family,
    /// The number of its protocol.
    pub protocol: u8,
    /// The direction of its first packet.
    pub orig: TrackedDirection,
    /// The other direction.
    pub reply: TrackedDirection,
    /// Until it is forgotten, if no packet comes.
    pub timeout_s: Option<u32>,
    /// Of TCP and SCTP.
    pub state: Option<String>,
    /// The bits of `enum ip_conntrack_status`.
    pub status: u32,
    /// The connection's mark.
    pub mark: Option<u32>,
    /// The security context.
    pub secctx: Option<String>,
    /// The zone of both directions, if it is not the default one.
    pub zone: Option<u16>,
    /// Since it was seen first: net.netfilter.nf_conntrack_timestamp.
    pub age_s: Option<u64>,
    /// The helper that looks into it.
    pub helper: Option<String>,
    /// References.
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
    /// Source port, or GRE's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sport: Option<u16>,
    /// Destination port, or GRE's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dport: Option<u16>,
    /// Of ICMP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp: Option<Icmp>,
    /// The zone of this direction alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<u16>,
    /// Everything that was on the wire; none where Linux does not count.
    pub count: Option<Counted>,
    /// What of it went past Linux.
    pub fast: Counted,
}

/// What tells one ICMP exchange from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Icmp {
    /// Type.
    #[serde(rename = "type")]
    pub kind: u8,
    /// Code.
    pub code: u8,
    /// Identifier.
    pub id: u16,
}

/// Packets and bytes. A GRO or GSO aggregate is one packet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Counted {
    /// Packets.
    pub packets: u64,
    /// Bytes, from the L3 header on.
    pub bytes: u64,
}

impl Tracked {
    /// Packets came from both ends.
    pub const SEEN_REPLY: u32 = 1 << 1;
    /// It is not forgotten early when the table is full.
    pub const ASSURED: u32 = 1 << 2;
    /// A packet of it has left the router.
    pub const CONFIRMED: u32 = 1 << 3;
    /// It is about to be forgotten.
    pub const DYING: u32 = 1 << 9;
    /// A helper was assigned to it.
    pub const HELPER: u32 = 1 << 13;
    /// A flowtable of nftables has it.
    pub const OFFLOAD: u32 = 1 << 14;
    /// A flowtable has it in hardware.
    pub const HW_OFFLOAD: u32 = 1 << 15;

    /// Whether a bit of its status is set.
    pub const fn is(&self, bit: u32) -> bool {
        self.status & bit != 0
    }

    /// TCP or UDP; none for the others.
    pub const fn proto(&self) -> Option<Proto> {
        match self.protocol {
            6 => Some(Proto::Tcp),
            17 => Some(Proto::Udp),
            _ => None,
        }
    }
}

impl TrackedDirection {
    /// Its ends; ports are 0 where there are none.
    pub fn tuple(&self) -> Tuple {
        let (sport, dport) = (self.sport.unwrap_or(0), self.dport.unwrap_or(0));
        Tuple { src: self.src, dst: self.dst, sport, dport }
    }
}

impl Counted {
    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self { packets: self.packets + other.packets, bytes: self.bytes + other.bytes }
    }
}
