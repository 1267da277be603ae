//! A packet as a value, layer by layer.

use crate::{Checksum, Ethernet, encap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// One Ethernet frame, to send or received.
///
/// Lengths are not fields; they follow from the parts. To get a frame with wrong lengths, change the bytes that
/// [`Packet::to_bytes`] returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// The MAC addresses and the VLAN tags.
    pub ethernet: Ethernet,
    /// The network layer.
    pub network: Network,
    /// The transport layer.
    pub transport: Transport,
    /// The payload of the innermost layer.
    pub payload: Vec<u8>,
    /// The bytes after the IP packet in the frame, usually padding.
    pub trailer: Vec<u8>,
}

/// The network layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Network {
    /// IPv4.
    V4(Ipv4),
    /// IPv6.
    V6(Ipv6),
    /// Another EtherType; its bytes are the payload.
    Other(u16),
}

/// An IPv4 header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ipv4 {
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
    /// Time to live.
    pub ttl: u8,
    /// DSCP and ECN.
    pub tos: u8,
    /// Identification.
    pub id: u16,
    /// The don't-fragment bit.
    pub dont_fragment: bool,
    /// The more-fragments bit.
    pub more_fragments: bool,
    /// The fragment offset, in units of 8 bytes.
    pub fragment_offset: u16,
    /// Options, a multiple of four bytes.
    pub options: Vec<u8>,
    /// The header checksum.
    pub checksum: Checksum,
}

/// An IPv6 header with its extension headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ipv6 {
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address.
    pub destination: Ipv6Addr,
    /// Hop limit.
    pub hop_limit: u8,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Extension headers in wire order.
    pub extensions: Vec<Extension>,
}

/// An IPv6 extension header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extension {
    /// The protocol number: 0 hop-by-hop, 43 routing, 44 fragment, 60 destination options.
    pub kind: u8,
    /// The bytes after the next-header byte, including the length byte: a multiple of eight bytes minus one.
    pub body: Vec<u8>,
}

/// The transport layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    /// UDP.
    Udp(Udp),
    /// TCP.
    Tcp(Tcp),
    /// Another protocol, or a fragment; its bytes are the payload.
    Other(u8),
    /// No transport layer, since the network layer is not IP.
    None,
}

/// A UDP header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Udp {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// The checksum.
    pub checksum: Checksum,
}

/// A TCP header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tcp {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgement number.
    pub acknowledgement: u32,
    /// The flags byte: the constants of [`Tcp`].
    pub flags: u8,
    /// The window, unscaled.
    pub window: u16,
    /// The urgent pointer.
    pub urgent: u16,
    /// Options; a multiple of four bytes.
    pub options: Vec<u8>,
    /// The checksum.
    pub checksum: Checksum,
}

impl Tcp {
    /// The FIN flag.
    pub const FIN: u8 = 0x01;
    /// The SYN flag.
    pub const SYN: u8 = 0x02;
    /// The RST flag.
    pub const RST: u8 = 0x04;
    /// The PSH flag.
    pub const PSH: u8 = 0x08;
    /// The ACK flag.
    pub const ACK: u8 = 0x10;
    /// The URG flag.
    pub const URG: u8 = 0x20;
}

impl Packet {
    /// The EtherType of the network layer.
    pub const fn ethertype(&self) -> u16 {
        match self.network {
            Network::V4(_) => encap::IPV4,
            Network::V6(_) => encap::IPV6,
            Network::Other(ethertype) => ethertype,
        }
    }

    /// The IP protocol number. None if the packet is not IP.
    pub const fn protocol(&self) -> Option<u8> {
        match self.transport {
            Transport::Udp(_) => Some(17),
            Transport::Tcp(_) => Some(6),
            Transport::Other(protocol) => Some(protocol),
            Transport::None => None,
        }
    }

    /// The IP addresses, source first. None if the packet is not IP.
    pub const fn addresses(&self) -> Option<(IpAddr, IpAddr)> {
        match &self.network {
            Network::V4(ip) => Some((IpAddr::V4(ip.source), IpAddr::V4(ip.destination))),
            Network::V6(ip) => Some((IpAddr::V6(ip.source), IpAddr::V6(ip.destination))),
            Network::Other(_) => None,
        }
    }

    /// The ports, source first. None if the packet is not TCP or UDP.
    pub const fn ports(&self) -> Option<(u16, u16)> {
        match &self.transport {
            Transport::Udp(udp) => Some((udp.source, udp.destination)),
            Transport::Tcp(tcp) => Some((tcp.source, tcp.destination)),
            _ => None,
        }
    }

    /// Source address and port. None if the packet is not TCP or UDP.
    pub fn source(&self) -> Option<SocketAddr> {
        Some(SocketAddr::new(self.addresses()?.0, self.ports()?.0))
    }

    /// Destination address and port. None if the packet is not TCP or UDP.
    pub fn destination(&self) -> Option<SocketAddr> {
        Some(SocketAddr::new(self.addresses()?.1, self.ports()?.1))
    }

    /// TTL or hop limit. None if the packet is not IP.
    pub const fn hop_limit(&self) -> Option<u8> {
        match &self.network {
            Network::V4(ip) => Some(ip.ttl),
            Network::V6(ip) => Some(ip.hop_limit),
            Network::Other(_) => None,
        }
    }

    /// The IPv4 header, if any.
    pub const fn ipv4(&self) -> Option<&Ipv4> {
        if let Network::V4(ip) = &self.network { Some(ip) } else { None }
    }

    /// The IPv6 header, if any.
    pub const fn ipv6(&self) -> Option<&Ipv6> {
        if let Network::V6(ip) = &self.network { Some(ip) } else { None }
    }

    /// The UDP header, if any.
    pub const fn udp(&self) -> Option<&Udp> {
        if let Transport::Udp(udp) = &self.transport { Some(udp) } else { None }
    }

    /// The TCP header, if any.
    pub const fn tcp(&self) -> Option<&Tcp> {
        if let Transport::Tcp(tcp) = &self.transport { Some(tcp) } else { None }
    }

    /// The checksum of the transport layer. None if the packet is not TCP or UDP.
    pub const fn l4_checksum(&self) -> Option<Checksum> {
        match &self.transport {
            Transport::Udp(udp) => Some(udp.checksum),
            Transport::Tcp(tcp) => Some(tcp.checksum),
            _ => None,
        }
    }
}
