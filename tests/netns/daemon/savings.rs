//! What the fast path saves, in `shunt status`: measured under traffic, or the reason why nobody can tell.

use shunt_api::{CannotTell, Engine, Status};
use shunt_testkit::{Crossing, Shuntd, Topology, daemon_with, punts, require_root, rulesets, silent_router};
use shunt_wire::Packet;
use std::{
    thread::sleep,
    time::{Duration, Instant},
};

/// How long a figure may take on a busy machine.
const SOON: Duration = Duration::from_secs(120);
/// Packets that are sent together, and the time between: enough for a measurement, and a small part of a CPU.
const BURST: usize = 5;
const PAUSE: Duration = Duration::from_millis(2);

fn packets(lab: &Topology) -> Vec<Packet> {
    (0..BURST as u16).map(|n| lab.lan().udp_to(4000 + n, lab.wan().at(5000)).payload("some bytes")).collect()
}

fn status(shuntd: &Shuntd) -> Status {
    let (code, text) = shuntd.request("GET", "/v1/status?measure=true", "").unwrap();
    assert_eq!(code, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// Sends until the status is as wanted.
fn send_until(lab: &Topology, shuntd: &Shuntd, mut wanted: impl FnMut(&Status) -> bool) -> Status {
    let there = Crossing::between(lab.lan(), lab.wan());
    let packets = packets(lab);
    let start = Instant::now();
    loop {
        let status = status(shuntd);
        if wanted(&status) {
            return status;
        }
        assert!(start.elapsed() < SOON, "{:#?} {:#?}", status.savings, status.reasons);
        for _ in 0..100 {
            packets.iter().for_each(|packet| there.from.send(packet));
            sleep(PAUSE);
        }
    }
}

#[test]
#[ignore = "takes three minutes; in make test-long"]
fn both_paths_are_measured_in_turn_and_the_figure_has_bounds() {
    if !require_root() {
        return;
    }
    // By softirqs, and by threads that poll the ports.
    for (engine, threaded) in [(Engine::Tc, false), (Engine::Xdp, false), (Engine::Xdp, true)] {
        let lab = silent_router(rulesets::HOME_GATEWAY);
        let shuntd = daemon_with(&lab, engine, "savings = true\n");
        if threaded {
            lab.router().run("echo 1 > /sys/class/net/r0/threaded && echo 1 > /sys/class/net/r1/threaded");
        }
        // A machine that does other things may differ too much from round to round, and then says so.
        let status = send_until(&lab, &shuntd, |status| {
            let savings = status.savings.clone().unwrap();
            savings.now_cores.is_some() || matches!(savings.now_unknown, Some(CannotTell::Uncertain { .. }))
        });
        let samples = punts(&status, "cost-sample");
        assert!(samples > 0, "{:#?}", status.reasons);
        assert!(samples < status.packets.fast / 4, "{samples} of {} packets", status.packets.fast);
        assert_eq!(status.packets.slow, status.reasons.values().sum::<u64>());
        let savings = status.savings.unwrap();
        if let Some(cores) = savings.now_cores {
            let costs = savings.costs.unwrap();
            assert!(cores.low > 0.0 && cores.low <= cores.value && cores.value <= cores.high, "{cores:?}");
            assert!(costs.rounds >= 6 && costs.slow_ns > costs.fast_ns && costs.fast_ns > 0.0, "{costs:?}");
        }
        assert!(savings.week_counted_hours > 0.0);
        shuntd.stop();
    }
}

#[test]
fn without_measurements_no_packet_is_slow_for_them_and_the_answer_is_off() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    let shuntd = daemon_with(&lab, Engine::Tc, "savings = false\n");
    let status = send_until(&lab, &shuntd, |status| status.packets.fast > 1000);
    assert_eq!(status.savings.as_ref().unwrap().now_unknown, Some(CannotTell::Off));
    assert_eq!(punts(&status, "cost-sample"), 0);
    shuntd.stop();
}
