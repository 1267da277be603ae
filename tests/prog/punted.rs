//! Packets that must not take the fast path go to Linux unchanged, and are counted under their reason.

use crate::rig::{EPOCH, Pair, ROUTER, Rig, bridged, pairs, reason, with_both_on_ingress};
use shunt_bpf::abi::{self, Counters, FLOW_PENDING};
use shunt_testkit::wait_for;
use shunt_traffic::testrun::{TC_NEXT, TC_REDIRECT, XDP_DROP, XDP_PASS, XDP_REDIRECT};
use shunt_wire::{Checksum, Extension, Mac, Network, Packet, Tag, Tcp, Transport};
use std::time::Duration;

/// Of packets whose cost in Linux is measured.
const COST_SAMPLE: &str = "cost-sample";

/// Asserts that XDP passes the frame unchanged and uncounted, and that tc passes it unchanged and counts one reason.
#[track_caller]
fn assert_punted(rig: &Rig<'_>, frame: &[u8], why: &str) {
    assert_passed_by_xdp(rig, frame, why);
    assert_punted_by_tc(rig, frame, why);
}

#[track_caller]
fn assert_passed_by_xdp(rig: &Rig<'_>, frame: &[u8], why: &str) {
    let (xdp, counted) = rig.counted(|| rig.xdp(frame));
    assert_eq!((xdp.verdict, &xdp.frame[..]), (XDP_PASS, frame), "XDP: {why}");
    assert_eq!(counted, Counters::default(), "XDP: {why}");
}

#[track_caller]
fn assert_punted_by_tc(rig: &Rig<'_>, frame: &[u8], why: &str) {
    let (tc, counted) = rig.counted(|| rig.tc(frame));
    assert_eq!((tc.verdict, &tc.frame[..]), (TC_NEXT, frame), "tc: {why}");
    let mut expected = Counters { slow_pkts: 1, slow_bytes: counted.slow_bytes, ..Counters::default() };
    expected.retired = counted.retired;
    expected.reasons[reason(why)] = 1;
    if why == COST_SAMPLE {
        (expected.sampled_bytes, expected.sampled_frames) = (counted.slow_bytes, 1);
    }
    assert_eq!(counted, expected, "tc: {why}");
    assert_ne!(counted.slow_bytes, 0, "tc: {why}");
}

/// Asserts that packets are punted that differ from those of a known flow by `change`.
fn punted_when(why: &str, change: impl Fn(Packet) -> Option<Packet> + Sync) {
    with_both_on_ingress(|rig| {
        for pair in pairs() {
            rig.learn(&pair);
            if let Some(packet) = change(pair.before) {
                assert_punted(rig, &packet.to_bytes(), why);
            }
        }
    });
}

