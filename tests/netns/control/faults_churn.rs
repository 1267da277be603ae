//! Shunt that comes and goes again and again in the midst of traffic.

use crate::{ENGINES, OPEN, silent, undone::Held};
use shunt_api::Engine;
use shunt_testkit::{Shuntd, Stop, Tap, Topology, backlog, require_root, wait_for};
use shunt_wire::Packet;
use std::{collections::BTreeMap, thread, time::Duration};

/// Between two packets of the stream.
const INTERVAL: Duration = Duration::from_micros(500);
/// Packets of the stream that are to be fast before Shunt goes again.
const ENOUGH: u64 = 50;
/// What a ring of a veth holds: the driver throws it away when an XDP program comes or goes.
const RING: usize = 256;

/// Sends numbered packets until it is to stop; how many.
fn stream(tap: &Tap, packet: &Packet, stop: &Stop) -> u32 {
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

/// Takes what arrives until nothing has for a second after the end of the stream: how often each number has.
fn arrivals(tap: &Tap, stop: &Stop) -> BTreeMap<u32, u32> {
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

/// So many times up and down with an engine; how many packets of a stream were lost.
#[track_caller]
fn up_and_down(engine: Engine, times: usize) -> usize {
    let lab = silent(Topology::two_hosts_and_a_router(), OPEN);
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
            assert!(flows.len() <= 1, "more than the stream: {flows:#?}");
            held.push(Held::by(shuntd.pid()));
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
        assert_eq!(held.left(), None, "something is left in the kernel");
    }
    assert!(seen.values().all(|times| *times == 1), "something came twice: {seen:?}");
    let lost = sent as usize - seen.len();
    let elsewhere = (backlog::dropped() - full_before) as usize;
    eprintln!(
        "{times} times {engine}: of {sent} packets {lost} lost and {fast} fast; {elsewhere} lost on this machine's shared queues"
    );
    assert!(fast > ENOUGH * times as u64 / 2, "hardly anything was fast");
    lost.saturating_sub(elsewhere)
}

#[track_caller]
fn nothing_is_lost_of_each_engine(times: usize) {
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
fn twenty_times_up_and_down_in_a_stream_lose_nothing_of_it() {
    if require_root() {
        nothing_is_lost_of_each_engine(20);
    }
}

#[test]
#[ignore = "it takes twenty minutes"]
fn a_thousand_times_up_and_down_in_a_stream_lose_nothing_of_it() {
    if require_root() {
        nothing_is_lost_of_each_engine(500);
    }
}
