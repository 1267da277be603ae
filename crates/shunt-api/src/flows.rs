//! Connections on the fast path: the answer of `GET /v1/flows`.

use crate::engine::Engine;
use serde::{Deserialize, Serialize};
use shunt_wire::Mac;
use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

/// A connection with at least one flow in the flow table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Connection {
    /// The IP version, 4 or 6.
    #[cfg_attr(feature = "openapi", schema(value_type = u8, minimum = 4, maximum = 6))]
    pub family: Family,
    /// The transport protocol.
    pub proto: Proto,
    /// Addresses and ports of the original direction, as `conntrack -L` prints them.
    pub orig: Tuple,
    /// Addresses and ports of the reply direction, as `conntrack -L` prints them.
    pub reply: Tuple,
    /// The best state of its directions, in the order `retired`, `stale`, `pending`, `active`, `static`.
    pub state: FlowState,
    /// The engine of the direction with the most packets.
    pub engine: Engine,
    /// Packets on the fast path, in both directions together. A GRO or GSO aggregate counts as one packet.
    pub packets: u64,
    /// Bytes on the fast path, in both directions together, counted from the L3 header on.
    pub bytes: u64,
    /// Bits per second on the fast path, in both directions together, counted from the L3 header on.
    pub rate_bps: u64,
    /// Packets per second on the fast path, in both directions together.
    pub rate_pps: u64,
    /// Seconds since the first of its directions was learned.
    pub age_s: u64,
    /// Seconds since the last packet of either direction on the fast path.
    pub idle_s: u64,
    /// The directions that have a flow in the table; one or two.
    pub directions: Vec<Direction>,
}

/// A flow, which is one direction of a connection: the packets it matches, and what is done with them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Direction {
    /// The direction of the connection.
    pub dir: DirectionName,
    /// The name of the port through which packets arrive.
    pub in_port: String,
    /// The VLAN tags of arriving packets, outermost first; empty without tags.
    pub in_vlans: Vec<u16>,
    /// `src`, `dst`, `sport` and `dport` of arriving packets, before any translation.
    #[serde(flatten)]
    pub tuple: Tuple,
    /// The name of the port through which packets leave.
    pub out_port: String,
    /// The VLAN tags of leaving packets, outermost first; empty without tags.
    pub out_vlans: Vec<u16>,
    /// Addresses and ports of leaving packets, after any translation.
    pub new: Tuple,
    /// The destination MAC that arriving packets must have; null if they arrive without an Ethernet header.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub in_dmac: Option<Mac>,
    /// The source MAC of leaving packets; null if they leave without an Ethernet header.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub out_smac: Option<Mac>,
    /// The destination MAC of leaving packets; null if they leave without an Ethernet header.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub out_dmac: Option<Mac>,
    /// The skb mark of leaving packets; 0 is none.
    pub mark: u32,
    /// The skb priority of leaving packets: a tc class handle, or a number below 65536; 0 is the default.
    pub priority: u32,
    /// The largest packet that takes the fast path, in bytes from the L3 header on.
    pub max_l3_bytes: u32,
    /// Whether the flow is in use.
    pub state: FlowState,
    /// The engine that sends the packets.
    pub engine: Engine,
    /// Why tc sends them although another engine sends out of one of the two ports; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine_reason: Option<String>,
    /// Packets on the fast path. A GRO or GSO aggregate counts as one packet.
    pub packets: u64,
    /// Bytes on the fast path, counted from the L3 header on.
    pub bytes: u64,
    /// Bits per second on the fast path, counted from the L3 header on.
    pub rate_bps: u64,
    /// Packets per second on the fast path.
    pub rate_pps: u64,
    /// Seconds since the flow was learned.
    pub age_s: u64,
    /// Seconds since its last packet on the fast path.
    pub idle_s: u64,
}

/// Addresses and ports of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Tuple {
    /// Source address.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub src: IpAddr,
    /// Destination address.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub dst: IpAddr,
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
}

