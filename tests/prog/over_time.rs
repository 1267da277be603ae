//! Changes of a flow's state by packets and by time.

use crate::rig::{EPOCH, Pair, REPROVE, Rig, pairs, reason, with_rig};
use shunt_bpf::{
    Key,
    abi::{self, Counters, EPOCH_RETIRED, FLOW_ACTIVE, FLOW_PENDING, NO_CPU},
    attach::Hook,
};
use shunt_traffic::testrun::{TC_NEXT, TC_REDIRECT, TestRun, XDP_DROP, XDP_PASS, XDP_REDIRECT};
use shunt_wire::{Packet, Tcp, Transport};
use std::time::Duration;

#[test]
fn a_pending_flow_becomes_active_with_the_next_packet_in_tc() {
    with_rig(|rig| {
        for pair in pairs() {
            let key = rig.learn_as(&pair, |entry| entry.flow.state = FLOW_PENDING);
            let frame = pair.before.to_bytes();
            assert_eq!(rig.xdp(&frame).verdict, XDP_PASS);
            assert_eq!(rig.flow(&key).state, FLOW_PENDING);
            let outcome = rig.tc(&frame);
            assert_eq!((outcome.verdict, outcome.frame), (TC_REDIRECT, pair.after.to_bytes()));
            assert_eq!(rig.flow(&key).state, FLOW_ACTIVE);
            assert_eq!(rig.xdp(&frame).verdict, XDP_REDIRECT);
        }
    });
}

/// A flow that is due to be re-proved, with packets up to this size.
fn due(rig: &Rig<'_>, pair: &Pair) -> Key {
    due_at(rig, pair, 0)
}

/// The same, counted on this CPU.
fn due_at(rig: &Rig<'_>, pair: &Pair, home_cpu: u8) -> Key {
    let l3_bytes = pair.before.to_bytes().len() - 14;
    rig.learn_as(pair, |entry| {
        entry.flow.home_cpu = home_cpu;
        entry.flow.reprove_at_ticks = rig.now;
        entry.flow.max_l3_bytes = l3_bytes as u16;
    })
}

#[test]
fn a_small_packet_is_not_punted_at_once_for_a_re_proof() {
    with_rig(|rig| {
        let [pair, ..] = pairs();
        rig.plane.control().set_proof(REPROVE, 2 * REPROVE);
        let l3_bytes = pair.before.to_bytes().len() - 14;
        let late = |rig: &Rig<'_>, late: Duration| {
            rig.learn_as(&pair, |entry| {
                entry.flow.reprove_at_ticks = rig.ago(late);
                entry.flow.max_l3_bytes = l3_bytes as u16 + 1;
            })
        };
        late(rig, Duration::ZERO);
        assert_eq!(rig.tc(&pair.before.to_bytes()).verdict, TC_REDIRECT);
        late(rig, REPROVE / 4);
        assert_reproved(rig, &pair.before.to_bytes());
    });
}

#[track_caller]
fn assert_reproved(rig: &Rig<'_>, frame: &[u8]) {
    let (outcome, counted) = rig.counted(|| rig.tc(frame));
    assert_eq!((outcome.verdict, &outcome.frame[..]), (TC_NEXT, frame));
    assert_eq!((counted.slow_pkts, counted.reasons[reason("reprove")]), (1, 1));
}

#[test]
fn tc_punts_one_packet_to_re_prove_a_flow() {
    with_rig(|rig| {
        for pair in pairs() {
            let key = due(rig, &pair);
            let frame = pair.before.to_bytes();
            let hour = rig.plane.control().ticks(Duration::from_secs(3600));
            assert_reproved(rig, &frame);
            assert!(rig.flow(&key).reprove_at_ticks.wrapping_sub(rig.ahead(REPROVE)) < hour);
            assert_eq!(rig.tc(&frame).verdict, TC_REDIRECT);
        }
    });
}

