//! Packets on the fast path leave as shunt-wire builds them independently.

use crate::{
    rig::{Pair, Rig, bridged, pairs, with_rig},
    wire::unfinished,
};
use shunt_bpf::{
    abi::{self, Counters},
    attach::Hook,
};
use shunt_traffic::testrun::{Outcome, Segments, TC_REDIRECT, TestRun, XDP_REDIRECT};
use shunt_wire::{Packet, Tag, Tcp, Transport};

const L2_BYTES: u64 = 14;

#[track_caller]
fn assert_forwarded_by_xdp(rig: &Rig<'_>, frame: &[u8], after: &Packet) {
    let (outcome, counted) = rig.counted(|| rig.xdp(frame));
    assert_eq!((outcome.verdict, outcome.frame), (XDP_REDIRECT, after.to_bytes()), "{after:?}");
    let bytes = l3_bytes(after);
    assert_eq!(counted, Counters { xdp_pkts: 1, xdp_bytes: bytes, ..Counters::default() });
    // The external engine runs the same core in user space.
    let slot = rig.plane.slot(rig.out).unwrap();
    assert_eq!(rig.external(frame), shunt_xsk::Outcome::Forwarded(slot, after.to_bytes()), "{after:?}");
}

#[track_caller]
fn assert_forwarded_by_tc(rig: &Rig<'_>, frame: &[u8], after: &Packet) {
    let (outcome, counted) = rig.counted(|| rig.tc(frame));
    let (mark, priority) = (0x1234, 0x0001_0002);
    assert_eq!(
        outcome,
        Outcome { verdict: TC_REDIRECT, frame: after.to_bytes(), mark, priority, run_ns: outcome.run_ns }
    );
    assert_eq!(counted, Counters { tc_pkts: 1, tc_bytes: l3_bytes(after), ..Counters::default() });
}

fn l3_bytes(packet: &Packet) -> u64 {
    let beside = 4 * packet.ethernet.tags.len() + packet.trailer.len();
    packet.to_bytes().len() as u64 - L2_BYTES - beside as u64
}

/// Source NAT, destination NAT, both, a change of one port alone, and no translation.
fn translations() -> Vec<Pair> {
    let mut all = Vec::new();
    for Pair { before, after } in pairs() {
        let source = after.source().unwrap();
        let destination =
            if source.is_ipv4() { "192.0.2.7:8443" } else { "[2001:db8::7]:8443" }.parse().unwrap();
        let plain = after.clone().with_source(before.source().unwrap());
        let mut port = before.source().unwrap();
        port.set_port(7);
        for after in [
            after.clone().with_destination(destination),
            plain.clone().with_destination(destination),
            plain.clone().with_source(source),
            plain.clone().with_source(port),
            plain,
        ] {
            all.push(Pair { before: before.clone(), after });
        }
    }
    all
}

#[test]
fn both_engines_forward_every_kind_of_translation() {
    with_rig(|rig| {
        for pair in translations() {
            let key = rig.learn(&pair);
            let frame = pair.before.to_bytes();
            assert_forwarded_by_xdp(rig, &frame, &pair.after);
            assert_forwarded_by_tc(rig, &frame, &pair.after);
            let entry = rig.plane.flow(&key).unwrap().unwrap();
            assert_eq!((entry.pkts(), entry.bytes()), (2, 2 * l3_bytes(&pair.after)));
        }
    });
}

#[test]
fn static_flows_match_any_class_epoch_and_age() {
    with_rig(|rig| {
        for pair in pairs() {
            rig.learn_as(&pair, |entry| {
                entry.flow.flags |= abi::FLOW_STATIC;
                (entry.flow.epoch, entry.flow.prove_by_ticks, entry.flow.reprove_at_ticks) = (0, 0, 0);
            });
            let marked = pair.map(|packet| packet.with_class(0xb8));
            assert_forwarded_by_xdp(rig, &marked.before.to_bytes(), &marked.after);
            assert_forwarded_by_tc(rig, &marked.before.to_bytes(), &marked.after);
        }
    });
}

#[test]
fn routed_packets_lose_their_padding() {
    with_rig(|rig| {
        for pair in pairs() {
            let pair = pair.map(|packet| packet.payload([]));
            rig.learn(&pair);
            let padded = pair.before.clone().padded_to(100).to_bytes();
            assert_forwarded_by_xdp(rig, &padded, &pair.after);
            assert_forwarded_by_tc(rig, &padded, &pair.after);
        }
    });
}

#[test]
fn bridged_packets_keep_their_ttl() {
    with_rig(|rig| {
        for pair in pairs().map(|pair| bridged(&pair)) {
            rig.learn(&pair);
            assert_forwarded_by_xdp(rig, &pair.before.to_bytes(), &pair.after);
            assert_forwarded_by_tc(rig, &pair.before.to_bytes(), &pair.after);
        }
    });
}

#[test]
fn bridged_packets_get_tags_added_removed_and_changed() {
    with_rig(|rig| {
        for pair in pairs() {
            for (number, (from, to)) in retaggings().into_iter().enumerate() {
                let pair = bridged(&pair.retagged(number, &from, &to));
                rig.learn(&pair);
                assert_forwarded_by_xdp(rig, &pair.before.to_bytes(), &pair.after);
                if from == to || to.is_empty() {
                    assert_forwarded_by_tc(rig, &pair.before.to_bytes(), &pair.after);
                }
            }
        }
    });
}

