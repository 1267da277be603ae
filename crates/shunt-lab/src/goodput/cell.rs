//! The kinds of traffic.

use super::Quantity;
use crate::{
    Labels, Limit, PathLabel, Protocol,
    iperf::{Direction, FlowDirection, Load},
};
use shunt_wire::line::{Encapsulation, IpVersion, L4, LinkSpeed, Sizes, TCP_TIMESTAMPS_BYTES};
use std::fmt;

/// MTU of all links.
const MTU: u32 = 1500;
/// Largest offered share of the line's payload rate: iperf3 sends in bursts and must not seem faster than the line.
const OF_LINE: f64 = 0.995;

/// A kind of traffic through the router: a row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    /// The protocol: a TCP stream in each direction, or a UDP flow whose datagrams fill the MTU.
    pub protocol: Protocol,
    /// Whether the traffic is IPv6.
    pub v6: bool,
    /// Whether the router masquerades traffic to the WAN.
    pub nat: bool,
    /// Whether traffic of the LAN has a VLAN tag.
    pub vlan: bool,
    /// The direction; forward is from the LAN to the WAN. The LAN always connects.
    pub direction: Direction,
    /// Offered payload in bit/s; None for as much as the sender can send or the line can carry.
    pub rate_bps: Option<u64>,
}

impl Cell {
    /// The name of a reading in the results.
    pub fn reading(&self, way: FlowDirection, column: &str, quantity: Quantity) -> String {
        let way = match (self.direction, way) {
            (Direction::Duplex, FlowDirection::Forward) => " forward",
            (Direction::Duplex, FlowDirection::Reverse) => " reverse",
            _ => "",
        };
        match quantity {
            Quantity::Goodput => format!("{self}{way} {column}"),
            Quantity::Loss => format!("{self}{way} {column} loss"),
            Quantity::Jitter => format!("{self}{way} {column} jitter"),
            // The CPU load is that of both ways together.
            Quantity::CpuLoad => format!("{self} {column} CPU"),
            Quantity::ProcStat => format!("{self} {column} /proc/stat"),
        }
    }

    /// The labels of such a reading; `engine` is None for a column with settings of its own.
    pub fn labels(&self, way: FlowDirection, engine: Option<PathLabel>, quantity: Quantity) -> Labels {
        // The CPU load is that of both ways together.
        let is_of_one_way = self.direction == Direction::Duplex && !quantity.is_load();
        Labels {
            quantity: Some(quantity.label()),
            engine,
            protocol: Some(self.protocol),
            ip: Some(if self.v6 { 6 } else { 4 }),
            nat: Some(self.nat),
            tags: Some(self.vlan.into()),
            direction: Some(self.direction),
            way: is_of_one_way.then_some(way),
            frame_bytes: self.sizes().map(|sizes| sizes.frame),
            flows: None,
            rate_bps: self.rate_bps.map(|rate| rate as f64),
        }
    }

    /// Headers on the narrower side of the router, with the TCP timestamps that Linux sends.
    fn encapsulation(&self) -> Encapsulation {
        let ip = if self.v6 { IpVersion::V6 } else { IpVersion::V4 };
        let l4 = match self.protocol {
            Protocol::Tcp => L4::Tcp { options_bytes: TCP_TIMESTAMPS_BYTES },
            Protocol::Udp => L4::Udp,
        };
        Encapsulation { tags: u32::from(self.vlan), pppoe: false, ip, l4 }
    }

    fn sizes(&self) -> Option<Sizes> {
        self.encapsulation().in_mtu(MTU).ok()
    }

    pub(super) fn load(&self) -> Load {
        match self.protocol {
            Protocol::Tcp => Load::Tcp,
            Protocol::Udp => Load::Udp(self.sizes().map_or(0, |sizes| sizes.l4_payload)),
        }
    }

    /// Offered payload in bit/s.
    pub fn offered_bps(&self, speed: Option<LinkSpeed>) -> Option<u64> {
        let line = self.limit(speed).map(|limit| (limit.value * 1e6 * OF_LINE) as u64);
        match (self.rate_bps, line) {
            (Some(rate), Some(line)) => Some(rate.min(line)),
            (rate, line) => rate.or(line),
        }
    }

    /// The payload that the line carries, in Mbit/s.
    pub(super) fn limit(&self, speed: Option<LinkSpeed>) -> Option<Limit> {
        let (speed, sizes) = speed.zip(self.sizes())?;
        let value = speed.frames_per_second(sizes.frame) * f64::from(sizes.l4_payload) * 8.0 / 1e6;
        let of = format!("{speed}bit/s, {} in frames of {} bytes", self.encapsulation(), sizes.frame);
        Some(Limit { value, of })
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = if self.v6 { "IPv6" } else { "IPv4" };
        write!(f, "{} {family}", self.protocol.name())?;
        f.write_str(if self.nat { " NAT" } else { "" })?;
        f.write_str(if self.vlan { " VLAN" } else { "" })?;
        write!(f, " {}", self.direction.name())
    }
}
