//! The packets of flows, and the fields in which flows differ.

use crate::{Addresses, FLOWS_MAX, FrameSizes, Ports, STAMP_BYTES, Sizes, Wrong};
use shunt_wire::{
    Checksum, Mac, Packet, Tag,
    line::{Encapsulation, FCS_BYTES, IpVersion, L4, MIN_FRAME_BYTES},
};
use std::net::SocketAddr;

/// The packets of one direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traffic {
    /// The packet of the first flow; other flows have other addresses or ports.
    pub packet: Packet,
    /// Source addresses: the whole IPv4 address, the last 32 bits of an IPv6 address.
    pub source: Field,
    /// Destination addresses, as `source`.
    pub destination: Field,
    /// Source ports.
    pub source_port: Field,
    /// Destination ports.
    pub destination_port: Field,
    /// Number of flows.
    pub flows: u32,
    /// The seed of the order in which flows are sent; None if they are sent in turn.
    pub shuffled: Option<u64>,
    /// Frame sizes.
    pub sizes: Sizes,
    /// Whether packets carry a stamp: flow, number, time.
    pub stamped: bool,
    /// Whether the sender is given a list of the addresses and ports of each flow, in place of the four fields.
    pub listed: bool,
}

/// A field in which flows differ: flow f has the value `base + f / every % count`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// The value of the first flow.
    pub base: u32,
    /// Number of consecutive flows with the same value; at least 1.
    pub every: u32,
    /// Number of different values; at least 1.
    pub count: u32,
}

/// A request for packets, without MAC addresses and rate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// TCP flags (see [`shunt_wire::Tcp`]) of TCP segments; None for UDP.
    pub tcp: Option<u8>,
    /// VLAN tags, outermost first.
    pub tags: Vec<Tag>,
    /// Source addresses.
    pub source: Addresses,
    /// Destination addresses.
    pub destination: Addresses,
    /// Source ports.
    pub source_ports: Ports,
    /// Destination ports.
    pub destination_ports: Ports,
    /// Largest number of flows; None for one flow per combination of addresses and ports.
    pub flows: Option<u32>,
    /// See [`Traffic::shuffled`].
    pub shuffled: Option<u64>,
    /// See [`Traffic::listed`]; there are as many flows as `flows` says.
    pub listed: bool,
    /// Frame sizes.
    pub sizes: Sizes,
    /// Whether UDP over IPv4 has a checksum. All other packets have one.
    pub checksum: bool,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// DSCP, 0 to 63.
    pub dscp: u8,
}

impl Field {
    /// A field that is the same for all flows.
    pub const fn fixed(base: u32) -> Self {
        Self { base, every: 1, count: 1 }
    }

    /// The value of a flow.
    pub const fn value_for(&self, flow: u32) -> u32 {
        self.base.wrapping_add(flow / self.every % self.count)
    }
}

impl Shape {
    /// UDP packets of one flow.
    pub fn udp(source: SocketAddr, destination: SocketAddr, sizes: Sizes) -> Self {
        Self {
            tcp: None,
            tags: Vec::new(),
            source: Addresses::one(source.ip()),
            destination: Addresses::one(destination.ip()),
            source_ports: Ports::one(source.port()),
            destination_ports: Ports::one(destination.port()),
            flows: None,
            shuffled: None,
            listed: false,
            sizes,
            checksum: true,
            hop_limit: 64,
            dscp: 0,
        }
    }

    /// The opposite direction: sources and destinations change places.
    #[must_use]
    pub fn reversed(mut self) -> Self {
        std::mem::swap(&mut self.source, &mut self.destination);
        std::mem::swap(&mut self.source_ports, &mut self.destination_ports);
        self
    }

    /// The headers around the payload.
    pub fn encapsulation(&self) -> Encapsulation {
        Encapsulation {
            tags: self.tags.len() as u32,
            pppoe: false,
            ip: if self.source.first.is_ipv4() { IpVersion::V4 } else { IpVersion::V6 },
            l4: if self.tcp.is_some() { L4::Tcp { options_bytes: 0 } } else { L4::Udp },
        }
    }

