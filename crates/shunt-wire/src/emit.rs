//! Building: packets to bytes.

use crate::{Checksum, Ipv4, Ipv6, Network, Packet, Sum, Tcp, Transport, Udp};
use std::net::{Ipv4Addr, Ipv6Addr};

impl Packet {
    /// The frame without its FCS.
    ///
    /// # Panics
    /// If a part has no encoding: a packet of more than 65,535 bytes, or options that are not a multiple of four bytes
    /// or do not fit.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut frame = self.ethernet.header(self.ethertype());
        let protocol = self.protocol().unwrap_or(0);
        match &self.network {
            Network::V4(ip) => {
                let l4 = self.l4_bytes(pseudo_v4(ip.source, ip.destination));
                frame.extend(ip.header(protocol, l4.len()));
                frame.extend(l4);
            }
            Network::V6(ip) => {
                let l4 = self.l4_bytes(pseudo_v6(ip.source, ip.destination));
                frame.extend(ip.header(protocol, l4.len()));
                frame.extend(l4);
            }
            Network::Other(_) => frame.extend(&self.payload),
        }
        frame.extend(&self.trailer);
        frame
    }

    /// The transport header and the payload, with the checksum over both and the pseudo-header of `addresses`.
    fn l4_bytes(&self, addresses: Sum) -> Vec<u8> {
        let (mut bytes, checksum, at) = match &self.transport {
            Transport::Udp(udp) => (udp.header(self.payload.len()), udp.checksum, 6),
            Transport::Tcp(tcp) => (tcp.header(), tcp.checksum, 16),
            Transport::Other(_) | Transport::None => return self.payload.clone(),
        };
        bytes.extend(&self.payload);
        let pseudo = addresses.word(self.protocol().unwrap_or(0).into()).word(length(bytes.len()));
        let good = l4_checksum(pseudo, &bytes, matches!(self.transport, Transport::Udp(_)));
        bytes[at..at + 2].copy_from_slice(&field(checksum, good).to_be_bytes());
        bytes
    }
}

impl Ipv4 {
    fn header(&self, protocol: u8, l4_bytes: usize) -> Vec<u8> {
        let header_bytes = 20 + words(&self.options, 10);
        let fragment = u16::from(self.dont_fragment) << 14
            | u16::from(self.more_fragments) << 13
            | self.fragment_offset & 0x1fff;
        let mut header = vec![0x40 | (header_bytes / 4) as u8, self.tos];
        header.extend(length(header_bytes + l4_bytes).to_be_bytes());
        header.extend(self.id.to_be_bytes());
        header.extend(fragment.to_be_bytes());
        header.extend([self.ttl, protocol, 0, 0]);
        header.extend(self.source.octets());
        header.extend(self.destination.octets());
        header.extend(&self.options);
        let good = Sum::new().bytes(&header).finished();
        header[10..12].copy_from_slice(&field(self.checksum, good).to_be_bytes());
        header
    }
}

impl Ipv6 {
    fn header(&self, protocol: u8, l4_bytes: usize) -> Vec<u8> {
        let extension_bytes: usize = self.extensions.iter().map(|e| 1 + e.body.len()).sum();
        let first = self.extensions.first().map_or(protocol, |e| e.kind);
        let word = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0xf_ffff;
        let mut header = word.to_be_bytes().to_vec();
        header.extend(length(extension_bytes + l4_bytes).to_be_bytes());
        header.extend([first, self.hop_limit]);
        header.extend(self.source.octets());
        header.extend(self.destination.octets());
        for (i, extension) in self.extensions.iter().enumerate() {
            assert!(extension.body.len() % 8 == 7, "an extension header is a multiple of eight bytes");
            header.push(self.extensions.get(i + 1).map_or(protocol, |next| next.kind));
            header.extend(&extension.body);
        }
        header
    }
}

impl Udp {
    fn header(&self, payload_bytes: usize) -> Vec<u8> {
        let mut header = self.source.to_be_bytes().to_vec();
        header.extend(self.destination.to_be_bytes());
        header.extend(length(8 + payload_bytes).to_be_bytes());
        header.extend([0, 0]);
        header
    }
}

impl Tcp {
    fn header(&self) -> Vec<u8> {
        let header_bytes = 20 + words(&self.options, 10);
        let mut header = self.source.to_be_bytes().to_vec();
        header.extend(self.destination.to_be_bytes());
        header.extend(self.sequence.to_be_bytes());
        header.extend(self.acknowledgement.to_be_bytes());
        header.extend([((header_bytes / 4) as u8) << 4, self.flags]);
        header.extend(self.window.to_be_bytes());
        header.extend([0, 0]);
        header.extend(self.urgent.to_be_bytes());
        header.extend(&self.options);
        header
    }
}

/// The sum of the addresses in the IPv4 pseudo-header.
pub(crate) fn pseudo_v4(source: Ipv4Addr, destination: Ipv4Addr) -> Sum {
    Sum::new().bytes(&source.octets()).bytes(&destination.octets())
}

/// The sum of the addresses in the IPv6 pseudo-header.
pub(crate) fn pseudo_v6(source: Ipv6Addr, destination: Ipv6Addr) -> Sum {
    Sum::new().bytes(&source.octets()).bytes(&destination.octets())
}

/// The checksum of `bytes`, whose checksum field is zero. For UDP, a checksum of zero becomes 0xffff.
pub(crate) fn l4_checksum(pseudo: Sum, bytes: &[u8], udp: bool) -> u16 {
    match pseudo.bytes(bytes).finished() {
        0 if udp => 0xffff,
        sum => sum,
    }
}

fn field(checksum: Checksum, good: u16) -> u16 {
    match checksum {
        Checksum::Good => good,
        Checksum::Zero => 0,
        Checksum::Value(value) => value,
    }
}

fn words(options: &[u8], max: usize) -> usize {
    assert!(options.len().is_multiple_of(4), "options are a multiple of four bytes, got {}", options.len());
    assert!(options.len() / 4 <= max, "options do not fit: {} bytes", options.len());
    options.len()
}

fn length(bytes: usize) -> u16 {
    u16::try_from(bytes).unwrap_or_else(|_| panic!("{bytes} bytes do not fit a 16-bit length"))
}
