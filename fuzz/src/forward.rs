//! Parses a frame, rewrites it if a flow may carry the packet, and compares both results with shunt-wire.
//!
//! `CC=clang CFLAGS=-fsanitize=address` instruments the C code of the packet core as well.

use shunt_bpf::{
    core,
    wire::{class_bits, flow_between, key_for},
};
use shunt_wire::{Checksum, Network, Packet, Tag, Transport};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const IFINDEX: u32 = 7;

/// A frame: the packet core accepts what shunt-wire does, with the same key and class, and rewrites it to the packet
/// that shunt-wire builds.
pub fn forward(bytes: &[u8]) -> bool {
    // An allocation that ends with the frame: the sanitizer catches reads past the end.
    let frame = bytes.to_vec().into_boxed_slice();
    let parsed = core::parse(&frame, IFINDEX);
    let expected = Packet::parse(&frame).ok().filter(|packet| packet.to_bytes()[..] == frame[..]);
    let Some(packet) = expected else {
        if let Ok((parsed, _)) = parsed {
            assert!(usize::from(parsed.l2_bytes) + usize::from(parsed.l3_bytes) >= 14 + 28);
        }
        return parsed.is_ok();
    };
    if !simple(&packet) {
        assert!(parsed.is_err());
        return false;
    }
    let Ok((parsed, key)) = parsed else { panic!("shunt-wire parses the frame") };
    assert_eq!(Some(key), key_for(&packet, IFINDEX));
    assert_eq!(Some(parsed.class_bits), class_bits(&packet));
    if core::admit(&parsed) == 0 {
        rewrite(&frame, &parsed, &packet);
    }
    true
}

/// Whether the core must accept the packet: TCP or UDP, without options, extension headers or fragments, at most two
/// tags.
fn simple(packet: &Packet) -> bool {
    let known = packet.ethernet.tags.iter().all(|tag| tag.tpid != 0x9100);
    let bare = match &packet.network {
        Network::V4(ip) => ip.options.is_empty() && !ip.more_fragments && ip.fragment_offset == 0,
        Network::V6(ip) => ip.extensions.is_empty() && packet.to_bytes().len() < 0xffff,
        Network::Other(_) => false,
    };
    let l4 = matches!(packet.transport, Transport::Udp(_) | Transport::Tcp(_));
    known && bare && l4 && packet.ethernet.tags.len() <= 2
}

fn rewrite(frame: &[u8], parsed: &core::Packet, packet: &Packet) {
    let v4 = packet.ipv4().is_some();
    let end = |last: u8, port| {
        let ip = if v4 {
            IpAddr::V4(Ipv4Addr::new(198, 18, 0, last))
        } else {
            IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last.into()))
        };
        SocketAddr::new(ip, port)
    };
    let chosen = frame.last().copied().unwrap_or(0);
    // Routed or bridged.
    let hops = u8::from(chosen & 0x80 == 0);
    let mut after = packet.clone().with_hop_limit(packet.hop_limit().unwrap_or(2) - hops);
    if chosen & 1 != 0 {
        after = after.with_source(end(1, 61001));
    }
    if chosen & 2 != 0 {
        after = after.with_destination(end(2, 443));
    }
    let tags = [Tag::service(10), Tag::vlan(20)];
    after = after.with_tags(&tags[..usize::from(chosen >> 2) % 3]).with_header_checksum(Checksum::Good);
    after.trailer.clear();
    let Some((_, entry)) = flow_between(packet, &after, IFINDEX) else { return };
    let result = core::rewrite(frame, parsed, &entry, false);
    let summed = match packet.l4_checksum() {
        Some(Checksum::Good) => true,
        Some(Checksum::Zero) => packet.udp().is_some(),
        _ => false,
    };
    if summed && packet.ipv4().is_none_or(|ip| ip.checksum == Checksum::Good) {
        assert_eq!(result, after.to_bytes());
    } else {
        assert_eq!(result.len(), after.to_bytes().len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::corpus_and_changes;

    #[test]
    fn changed_frames_are_parsed_and_rewritten_as_shunt_wire_does() {
        corpus_and_changes("forward", 100_000, forward);
    }
}
