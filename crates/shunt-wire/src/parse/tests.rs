use super::*;
use crate::{Mac, Tag};

const UDP4: &str = "020000000102020000000101080045000021123440004011a0d9c0a80102c61200029c400009000d7ef4\
                    7368756e74";
const TCP6_QINQ: &str = "02000000010202000000010188a860648100000786dd6b8123450018063ffd0000010000000000000000000000\
                         02fd0000020000000000000000000000029c4001bb01020304000000006002faf001400000020405a0";

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
}

fn mac(last: u16) -> Mac {
    Mac([2, 0, 0, 0, (last >> 8) as u8, last as u8])
}

fn udp4() -> Packet {
    let mut packet =
        Packet::udp_between("192.168.1.2:40000".parse().unwrap(), "198.18.0.2:9".parse().unwrap())
            .macs(mac(0x101), mac(0x102))
            .with_id(0x1234)
            .payload("shunt");
    if let Network::V4(ip) = &mut packet.network {
        ip.dont_fragment = true;
    }
    packet
}

fn udp6() -> Packet {
    Packet::udp_between("[fd00:1::2]:40000".parse().unwrap(), "[fd00:2::2]:9".parse().unwrap())
        .payload("shunt")
}

#[test]
fn a_known_ipv4_udp_packet_is_parsed_and_built() {
    assert_eq!(Packet::parse(&bytes(UDP4)), Ok(udp4()));
    assert_eq!(udp4().to_bytes(), bytes(UDP4));
}

#[test]
fn a_known_ipv6_tcp_packet_with_two_tags_is_parsed_and_built() {
    let mut packet = Packet::tcp_between(
        "[fd00:1::2]:40000".parse().unwrap(),
        "[fd00:2::2]:443".parse().unwrap(),
        Tcp::SYN,
    )
    .macs(mac(0x101), mac(0x102))
    .tagged(Tag { priority: 3, ..Tag::service(100) })
    .tagged(Tag::vlan(7))
    .with_hop_limit(63)
    .with_class(0xb8);
    if let (Network::V6(ip), Transport::Tcp(tcp)) = (&mut packet.network, &mut packet.transport) {
        ip.flow_label = 0x12345;
        tcp.sequence = 0x0102_0304;
        tcp.window = 64240;
        tcp.options = vec![2, 4, 5, 0xa0];
    }
    assert_eq!(Packet::parse(&bytes(TCP6_QINQ)), Ok(packet.clone()));
    assert_eq!(packet.to_bytes(), bytes(TCP6_QINQ));
}

#[test]
fn wrong_and_absent_checksums_are_kept() {
    for checksum in [Checksum::Zero, Checksum::Value(0xdead)] {
        for packet in [udp4(), udp6()] {
            let packet = packet.with_l4_checksum(checksum);
            let seen = Packet::parse(&packet.to_bytes()).unwrap();
            assert_eq!(seen.l4_checksum(), Some(checksum));
            assert_eq!(seen, packet);
        }
        let packet = udp4().with_header_checksum(checksum);
        assert_eq!(Packet::parse(&packet.to_bytes()), Ok(packet));
    }
}

#[test]
fn a_computed_udp_checksum_of_zero_is_sent_as_ones() {
    // This payload makes the sum 0xffff.
    let empty = udp4().payload([0, 0]).to_bytes();
    let packet = udp4().payload([empty[40], empty[41]]);
    assert_eq!(&packet.to_bytes()[40..42], [0xff, 0xff]);
    assert_eq!(Packet::parse(&packet.to_bytes()).unwrap().l4_checksum(), Some(Checksum::Good));
}

#[test]
fn padding_is_parsed_as_trailer_and_not_as_payload() {
    let packet = udp4().padded_to(60);
    let frame = packet.to_bytes();
    assert_eq!(frame.len(), 60);
    let seen = Packet::parse(&frame).unwrap();
    assert_eq!((seen.payload.as_slice(), seen.trailer.len()), (b"shunt".as_slice(), 60 - 47));
    assert_eq!(seen, packet);
}

#[test]
fn frame_bytes_sets_the_frame_size_by_the_payload() {
    for bytes in [60, 61, 1514] {
        assert_eq!(udp4().frame_bytes(bytes).to_bytes().len(), bytes);
    }
}

#[test]
fn options_and_extension_headers_are_kept() {
    let mut v4 = udp4();
    if let Network::V4(ip) = &mut v4.network {
        ip.options = vec![1, 1, 1, 0];
    }
    let mut v6 = udp6();
    if let Network::V6(ip) = &mut v6.network {
        ip.extensions = vec![
            Extension { kind: 0, body: vec![0, 1, 4, 0, 0, 0, 0] },
            Extension { kind: 60, body: vec![0, 1, 4, 0, 0, 0, 0] },
        ];
    }
    for packet in [v4, v6] {
        assert_eq!(Packet::parse(&packet.to_bytes()), Ok(packet));
    }
}

#[test]
fn the_l4_bytes_of_fragments_are_payload() {
    let mut v4 = udp4();
    v4.transport = Transport::Other(17);
    if let Network::V4(ip) = &mut v4.network {
        (ip.more_fragments, ip.fragment_offset) = (true, 185);
    }
    let mut v6 = udp6();
    v6.transport = Transport::Other(17);
    if let Network::V6(ip) = &mut v6.network {
        ip.extensions = vec![Extension { kind: 44, body: vec![0, 0, 1, 0, 0, 0, 9] }];
    }
    for packet in [v4, v6] {
        assert_eq!(Packet::parse(&packet.to_bytes()), Ok(packet));
    }
}

#[test]
fn frames_that_are_not_ip_are_kept_whole() {
    let arp = Packet::other(0x0806, [0, 1, 8, 0, 6, 4, 0, 1]).macs(mac(1), mac(2));
    assert_eq!(Packet::parse(&arp.to_bytes()), Ok(arp));
}

#[test]
fn every_truncation_is_refused_and_none_panics() {
    for hex in [UDP4, TCP6_QINQ] {
        let frame = bytes(hex);
        for cut in 0..frame.len() {
            assert!(Packet::parse(&frame[..cut]).is_err(), "{cut} of {} bytes", frame.len());
        }
    }
}

#[test]
fn no_mutation_of_one_byte_panics() {
    for hex in [UDP4, TCP6_QINQ] {
        for at in 0..hex.len() / 2 {
            for value in 0..=255 {
                let mut frame = bytes(hex);
                frame[at] = value;
                let _ = Packet::parse(&frame);
            }
        }
    }
}

#[test]
fn addresses_and_ports_can_be_read_and_replaced() {
    let packet = udp4()
        .with_source("198.18.0.1:1024".parse().unwrap())
        .with_destination("192.0.2.1:53".parse().unwrap());
    assert_eq!(packet.source(), Some("198.18.0.1:1024".parse().unwrap()));
    assert_eq!(packet.destination(), Some("192.0.2.1:53".parse().unwrap()));
    assert_eq!(Packet::parse(&packet.to_bytes()), Ok(packet));
}
