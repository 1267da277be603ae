//! Connections whose packets Linux forwards: the answer of `GET /v1/slow`.

use crate::{
    flows::{DirectionName, Family, FlowState, Tuple},
    why::Because,
};
use serde::{Deserialize, Serialize};

/// Connections that conntrack knows, with no flow in use in at least one direction; if conntrack does not count their
/// packets, in both.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SlowTable {
    /// Whether conntrack counts packets (net.netfilter.nf_conntrack_acct). Entries from before counting was turned on
    /// have no counts.
    pub counted: bool,
    /// The connections, the highest rate first; at most [`SlowTable::MOST`]. If rates were measured and conntrack
    /// counts, a connection that it counts is listed only if packets came.
    pub connections: Vec<SlowConnection>,
    /// The number of further connections, which are left out; 0 if the list is complete.
    pub more: u64,
}

/// A connection with at least one direction that Linux forwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SlowConnection {
    /// The IP version, 4 or 6.
    #[cfg_attr(feature = "openapi", schema(value_type = u8))]
    pub family: Family,
    /// The IP protocol number, such as 6 for TCP.
    pub protocol: u8,
    /// Addresses and ports of the original direction; the ports are 0 for protocols without ports.
    pub orig: Tuple,
    /// Addresses and ports of the reply direction.
    pub reply: Tuple,
    /// Always `slow`.
    pub state: FlowState,
    /// The state that conntrack reports, such as `ESTABLISHED`; absent for protocols without states.
    pub conntrack_state: Option<String>,
    /// The sums of the counts of `directions`; absent if conntrack does not count.
    pub count: Option<SlowCount>,
    /// Seconds since the first packet; absent unless net.netfilter.nf_conntrack_timestamp is on.
    pub age_s: Option<u64>,
    /// The directions that Linux forwards; one or two.
    pub directions: Vec<SlowDirection>,
}

/// A direction that Linux forwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SlowDirection {
    /// The direction.
    pub dir: DirectionName,
    /// What conntrack has counted; absent if it does not count.
    pub count: Option<SlowCount>,
    /// Why Linux forwards it. Besides the reasons of [`crate::Why`]: `idle` if no packets come, `now-fast` if it has
    /// become fast meanwhile, `cannot-tell` if the connection has gone. Absent if the request did not ask for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<Because>,
}

/// Packets that Linux forwarded. A GRO or GSO aggregate counts as one packet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SlowCount {
    /// Packets since the connection began.
    pub packets: u64,
    /// Bytes since the connection began, counted from the L3 header on.
    pub bytes: u64,
    /// Bits per second, counted from the L3 header on; 0 if no rate was measured.
    pub rate_bps: u64,
    /// Packets per second; 0 if no rate was measured.
    pub rate_pps: u64,
}

impl SlowTable {
    /// The most connections of an answer.
    pub const MOST: usize = 1000;
}

impl SlowCount {
    /// The sum of both counts.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            bytes: self.bytes + other.bytes,
            rate_bps: self.rate_bps + other.rate_bps,
            rate_pps: self.rate_pps + other.rate_pps,
        }
    }
}
