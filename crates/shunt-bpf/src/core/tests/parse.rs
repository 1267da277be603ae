//! Parsing of frames: keys and descriptions of valid frames, and the reasons for refusing others.

use super::*;
use crate::wire::{class_bits, key_for};
use shunt_wire::{Checksum, Extension, Network, Transport};

/// Offset of the L3 header.
fn l3_at(frame: &Frame) -> usize {
    14 + 4 * frame.ethernet.tags.len()
}

/// Offset of the L4 header in a packet without options or extension headers.
fn l4_at(frame: &Frame) -> usize {
    l3_at(frame) + if frame.ipv4().is_some() { 20 } else { 40 }
}

fn v4_udp() -> Frame {
    plain()[0].clone()
}

fn v6_udp() -> Frame {
    plain()[2].clone()
}

/// A frame with changed bytes: offset and new value.
fn with(frame: &Frame, changes: &[(usize, u8)]) -> Vec<u8> {
    let mut bytes = frame.to_bytes();
    for (at, byte) in changes {
        bytes[*at] = *byte;
    }
    bytes
}

#[test]
fn every_kind_of_frame_has_the_expected_key_and_description() {
    for frame in plain() {
        for tags in taggings() {
            let frame = frame.clone().with_tags(&tags).with_class(0xb9).with_hop_limit(9);
            let (packet, key) = parse(&frame.to_bytes(), IFINDEX).unwrap();
            assert_eq!(Some(key), key_for(&frame, IFINDEX), "{frame:?}");
            assert_eq!(Some(packet.class_bits), class_bits(&frame), "{frame:?}");
            assert_eq!(usize::from(packet.l2_bytes), l3_at(&frame));
            assert_eq!(usize::from(packet.l3_bytes), frame.to_bytes().len() - l3_at(&frame));
            assert_eq!(packet.wire_bytes, packet.l3_bytes);
            assert_eq!(usize::from(packet.tags), tags.len());
            assert_eq!(packet.family, if frame.ipv4().is_some() { 4 } else { 6 });
            assert_eq!(Some(packet.l4_proto), frame.protocol());
            assert_eq!(packet.l4_bytes, if frame.tcp().is_some() { 20 } else { 8 });
            assert_eq!(packet.tcp_flags, frame.tcp().map_or(0, |tcp| tcp.flags));
            assert_eq!(packet.ttl, 9);
        }
    }
}

#[test]
fn the_class_includes_dscp_and_not_ecn() {
    for frame in plain() {
        let class = |class| parse(&frame.clone().with_class(class).to_bytes(), IFINDEX).unwrap().0.class_bits;
        for byte in 0..=255 {
            assert_eq!(class(byte), u16::from(byte & 0xfc));
        }
    }
}

#[test]
fn a_priority_tag_differs_from_no_tag_in_the_key() {
    let key = |frame: Frame| parse(&frame.to_bytes(), IFINDEX).unwrap().1;
    assert_ne!(key(v4_udp()), key(v4_udp().tagged(Tag::vlan(0))));
    assert_ne!(key(v4_udp().tagged(Tag::vlan(5))), key(v4_udp().tagged(Tag::service(5))));
    assert_eq!(
        key(v4_udp().tagged(Tag::vlan(5))),
        key(v4_udp().tagged(Tag { priority: 6, drop_eligible: true, ..Tag::vlan(5) }))
    );
}

#[test]
fn the_key_includes_the_port_and_every_byte_of_the_tuple() {
    for frame in plain() {
        let bytes = frame.to_bytes();
        let key = parse(&bytes, IFINDEX).unwrap().1;
        assert_ne!(parse(&bytes, IFINDEX + 1).unwrap().1, key);
        let addresses = if frame.ipv4().is_some() { 26..34 } else { 22..54 };
        for at in addresses.chain(l4_at(&frame)..l4_at(&frame) + 4) {
            let changed = with(&frame, &[(at, bytes[at] ^ 0x10)]);
            assert_ne!(parse(&changed, IFINDEX).unwrap().1, key, "byte {at}");
        }
    }
}

