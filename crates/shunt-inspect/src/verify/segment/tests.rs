use super::*;
use shunt_wire::{Checksum, Ethernet, Ipv4, Mac, Network, Packet, Tag, Tcp, Transport, Udp};

/// A packet of 60 bytes of payload from 192.0.2.1:1000 to 198.51.100.1:80.
fn packet(transport: Transport) -> Packet {
    let end = |text: &str| text.parse().unwrap();
    Packet::between(end("192.0.2.1"), end("198.51.100.1"), transport).payload((0..60).collect::<Vec<u8>>())
}

fn tcp() -> Transport {
    Transport::Tcp(Tcp {
        source: 1000,
        destination: 80,
        sequence: 5000,
        acknowledgement: 7,
        flags: Tcp::ACK | Tcp::PSH,
        window: 100,
        urgent: 0,
        options: Vec::new(),
        checksum: Checksum::Good,
    })
}

fn udp() -> Transport {
    Transport::Udp(Udp { source: 1000, destination: 80, checksum: Checksum::Good })
}

fn frame(bytes: Vec<u8>) -> Frame {
    let (_, l3_at) = shunt_wire::encap::payload(&bytes).unwrap();
    Frame { total: bytes.len(), l3_at, bytes, ..Frame::default() }
}

fn only(frame: &Frame) -> Segment {
    let found = segments(frame).unwrap();
    assert_eq!((found.whole.len(), found.cut), (1, None));
    found.whole.into_iter().next().unwrap()
}

#[test]
fn what_a_router_rewrites_is_not_kept_and_everything_else_is() {
    for transport in [tcp(), udp()] {
        let before = packet(transport);
        let mut after = before.clone().macs(Mac([2; 6]), Mac([4; 6]));
        if let Network::V4(Ipv4 { source, ttl, tos, .. }) = &mut after.network {
            (*source, *ttl, *tos) = ([203, 0, 113, 1].into(), *ttl - 1, 0x20);
        }
        match &mut after.transport {
            Transport::Tcp(tcp) => tcp.source = 2000,
            Transport::Udp(udp) => udp.source = 2000,
            _ => {}
        }
        let (before, after) = (frame(before.to_bytes()), frame(after.to_bytes()));
        let (entered, left) = (only(&before), only(&after));
        assert_eq!(entered.kept, left.kept);
        assert_ne!(entered.treated, left.treated);
        assert_eq!((left.treated.sport, left.treated.dscp), (2000, 8));
        assert_eq!((left.is_ip_sum_good, left.is_l4_sum_good), (true, Some(true)));
        for at in [after.bytes.len() - 1, after.l3_at + 28, after.l3_at + 9] {
            let mut changed = after.clone();
            changed.bytes[at] ^= 1;
            assert_ne!(segments(&changed), segments(&after), "byte {at}");
        }
    }
}

#[test]
fn an_aggregate_has_the_segments_that_it_was_made_of() {
    let whole = frame(packet(tcp()).to_bytes());
    let aggregate = Frame { segment_bytes: 25, ..whole.clone() };
    let found = segments(&aggregate).unwrap().whole;
    let streams: Vec<_> = found.iter().map(|one| one.stream.unwrap()).collect();
    let places: Vec<_> = streams.iter().map(|stream| (stream.sequence, stream.payload)).collect();
    assert_eq!(places, [(5000, 25), (5025, 25), (5050, 10)]);
    // The second segment by itself.
    let mut single = packet(tcp());
    if let Transport::Tcp(tcp) = &mut single.transport {
        (tcp.sequence, tcp.flags) = (5025, Tcp::ACK);
    }
    let single = single.payload((25..50).collect::<Vec<u8>>());
    assert_eq!(only(&frame(single.to_bytes())).kept, found[1].kept);
    assert!(found.iter().all(|one| one.is_part && one.is_l4_sum_good.is_none()));
}

#[test]
fn a_frame_that_was_not_captured_whole_yields_the_segments_that_were() {
    let mut cut = frame(packet(tcp()).to_bytes());
    cut.segment_bytes = 25;
    cut.bytes.truncate(cut.bytes.len() - 15);
    let found = segments(&cut).unwrap();
    assert_eq!((found.whole.len(), found.cut), (1, Some((5025, 35))));
}

#[test]
fn an_unfinished_checksum_is_the_sum_of_the_pseudo_header() {
    let mut unfinished = frame(packet(udp()).to_bytes());
    let l4 = &unfinished.bytes[unfinished.l3_at + 20..];
    let addresses = &unfinished.bytes[unfinished.l3_at + 12..unfinished.l3_at + 20];
    let sum = Sum::new().bytes(addresses).word(17).word(l4.len() as u16).folded();
    let at = unfinished.l3_at + 26;
    unfinished.bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(only(&unfinished).is_l4_sum_good, Some(false));
    unfinished.is_unfinished = true;
    assert_eq!(only(&unfinished).is_l4_sum_good, Some(true));
}

#[test]
fn a_tag_beside_the_frame_is_part_of_its_header() {
    let plain = frame(packet(udp()).to_bytes());
    let tagged = frame(packet(udp()).with_tags(&[Tag::vlan(10)]).to_bytes());
    let beside = Frame { tag: Some((0x8100, 10)), ..plain };
    assert_eq!(only(&beside).treated.l2, only(&tagged).treated.l2);
}

#[test]
fn other_packets_have_no_segments() {
    let mut fragment = packet(udp());
    if let Network::V4(ip) = &mut fragment.network {
        ip.more_fragments = true;
    }
    assert_eq!(segments(&frame(fragment.to_bytes())), None);
    let other = packet(Transport::Other(1));
    assert_eq!(segments(&frame(other.to_bytes())), None);
    for bytes in 0..54 {
        let mut short = frame(packet(tcp()).to_bytes());
        short.bytes.truncate(bytes);
        assert_eq!(segments(&short), None, "{bytes} bytes");
    }
    let ethernet = Ethernet::default();
    assert_eq!(segments(&Frame { bytes: ethernet.header(0x0806), ..Frame::default() }), None);
}
