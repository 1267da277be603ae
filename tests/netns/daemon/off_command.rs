//! `shunt off` and `shunt on`: all packets of some connections take the slow path, at once and across restarts.

use serde_json::Value;
use shunt_api::Status;
use shunt_testkit::{Crossing, Shunt, Topology, require_root, rulesets, silent_router, wait_for};
use shunt_wire::Packet;
use std::time::Duration;

const AGAIN: Duration = Duration::from_secs(20);

/// The reason why the original direction is slow; `None` if it is fast.
fn reason(shunt: &Shunt, port: u16) -> Option<String> {
    let printed = shunt.run(&format!("why --json --dport {port}"));
    let found: Value = serde_json::from_str(&printed.out).ok()?;
    let because = &found["connections"][0]["directions"][0]["because"];
    because["reason"].as_str().map(str::to_owned)
}

fn is_fast(shunt: &Shunt, port: u16) -> bool {
    let flows: Value =
        serde_json::from_str(&shunt.done(&format!("flows --json --over 0s --state active --dport {port}")))
            .unwrap();
    !flows.as_array().unwrap().is_empty()
}

#[track_caller]
fn becomes_fast(shunt: &Shunt, there: &Crossing, packet: &Packet, port: u16) {
    let fast = wait_for(AGAIN, || {
        there.pass(packet);
        is_fast(shunt, port).then_some(())
    });
    assert!(fast.is_some(), "{port} is not fast: {}", shunt.done("status"));
}

/// Sends packets that must all take the slow path.
#[track_caller]
fn stays_slow(shunt: &Shunt, there: &Crossing, packet: &Packet) {
    let fast = |status: &Status| status.packets.fast;
    let before = fast(&shunt.status());
    for _ in 0..20 {
        there.pass(packet);
    }
    assert_eq!(fast(&shunt.status()), before, "a packet was fast: {}", shunt.done("status"));
}

fn packets(lab: &Topology) -> [Packet; 2] {
    [5001, 5002].map(|port| lab.lan().udp_to(4000, lab.wan().at(port)).payload("udp"))
}

#[test]
fn a_connection_is_slow_from_the_next_packet_on_until_it_is_turned_on_again() {
    if !require_root() {
        return;
    }
    for engine in ["tc", "xdp"] {
        let lab = silent_router(rulesets::HOME_GATEWAY);
        let shunt = Shunt::on(lab.router());
        shunt.done(&format!("up --engine {engine}"));
        let there = Crossing::between(lab.lan(), lab.wan());
        let [chosen, other] = packets(&lab);
        becomes_fast(&shunt, &there, &chosen, 5001);
        becomes_fast(&shunt, &there, &other, 5002);

        let said = shunt.done("off udp --dport 5001");
        assert_eq!(said, "off: udp --dport 5001; `shunt on udp --dport 5001` ends it\n");
        stays_slow(&shunt, &there, &chosen);
        assert_eq!(reason(&shunt, 5001).as_deref(), Some("off"));
        assert!(shunt.done("why --dport 5001").contains("(by the rule `udp --dport 5001` of `shunt off`)"));
        assert!(shunt.done("status").contains("off: udp --dport 5001;"));
        becomes_fast(&shunt, &there, &other, 5002);
        stays_slow(&shunt, &there, &chosen);
        assert!(shunt.status().refusals["off"] > 0, "{:?}", shunt.status().refusals);

        let wrong = shunt.run("on 192.0.2.1");
        assert!(
            wrong.code == Some(27) && wrong.err.contains("rules of `shunt off`: `udp --dport 5001`"),
            "{wrong:?}"
        );
        assert_eq!(shunt.done("on udp --dport 5001"), "1 rule removed\n");
        becomes_fast(&shunt, &there, &chosen, 5001);
        assert_eq!(shunt.done("off"), "the fast path is off for no connection\n");
        shunt.done("down");
    }
}

#[test]
fn a_host_behind_nat_stays_off_across_a_restart_and_its_time_ends() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::HOME_GATEWAY);
    let shunt = Shunt::on(lab.router());
    shunt.done("up --engine tc");
    let there = Crossing::between(lab.lan(), lab.wan());
    let [packet, _] = packets(&lab);
    // By the address of the server: the host of the other direction.
    let [lan, wan] = [packet.source(), packet.destination()].map(|end| end.unwrap().ip().to_string());
    shunt.done(&format!("off {wan}"));
    shunt.done(&format!("off {lan} --for 1h"));
    stays_slow(&shunt, &there, &packet);
    shunt.done("down");
    let started = shunt.done("up --engine tc");
    let left = ["59m ", "1h;"].map(|left| format!("off: {lan} for {left}"));
    assert!(started.contains(&format!("off: {wan};")), "{started}");
    assert!(left.iter().any(|left| started.contains(left)), "{started}");
    stays_slow(&shunt, &there, &packet);
    assert_eq!(shunt.done(&format!("on {wan}")), "1 rule removed\n");
    stays_slow(&shunt, &there, &packet);
    shunt.done(&format!("off {lan} --for 1s"));
    becomes_fast(&shunt, &there, &packet, 5001);
    assert!(shunt.status().off.is_empty());

    for number in 0..32 {
        shunt.done(&format!("off 10.0.0.{number}"));
    }
    let full = shunt.run("off 10.0.1.1");
    assert!(full.code == Some(22) && full.err.contains("remove some with `shunt on`"), "{full:?}");
    assert_eq!(shunt.done("on"), "32 rules removed\n");
    shunt.done("down");
}
