//! Verification of L4 checksums: wrong ones go to Linux as configured, and packets with right ones are always
//! forwarded.

use crate::rig::{Pair, Rig, pairs, reason, with_verifying_rig};
use shunt_bpf::{
    abi::{self, CONTROL_VERIFY_LONG, CONTROL_VERIFY_TC, CONTROL_VERIFY_XDP},
    attach::Hook,
};
use shunt_traffic::testrun::{TC_NEXT, TC_REDIRECT, TestRun, XDP_PASS, XDP_REDIRECT};
use shunt_wire::{Checksum, Packet};

const ALWAYS: u32 = CONTROL_VERIFY_TC | CONTROL_VERIFY_XDP | CONTROL_VERIFY_LONG;
/// The longest L4 header plus payload that counts as short.
const SHORT: usize = 127;
const HOOKS: [(Hook, u32, u32); 2] =
    [(Hook::Ingress, TC_REDIRECT, TC_NEXT), (Hook::Xdp, XDP_REDIRECT, XDP_PASS)];

fn sized(pair: &Pair, bytes: usize) -> Pair {
    // Bytes that differ, so that one that is left out or added twice changes the sum.
    pair.map(|packet| packet.payload((0..bytes).map(|n| (n * 7 + n / 256) as u8 | 1).collect::<Vec<_>>()))
}

/// The bytes from the L4 header on.
fn l4_bytes(packet: &Packet) -> usize {
    packet.payload.len() + if packet.udp().is_some() { 8 } else { 20 }
}

/// Lengths around the bounds of words, of short packets and of chunks.
fn sizes() -> impl Iterator<Item = usize> {
    (0..=SHORT + 4).chain(480..=520).chain([999, 1000, 1001, 1440])
}

fn forwards(rig: &Rig<'_>, hook: (Hook, u32, u32), frame: &[u8]) -> bool {
    let (hook, yes, no) = hook;
    let verdict = rig.run(hook, frame).verdict;
    assert!(verdict == yes || verdict == no, "{verdict}");
    verdict == yes
}

fn flipped(packet: &Packet, at: usize, bit: u8) -> Vec<u8> {
    let mut frame = packet.to_bytes();
    frame[at] ^= 1 << bit;
    frame
}

#[test]
fn a_packet_with_a_right_checksum_is_never_refused() {
    with_verifying_rig(|rig| {
        rig.plane.control().set_verification(ALWAYS);
        for pair in pairs() {
            rig.learn(&pair);
            for hook in HOOKS {
                for bytes in sizes() {
                    let packet = sized(&pair, bytes).before;
                    assert!(forwards(rig, hook, &packet.to_bytes()), "{hook:?} {bytes}: {packet:?}");
                }
            }
        }
        assert_eq!(rig.plane.counters(rig.port).unwrap().slow_pkts, 0);
    });
}

#[test]
fn udp_with_no_checksum_or_with_one_of_all_ones_is_forwarded() {
    with_verifying_rig(|rig| {
        rig.plane.control().set_verification(ALWAYS);
        for pair in pairs().into_iter().filter(|pair| pair.before.udp().is_some()) {
            rig.learn(&pair);
            // The sum of such a packet is 0, which is sent as 0xffff.
            let mut ones = (0..=u16::MAX).map(|n| pair.before.clone().payload(n.to_be_bytes()));
            let is_ones = |packet: &Packet| l4_check(packet) == [0xff, 0xff];
            let ones = ones.find(is_ones).unwrap();
            let zero = pair.before.clone().with_l4_checksum(Checksum::Zero);
            for hook in HOOKS {
                assert!(forwards(rig, hook, &ones.to_bytes()), "{hook:?}");
                assert!(forwards(rig, hook, &zero.to_bytes()), "{hook:?}");
            }
        }
    });
}

fn l4_check(packet: &Packet) -> [u8; 2] {
    let at = packet.to_bytes().len() - packet.payload.len() - if packet.udp().is_some() { 2 } else { 4 };
    packet.to_bytes()[at..at + 2].try_into().unwrap()
}

