use super::*;
use crate::sched::{ClassConfig, SchedConfig};
use shunt_bpf::{
    abi::{self, Reason},
    wire::flow_between,
};
use shunt_wire::Packet;
use std::net::SocketAddr;

const IN: usize = 0;
const OUT: usize = 5;

fn pair(host: u8) -> (Packet, Packet) {
    let from: SocketAddr = ([192, 168, 1, host], 5001).into();
    let before = Packet::udp_between(from, ([198, 18, 0, 2], 443).into()).payload([host; 26]);
    let after = before.clone().with_source(([198, 18, 0, 1], 61001).into()).with_hop_limit(63);
    (before, after)
}

/// An engine with two ports and flows from the first to the second.
fn engine(frames: u32, ring: u32, flows: u8) -> Engine {
    let mut engine = Engine::new(Size { max_flows: 256, seed: 1 }, frames);
    engine.add_port(IN, 7, ring);
    engine.add_port(OUT, 9, ring);
    engine.tables().change_control(|control| control.heartbeat_max_ticks = 1000);
    for host in 0..flows {
        let (before, after) = pair(host);
        let (key, mut entry) = flow_between(&before, &after, 7).unwrap();
        (entry.flow.in_slot, entry.flow.out_slot) = (IN as u16, OUT as u16);
        entry.flow.mark = host.into();
        engine.tables().put(&key, &entry).unwrap();
    }
    engine.tables().change_control(|control| control.flags = abi::CONTROL_STATICS);
    engine.poll(1, 0);
    engine
}

#[test]
#[cfg_attr(miri, ignore = "takes too long in Miri")]
fn packets_go_from_ring_to_ring_in_order_and_their_memory_comes_back() {
    let mut engine = engine(512, 64, 10);
    let strange = pair(99).0.to_bytes();
    let (mut given, mut seen, mut up) = (Vec::new(), Vec::new(), 0);
    for round in 0..100u64 {
        for n in 0..50u64 {
            let host = ((round + n) % 10) as u8;
            assert!(engine.receive(IN, &pair(host).0.to_bytes()), "round {round}");
            given.push(pair(host).1.to_bytes());
        }
        assert!(engine.receive(IN, &strange));
        while engine.poll(1, 0) != 0 {
            engine.sent(OUT, |sent| seen.push(sent.frame.to_vec()));
        }
        engine.passed_up(|sent| {
            assert_eq!((sent.frame, sent.up), (&strange[..], Some((IN, 9))));
            up += 1;
        });
    }
    assert_eq!(seen, given);
    let counters = engine.counters(IN);
    assert_eq!((counters.pkts, counters.slow_pkts, counters.reasons[9], up), (5000, 100, 100, 100));
    assert_eq!(counters.bytes, 5000 * (20 + 8 + 26));
    // Two fill rings hold 64 frames each.
    engine.poll(1, 0);
    assert_eq!(engine.free_frames(), 512 - 2 * 64);
}

#[test]
#[cfg_attr(miri, ignore = "takes too long in Miri")]
fn full_rings_drop_and_count_and_lose_no_memory() {
    let mut engine = engine(256, 16, 1);
    let (before, _) = pair(0);
    let mut given = 0;
    for _ in 0..10 {
        while engine.receive(IN, &before.to_bytes()) {
            given += 1;
        }
        engine.poll(1, 0);
    }
    let counters = *engine.counters(IN);
    assert_eq!((counters.pkts, counters.pkts + counters.tx_full_pkts), (16, given));
    assert_eq!(engine.sent(OUT, |_| {}), 16);
    engine.poll(1, 0);
    assert_eq!(engine.free_frames(), 256 - 2 * 16);
}

