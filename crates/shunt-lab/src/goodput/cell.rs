//! The kinds of traffic.

use super::Quantity;
use crate::{
    Labels, Limit, PathLabel, Position, Protocol,
    iperf::{Direction, FlowDirection, Load},
};
use shunt_wire::line::{
    Encapsulation, IpVersion, L4, LinkSpeed, MIN_FRAME_BYTES, Sizes, TCP_TIMESTAMPS_BYTES,
};
use std::fmt;

/// The usual MTU.
const MTU: u32 = 1500;
/// The least MTU of IPv6.
const MTU_V6_MIN: u32 = 1280;
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
    /// MTU of all links of a router of our own; None for the usual 1500.
    pub mtu: Option<u32>,
    /// Bytes of each write of the sending program; None for what fills packets, and 128 kB of TCP.
    pub write_bytes: Option<u32>,
}

impl Cell {
    /// TCP over IPv4 from the LAN to the WAN, as fast as it goes, without NAT and VLAN.
    pub const PLAIN: Self = Self {
        protocol: Protocol::Tcp,
        v6: false,
        nat: false,
        vlan: false,
        direction: Direction::Forward,
        rate_bps: None,
        mtu: None,
        write_bytes: None,
    };

    /// The reason why no link carries this traffic; None if one does.
    pub(super) fn lack(&self) -> Option<String> {
        let Some(sizes) = self.encapsulation().in_mtu(self.mtu()).ok().filter(|_| !self.is_too_small())
        else {
            return Some(format!("IPv6 needs an MTU of {MTU_V6_MIN} or more"));
        };
        let too_large = self.write_bytes.filter(|bytes| *bytes > sizes.l4_payload);
        too_large.filter(|_| self.protocol == Protocol::Udp).map(|bytes| {
            format!(
                "datagrams of {bytes} bytes would be sent in fragments; an MTU of {} has room for {}",
                self.mtu(),
                sizes.l4_payload
            )
        })
    }

    fn is_too_small(&self) -> bool {
        self.v6 && self.mtu() < MTU_V6_MIN
    }

    /// MTU of all links.
    pub(super) fn mtu(&self) -> u32 {
        self.mtu.unwrap_or(MTU)
    }

    /// The position of a reading in the series of write sizes; None if the size was not chosen.
    pub(super) fn position(&self, way: FlowDirection, column: &str, quantity: Quantity) -> Option<Position> {
        let value = f64::from(self.write_bytes?);
        let name = Self { write_bytes: None, ..*self }.reading(way, column, quantity);
        // The name without the column is the quantity: `TCP IPv4 forward CPU`.
        let of = name.replacen(&format!(" {column}"), "", 1);
        let [along, unit] = ["write size", "bytes"].map(str::to_owned);
        Some(Position { of, line: column.to_owned(), along, unit, value })
    }

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
            frame_bytes: self.frame().map(|(frame, _)| frame),
            mtu: self.mtu,
            write_bytes: self.write_bytes,
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
        self.encapsulation().in_mtu(self.mtu()).ok()
    }

    /// Bytes of each frame with FCS and of its payload; None for TCP by writes, which it puts together as it likes.
    fn frame(&self) -> Option<(u32, u32)> {
        let full = self.sizes()?;
        match (self.protocol, self.write_bytes) {
            (_, None) => Some((full.frame, full.l4_payload)),
            (Protocol::Udp, Some(bytes)) => {
                let frame = (bytes + full.frame).checked_sub(full.l4_payload)?;
                Some((frame.max(MIN_FRAME_BYTES), bytes))
            }
            (Protocol::Tcp, Some(_)) => None,
        }
    }

    pub(super) fn load(&self) -> Load {
        match self.protocol {
            Protocol::Tcp => self.write_bytes.map_or(Load::Tcp, Load::TcpWrites),
            Protocol::Udp => Load::Udp(self.frame().map_or(0, |(_, payload)| payload)),
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
        let full = self.sizes().map(|sizes| (sizes.frame, sizes.l4_payload));
        let (speed, (frame, payload)) = speed.zip(self.frame().or(full))?;
        let value = speed.frames_per_second(frame) * f64::from(payload) * 8.0 / 1e6;
        let of = format!("{speed}bit/s, {} in frames of {frame} bytes", self.encapsulation());
        Some(Limit { value, of })
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = if self.v6 { "IPv6" } else { "IPv4" };
        write!(f, "{} {family}", self.protocol.name())?;
        f.write_str(if self.nat { " NAT" } else { "" })?;
        f.write_str(if self.vlan { " VLAN" } else { "" })?;
        self.mtu.iter().try_for_each(|mtu| write!(f, " MTU {mtu}"))?;
        self.write_bytes.iter().try_for_each(|bytes| write!(f, " write {bytes}"))?;
        write!(f, " {}", self.direction.name())
    }
}