#[test]
fn a_frame_truncated_in_its_headers_is_a_bad_header_and_one_truncated_later_is_not() {
    for frame in plain() {
        for tags in taggings() {
            let frame = frame.clone().with_tags(&tags);
            let bytes = frame.to_bytes();
            let needed = l4_at(&frame) + if frame.tcp().is_some() { 20 } else { 8 };
            let whole = parse(&bytes, IFINDEX).unwrap();
            for length in 0..bytes.len() {
                // An allocation that ends with the frame: sanitizers catch reads past the end.
                let cut = bytes[..length].to_vec().into_boxed_slice();
                if length < needed {
                    assert_eq!(parsed(&cut), "bad-header", "{length} bytes of {frame:?}");
                } else {
                    assert_eq!(parse(&cut, IFINDEX), Ok(whole), "{length} bytes of {frame:?}");
                }
            }
        }
    }
}

#[test]
fn three_vlan_tags_are_punted_as_tags() {
    let three = v4_udp().with_tags(&[Tag::service(1), Tag::vlan(2), Tag::vlan(3)]);
    assert_eq!(parsed(&three.to_bytes()), "tags");
    assert_eq!(parsed(&three.to_bytes()[..22]), "tags");
    assert_eq!(parsed(&v4_udp().tagged(Tag { tpid: 0x9100, ..Tag::vlan(1) }).to_bytes()), "protocol");
}

#[test]
fn other_protocols_than_tcp_and_udp_over_ip_are_punted_as_protocol() {
    assert_eq!(parsed(&Frame::other(0x0806, [0; 46]).to_bytes()), "protocol");
    assert_eq!(parsed(&Frame::other(46, [0x42; 46]).to_bytes()), "protocol");
    for protocol in (0..=255).filter(|p| ![6, 17].contains(p)) {
        let mut frame = v4_udp();
        frame.transport = Transport::Other(protocol);
        assert_eq!(parsed(&frame.to_bytes()), "protocol", "{protocol}");
    }
    for protocol in (0..=255).filter(|p| ![0, 6, 17, 43, 44, 60].contains(p)) {
        let mut frame = v6_udp();
        frame.transport = Transport::Other(protocol);
        assert_eq!(parsed(&frame.to_bytes()), "protocol", "{protocol}");
    }
}

#[test]
fn ipv4_options_are_punted_as_options_and_short_header_lengths_as_bad_header() {
    for words in 1..=10 {
        let mut frame = v4_udp();
        if let Network::V4(ip) = &mut frame.network {
            ip.options = vec![1; 4 * words];
        }
        assert_eq!(parsed(&frame.to_bytes()), "options", "{words} words");
    }
    for first in 0..=255u8 {
        let why = match first {
            0x45 => "ok",
            0x46..=0x4f => "options",
            _ => "bad-header",
        };
        assert_eq!(parsed(&with(&v4_udp(), &[(14, first)])), why, "{first:#x}");
    }
}

#[test]
fn an_ipv6_header_with_another_version_is_a_bad_header() {
    for first in 0..=255u8 {
        let why = if first >> 4 == 6 { "ok" } else { "bad-header" };
        assert_eq!(parsed(&with(&v6_udp(), &[(14, first)])), why, "{first:#x}");
    }
}

#[test]
fn first_and_later_fragments_are_punted_as_fragment() {
    for (more_fragments, fragment_offset) in
        [(true, 0), (true, 185), (false, 185), (false, 0x1fff), (false, 1)]
    {
        let mut frame = v4_udp();
        if let Network::V4(ip) = &mut frame.network {
            (ip.more_fragments, ip.fragment_offset) = (more_fragments, fragment_offset);
        }
        assert_eq!(parsed(&frame.to_bytes()), "fragment");
    }
    let mut frame = v4_udp();
    if let Network::V4(ip) = &mut frame.network {
        ip.dont_fragment = true;
    }
    assert_eq!(parsed(&frame.to_bytes()), "ok");
    assert_eq!(parsed(&extended(44, vec![0, 0, 1, 1, 2, 3, 4])), "fragment");
}

/// IPv6 UDP with one extension header.
fn extended(kind: u8, body: Vec<u8>) -> Vec<u8> {
    let mut frame = v6_udp();
    if let Network::V6(ip) = &mut frame.network {
        ip.extensions.push(Extension { kind, body });
    }
    frame.to_bytes()
}