    /// The packets between two MAC addresses. From flow to flow, the source port changes first.
    ///
    /// # Errors
    /// Fails if the addresses are of different families, if there are too many or too few flows, or if a frame has no
    /// room for headers and stamp.
    pub fn traffic(self, source_mac: Mac, destination_mac: Mac) -> Result<Traffic, Wrong> {
        let (from, to) = (self.source.first, self.destination.first);
        if from.is_ipv4() != to.is_ipv4() {
            return Err(Wrong::because(format!("from {from} to {to}: both must be IPv4, or both IPv6")));
        }
        self.check_room()?;
        let (flows, counts) = (self.flow_count()?, self.counts());
        // An overflow does not matter: no flow has a number beyond FLOWS_MAX.
        let every = |n: usize| counts[..n].iter().fold(1u32, |all, count| all.saturating_mul(*count));
        let field = |base, n: usize| Field { base, every: every(n), count: counts[n] };
        let ends = (
            SocketAddr::new(from, self.source_ports.first),
            SocketAddr::new(to, self.destination_ports.first),
        );
        let packet = match self.tcp {
            Some(flags) => Packet::tcp_between(ends.0, ends.1, flags),
            None => Packet::udp_between(ends.0, ends.1),
        };
        let unsummed = !self.checksum && self.tcp.is_none() && from.is_ipv4();
        let checksum = if unsummed { Checksum::Zero } else { Checksum::Good };
        Ok(Traffic {
            packet: packet
                .macs(source_mac, destination_mac)
                .with_tags(&self.tags)
                .with_hop_limit(self.hop_limit)
                .with_class(self.dscp << 2)
                .with_l4_checksum(checksum),
            source_port: field(self.source_ports.first.into(), 0),
            destination_port: field(self.destination_ports.first.into(), 1),
            source: field(self.source.low(), 2),
            destination: field(self.destination.low(), 3),
            flows,
            shuffled: self.shuffled,
            sizes: self.sizes,
            stamped: true,
            listed: self.listed,
        })
    }

    /// Number of flows.
    ///
    /// # Errors
    /// Fails if there are too many, or fewer combinations of addresses and ports than flows.
    pub fn flow_count(&self) -> Result<u32, Wrong> {
        let combinations =
            self.counts().iter().fold(1u64, |all, count| all.saturating_mul(u64::from(*count)));
        let flows = self.flows.map_or(combinations, u64::from);
        let most = if self.listed { flows } else { combinations };
        if flows > most {
            return Err(Wrong::because(format!(
                "{flows} flows, but only {most} combinations of addresses and ports: give more ports or addresses"
            )));
        }
        u32::try_from(flows).ok().filter(|flows| (1..=FLOWS_MAX).contains(flows)).ok_or_else(|| {
            Wrong::because(format!("{flows} flows: 1 to {FLOWS_MAX} are possible; limit them with --flows"))
        })
    }

    /// Number of values of each field in which flows differ; the first changes first.
    fn counts(&self) -> [u32; 4] {
        [
            self.source_ports.count.into(),
            self.destination_ports.count.into(),
            self.source.count,
            self.destination.count,
        ]
    }

    /// Size with FCS of the smallest frame that has room for headers and stamp.
    ///
    /// # Errors
    /// Fails if the headers do not fit each other.
    pub fn least_frame_bytes(&self) -> Result<u32, Wrong> {
        // Find the size of the headers with a frame that certainly fits.
        let roomy = self.encapsulation().in_frame(256).map_err(|why| Wrong::because(why.to_string()))?;
        Ok((roomy.frame - roomy.l4_payload + STAMP_BYTES).max(MIN_FRAME_BYTES))
    }

    /// These frame sizes, or the least without them, if they have room for the headers and the stamp.
    ///
    /// # Errors
    /// Fails if they have not; the error has the least size.
    pub fn fit(&self, sizes: Option<&FrameSizes>) -> Result<Sizes, Wrong> {
        let least = || self.least_frame_bytes();
        let sizes = match sizes {
            None => least().and_then(Sizes::fixed)?,
            Some(FrameSizes::Imix) => least().and_then(Sizes::imix)?,
            Some(FrameSizes::Given(sizes)) => sizes.clone(),
        };
        Self { sizes: sizes.clone(), ..self.clone() }.check_room()?;
        Ok(sizes)
    }

    /// Checks that the smallest frame has room for headers and stamp.
    ///
    /// # Errors
    /// Fails if it has not; the error has the least size.
    pub fn check_room(&self) -> Result<(), Wrong> {
        let encapsulation = self.encapsulation();
        let least = self.least_frame_bytes()?;
        let smallest = self.sizes.smallest();
        if smallest < least {
            return Err(Wrong::because(format!(
                "{encapsulation}: a frame of {smallest} bytes has no room for flow, number and time (at least {least} bytes)"
            )));
        }
        Ok(())
    }
}

impl Traffic {
    /// The largest frame without FCS, of the first flow, with an empty payload.
    pub fn largest_frame(&self) -> Packet {
        self.packet.clone().frame_bytes((self.sizes.largest() - FCS_BYTES) as usize)
    }

    /// The frame sizes in their order, without FCS.
    pub fn frame_bytes(&self) -> Vec<u16> {
        self.sizes.round().iter().map(|bytes| bytes - FCS_BYTES as u16).collect()
    }

