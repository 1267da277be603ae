//! From segments to packets, and what packets say of segments.

use super::endpoint::Segment;
use shunt_wire::{Checksum, Network, Packet, Sum, Transport, encap};
use std::net::{IpAddr, SocketAddr};

const TCP: u16 = 6;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// ICMP and ICMPv6: destination unreachable.
const UNREACHABLE: [(u8, u8); 2] = [(ICMP, 3), (ICMPV6, 1)];
const ICMP_HEADER_BYTES: usize = 8;

/// The packet of a segment, without MAC addresses.
pub(super) fn packet_of(own: SocketAddr, peer: SocketAddr, segment: Segment) -> Packet {
    let Segment { mut tcp, payload } = segment;
    (tcp.source, tcp.destination) = (own.port(), peer.port());
    let mut packet = Packet::between(own.ip(), peer.ip(), Transport::Tcp(tcp)).payload(payload);
    if let Network::V4(ip) = &mut packet.network {
        ip.dont_fragment = true;
    }
    packet
}

/// Whether the checksum of a TCP segment is correct, or left for a NIC to complete, as on virtual links.
pub(super) fn is_intact(packet: &Packet) -> bool {
    match (packet.l4_checksum(), packet.tcp()) {
        (Some(Checksum::Good), _) => true,
        (Some(Checksum::Value(value)), Some(tcp)) => {
            let length = 20 + tcp.options.len() + packet.payload.len();
            let sum = packet.addresses().map(|(from, to)| addresses(addresses(Sum::new(), from), to));
            sum.is_some_and(|sum| sum.word(TCP).word(length as u16).folded() == value)
        }
        _ => false,
    }
}

fn addresses(sum: Sum, ip: IpAddr) -> Sum {
    match ip {
        IpAddr::V4(ip) => sum.bytes(&ip.octets()),
        IpAddr::V6(ip) => sum.bytes(&ip.octets()),
    }
}

/// The packet whose destination is unreachable, says an ICMP error. None if the packet is no such error, or quotes too
/// little.
pub(super) fn quoted(error: &Packet) -> Option<Packet> {
    let Transport::Other(protocol) = error.transport else { return None };
    let kind = *error.payload.first()?;
    let (ethertype, inner) = match UNREACHABLE.contains(&(protocol, kind)) {
        true if protocol == ICMP => (encap::IPV4, error.payload.get(ICMP_HEADER_BYTES..)?),
        true => (encap::IPV6, error.payload.get(ICMP_HEADER_BYTES..)?),
        false => return None,
    };
    let frame = [&[0; 12][..], &ethertype.to_be_bytes(), inner].concat();
    Packet::parse(&frame).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_wire::Tcp;

    fn syn(v6: bool) -> Packet {
        let (from, to) = match v6 {
            false => ("192.0.2.1:1024", "198.51.100.1:5001"),
            true => ("[fd00::1]:1024", "[fd01::1]:5001"),
        };
        Packet::tcp_between(from.parse().unwrap(), to.parse().unwrap(), Tcp::SYN)
    }

    #[test]
    fn errors_quote_the_packet_that_was_refused() {
        for (v6, protocol, kind) in [(false, ICMP, 3), (true, ICMPV6, 1)] {
            let sent = syn(v6);
            let payload = [&[kind, 3, 0, 0, 0, 0, 0, 0][..], &sent.to_bytes()[14..]].concat();
            let (from, to) = sent.addresses().unwrap();
            let error = Packet::between(to, from, Transport::Other(protocol)).payload(payload.clone());
            assert_eq!(quoted(&error).unwrap().source(), sent.source());
            let echo = [&[8][..], &payload[1..]].concat();
            assert!(quoted(&error.clone().payload(echo)).is_none());
            assert!(quoted(&error.clone().payload(&payload[..20])).is_none());
            assert!(quoted(&error.payload(Vec::new())).is_none());
        }
    }

    #[test]
    fn a_checksum_that_a_nic_would_complete_is_no_damage() {
        for v6 in [false, true] {
            let packet = syn(v6).payload(vec![1, 2, 3]);
            let parsed = |packet: &Packet| Packet::parse(&packet.to_bytes()).unwrap();
            assert!(is_intact(&parsed(&packet)));
            let (from, to) = packet.addresses().unwrap();
            let partial = addresses(addresses(Sum::new(), from), to).word(TCP).word(23).folded();
            let unfinished = packet.clone().with_l4_checksum(Checksum::Value(partial));
            assert!(is_intact(&parsed(&unfinished)));
            let wrong = packet.with_l4_checksum(Checksum::Value(partial ^ 1));
            assert!(!is_intact(&parsed(&wrong)));
        }
    }
}