#[test]
fn xdp_passes_one_packet_to_tc_to_re_prove_a_flow() {
    with_rig(|rig| {
        for pair in pairs() {
            let key = due(rig, &pair);
            let frame = pair.before.to_bytes();
            let (outcome, counted) = rig.counted(|| rig.xdp(&frame));
            assert_eq!((outcome.verdict, &outcome.frame), (XDP_PASS, &frame));
            assert_eq!(counted, Counters::default());
            assert_eq!(rig.flow(&key).punt_due, 1);
            // The rest of the burst stays fast.
            assert_eq!(rig.xdp(&frame).verdict, XDP_REDIRECT);
            assert_reproved(rig, &frame);
            assert_eq!(rig.flow(&key).punt_due, 0);
            assert_eq!(rig.tc(&frame).verdict, TC_REDIRECT);
        }
    });
}

#[test]
fn two_proofs_move_a_flow_to_the_cpu_that_its_packets_are_on() {
    const ELSEWHERE: u8 = NO_CPU - 1;
    with_rig(|rig| {
        for hook in [Hook::Ingress, Hook::Xdp] {
            for pair in pairs() {
                let frame = pair.before.to_bytes();
                let key = rig.learn_as(&pair, |entry| entry.flow.home_cpu = ELSEWHERE);
                rig.run(hook, &frame);
                let entry = rig.plane.flow(&key).unwrap().unwrap();
                let counted = (entry.flow.pkts, entry.cold.remote_pkts);
                assert_eq!((entry.flow.home_cpu, counted), (ELSEWHERE, (0, 1)), "moved without a proof");
                let prove = |home| {
                    let key = due_at(rig, &pair, home);
                    rig.run(hook, &frame);
                    rig.flow(&key).home_cpu
                };
                assert_eq!(prove(ELSEWHERE), NO_CPU);
                let here = prove(NO_CPU);
                assert!(here < ELSEWHERE, "{here}");
                let key = rig.learn_as(&pair, |entry| entry.flow.home_cpu = NO_CPU);
                rig.run(hook, &frame);
                assert_eq!(rig.flow(&key).pkts, 0, "counted without atomics while no CPU is the home");
            }
        }
    });
}

#[test]
fn a_heartbeat_brings_the_fast_path_back() {
    with_rig(|rig| {
        let [pair, ..] = pairs();
        rig.learn(&pair);
        rig.plane.control().set_heartbeat_max(Duration::ZERO);
        assert_eq!(rig.tc(&pair.before.to_bytes()).verdict, TC_NEXT);
        rig.plane.control().set_heartbeat_max(REPROVE);
        rig.plane.beat().unwrap();
        assert_eq!(rig.tc(&pair.before.to_bytes()).verdict, TC_REDIRECT);
    });
}

fn flagged(packet: &Packet, flags: u8) -> Vec<u8> {
    let mut packet = packet.clone();
    if let Transport::Tcp(tcp) = &mut packet.transport {
        tcp.flags = flags;
    }
    packet.to_bytes()
}

#[test]
fn syn_fin_and_rst_retire_both_directions() {
    let tags = [vec![], vec![shunt_wire::Tag::vlan(9)]];
    with_rig(|rig| {
        for pair in pairs().into_iter().filter(|pair| pair.before.tcp().is_some()) {
            for flags in [Tcp::SYN, Tcp::FIN | Tcp::ACK, Tcp::RST] {
                for tags in &tags {
                    let pair =
                        Pair { before: pair.before.clone(), after: pair.after.clone().with_tags(tags) };
                    let there = rig.learn(&pair);
                    let (back, entry) = rig.back(&pair);
                    rig.plane.put_flow(&back, &entry).unwrap();
                    let frame = flagged(&pair.before, flags);
                    assert_eq!(rig.xdp(&frame).verdict, XDP_PASS);
                    assert_eq!((rig.flow(&there).epoch, rig.flow(&back).epoch), (EPOCH, EPOCH));
                    let (outcome, counted) = rig.counted(|| rig.tc(&frame));
                    assert_eq!((outcome.verdict, outcome.frame), (TC_NEXT, frame));
                    assert_eq!(counted.reasons[reason("tcp-flags")], 1);
                    assert_eq!(
                        (rig.flow(&there).epoch, rig.flow(&back).epoch),
                        (EPOCH_RETIRED, EPOCH_RETIRED)
                    );
                    assert_eq!(rig.tc(&flagged(&pair.before, Tcp::ACK)).verdict, TC_NEXT);
                }
            }
        }
    });
}