#[test]
fn each_wrong_bit_is_found_if_checksums_are_verified() {
    with_verifying_rig(|rig| {
        let control = |rig: &Rig<'_>, flags| rig.plane.control().set_verification(flags);
        let bad = reason("bad-checksum");
        for pair in pairs() {
            rig.learn(&pair);
            for bytes in [0, 1, 2, 3, 30, SHORT - 20, SHORT - 8, SHORT, 503, 504, 505, 1440] {
                let packet = sized(&pair, bytes).before;
                let frame_bytes = packet.to_bytes().len();
                let is_short = l4_bytes(&packet) <= SHORT;
                // Flip bits of the payload, or of the checksum if there is no payload.
                let first = frame_bytes - bytes - if packet.udp().is_some() { 2 } else { 4 };
                for at in [first, first + 1, frame_bytes - bytes / 2 - 1, frame_bytes - 1] {
                    if at < first || (packet.tcp().is_some() && (first + 2..first + 4).contains(&at)) {
                        continue;
                    }
                    let frame = flipped(&packet, at, (at % 8) as u8);
                    for hook in HOOKS {
                        control(rig, 0);
                        assert!(forwards(rig, hook, &frame), "never: {hook:?} {bytes} {at}");
                        control(rig, CONTROL_VERIFY_TC | CONTROL_VERIFY_XDP);
                        assert_eq!(forwards(rig, hook, &frame), !is_short, "short: {hook:?} {bytes} {at}");
                        control(rig, ALWAYS);
                        let (went, counted) = rig.counted(|| forwards(rig, hook, &frame));
                        assert!(!went, "always: {hook:?} {bytes} {at}");
                        // XDP leaves counting to tc.
                        let counts = if hook.0 == Hook::Xdp { 0 } else { 1 };
                        assert_eq!((counted.slow_pkts, counted.reasons[bad]), (counts, counts));
                        control(rig, CONTROL_VERIFY_TC);
                        let by_default = hook.0 == Hook::Xdp || !is_short;
                        assert_eq!(forwards(rig, hook, &frame), by_default, "auto: {hook:?} {bytes} {at}");
                    }
                }
            }
        }
    });
}

#[test]
fn checksums_of_bridged_untracked_packets_are_not_verified() {
    with_verifying_rig(|rig| {
        rig.plane.control().set_verification(ALWAYS);
        let pair = crate::rig::bridged(&pairs()[0]);
        let frame = flipped(&pair.before, pair.before.to_bytes().len() - 1, 0);
        rig.learn(&pair);
        for hook in HOOKS {
            assert!(!forwards(rig, hook, &frame));
        }
        rig.learn_as(&pair, |entry| entry.flow.flags |= abi::FLOW_UNTRACKED);
        for hook in HOOKS {
            assert!(forwards(rig, hook, &frame));
        }
    });
}

/// Prints nanoseconds per run without and with verification, best of several rounds, for each program and size. To be
/// run by name, since other load disturbs it.
#[test]
#[ignore = "prints measurements and asserts nothing"]
fn the_cost_of_verifying_checksums() {
    const RUNS: i32 = 50_000;
    const ROUNDS: usize = 10;
    with_verifying_rig(|rig| {
        // Bridged packets are not changed, so each run finds the frame as the previous one did.
        let pairs = pairs().map(|pair| Pair { after: pair.before.clone(), ..pair });
        for (hook, ..) in HOOKS.into_iter().rev() {
            for pair in &pairs {
                rig.learn(pair);
                for bytes in [18, 100, 500, 1440] {
                    let frame = sized(pair, bytes).before.to_bytes();
                    let program = TestRun::new(&rig.plane, hook, rig.port).unwrap().repeated(RUNS);
                    let mut best = [u32::MAX; 2];
                    for round in 0..2 * ROUNDS {
                        rig.plane.control().set_verification(if round % 2 == 0 { 0 } else { ALWAYS });
                        let ns = program.run(&frame).unwrap().run_ns;
                        best[round % 2] = best[round % 2].min(ns);
                    }
                    let (family, protocol) = (4 + 2 * u8::from(frame[12] == 0x86), pair.before.protocol());
                    println!(
                        "{hook:?} IPv{family} {protocol:?} {bytes} bytes: {} to {} ns",
                        best[0], best[1]
                    );
                }
            }
        }
    });
}