#[test]
fn descriptors_outside_the_memory_are_counted_and_touch_nothing() {
    let mut engine = engine(64, 16, 1);
    let port = engine.ports[IN].as_ref().unwrap();
    for (at, bytes) in [(64 * 2048, 64), (64 * 2048 - 32, 64), (u64::MAX, 2), (2048 + 2, 64)] {
        port.rx.push(Desc { at, bytes, options: 0 });
    }
    assert_eq!(engine.poll(1, 0), 4);
    assert_eq!(engine.inner.bad_descs, 4);
    assert_eq!(engine.counters(IN).slow_pkts, 0);
}

#[test]
fn a_scheduler_sends_marked_packets_first_at_its_rate() {
    let mut engine = engine(512, 128, 10);
    let mut config = SchedConfig {
        classes: 2,
        default_class: 1,
        bytes_per_s: 1_000_000,
        ..SchedConfig::best_effort(100_000)
    };
    config.class_config[1] = ClassConfig { priority: 1, ..config.class_config[0] };
    config.mark_rules[0] = crate::sched::MarkRule { mark: 3, mask: 0xff, class_id: 0 };
    engine.schedule(OUT, Scheduler::new(&config, 100).unwrap());
    for host in (0..10).cycle().take(40) {
        assert!(engine.receive(IN, &pair(host).0.to_bytes()));
    }
    let mut hosts = Vec::new();
    let frame_bytes = pair(0).0.to_bytes().len() as u64;
    let mut now_ns = 0;
    for turn in 0..40 {
        now_ns = turn * frame_bytes * 1000;
        engine.poll(1, now_ns);
        engine.sent(OUT, |sent| hosts.push(sent.frame[sent.frame.len() - 1]));
        assert_eq!(hosts.len() as u64, turn + 1);
    }
    assert_eq!(hosts.iter().filter(|host| **host == 3).count(), 4);
    assert_eq!(hosts[..4], [3; 4]);
    assert_eq!(engine.scheduler(OUT).unwrap().counters(1).sent_pkts, 36);
    assert_eq!(engine.poll(1, now_ns * 2), 0);
}

#[test]
fn a_policer_drops_before_the_look_up() {
    let mut engine = engine(512, 128, 1);
    let frame = pair(0).0.to_bytes();
    engine.police(IN, Policer::new(1_000_000, 10 * frame.len() as u32));
    for _ in 0..30 {
        assert!(engine.receive(IN, &frame));
    }
    engine.poll(1, 0);
    let counters = engine.counters(IN);
    assert_eq!((counters.pkts, counters.policed_pkts), (10, 20));
    assert_eq!(engine.sent(OUT, |_| {}), 10);
    engine.poll(1, 0);
    assert_eq!(engine.free_frames(), 512 - 2 * 128);
}

#[test]
fn a_frame_waits_for_frames_of_its_flow_that_go_to_linux() {
    let mut engine = engine(512, 128, 3);
    let (mut given, mut left, mut first_to_linux) = (Vec::new(), Vec::new(), None);
    for n in 0..40u8 {
        // A TTL of 1 keeps each fifth packet of the first flow off the fast path.
        let host = n % 3;
        let slow = host == 0 && n % 5 == 0;
        let mut packet = pair(host).0.payload([n; 26]);
        if slow {
            packet = packet.with_hop_limit(1);
        }
        assert!(engine.receive(IN, &packet.to_bytes()));
        given.push((host, n, slow));
    }
    while engine.poll(1, 0) != 0 {
        engine.sent(OUT, |sent| left.push(*sent.frame.last().unwrap()));
        engine.passed_up(|sent| {
            first_to_linux.get_or_insert(*sent.frame.last().unwrap());
            left.push(*sent.frame.last().unwrap());
        });
    }
    assert_eq!((first_to_linux, left.len()), (Some(0), 40));
    for host in 0..3 {
        let of_flow = |n: &u8| given[usize::from(*n)].0 == host;
        let order: Vec<u8> = left.iter().copied().filter(of_flow).collect();
        assert!(order.is_sorted(), "flow {host}: {order:?}");
    }
}

