//! Keys and flows for packets of `shunt-wire`, without the packet core's parser: tests compare the two.

use crate::{
    Entry, Key,
    abi::{self, Flow, Key4, Key6},
    core::{Ends, translate},
};
use shunt_wire::{Network, Packet, Tag};

/// The static flow that turns packets like `before`, received at `ifindex`, into packets like `after`. With the same
/// TTL, the flow is bridged. None unless both packets are TCP or UDP of one family, with at most two tags.
pub fn flow_between(before: &Packet, after: &Packet, ifindex: u32) -> Option<(Key, Entry)> {
    let tags = &after.ethernet.tags;
    if before.ethernet.tags.len() > 2 || tags.len() > 2 || before.protocol() != after.protocol() {
        return None;
    }
    let mut flow = Flow {
        state: abi::FLOW_ACTIVE,
        flags: abi::FLOW_STATIC,
        out_tags: tags.len() as u8,
        max_l3_bytes: 1500,
        class_bits: class_bits(before)?,
        in_ttl: before.hop_limit()?,
        in_dmac: before.ethernet.destination.0,
        ..Flow::default()
    };
    if before.hop_limit() == after.hop_limit() {
        flow.flags |= abi::FLOW_BRIDGED;
    }
    flow.l2[..after.ethernet.bytes()].copy_from_slice(&after.ethernet.header(after.ethertype()));
    let mut entry = Entry { flow, ..Entry::default() };
    translate(&ends_of(before)?, &ends_of(after)?, &mut entry);
    Some((key_for(before, ifindex)?, entry))
}

/// The key of a packet received at `ifindex`. None unless the packet is TCP or UDP with at most two tags.
pub fn key_for(packet: &Packet, ifindex: u32) -> Option<Key> {
    let (sport, dport) = packet.ports()?;
    let (sport_be, dport_be) = (sport.to_be_bytes(), dport.to_be_bytes());
    let l4_proto = packet.protocol()?.into();
    let tags = key_tags(&packet.ethernet.tags)?;
    match &packet.network {
        Network::V4(ip) => {
            let (src_be, dst_be) = (ip.source.octets(), ip.destination.octets());
            Some(Key::V4(Key4 { src_be, dst_be, sport_be, dport_be, ifindex, tags, l4_proto }))
        }
        Network::V6(ip) => {
            let (src_be, dst_be) = (ip.source.octets(), ip.destination.octets());
            Some(Key::V6(Key6 { src_be, dst_be, sport_be, dport_be, ifindex, tags, l4_proto }))
        }
        Network::Other(_) => None,
    }
}

/// The DSCP and VLAN priorities of a packet, in the layout of `class_bits`. None unless the packet is IP.
pub fn class_bits(packet: &Packet) -> Option<u16> {
    let dscp = match &packet.network {
        Network::V4(ip) => ip.tos,
        Network::V6(ip) => ip.traffic_class,
        Network::Other(_) => return None,
    };
    let priority = |n: usize| packet.ethernet.tags.get(n).map_or(0, |tag| tag.control() >> 12);
    Some(u16::from(dscp & 0xfc) | priority(0) << 8 | priority(1) << 12)
}

fn key_tags(tags: &[Tag]) -> Option<[u16; 2]> {
    let mut key = [0; 2];
    if tags.len() > key.len() {
        return None;
    }
    for (bits, tag) in key.iter_mut().zip(tags) {
        *bits = tag.key_bits();
    }
    Some(key)
}

fn ends_of(packet: &Packet) -> Option<Ends> {
    let (sport, dport) = packet.ports()?;
    let ports = [sport.to_be_bytes(), dport.to_be_bytes()].concat();
    match &packet.network {
        Network::V4(ip) => {
            let bytes = [&ip.source.octets()[..], &ip.destination.octets(), &ports].concat();
            bytes.try_into().ok().map(Ends::V4)
        }
        Network::V6(ip) => {
            let bytes = [&ip.source.octets()[..], &ip.destination.octets(), &ports].concat();
            bytes.try_into().ok().map(Ends::V6)
        }
        Network::Other(_) => None,
    }
}
