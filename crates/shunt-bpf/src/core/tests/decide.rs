//! When an action may be applied, and which reason is returned if several hold.

use super::*;
use crate::{
    abi::{self, FLOW_BRIDGED, FLOW_PENDING, FLOW_STATIC},
    wire::flow_between,
};

const SECOND: u32 = 1000;
/// The grace period after a proof is due.
const GRACE: u32 = SECOND / 2;

/// The inputs of a decision.
#[derive(Clone, Copy)]
struct Situation {
    /// The 64-bit clock. Stored times are its low half.
    now: u64,
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

/// A learned flow and a packet that may take the fast path.
fn good_at(now: u64) -> Situation {
    let before = plain()[0].clone().with_class(0xb8).tagged(Tag { priority: 5, ..Tag::vlan(10) });
    let mut flow = flow_between(&before, &before, IFINDEX).unwrap().1.flow;
    flow.flags &= !(FLOW_STATIC | FLOW_BRIDGED);
    flow.epoch = 3;
    flow.reprove_at_ticks = (now as u32).wrapping_add(SECOND);
    flow.prove_by_ticks = (now as u32).wrapping_add(2 * SECOND);
    let control = Control {
        epoch: 3,
        heartbeat_ticks: now - u64::from(SECOND),
        heartbeat_max_ticks: 2 * SECOND,
        reprove_ticks: SECOND,
        prove_ticks: SECOND + GRACE,
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

/// Reasons against the fast path, in order of precedence, and changes that cause them.
const FAULTS: &[Fault] = &[
    ("no-daemon", |s| s.control.heartbeat_ticks = s.now - u64::from(2 * SECOND)),
    ("stale", |s| s.flow.epoch = 2),
    ("stale", |s| s.flow.epoch = abi::EPOCH_RETIRED),
    ("stale", |s| s.flow.prove_by_ticks = s.now as u32),
    ("reprove", |s| s.flow.reprove_at_ticks = s.now as u32),
    ("class", |s| s.packet.class_bits ^= 0x04),
    ("not-ours", |s| s.macs[5] ^= 1),
    ("mtu", |s| s.packet.wire_bytes += 1),
    ("pending", |s| s.flow.state = FLOW_PENDING),
];

#[test]
fn an_action_is_applied_if_no_reason_is_against_it() {
    assert_eq!(good().reason(), "ok");
}

#[test]
fn each_fault_gives_its_reason_and_several_give_the_first() {
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
fn a_static_action_needs_no_proof_epoch_or_class_but_every_other_condition() {
    for (name, damage) in FAULTS {
        let mut situation = good();
        situation.flow.flags |= FLOW_STATIC;
        damage(&mut situation);
        let expected = if ["stale", "reprove", "class"].contains(name) { "ok" } else { name };
        assert_eq!(situation.reason(), expected);
    }
}

#[test]
fn a_heartbeat_is_valid_until_its_last_tick_and_may_be_newer_than_the_packet() {
    let ago = |ticks: i32| {
        let mut situation = good();
        situation.control.heartbeat_ticks = situation.now.wrapping_add_signed((-ticks).into());
        situation.reason()
    };
    assert_eq!(ago(2 * SECOND as i32 - 1), "ok");
    assert_eq!(ago(2 * SECOND as i32), "no-daemon");
    assert_eq!(ago(-5), "ok");
}

#[test]
fn without_any_heartbeat_the_reason_is_no_daemon() {
    let mut situation = good();
    (situation.control.heartbeat_ticks, situation.control.heartbeat_max_ticks) = (0, 0);
    assert_eq!(situation.reason(), "no-daemon");
}

#[test]
fn a_sample_of_the_slow_path_has_its_end_and_needs_a_heartbeat_of_its_own() {
    let during = |until: i64, beat: u64| {
        let mut situation = good();
        situation.control.heartbeat_ticks = 0;
        situation.control.sample_beat_ticks = situation.now - beat;
        situation.control.sample_until_ticks = situation.now.wrapping_add_signed(until);
        situation.reason()
    };
    let alive = u64::from(2 * SECOND) - 1;
    assert_eq!(during(1, alive), "cost-sample");
    assert_eq!(during(0, alive), "ok");
    assert_eq!(during(1, alive + 1), "no-daemon");
    assert_eq!(during(0, alive + 1), "no-daemon");
    // With a heartbeat, a sample that has been ended is forgotten.
    let mut situation = good();
    situation.control.sample_until_ticks = situation.now + 5;
    assert_eq!(situation.reason(), "ok");
}

/// On kernels without TCX, filters may outlive a daemon that was killed.
#[test]
fn an_old_heartbeat_never_becomes_valid_again() {
    for age in [1 << 31, (1 << 31) + 1, 3 << 30, 1 << 32, (1 << 32) + 1, 5 << 31, 1 << 40] {
        let mut situation = good_at((1 << 41) + 7);
        situation.control.heartbeat_ticks = situation.now - age;
        assert_eq!(situation.reason(), "no-daemon", "{age} ticks");
    }
}

#[test]
fn a_smaller_packet_proves_only_after_a_quarter_of_the_grace_period() {
    let mut situation = good();
    situation.packet.wire_bytes -= 1;
    for (late, reason) in [(0, "ok"), (GRACE / 4 - 1, "ok"), (GRACE / 4, "reprove"), (GRACE, "reprove")] {
        situation.flow.reprove_at_ticks = (situation.now as u32).wrapping_sub(late);
        assert_eq!(situation.reason(), reason, "{late} ticks after the proof was due");
    }
    situation.packet.wire_bytes += 1;
    situation.flow.reprove_at_ticks = situation.now as u32;
    assert_eq!(situation.reason(), "reprove");
}

#[test]
fn decisions_do_not_depend_on_where_the_clock_wraps() {
    let low_halves = [0, 1, SECOND, u32::MAX, u32::MAX - SECOND, u32::MAX / 2, u32::MAX / 2 + 1];
    for now in low_halves.map(|low| 7 << 32 | u64::from(low)) {
        assert_eq!(good_at(now).reason(), "ok", "at {now}");
        for (name, damage) in FAULTS {
            let mut situation = good_at(now);
            damage(&mut situation);
            assert_eq!(situation.reason(), *name, "at {now}");
        }
    }
}

#[test]
fn every_bit_of_the_destination_mac_must_match() {
    for (byte, bit) in (0..6).flat_map(|byte| (0..8).map(move |bit| (byte, bit))) {
        let mut situation = good();
        situation.macs[byte] ^= 1 << bit;
        assert_eq!(situation.reason(), "not-ours");
    }
}

#[test]
fn every_bit_of_the_source_mac_must_match_if_bridged_and_none_if_routed() {
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
fn every_bit_of_the_class_must_match() {
    for bit in 0..16 {
        let mut situation = good();
        situation.packet.class_bits ^= 1 << bit;
        assert_eq!(situation.reason(), "class", "bit {bit}");
    }
}

#[test]
fn proofs_are_due_and_expire_at_the_exact_tick() {
    let mut situation = good();
    let now = situation.now as u32;
    let next = now + 1;
    (situation.flow.reprove_at_ticks, situation.flow.prove_by_ticks) = (next, next);
    assert_eq!(situation.reason(), "ok");
    situation.flow.reprove_at_ticks = now;
    assert_eq!(situation.reason(), "reprove");
    situation.flow.prove_by_ticks = now;
    assert_eq!(situation.reason(), "stale");
}

#[test]
fn no_flow_carries_syn_fin_rst_segments_without_ack_or_ttl_below_two() {
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
