//! What `shunt flows` shows.

use crate::status::Engine;
use serde::{Deserialize, Serialize};
use shunt_wire::Mac;
use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

/// A connection with at least one flow in the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Connection {
    /// 4 or 6.
    #[cfg_attr(feature = "openapi", schema(value_type = u8, minimum = 4, maximum = 6))]
    pub family: Family,
    /// TCP or UDP.
    pub proto: Proto,
    /// The original direction, as `conntrack -L` prints it.
    pub orig: Tuple,
    /// The reply direction, as `conntrack -L` prints it.
    pub reply: Tuple,
    /// The best of its directions.
    pub state: FlowState,
    /// The engine of its busiest direction.
    pub engine: Engine,
    /// Packets on the fast path, both directions. A GRO or GSO aggregate is one.
    pub packets: u64,
    /// Bytes on the fast path, both directions, from the L3 header on.
    pub bytes: u64,
    /// Bits per second of both directions, from the L3 header on.
    pub rate_bps: u64,
    /// Packets per second of both directions.
    pub rate_pps: u64,
    /// Since the first of its directions was learned.
    pub age_s: u64,
    /// Since the last packet of either direction.
    pub idle_s: u64,
    /// One or two: those in the table.
    pub directions: Vec<Direction>,
}

/// One flow: its match and its action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Direction {
    /// Which direction of the connection it is.
    pub dir: DirectionName,
    /// Where its packets come in.
    pub in_port: String,
    /// With these tags, outermost first.
    pub in_vlans: Vec<u16>,
    /// `src`, `dst`, `sport`, `dport`: as on the wire where they come in.
    #[serde(flatten)]
    pub tuple: Tuple,
    /// Where its packets leave.
    pub out_port: String,
    /// With these tags, outermost first.
    pub out_vlans: Vec<u16>,
    /// As on the wire where they leave.
    pub new: Tuple,
    /// The MAC that its packets must be sent to.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub in_dmac: Mac,
    /// The source MAC they leave with.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub out_smac: Mac,
    /// The destination MAC they leave with.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub out_dmac: Mac,
    /// The skb mark.
    pub mark: u32,
    /// The skb priority.
    pub priority: u32,
    /// The largest packet it takes.
    pub max_l3_bytes: u32,
    /// Whether it is used.
    pub state: FlowState,
    /// How its packets are sent.
    pub engine: Engine,
    /// Packets on the fast path. A GRO or GSO aggregate is one.
    pub packets: u64,
    /// Bytes on the fast path, from the L3 header on.
    pub bytes: u64,
    /// Bits per second, from the L3 header on.
    pub rate_bps: u64,
    /// Packets per second.
    pub rate_pps: u64,
    /// Since it was learned.
    pub age_s: u64,
    /// Since its last packet.
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

/// A direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum DirectionName {
    /// That of its first packet.
    Orig,
    /// The other.
    Reply,
}

/// An IP version; a number in JSON.
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

/// Whether a flow is used. A greater state is a better one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum FlowState {
    /// Taken out of use; it will be removed.
    Retired,
    /// Of another epoch, or not proved for some seconds: its packets go to Linux.
    Stale,
    /// Proved once, not yet in use.
    Pending,
    /// In use.
    Active,
    /// In use, put in by hand.
    Static,
}

impl Tuple {
    /// From two ends.
    pub const fn new(src: SocketAddr, dst: SocketAddr) -> Self {
        Self { src: src.ip(), dst: dst.ip(), sport: src.port(), dport: dst.port() }
    }

    /// The source as address and port.
    pub const fn source(&self) -> SocketAddr {
        SocketAddr::new(self.src, self.sport)
    }

    /// The destination as address and port.
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
            other => Err(format!("there is no IP version {other}; 4 or 6")),
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
    fn a_direction_shows_its_tuple_at_its_own_level() {
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
    fn a_family_is_a_number() {
        assert_eq!(serde_json::to_string(&[Family::V4, Family::V6]).unwrap(), "[4,6]");
        assert!(serde_json::from_str::<Family>("5").is_err());
    }

    #[test]
    fn the_best_state_is_the_greatest() {
        use FlowState::{Active, Pending, Retired, Stale, Static};
        assert!(Static > Active && Active > Pending && Pending > Stale && Stale > Retired);
    }
}
