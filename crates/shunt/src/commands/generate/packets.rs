//! The options that describe packets.

use clap::Args;
use shunt_gen::{Addresses, FrameSizes, Ports, Shape, Sizes};
use shunt_wire::{Tag, Tcp, line::MIN_FRAME_BYTES};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

#[derive(Debug, Args)]
pub(crate) struct PacketArgs {
    /// Use IPv6, if neither --src nor --dst is given.
    #[arg(short = '6', long, help_heading = "Packets")]
    ipv6: bool,
    /// Send TCP segments instead of UDP, all with the same sequence number. `shunt bench tcp` opens connections.
    #[arg(long, help_heading = "Packets")]
    tcp: bool,
    /// A VLAN tag; give it twice for QinQ, outermost first.
    #[arg(long = "vlan", value_name = "ID", value_parser = clap::value_parser!(u16).range(0..4096), help_heading = "Packets")]
    vlans: Vec<u16>,
    /// Source addresses: ADDRESS, FIRST-LAST, or ADDRESS/LENGTH [default: the address of the sending port].
    #[arg(long, value_name = "ADDRESSES", help_heading = "Packets")]
    src: Option<Addresses>,
    /// Destination addresses [default: the address of the receiving port].
    #[arg(long, value_name = "ADDRESSES", help_heading = "Packets")]
    dst: Option<Addresses>,
    /// Source ports.
    #[arg(long, value_name = "PORTS", default_value = "1024", help_heading = "Packets")]
    sport: Ports,
    /// Destination ports.
    #[arg(long, value_name = "PORTS", default_value = "5001", help_heading = "Packets")]
    dport: Ports,
    /// Use at most this many flows of those that the ranges give. Source ports vary first.
    #[arg(long, value_name = "N", help_heading = "Packets")]
    flows: Option<u32>,
    /// Send the flows in a random order drawn from this seed, instead of in turn.
    #[arg(long, value_name = "SEED", help_heading = "Packets")]
    shuffle: Option<u64>,
    /// TTL or hop limit.
    #[arg(long, default_value_t = 64, help_heading = "Packets")]
    ttl: u8,
    /// DSCP, 0 to 63.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(..64), help_heading = "Packets")]
    dscp: u8,
    /// Send UDP over IPv4 without a checksum.
    #[arg(long, help_heading = "Packets")]
    no_checksum: bool,
}

impl PacketArgs {
    /// The packets, with frames of these sizes, or the least that have room.
    pub(super) fn shape(&self, sizes: Option<&FrameSizes>) -> Result<Shape, String> {
        let tags = self.tags()?;
        let v6 = [self.src, self.dst].into_iter().flatten().next().map_or(self.ipv6, |a| a.first.is_ipv6());
        let own: IpAddr = if v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        let mut shape = Shape {
            tcp: self.tcp.then_some(Tcp::ACK),
            tags,
            source: self.src.unwrap_or(Addresses::one(own)),
            destination: self.dst.unwrap_or(Addresses::one(own)),
            source_ports: self.sport,
            destination_ports: self.dport,
            flows: self.flows,
            shuffled: self.shuffle,
            listed: false,
            sizes: Sizes::fixed(MIN_FRAME_BYTES).map_err(|why| why.to_string())?,
            checksum: !self.no_checksum,
            hop_limit: self.ttl,
            dscp: self.dscp,
        };
        shape.sizes = shape.fit(sizes).map_err(|why| why.to_string())?;
        Ok(shape)
    }

    /// The tags of each frame, outermost first.
    pub(super) fn tags(&self) -> Result<Vec<Tag>, String> {
        match self.vlans[..] {
            [] => Ok(Vec::new()),
            [tag] => Ok(vec![Tag::vlan(tag)]),
            [outer, inner] => Ok(vec![Tag::service(outer), Tag::vlan(inner)]),
            _ => Err(format!("--vlan: {} tags given; the most is 2 (QinQ)", self.vlans.len())),
        }
    }
}