#[test]
fn syn_fin_and_rst_leave_static_flows_alone() {
    with_rig(|rig| {
        for pair in pairs().into_iter().filter(|pair| pair.before.tcp().is_some()) {
            let key = rig.learn_as(&pair, |entry| entry.flow.flags |= abi::FLOW_STATIC);
            let before = rig.flow(&key);
            assert_eq!(rig.tc(&flagged(&pair.before, Tcp::RST)).verdict, TC_NEXT);
            assert_eq!(rig.flow(&key), before);
            assert_eq!(rig.tc(&pair.before.to_bytes()).verdict, TC_REDIRECT);
        }
    });
}

#[test]
fn packets_on_devices_that_are_not_ports_are_neither_changed_nor_counted() {
    with_rig(|rig| {
        let [pair, ..] = pairs();
        rig.learn(&pair);
        let frame = pair.before.to_bytes();
        let elsewhere = rig.ns.ifindex("i1");
        for (hook, verdict) in [(Hook::Ingress, TC_NEXT), (Hook::Xdp, XDP_PASS)] {
            let run = TestRun::new(&rig.plane, hook, elsewhere).unwrap();
            let (outcome, counted) = rig.counted(|| run.run(&frame).unwrap());
            assert_eq!((outcome.verdict, &outcome.frame), (verdict, &frame));
            assert_eq!(counted, Counters::default());
        }
    });
}

#[test]
fn counters_add_up() {
    with_rig(|rig| {
        let [udp, tcp, udp6, tcp6] = pairs();
        rig.learn(&udp);
        rig.learn_as(&tcp, |entry| entry.flow.flags &= !abi::FLOW_XDP);
        due(rig, &udp6);
        let frames = [&udp, &tcp, &udp6, &tcp6].map(|pair| pair.before.to_bytes());
        let (handed_up, counted) = rig.counted(|| {
            let runs = frames.iter().cycle().take(100);
            runs.filter(|frame| match rig.xdp(frame).verdict {
                XDP_REDIRECT => false,
                verdict => {
                    assert_ne!(verdict, XDP_DROP);
                    rig.tc(frame);
                    true
                }
            })
            .count()
        });
        assert_eq!(counted.xdp_pkts + counted.tc_pkts + counted.slow_pkts + counted.dropped_pkts, 100);
        assert_eq!(counted.slow_pkts, counted.reasons.iter().sum::<u64>());
        assert_eq!((counted.xdp_pkts, counted.tc_pkts, counted.slow_pkts), (49, 25, 26));
        assert_eq!(handed_up, 51);
    });
}

/// Several tuples are counted in one place. One that opens a connection restarts the count of its own packets only.
#[test]
fn a_syn_does_not_restart_the_count_of_another_tuple() {
    with_rig(|rig| {
        let [_, pair, ..] = pairs();
        let data = pair.before;
        let sighting = |packet: &Packet| {
            let (_, key) = shunt_bpf::core::parse(&packet.to_bytes(), rig.port).unwrap();
            rig.plane.sighting(&key).unwrap()
        };
        let syn = |packet: &Packet| {
            let mut packet = packet.clone();
            let Transport::Tcp(tcp) = &mut packet.transport else { panic!("not TCP: {packet:?}") };
            tcp.flags = Tcp::SYN;
            packet
        };
        rig.plane.control().set_learning(100, 100, abi::CONTROL_LEARN);
        (0..3).for_each(|_| drop(rig.tc(&data.to_bytes())));
        assert_eq!(sighting(&data).pkts, 3);
        let from = |number: u32| {
            let host = std::net::Ipv4Addr::from(0x0a00_0000 + (number >> 16));
            data.clone().with_source((host, number as u16).into())
        };
        let other = (0..4_000_000).map(from).find(|other| sighting(other).pkts == 3).unwrap();

        rig.tc(&syn(&other).to_bytes());
        assert_eq!(sighting(&data).pkts, 3);
        rig.tc(&other.to_bytes());
        rig.tc(&syn(&other).to_bytes());
        assert_eq!(sighting(&data).pkts, 4);

        let alone = (0..4_000_000).map(from).find(|other| sighting(other).pkts == 0).unwrap();
        rig.tc(&alone.to_bytes());
        assert_eq!(sighting(&alone).pkts, 1);
        rig.tc(&syn(&alone).to_bytes());
        assert_eq!(sighting(&alone).pkts, 0);
    });
}
