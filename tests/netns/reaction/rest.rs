//! How soon a data plane that rests learns a flow.

use shunt_testkit::{ENGINES, Stage, daemon_with, require_root, rulesets};
use std::{
    thread,
    time::{Duration, Instant},
};

/// Between two packets of the flow.
const EVERY: Duration = Duration::from_millis(10);
const BOUND: Duration = Duration::from_millis(100);

#[test]
fn a_flow_of_100_packets_a_second_is_fast_within_100_ms_although_hooks_were_gone() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, stage, packet) = Stage::with_router(rulesets::OPEN);
        let shuntd = daemon_with(&lab, engine, "rest_after = \"1s\"");
        shuntd.wait_until("it rests", |status| status.ports.iter().all(|port| port.rests));
        let since = Instant::now();
        let mut sent = 0;
        let delay = loop {
            stage.pass(&packet);
            sent += 1;
            if shuntd.status().packets.fast > 0 {
                break since.elapsed();
            }
            assert!(sent < 1000, "{engine}: {:#?}\n{}", shuntd.status(), shuntd.log());
            thread::sleep((EVERY * sent).saturating_sub(since.elapsed()));
        };
        eprintln!("{engine}: packet {sent} was the first fast one, after {delay:?}");
        assert!(delay < BOUND, "{engine}: fast after {sent} packets, {delay:?}");
        shuntd.stop();
    }
}
