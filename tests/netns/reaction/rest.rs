//! How soon a data plane that rests learns a flow.

use shunt_testkit::{ENGINES, Shuntd, Stage, daemon_with, require_root, rulesets};
use shunt_wire::Packet;
use std::{
    thread,
    time::{Duration, Instant},
};

/// Between two packets of the flow.
const EVERY: Duration = Duration::from_millis(10);
const BOUND: Duration = Duration::from_millis(100);
const TRIES: usize = 5;

#[test]
fn a_flow_of_100_packets_a_second_is_fast_within_100_ms_although_hooks_were_gone() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, stage, packet) = Stage::with_router(rulesets::OPEN);
        let shuntd = daemon_with(&lab, engine, "rest_after = \"1s\"");
        // Other work on the machine only adds to the delay, so one of several tries is enough.
        let mut delays = Vec::new();
        while delays.iter().all(|delay| *delay >= BOUND) {
            assert!(delays.len() < TRIES, "{engine}: fast after {delays:?}");
            shuntd.flush();
            shuntd.wait_until("it rests", |status| status.ports.iter().all(|port| port.rests));
            delays.push(delay_until_fast(&shuntd, &stage, &packet));
        }
        eprintln!("{engine}: fast after {delays:?}");
        shuntd.stop();
    }
}

/// How long it takes until a packet of the flow is fast.
fn delay_until_fast(shuntd: &Shuntd, stage: &Stage, packet: &Packet) -> Duration {
    let fast_before = shuntd.status().packets.fast;
    let since = Instant::now();
    for sent in 1..1000 {
        stage.pass(packet);
        if shuntd.status().packets.fast > fast_before {
            return since.elapsed();
        }
        thread::sleep((EVERY * sent).saturating_sub(since.elapsed()));
    }
    panic!("{:#?}\n{}", shuntd.status(), shuntd.log());
}