#[test]
fn ipv6_extension_headers_are_punted_as_options() {
    for kind in [0, 43, 60] {
        assert_eq!(parsed(&extended(kind, vec![0; 7])), "options", "{kind}");
    }
}

#[test]
fn ip_lengths_shorter_than_the_headers_are_bad_headers() {
    let total = |bytes: u16| with(&plain()[1], &[(16, (bytes >> 8) as u8), (17, bytes as u8)]);
    for bytes in 0..40 {
        assert_eq!(parsed(&total(bytes)), "bad-header", "IPv4 TCP of {bytes} bytes");
    }
    assert_eq!(parsed(&total(40)), "ok");
    assert_eq!(parsed(&total(0xffff)), "ok");
    let payload = |bytes: u16| with(&plain()[3], &[(18, (bytes >> 8) as u8), (19, bytes as u8)]);
    for bytes in 0..20 {
        assert_eq!(parsed(&payload(bytes)), "bad-header", "IPv6 TCP of {bytes} bytes");
    }
    assert_eq!(parsed(&payload(20)), "ok");
    assert_eq!(parsed(&payload(0xffff - 40)), "ok");
    assert_eq!(parse(&payload(0xffff - 40), IFINDEX).unwrap().0.l3_bytes, 0xffff);
    for bytes in 0xffff - 39..=0xffff {
        assert_eq!(parsed(&payload(bytes)), "bad-header", "an IPv6 payload of {bytes} bytes");
    }
}

#[test]
fn a_udp_length_that_differs_from_the_ip_length_is_a_bad_header() {
    for (frame, l3_length_at) in [(v4_udp(), 16), (v6_udp(), 18)] {
        let right = 8 + frame.payload.len() as u16;
        for bytes in (0..100).chain([0x7fff, 0xffff]) {
            let at = l4_at(&frame) + 4;
            let why = if bytes == right { "ok" } else { "bad-header" };
            let changed = with(&frame, &[(at, (bytes >> 8) as u8), (at + 1, bytes as u8)]);
            assert_eq!(parsed(&changed), why, "{bytes}");
        }
        // Both lengths agree, but are shorter than a UDP header.
        let ip: u8 = if frame.ipv4().is_some() { 20 } else { 0 };
        for bytes in 0..8 {
            let at = l4_at(&frame) + 4;
            let changed =
                with(&frame, &[(l3_length_at, 0), (l3_length_at + 1, ip + bytes), (at, 0), (at + 1, bytes)]);
            assert_eq!(parsed(&changed), "bad-header", "{bytes}");
        }
    }
}

#[test]
fn a_tcp_header_length_is_at_least_five_words_and_within_the_packet() {
    for frame in [plain()[1].clone(), plain()[3].clone()] {
        let frame = frame.payload(*b"eightby!");
        for words in 0..16 {
            let why = if (5..=7).contains(&words) { "ok" } else { "bad-header" };
            assert_eq!(parsed(&with(&frame, &[(l4_at(&frame) + 12, words << 4)])), why, "{words} words");
        }
        for options in 0..=10 {
            let mut frame = frame.clone();
            if let Transport::Tcp(tcp) = &mut frame.transport {
                tcp.options = vec![1; 4 * options];
            }
            let (packet, _) = parse(&frame.to_bytes(), IFINDEX).unwrap();
            assert_eq!(usize::from(packet.l4_bytes), 20 + 4 * options);
        }
    }
}

#[test]
fn padding_is_not_part_of_the_packet() {
    for frame in plain() {
        let bare = frame.clone().payload([]);
        let (packet, _) = parse(&bare.clone().padded_to(128).to_bytes(), IFINDEX).unwrap();
        assert_eq!(usize::from(packet.l3_bytes), bare.to_bytes().len() - 14);
    }
}

#[test]
fn parsing_ignores_checksums() {
    let frame = v4_udp().with_header_checksum(Checksum::Value(1)).with_l4_checksum(Checksum::Value(1));
    assert_eq!(parsed(&frame.to_bytes()), "ok");
}