#[test]
fn bridged_packets_keep_their_padding() {
    with_rig(|rig| {
        for pair in pairs() {
            let pair = bridged(&pair.map(|packet| packet.payload([])));
            rig.learn_as(&pair, |entry| entry.flow.flags |= abi::FLOW_UNTRACKED);
            let padded = pair.map(|packet| packet.padded_to(100));
            assert_forwarded_by_xdp(rig, &padded.before.to_bytes(), &padded.after);
            assert_forwarded_by_tc(rig, &padded.before.to_bytes(), &padded.after);
        }
    });
}

#[test]
fn packets_up_to_the_largest_size_seen_are_forwarded() {
    with_rig(|rig| {
        for pair in pairs() {
            let pair = pair.map(|packet| packet.frame_bytes(1514));
            rig.learn(&pair);
            assert_forwarded_by_xdp(rig, &pair.before.to_bytes(), &pair.after);
            assert_forwarded_by_tc(rig, &pair.before.to_bytes(), &pair.after);
        }
    });
}

#[test]
fn tcp_packets_with_options_and_data_flags_are_forwarded() {
    with_rig(|rig| {
        for pair in pairs().into_iter().filter(|pair| pair.before.tcp().is_some()) {
            for flags in [Tcp::ACK, Tcp::ACK | Tcp::PSH, Tcp::ACK | Tcp::URG, Tcp::ACK | 0xc0] {
                let pair = pair.map(|mut packet| {
                    if let Transport::Tcp(tcp) = &mut packet.transport {
                        (tcp.flags, tcp.options) = (flags, vec![1; 40]);
                    }
                    packet
                });
                rig.learn(&pair);
                assert_forwarded_by_xdp(rig, &pair.before.to_bytes(), &pair.after);
                assert_forwarded_by_tc(rig, &pair.before.to_bytes(), &pair.after);
            }
        }
    });
}

/// Tags as packets come in and as they leave.
pub(crate) fn retaggings() -> Vec<(Vec<Tag>, Vec<Tag>)> {
    let all = [
        vec![],
        vec![Tag::vlan(10)],
        vec![Tag { priority: 5, ..Tag::vlan(20) }],
        vec![Tag::service(30)],
        vec![Tag::vlan(0)],
        vec![Tag::service(40), Tag { priority: 2, drop_eligible: true, ..Tag::vlan(50) }],
        vec![Tag::vlan(60), Tag::vlan(70)],
    ];
    all.iter().flat_map(|from| all.iter().map(|to| (from.clone(), to.clone()))).collect()
}

#[test]
fn xdp_forwards_with_tags_kept_added_removed_and_changed() {
    with_rig(|rig| {
        for pair in pairs() {
            for (number, (from, to)) in retaggings().into_iter().enumerate() {
                let pair = pair.retagged(number, &from, &to);
                rig.learn(&pair);
                assert_forwarded_by_xdp(rig, &pair.before.to_bytes(), &pair.after);
            }
        }
    });
}

#[test]
fn tc_forwards_with_tags_kept_or_removed() {
    with_rig(|rig| {
        for pair in pairs() {
            let kept_or_gone = retaggings().into_iter().filter(|(from, to)| from == to || to.is_empty());
            for (number, (from, to)) in kept_or_gone.enumerate() {
                let pair = pair.retagged(number, &from, &to);
                rig.learn(&pair);
                assert_forwarded_by_tc(rig, &pair.before.to_bytes(), &pair.after);
            }
        }
    });
}

#[test]
fn aggregates_are_forwarded_if_their_segments_fit() {
    with_rig(|rig| {
        for pair in pairs() {
            let header_bytes = pair.before.clone().payload([]).to_bytes().len() as u16 - 14;
            let pair = pair.map(|packet| packet.payload(vec![0x5a; 3000]));
            rig.learn_as(&pair, |entry| entry.flow.max_l3_bytes = header_bytes + 1000);
            let run = TestRun::new(&rig.plane, Hook::Ingress, rig.port).unwrap();
            let segments =
                |bytes| run.run_segments(&pair.before.to_bytes(), Segments { count: 3, bytes }).unwrap();
            let outcome = segments(1000);
            assert_eq!((outcome.verdict, outcome.frame), (TC_REDIRECT, pair.after.to_bytes()));
            let outcome = segments(1001);
            assert_eq!((outcome.verdict, outcome.frame), (u32::MAX, pair.before.to_bytes()));
        }
    });
}

#[test]
fn tc_alone_forwards_flows_that_are_not_for_xdp() {
    with_rig(|rig| {
        for pair in pairs() {
            rig.learn_as(&pair, |entry| entry.flow.flags &= !abi::FLOW_XDP);
            let frame = pair.before.to_bytes();
            let (outcome, counted) = rig.counted(|| rig.xdp(&frame));
            assert_eq!((outcome.verdict, &outcome.frame), (shunt_traffic::testrun::XDP_PASS, &frame));
            assert_eq!(counted, Counters::default());
            assert_forwarded_by_tc(rig, &frame, &pair.after);
        }
    });
}

#[test]
fn packets_with_an_unfinished_checksum_are_forwarded_by_tc() {
    with_rig(|rig| {
        for pair in pairs() {
            rig.learn_as(&pair, |entry| entry.flow.flags |= abi::FLOW_PARTIAL);
            assert_forwarded_by_xdp(rig, &pair.before.to_bytes(), &pair.after);
            let unfinished = unfinished(&pair.before).to_bytes();
            let (outcome, counted) = rig.counted(|| rig.xdp(&unfinished));
            assert_eq!((outcome.verdict, outcome.frame), (shunt_traffic::testrun::XDP_PASS, unfinished));
            assert_eq!(counted, Counters::default());
        }
    });
}
