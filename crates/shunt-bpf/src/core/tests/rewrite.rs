//! A rewritten packet equals a newly built packet, and the packet that Linux would have written.

mod linux;
mod pairs;

use super::*;
use crate::{abi::FLOW_UNTRACKED, wire::flow_between};
use pairs::{Pair, Sums};
use shunt_wire::{Checksum, Sum, Transport};

/// Cases for claims about every packet (many), and for claims that follow from these (some).
const MANY: u32 = 100_000;
const SOME: u32 = 20_000;

/// A generator with a fixed seed, unless SHUNT_SEED is set.
fn rng() -> fastrand::Rng {
    let seed = std::env::var("SHUNT_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x5348_554e);
    println!("SHUNT_SEED={seed}");
    fastrand::Rng::with_seed(seed)
}

fn each_pair(cases: u32, sums: &[Sums], mut check: impl FnMut(&Pair)) {
    let mut rng = rng();
    for _ in 0..cases {
        let sums = sums[rng.usize(..sums.len())];
        check(&Pair::random(&mut rng, sums));
    }
}

/// Rewrites a frame with the action between the two packets of the pair.
fn rewritten(pair: &Pair, frame: &[u8], partial: bool) -> Vec<u8> {
    let (key, entry) = flow_between(&pair.before, &pair.after, IFINDEX).unwrap();
    let (packet, parsed_key) = parse(frame, IFINDEX).unwrap();
    assert_eq!(parsed_key, key);
    rewrite(frame, &packet, &entry, partial)
}

#[test]
fn a_rewritten_packet_equals_a_newly_built_packet() {
    each_pair(MANY, &[Sums::Good, Sums::None, Sums::ZeroBefore, Sums::ZeroAfter], |pair| {
        let frame = pair.before.to_bytes();
        assert_eq!(rewritten(pair, &frame, false), pair.after.to_bytes(), "{pair:?}");
    });
}

#[test]
fn a_rewritten_packet_equals_the_one_linux_writes_with_any_checksums() {
    let all = [Sums::Good, Sums::None, Sums::ZeroBefore, Sums::ZeroAfter, Sums::Wrong, Sums::OtherZero];
    each_pair(MANY, &all, |pair| {
        let frame = pair.before.to_bytes();
        assert_eq!(rewritten(pair, &frame, false), linux::forwarded(&frame, pair, false), "{pair:?}");
    });
}

#[test]
fn a_wrong_checksum_stays_wrong_by_the_same_amount() {
    each_pair(SOME, &[Sums::Wrong], |pair| {
        let before = error(&pair.before.to_bytes());
        let after = error(&rewritten(pair, &pair.before.to_bytes(), false));
        assert_eq!(after, before, "{pair:?}");
    });
}

#[test]
fn the_sum_over_a_packet_changes_as_computed_from_the_action() {
    each_pair(SOME, &[Sums::Good, Sums::None, Sums::ZeroBefore, Sums::ZeroAfter], |pair| {
        let frame = pair.before.to_bytes();
        let (packet, _) = parse(&frame, IFINDEX).unwrap();
        let (_, entry) = flow_between(&pair.before, &pair.after, IFINDEX).unwrap();
        let has_check = pair.before.l4_checksum() != Some(Checksum::Zero);
        let change = sum_change(&entry.flow, packet.family, has_check);
        let after = rewrite(&frame, &packet, &entry, false);
        let sum = |l3: &[u8]| Sum::new().bytes(l3);
        let l3 = &frame[usize::from(packet.l2_bytes)..][..usize::from(packet.l3_bytes)];
        let l3_after = &after[14 + 4 * usize::from(entry.flow.out_tags)..][..l3.len()];
        let expected = sum(l3).word(u16::from_be(change));
        assert_eq!(expected.folded() % 0xffff, sum(l3_after).folded() % 0xffff, "{pair:?}");
    });
}

/// The error of an L4 checksum, as a ones' complement number with a single zero; 0 if there is no checksum.
fn error(frame: &[u8]) -> u16 {
    let packet = Frame::parse(frame).unwrap();
    let stored = match packet.l4_checksum() {
        Some(Checksum::Value(value)) => value,
        Some(Checksum::Zero) if packet.tcp().is_some() => 0,
        _ => return 0,
    };
    let good = packet.with_l4_checksum(Checksum::Good).to_bytes();
    let right = Frame::parse(&good).unwrap();
    assert_eq!(right.l4_checksum(), Some(Checksum::Good));
    match Sum::new().word(stored).word(!l4_field(&good)).folded() {
        0xffff => 0,
        error => error,
    }
}

/// The L4 checksum field of a frame without options or extension headers.
fn l4_field(frame: &[u8]) -> u16 {
    let at = linux::l4_checksum_at(frame);
    u16::from_be_bytes([frame[at], frame[at + 1]])
}

#[test]
fn udp_without_a_checksum_is_sent_without_one() {
    each_pair(SOME, &[Sums::None], |pair| {
        let after = rewritten(pair, &pair.before.to_bytes(), false);
        if matches!(pair.before.transport, Transport::Udp(_)) {
            assert_eq!(l4_field(&after), 0, "{pair:?}");
        }
    });
}

#[test]
fn a_computed_zero_is_sent_as_ffff_by_udp_and_as_0000_by_tcp() {
    let mut seen = [0u32; 2];
    each_pair(SOME, &[Sums::ZeroAfter], |pair| {
        let after = rewritten(pair, &pair.before.to_bytes(), false);
        let tcp = pair.after.tcp().is_some();
        seen[usize::from(tcp)] += 1;
        assert_eq!(l4_field(&after), if tcp { 0 } else { 0xffff }, "{pair:?}");
        if pair.after.ipv4().is_some() {
            let at = after.len() - pair.after.to_bytes().len() + 14 + 4 * pair.after.ethernet.tags.len();
            assert_eq!(after[at + 10..at + 12], [0, 0], "{pair:?}");
        }
    });
    assert!(seen.iter().all(|n| *n > SOME / 4), "{seen:?}");
}

#[test]
fn an_unfinished_checksum_becomes_the_new_pseudo_header_s_sum() {
    each_pair(SOME, &[Sums::Good], |pair| {
        let (before, after) = (linux::unfinished(&pair.before), linux::unfinished(&pair.after));
        let frame = before.to_bytes();
        let result = rewritten(pair, &frame, true);
        assert_eq!(result, after.to_bytes(), "{pair:?}");
        assert_eq!(result, linux::forwarded(&frame, pair, true), "{pair:?}");
    });
}

#[test]
fn an_untracked_bridged_frame_keeps_every_byte_including_padding() {
    each_pair(SOME, &[Sums::Good, Sums::Wrong, Sums::OtherZero, Sums::None], |pair| {
        let before = pair.before.clone().padded_to(200);
        let (_, mut entry) = flow_between(&before, &before, IFINDEX).unwrap();
        entry.flow.flags |= FLOW_UNTRACKED;
        let frame = before.to_bytes();
        let (packet, _) = parse(&frame, IFINDEX).unwrap();
        assert_eq!(rewrite(&frame, &packet, &entry, false), frame, "{before:?}");
    });
}

#[test]
fn padding_of_a_routed_frame_is_removed() {
    each_pair(SOME, &[Sums::Good], |pair| {
        let frame = pair.before.clone().padded_to(200).to_bytes();
        assert_eq!(rewritten(pair, &frame, false), pair.after.to_bytes(), "{pair:?}");
    });
}

#[test]
fn the_reverse_action_restores_the_packet_but_for_the_ttl() {
    each_pair(SOME, &[Sums::Good, Sums::ZeroBefore], |pair| {
        let there = rewritten(pair, &pair.before.to_bytes(), false);
        let back = Pair { before: pair.after.clone(), after: pair.before.clone() };
        let hops = pair.after.hop_limit().unwrap() - pair.hops();
        if hops > 0 {
            let expected = pair.before.clone().with_hop_limit(hops);
            assert_eq!(rewritten(&back, &there, false), expected.to_bytes(), "{pair:?}");
        }
    });
}
