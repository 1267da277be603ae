//! Shunt is started and stopped again and again while traffic flows.

use shunt_api::Engine;
use shunt_testkit::{
    ENGINES, KernelObjects, Shunt, Shuntd, Stage, Stop, Tap, backlog, require_root, rulesets, silent_router,
    wait_for, wait_until,
};
use shunt_wire::Packet;
use std::{collections::BTreeMap, thread, time::Duration};

/// A configuration by which no flow is proved again during a test but for a restart.
pub(crate) const LASTING_FLOWS: &str = "max_flows = 16384\nreprove = \"30s\"\nidle = \"60s\"\n";
/// Time between two packets of the stream.
const INTERVAL: Duration = Duration::from_micros(500);
/// Number of packets that must be fast before Shunt is stopped again.
const ENOUGH: u64 = 50;
/// Packets in the ring of a veth, which the driver discards when an XDP program is attached or detached.
const RING: usize = 256;

/// Sends packets until one is fast.
#[track_caller]
pub(crate) fn teach(shunt: &Shunt, stage: &Stage, packet: &Packet) {
    let before = shunt.status().packets.fast;
    wait_until("a packet is fast", || {
        stage.pass(packet);
        shunt.status().packets.fast > before
    });
}

/// Sends numbered packets until `stop` is set; returns their number.
pub(crate) fn stream(tap: &Tap, packet: &Packet, stop: &Stop) -> u32 {
    let mut sent = 0_u32;
    while !stop.is_set() {
        tap.send(&packet.clone().payload(payload(sent)).with_id(sent as u16));
        sent += 1;
        thread::sleep(INTERVAL);
    }
    sent
}

fn payload(number: u32) -> Vec<u8> {
    [&b"number "[..], &number.to_be_bytes()].concat()
}

/// Receives packets until none has come for a second after the end of the stream; returns how often each number came.
pub(crate) fn arrivals(tap: &Tap, stop: &Stop) -> BTreeMap<u32, u32> {
    let mut seen = BTreeMap::new();
    loop {
        let ended = stop.is_set();
        let Some(frame) = tap.next(Duration::from_secs(1)) else {
            if ended {
                return seen;
            }
            continue;
        };
        let Some(packet) = frame.packet().filter(|packet| packet.payload.starts_with(b"number ")) else {
            continue;
        };
        assert_eq!(packet.hop_limit(), Some(63), "{packet:?}");
        let number = packet.payload[7..].try_into().map(u32::from_be_bytes).unwrap();
        assert_eq!(packet.payload, payload(number));
        *seen.entry(number).or_default() += 1;
    }
}

/// Starts and stops Shunt `times` times during a stream, every fifth time by SIGKILL; returns the number of lost
/// packets.
#[track_caller]
fn up_and_down(engine: Engine, times: usize) -> usize {
    let lab = silent_router(rulesets::OPEN);
    let (from, to) = (lab.lan().tap(), lab.wan().tap());
    let packet = lab.lan().udp_to(4000, lab.wan().at(5000));
    let stop = Stop::default();
    let (mut held, mut fast) = (Vec::new(), 0);
    let full_before = backlog::dropped();
    let (sent, seen) = thread::scope(|scope| {
        let receiver = scope.spawn(|| arrivals(&to, &stop));
        let sender = scope.spawn(|| stream(&from, &packet, &stop));
        let end = stop.on_drop();
        for round in 0..times {
            let mut shuntd = Shuntd::on(lab.router()).engine(&engine.to_string()).start();
            wait_for(Duration::from_secs(1), || (shuntd.status().packets.fast > ENOUGH).then_some(()));
            fast += shuntd.status().packets.fast;
            let flows = shuntd.flows();
            assert!(flows.len() <= 1, "flows of other streams: {flows:#?}");
            held.push(KernelObjects::held_by(shuntd.pid()));
            if round % 5 == 4 {
                shuntd.kill();
                shuntd.cleanup();
                assert_eq!(shuntd.left_behind(), None);
            } else {
                shuntd.stop();
            }
        }
        drop(end);
        (sender.join().unwrap(), receiver.join().unwrap())
    });
    for held in held {
        assert_eq!(held.not_freed(), None, "BPF objects are left in the kernel");
    }
    assert!(seen.values().all(|times| *times == 1), "packets came twice: {seen:?}");
    let lost = sent as usize - seen.len();
    let elsewhere = (backlog::dropped() - full_before) as usize;
    eprintln!(
        "{times} restarts with {engine}: {sent} packets, {lost} lost, {fast} fast; {elsewhere} packets lost in this machine's shared queues"
    );
    assert!(fast > ENOUGH * times as u64 / 2, "only {fast} packets were fast");
    lost.saturating_sub(elsewhere)
}

#[track_caller]
fn no_packet_is_lost_with_each_engine(times: usize) {
    thread::scope(|scope| {
        for engine in ENGINES {
            scope.spawn(move || {
                let lost = up_and_down(engine, times);
                let allowed = if engine == Engine::Xdp { 2 * times * RING } else { 0 };
                assert!(lost <= allowed, "{engine}: {lost} packets were lost");
            });
        }
    });
}

#[test]
fn ten_restarts_lose_no_packet_of_a_stream() {
    if require_root() {
        no_packet_is_lost_with_each_engine(10);
    }
}

#[test]
#[ignore = "it takes twenty minutes"]
fn a_thousand_restarts_lose_no_packet_of_a_stream() {
    if require_root() {
        no_packet_is_lost_with_each_engine(500);
    }
}