/// Asserts that packets of a flow are punted after `change` to the flow or the rig.
fn punted_after(why: &str, change: impl Fn(&mut Rig<'_>, &Pair) + Sync) {
    with_both_on_ingress(|rig| {
        for pair in pairs() {
            change(rig, &pair);
            assert_punted(rig, &pair.before.to_bytes(), why);
        }
    });
}

#[test]
fn to_another_mac() {
    punted_when("not-ours", |packet| {
        let mut last = ROUTER;
        last.0[5] ^= 1;
        Some(packet.clone().macs(packet.ethernet.source, last))
    });
}

#[test]
fn from_another_mac_where_it_is_bridged() {
    with_both_on_ingress(|rig| {
        for pair in pairs() {
            let pair = bridged(&pair);
            rig.learn(&pair);
            for at in 0..6 {
                let mut sender = pair.before.ethernet.source;
                sender.0[at] ^= 2;
                let packet = pair.before.clone().macs(sender, pair.before.ethernet.destination);
                assert_punted(rig, &packet.to_bytes(), "not-ours");
            }
        }
    });
}

#[test]
fn to_a_group() {
    for group in [Mac([0xff; 6]), Mac([0x01, 0, 0x5e, 0, 0, 1])] {
        punted_when("not-ours", |packet| Some(packet.clone().macs(packet.ethernet.source, group)));
    }
}

#[test]
fn with_options_or_extension_headers() {
    punted_when("options", |mut packet| {
        match &mut packet.network {
            Network::V4(ip) => ip.options = vec![1, 1, 1, 0],
            Network::V6(ip) => ip.extensions.push(Extension { kind: 60, body: vec![0, 1, 4, 0, 0, 0, 0] }),
            Network::Other(_) => {}
        }
        Some(packet)
    });
}

#[test]
fn with_a_wrong_header_checksum() {
    punted_when("bad-header", |packet| {
        packet.ipv4()?;
        Some(packet.with_header_checksum(Checksum::Value(0x1234)))
    });
}

#[test]
fn cut_short() {
    with_both_on_ingress(|rig| {
        for pair in pairs() {
            rig.learn(&pair);
            let frame = pair.before.to_bytes();
            let l3_end = if pair.before.ipv4().is_some() { 34 } else { 54 };
            for length in 14..frame.len() {
                assert_passed_by_xdp(rig, &frame[..length], "bad-header");
                // The kernel makes no skb of shorter frames.
                if length >= l3_end {
                    assert_punted_by_tc(rig, &frame[..length], "bad-header");
                }
            }
        }
    });
}

#[test]
fn with_a_udp_length_of_its_own() {
    with_both_on_ingress(|rig| {
        for pair in pairs().into_iter().filter(|pair| pair.before.udp().is_some()) {
            rig.learn(&pair);
            let mut frame = pair.before.to_bytes();
            let at = frame.len() - pair.before.payload.len() - 3;
            frame[at] -= 1;
            assert_punted(rig, &frame, "bad-header");
        }
    });
}

#[test]
fn fragments() {
    punted_when("fragment", |mut packet| {
        match &mut packet.network {
            Network::V4(ip) => ip.more_fragments = true,
            Network::V6(ip) => ip.extensions.push(Extension { kind: 44, body: vec![0, 0, 1, 0, 0, 0, 1] }),
            Network::Other(_) => {}
        }
        Some(packet)
    });
    punted_when("fragment", |mut packet| {
        if let Network::V4(ip) = &mut packet.network {
            ip.fragment_offset = 100;
            return Some(packet);
        }
        None
    });
}

#[test]
fn larger_than_linux_was_seen_to_forward() {
    punted_after("mtu", |rig, pair| {
        let l3_bytes = pair.before.to_bytes().len() as u16 - 14;
        rig.learn_as(pair, |entry| entry.flow.max_l3_bytes = l3_bytes - 1);
    });
}

#[test]
fn at_their_last_hop() {
    for hops in [0, 1] {
        punted_when("ttl", move |packet| Some(packet.with_hop_limit(hops)));
    }
}

#[test]
fn of_another_protocol() {
    punted_when("protocol", |mut packet| {
        packet.transport = Transport::Other(47);
        Some(packet)
    });
    with_both_on_ingress(|rig| {
        let arp = Packet::other(0x0806, [0; 46]).macs(Mac([2; 6]), ROUTER);
        assert_punted(rig, &arp.to_bytes(), "protocol");
    });
}

#[test]
fn with_syn_fin_or_rst_or_no_ack() {
    for flags in [Tcp::SYN, Tcp::FIN | Tcp::ACK, Tcp::RST, Tcp::SYN | Tcp::ACK, 0, Tcp::PSH] {
        punted_when("tcp-flags", move |mut packet| {
            let Transport::Tcp(tcp) = &mut packet.transport else { return None };
            tcp.flags = flags;
            Some(packet)
        });
    }
}

#[test]
fn of_no_known_flow() {
    punted_when("miss", |packet| {
        let mut other = packet.source()?;
        other.set_port(other.port() + 1);
        Some(packet.with_source(other))
    });
    punted_when("miss", |packet| Some(packet.tagged(Tag::vlan(0))));
}

#[test]
fn with_three_tags() {
    punted_when("tags", |packet| Some(packet.with_tags(&[Tag::service(1), Tag::vlan(2), Tag::vlan(3)])));
}

#[test]
fn of_a_class_other_than_the_flows() {
    punted_when("class", |packet| Some(packet.with_class(0x28)));
    with_both_on_ingress(|rig| {
        for tags in [[Tag::service(5), Tag::vlan(6)], [Tag::vlan(5), Tag::vlan(6)]] {
            for pair in pairs() {
                let tagged = pair.map(|packet| packet.with_tags(&tags));
                rig.learn(&tagged);
                for changed in 0..2 {
                    let mut packet = tagged.before.clone();
                    packet.ethernet.tags[changed].priority = 3;
                    assert_punted(rig, &packet.to_bytes(), "class");
                }
            }
        }
    });
}

#[test]
fn of_a_flow_of_another_epoch() {
    punted_after("stale", |rig, pair| {
        rig.learn_as(pair, |entry| entry.flow.epoch = EPOCH - 1);
    });
}

#[test]
fn of_a_retired_flow() {
    punted_after("stale", |rig, pair| {
        rig.learn_as(pair, |entry| entry.flow.epoch = abi::EPOCH_RETIRED);
    });
}

#[test]
fn of_a_flow_that_was_not_proved_for_too_long() {
    punted_after("stale", |rig, pair| {
        rig.learn_as(pair, |entry| entry.flow.prove_by_ticks = rig.now);
    });
}

#[test]
fn after_the_epoch_has_moved() {
    punted_after("stale", |rig, pair| {
        rig.plane.control().set_epoch(EPOCH);
        rig.learn(pair);
        rig.plane.control().set_epoch(EPOCH + 1);
    });
}

#[test]
fn without_a_daemon_static_flows_included() {
    punted_after("no-daemon", |rig, pair| {
        rig.learn(pair);
        rig.plane.control().set_heartbeat_max(Duration::ZERO);
    });
    punted_after("no-daemon", |rig, pair| {
        rig.learn_as(pair, |entry| entry.flow.flags |= abi::FLOW_STATIC);
        rig.plane.control().set_heartbeat_max(Duration::ZERO);
    });
}

#[test]
fn during_a_sample_of_the_slow_path_and_not_after_it() {
    with_both_on_ingress(|rig| {
        let meter = rig.plane.net_time_loader().unwrap().load().unwrap();
        for pair in pairs() {
            let key = rig.learn(&pair);
            let flow = rig.flow(&key);
            let frame = pair.before.to_bytes();
            let sample = meter.sample_slow_path(Duration::from_secs(60)).unwrap();
            assert!(sample.is_some());
            assert_punted(rig, &frame, COST_SAMPLE);
            assert!(meter.sample_slow_path(Duration::from_secs(60)).unwrap().is_none(), "one at a time");
            // The heartbeat goes on meanwhile.
            rig.plane.beat().unwrap();
            assert_punted(rig, &frame, COST_SAMPLE);
            drop(sample);
            let after = rig.flow(&key);
            assert_eq!(
                (after.epoch, after.reprove_at_ticks, after.state),
                (flow.epoch, flow.reprove_at_ticks, flow.state)
            );
            assert_eq!(rig.tc(&frame).verdict, TC_REDIRECT);
            assert_eq!(rig.xdp(&frame).verdict, XDP_REDIRECT);
        }
    });
}

#[test]
fn a_sample_that_nobody_ends_ends_by_itself_and_a_dead_daemon_stays_dead() {
    with_both_on_ingress(|rig| {
        let meter = rig.plane.net_time_loader().unwrap().load().unwrap();
        for pair in pairs() {
            rig.learn(&pair);
            let frame = pair.before.to_bytes();
            std::mem::forget(meter.sample_slow_path(Duration::ZERO).unwrap());
            let fast =
                wait_for(Duration::from_secs(10), || (rig.tc(&frame).verdict == TC_REDIRECT).then_some(()));
            assert!(fast.is_some(), "still slow after 10 s");
            assert_eq!(rig.xdp(&frame).verdict, XDP_REDIRECT);
            rig.plane.control().set_heartbeat_max(Duration::ZERO);
            assert_punted(rig, &frame, "no-daemon");
            assert!(
                meter.sample_slow_path(Duration::from_secs(60)).unwrap().is_none(),
                "no sample without a daemon"
            );
            rig.plane.control().set_heartbeat_max(Duration::from_secs(3600));
            // The next heartbeat puts all in order.
            rig.plane.beat().unwrap();
            assert!(meter.sample_slow_path(Duration::from_secs(60)).unwrap().is_some());
        }
    });
}

#[test]
fn pending_flows_by_xdp() {
    with_both_on_ingress(|rig| {
        for pair in pairs() {
            rig.learn_as(&pair, |entry| entry.flow.state = FLOW_PENDING);
            let frame = pair.before.to_bytes();
            let (outcome, counted) = rig.counted(|| rig.xdp(&frame));
            assert_eq!((outcome.verdict, outcome.frame), (XDP_PASS, frame));
            assert_eq!(counted, Counters::default());
        }
    });
}

#[test]
fn to_a_port_that_is_gone() {
    with_both_on_ingress(|rig| {
        for pair in pairs() {
            rig.learn_as(&pair, |entry| {
                entry.flow.out_slot = 9;
                entry.flow.flags |= abi::FLOW_STATIC;
            });
            assert_punted_by_tc(rig, &pair.before.to_bytes(), "port");
        }
    });
}

/// XDP has already rewritten the frame when it finds the port missing.
#[test]
fn not_what_xdp_sends_to_a_port_that_is_gone_which_counts_as_dropped() {
    with_both_on_ingress(|rig| {
        for pair in pairs() {
            rig.learn_as(&pair, |entry| entry.flow.out_slot = 9);
            let (outcome, counted) = rig.counted(|| rig.xdp(&pair.before.to_bytes()));
            assert_eq!(outcome.verdict, XDP_DROP);
            let mut expected = Counters { dropped_pkts: 1, ..Counters::default() };
            expected.reasons[reason("half-written")] = 1;
            assert_eq!(counted, expected);
        }
    });
}