    /// Size of the largest L3 packet.
    pub fn l3_bytes(&self) -> u32 {
        self.sizes.largest() - FCS_BYTES - self.packet.ethernet.bytes() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_wire::Tcp;

    fn shape(sizes: &str) -> Shape {
        let (from, to) = ("192.0.2.1:1024", "198.51.100.1:9");
        Shape::udp(from.parse().unwrap(), to.parse().unwrap(), sizes.parse().unwrap())
    }

    fn shape6(sizes: &str) -> Shape {
        let (from, to) = ("[fd00::1]:1024", "[fd01::1]:9");
        Shape::udp(from.parse().unwrap(), to.parse().unwrap(), sizes.parse().unwrap())
    }

    fn why(shape: Shape) -> String {
        shape.traffic(Mac::default(), Mac::default()).unwrap_err().to_string()
    }

    #[test]
    fn flows_are_distinct_and_the_source_port_changes_first() {
        let mut shape = shape("64");
        shape.source = "192.0.2.1-192.0.2.3".parse().unwrap();
        shape.source_ports = "10-14".parse().unwrap();
        shape.destination_ports = "20-21".parse().unwrap();
        let traffic = shape.traffic(Mac::default(), Mac::default()).unwrap();
        assert_eq!(traffic.flows, 30);
        let ends = |flow| {
            [&traffic.source_port, &traffic.destination_port, &traffic.source, &traffic.destination]
                .map(|field| field.value_for(flow))
        };
        let all: std::collections::BTreeSet<_> = (0..30).map(ends).collect();
        assert_eq!(all.len(), 30);
        let (source, to) = (0xc000_0201, 0xc633_6401);
        assert_eq!(ends(0), [10, 20, source, to]);
        assert_eq!(ends(1), [11, 20, source, to]);
        assert_eq!(ends(29), [14, 21, source + 2, to]);
    }

    #[test]
    fn frames_have_room_for_headers_and_stamp() {
        for (least, shape) in [
            (64, shape("64")),
            (64, Shape { tags: vec![Tag::vlan(1)], ..shape("64") }),
            (66, Shape { tags: vec![Tag::service(1), Tag::vlan(2)], ..shape("66") }),
            (70, Shape { tcp: Some(Tcp::ACK), ..shape("70") }),
            (78, shape6("78")),
            (90, Shape { tcp: Some(Tcp::ACK), ..shape6("90") }),
        ] {
            let name = shape.encapsulation();
            assert_eq!(shape.least_frame_bytes().unwrap() as usize, least, "{name}");
            let traffic = shape.clone().traffic(Mac::default(), Mac::default()).unwrap();
            assert_eq!(traffic.largest_frame().to_bytes().len(), least - 4, "{name}");
            if least > 64 {
                let smaller = Sizes::fixed(least as u32 - 1).unwrap();
                let said = why(Shape { sizes: smaller, ..shape });
                assert!(said.ends_with(&format!("number and time (at least {least} bytes)")), "{said}");
            }
        }
    }

    #[test]
    fn small_frames_of_a_mix_are_as_small_as_the_headers_allow() {
        let fit = |shape: &Shape, sizes: &str| {
            let sizes = (!sizes.is_empty()).then(|| sizes.parse().unwrap());
            shape.fit(sizes.as_ref()).map(|sizes| sizes.to_string()).map_err(|why| why.to_string())
        };
        let (four, six) = (shape("64"), shape6("64"));
        let tagged = Shape { tcp: Some(Tcp::ACK), tags: vec![Tag::vlan(1)], ..six.clone() };
        for (shape, least) in [(&four, 64), (&six, 78), (&tagged, 94)] {
            assert_eq!(fit(shape, ""), Ok(least.to_string()));
            assert_eq!(fit(shape, "imix"), Ok(format!("{least}:7,570:4,1518:1")));
            assert_eq!(fit(shape, "512"), Ok("512".to_owned()));
        }
        assert!(fit(&six, "64:7,570:4").unwrap_err().ends_with("(at least 78 bytes)"));
    }

    #[test]
    fn impossible_shapes_are_refused() {
        let mixed = Shape { destination: "fd00::2".parse().unwrap(), ..shape("64") };
        assert_eq!(why(mixed), "from 192.0.2.1 to fd00::2: both must be IPv4, or both IPv6");
        let few = Shape { flows: Some(2), ..shape("64") };
        assert_eq!(
            why(few),
            "2 flows, but only 1 combinations of addresses and ports: give more ports or addresses"
        );
        let many = Shape { source: "10.0.0.0/8".parse().unwrap(), ..shape("64") };
        assert!(why(many.clone()).contains("limit them with --flows"));
        let limited = Shape { flows: Some(1 << 20), ..many };
        assert_eq!(limited.traffic(Mac::default(), Mac::default()).unwrap().flows, 1 << 20);
        assert!(why(Shape { flows: Some(0), ..shape("64") }).starts_with("0 flows"));
    }
}