/// The name of a direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum DirectionName {
    /// The direction of the first packet.
    Orig,
    /// The opposite direction.
    Reply,
}

/// An IP version; in JSON, the number 4 or 6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "u8", try_from = "u8")]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// A transport protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Proto {
    /// Transmission Control Protocol.
    Tcp,
    /// User Datagram Protocol.
    Udp,
}

impl Proto {
    /// The IP protocol number.
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }
}

/// Whether a flow is in use. In Rust, a greater state is a better one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum FlowState {
    /// Not in the table: Linux forwards the packets.
    Slow,
    /// Taken out of use; the sweep will remove it.
    Retired,
    /// Learned in an earlier epoch, or not proved again in time: its packets take the slow path.
    Stale,
    /// Proved, but not yet in use.
    Pending,
    /// In use.
    Active,
    /// In use; added by hand.
    Static,
}

impl Tuple {
    /// A tuple with this source and destination.
    pub const fn new(src: SocketAddr, dst: SocketAddr) -> Self {
        Self { src: src.ip(), dst: dst.ip(), sport: src.port(), dport: dst.port() }
    }

    /// The source address and port.
    pub const fn source(&self) -> SocketAddr {
        SocketAddr::new(self.src, self.sport)
    }

    /// The destination address and port.
    pub const fn destination(&self) -> SocketAddr {
        SocketAddr::new(self.dst, self.dport)
    }
}

impl From<Family> for u8 {
    fn from(family: Family) -> Self {
        match family {
            Family::V4 => 4,
            Family::V6 => 6,
        }
    }
}

impl TryFrom<u8> for Family {
    type Error = String;

    fn try_from(version: u8) -> Result<Self, String> {
        match version {
            4 => Ok(Self::V4),
            6 => Ok(Self::V6),
            other => Err(format!("unknown IP version {other}; expected 4 or 6")),
        }
    }
}

impl fmt::Display for DirectionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Orig => "orig",
            Self::Reply => "reply",
        })
    }
}

impl fmt::Display for Proto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        })
    }
}

impl fmt::Display for FlowState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Slow => "slow",
            Self::Retired => "retired",
            Self::Stale => "stale",
            Self::Pending => "pending",
            Self::Active => "active",
            Self::Static => "static",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tuple_of_a_direction_is_flattened_into_it() {
        let text = r#"{"dir":"orig","in_port":"eth0","in_vlans":[5],"src":"192.0.2.1","dst":"198.51.100.1",
            "sport":1,"dport":2,"out_port":"eth1","out_vlans":[],
            "new":{"src":"203.0.113.1","dst":"198.51.100.1","sport":3,"dport":2},
            "in_dmac":"02:00:00:00:00:01","out_smac":"02:00:00:00:00:02","out_dmac":"02:00:00:00:00:03",
            "mark":0,"priority":0,"max_l3_bytes":1500,"state":"active","engine":"xdp","packets":4,"bytes":5,
            "rate_bps":6,"rate_pps":7,"age_s":8,"idle_s":9}"#;
        let direction: Direction = serde_json::from_str(text).unwrap();
        assert_eq!(direction.tuple.source(), "192.0.2.1:1".parse().unwrap());
        let back = serde_json::to_value(&direction).unwrap();
        assert_eq!(back, serde_json::from_str::<serde_json::Value>(text).unwrap());
    }

    #[test]
    fn a_family_is_the_number_4_or_6_in_json() {
        assert_eq!(serde_json::to_string(&[Family::V4, Family::V6]).unwrap(), "[4,6]");
        assert!(serde_json::from_str::<Family>("5").is_err());
    }

    #[test]
    fn the_best_state_is_the_greatest() {
        use FlowState::{Active, Pending, Retired, Slow, Stale, Static};
        assert!(Static > Active && Active > Pending && Pending > Stale && Stale > Retired && Retired > Slow);
    }
}