#[test]
fn a_batch_that_took_too_long_is_dropped_and_its_memory_comes_back() {
    let mut engine = engine(512, 128, 1);
    for _ in 0..10 {
        assert!(engine.receive(IN, &pair(0).0.to_bytes()));
    }
    assert_eq!(engine.receive_batch(IN, 1, 0), 10);
    engine.discard();
    assert_eq!((engine.settle(0), engine.counters(IN).late_pkts, engine.counters(IN).pkts), (0, 10, 0));
    assert_eq!(engine.sent(OUT, |_| {}), 0);
    engine.poll(1, 0);
    assert_eq!(engine.free_frames(), 512 - 2 * 128);
}

/// The metadata of a frame for which XDP has found the entry 0 of the IPv4 table.
fn found_at(ticks: u32) -> [u8; FRAME_ROOM] {
    let mut metadata = [0; FRAME_ROOM];
    metadata[4..8].copy_from_slice(&4u32.to_ne_bytes());
    metadata[8..].copy_from_slice(&ticks.to_ne_bytes());
    metadata
}

/// A packet that came to a router before conntrack forgot its connection never is the first of another connection.
#[test]
fn a_packet_that_waited_until_its_connection_was_gone_is_dropped() {
    const GONE_AT: u32 = 500;
    let mut engine = engine(512, 128, 0);
    for (host, why) in [(0, "conntrack-gone"), (1, "tcp-flags")] {
        let (key, mut entry) = flow_between(&pair(host).0, &pair(host).1, 7).unwrap();
        entry.flow.flags &= !abi::FLOW_STATIC;
        entry.flow.retire(GONE_AT);
        entry.flow.group = Reason::named(why).unwrap().number as _;
        engine.tables().put(&key, &entry).unwrap();
    }
    // The host, when its packet arrived, and whether it goes to Linux. No flow is known for the third host.
    for (host, arrived, passes) in [
        (0, Some(GONE_AT - 1), false),
        (0, Some(GONE_AT), true),
        (0, None, true),
        (1, Some(GONE_AT - 1), true),
        (2, Some(GONE_AT - 1), false),
        (2, Some(GONE_AT + 10), true),
        (2, None, true),
    ] {
        let before = engine.counters(IN).late_pkts;
        let metadata = arrived.map_or([0; FRAME_ROOM], found_at);
        assert!(engine.receive_with(IN, metadata, &pair(host).0.to_bytes()));
        engine.poll(u64::from(GONE_AT) + 10, 0);
        let passed = engine.passed_up(|sent| assert_eq!(sent.frame, pair(host).0.to_bytes()));
        let late = engine.counters(IN).late_pkts - before;
        assert_eq!((passed, late), (passes.into(), u64::from(!passes)), "host {host} at {arrived:?}");
        assert_eq!(engine.sent(OUT, |_| {}), 0);
    }
    engine.poll(u64::from(GONE_AT) + 10, 0);
    assert_eq!(engine.free_frames(), 512 - 2 * 128);
}

#[test]
fn a_packet_that_codel_drops_is_not_counted_as_forwarded() {
    let mut engine = engine(512, 128, 1);
    let mut config = SchedConfig { bytes_per_s: 1_000_000, ..SchedConfig::best_effort(100_000) };
    (config.class_config[0].target_us, config.class_config[0].interval_us) = (1, 1);
    engine.schedule(OUT, Scheduler::new(&config, 100).unwrap());
    for _ in 0..60 {
        assert!(engine.receive(IN, &pair(0).0.to_bytes()));
    }
    let mut sent = 0;
    for turn in 0..if cfg!(miri) { 70 } else { 2000 } {
        engine.poll(1, turn * 1_000_000);
        sent += engine.sent(OUT, |_| {});
    }
    let counters = engine.counters(IN);
    assert!(counters.queue_pkts > 0, "{counters:?}");
    assert_eq!((counters.pkts, counters.queue_pkts), (u64::from(sent), 60 - u64::from(sent)));
    assert_eq!(counters.bytes, u64::from(sent) * (20 + 8 + 26));
    assert_eq!(engine.free_frames(), 512 - 2 * 128);
}
