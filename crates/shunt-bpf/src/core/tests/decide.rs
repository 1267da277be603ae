//! When an action may be used, and which reason is told when several hold.

use super::*;
use crate::{
    abi::{self, FLOW_BRIDGED, FLOW_PENDING, FLOW_STATIC},
    testrun::flow_between,
};

const SECOND: u32 = 1000;

/// Everything that a decision depends on.
#[derive(Clone, Copy)]
struct Situation {
    now: u32,
    flow: Flow,
    packet: Packet,
    macs: [u8; 12],
    control: Control,
}

impl Situation {
    fn reason(&self) -> &'static str {
        reason(decide(&self.flow, &self.packet, self.macs, &self.control, self.now))
    }
}

/// A learned flow, and a packet for which nothing speaks against the fast path.
fn good_at(now: u32) -> Situation {
    let before = plain()[0].clone().with_class(0xb8).tagged(Tag { priority: 5, ..Tag::vlan(10) });
    let mut flow = flow_between(&before, &before, IFINDEX).unwrap().1.flow;
    flow.flags &= !(FLOW_STATIC | FLOW_BRIDGED);
    flow.epoch = 3;
    flow.reprove_at_ticks = now.wrapping_add(SECOND);
    flow.prove_by_ticks = now.wrapping_add(2 * SECOND);
    let control = Control {
        epoch: 3,
        heartbeat_ticks: now.wrapping_sub(SECOND),
        heartbeat_max_ticks: 2 * SECOND,
        ..Control::default()
    };
    let (packet, _) = parse(&before.to_bytes(), IFINDEX).unwrap();
    flow.max_l3_bytes = packet.wire_bytes;
    let macs = before.to_bytes()[..12].try_into().unwrap();
    Situation { now, flow, packet, macs, control }
}

fn good() -> Situation {
    good_at(1_000_000)
}

type Fault = (&'static str, fn(&mut Situation));

/// What can speak against it, the strongest first.
const FAULTS: &[Fault] = &[
    ("no-daemon", |s| s.control.heartbeat_ticks = s.now.wrapping_sub(2 * SECOND)),
    ("stale", |s| s.flow.epoch = 2),
    ("stale", |s| s.flow.epoch = abi::EPOCH_RETIRED),
    ("stale", |s| s.flow.prove_by_ticks = s.now),
    ("reprove", |s| s.flow.reprove_at_ticks = s.now),
    ("class", |s| s.packet.class_bits ^= 0x04),
    ("not-ours", |s| s.macs[5] ^= 1),
    ("mtu", |s| s.packet.wire_bytes += 1),
    ("pending", |s| s.flow.state = FLOW_PENDING),
];

#[test]
fn an_action_that_nothing_speaks_against_is_used() {
    assert_eq!(good().reason(), "ok");
}

#[test]
fn each_fault_is_told_by_name_and_the_strongest_of_several() {
    for (n, (first, damage)) in FAULTS.iter().enumerate() {
        let mut situation = good();
        damage(&mut situation);
        assert_eq!(situation.reason(), *first);
        for (_, more) in &FAULTS[n + 1..] {
            more(&mut situation);
            assert_eq!(situation.reason(), *first);
        }
    }
}

#[test]
fn deciding_changes_nothing() {
    for (_, damage) in FAULTS {
        let mut situation = good();
        damage(&mut situation);
        let before = situation;
        situation.reason();
        assert_eq!(
            (before.flow, before.packet, before.control),
            (situation.flow, situation.packet, situation.control)
        );
    }
}

#[test]
fn a_static_action_needs_no_proof_epoch_or_class_but_all_else() {
    for (name, damage) in FAULTS {
        let mut situation = good();
        situation.flow.flags |= FLOW_STATIC;
        damage(&mut situation);
        let expected = if ["stale", "reprove", "class"].contains(name) { "ok" } else { name };
        assert_eq!(situation.reason(), expected);
    }
}

#[test]
fn a_heartbeat_holds_until_its_last_tick_and_may_be_ahead_of_the_packet() {
    let ago = |ticks: i32| {
        let mut situation = good();
        situation.control.heartbeat_ticks = situation.now.wrapping_add_signed(-ticks);
        situation.reason()
    };
    assert_eq!(ago(2 * SECOND as i32 - 1), "ok");
    assert_eq!(ago(2 * SECOND as i32), "no-daemon");
    assert_eq!(ago(-5), "ok");
}

#[test]
fn no_beat_at_all_is_no_daemon() {
    let mut situation = good();
    (situation.control.heartbeat_ticks, situation.control.heartbeat_max_ticks) = (0, 0);
    assert_eq!(situation.reason(), "no-daemon");
}

#[test]
fn the_clock_may_wrap() {
    for now in [0, 1, SECOND, u32::MAX, u32::MAX - SECOND, u32::MAX / 2, u32::MAX / 2 + 1] {
        assert_eq!(good_at(now).reason(), "ok", "at {now}");
        for (name, damage) in FAULTS {
            let mut situation = good_at(now);
            damage(&mut situation);
            assert_eq!(situation.reason(), *name, "at {now}");
        }
    }
}

#[test]
fn every_byte_of_the_mac_counts() {
    for (byte, bit) in (0..6).flat_map(|byte| (0..8).map(move |bit| (byte, bit))) {
        let mut situation = good();
        situation.macs[byte] ^= 1 << bit;
        assert_eq!(situation.reason(), "not-ours");
    }
}

#[test]
fn every_byte_of_the_sender_s_mac_counts_where_it_is_bridged_and_none_where_it_is_routed() {
    for (byte, bit) in (6..12).flat_map(|byte| (0..8).map(move |bit| (byte, bit))) {
        let mut situation = good();
        situation.macs[byte] ^= 1 << bit;
        assert_eq!(situation.reason(), "ok");
        situation.flow.flags |= FLOW_BRIDGED;
        assert_eq!(situation.reason(), "not-ours");
        situation.macs[byte] ^= 1 << bit;
        assert_eq!(situation.reason(), "ok");
    }
}

#[test]
fn every_bit_of_the_class_counts() {
    for bit in 0..16 {
        let mut situation = good();
        situation.packet.class_bits ^= 1 << bit;
        assert_eq!(situation.reason(), "class", "bit {bit}");
    }
}

#[test]
fn times_are_met_to_the_tick() {
    let mut situation = good();
    let next = situation.now + 1;
    (situation.flow.reprove_at_ticks, situation.flow.prove_by_ticks) = (next, next);
    assert_eq!(situation.reason(), "ok");
    situation.flow.reprove_at_ticks = situation.now;
    assert_eq!(situation.reason(), "reprove");
    situation.flow.prove_by_ticks = situation.now;
    assert_eq!(situation.reason(), "stale");
}

#[test]
fn no_flow_carries_syn_fin_rst_no_ack_or_a_last_hop() {
    for flags in 0..=255u8 {
        let plain = flags & (Tcp::SYN | Tcp::FIN | Tcp::RST | Tcp::ACK) == Tcp::ACK;
        for (ttl, alone) in [(0, "ttl"), (1, "ttl"), (2, "ok"), (255, "ok")] {
            let packet = Packet { l4_proto: 6, tcp_flags: flags, ttl, ..good().packet };
            assert_eq!(reason(admit(&packet)), if plain { alone } else { "tcp-flags" });
            let packet = Packet { l4_proto: 17, tcp_flags: 0, ..packet };
            assert_eq!(reason(admit(&packet)), alone);
        }
    }
}
