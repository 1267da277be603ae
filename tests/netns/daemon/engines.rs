//! Changes that move a port from one engine to the other.

use shunt_api::{Engine, EngineChange, OwnCosts, Status};
use shunt_testkit::{
    Crossing, Shuntd, Stage, Topology, epoch_moves, is_sent_by, offer_xdp_frames, port_engine, require_root,
    rulesets, silent_router, stage::leaves_by, wait_for,
};
use shunt_wire::Packet;
use std::time::{Duration, Instant};

fn start() -> (Topology, Shuntd, Stage, Packet) {
    let lab = silent_router(rulesets::OPEN);
    let shuntd = Shuntd::on(lab.router()).engine("auto").start();
    let (stage, packet) = Stage::from_lan(&lab);
    offer_xdp_frames(&lab, &shuntd, "r1");
    stage.teach(&shuntd, &packet);
    assert_eq!(port_engine(&shuntd.status(), "r1"), Engine::Xdp);
    (lab, shuntd, stage, packet)
}

/// Waits until r1 has this engine, and asserts that fast packets leave through it.
#[track_caller]
fn goes_by(engine: Engine, change: &str, shuntd: &Shuntd, stage: &Stage, packet: &Packet) {
    let since = Instant::now();
    shuntd.wait_until("r1 has the other engine", |s| is_sent_by(s, "r1", engine));
    eprintln!("engine {engine} after {change}: {:?}", since.elapsed());
    stage.teach(shuntd, packet);
    let sent = |by: Engine| {
        let ports = shuntd.status().ports;
        ports
            .iter()
            .map(|port| if by == Engine::Tc { port.packets.tc } else { port.packets.xdp })
            .sum::<u64>()
    };
    let other = if engine == Engine::Tc { Engine::Xdp } else { Engine::Tc };
    let before = (sent(engine), sent(other));
    stage.settle(change, packet, leaves_by(0));
    assert!(sent(engine) > before.0 && sent(other) == before.1, "{:#?}", shuntd.status());
}

#[test]
fn a_shaper_on_the_egress_is_not_bypassed() {
    if !require_root() {
        return;
    }
    let (lab, shuntd, stage, packet) = start();
    lab.router().run("tc qdisc add dev r1 root handle 1: htb default 10");
    lab.router().run("tc class add dev r1 parent 1: classid 1:10 htb rate 1gbit");
    let shaped = || {
        let output = lab.router().run("tc -s qdisc show dev r1 root");
        let words: Vec<&str> = output.split_whitespace().collect();
        let at = words.iter().position(|word| *word == "pkt").unwrap();
        words[at - 1].parse::<u64>().unwrap()
    };
    goes_by(Engine::Tc, "htb added", &shuntd, &stage, &packet);
    let (before, fast) = (shaped(), shuntd.status().packets.fast);
    for _ in 0..50 {
        stage.pass(&packet);
    }
    assert!(shuntd.status().packets.fast > fast);
    assert_eq!(shaped(), before + 50, "every packet is shaped, fast or not");
    assert!(epoch_moves(&shuntd.status(), "engine") > 0, "{:#?}", shuntd.status());

    lab.router().run("tc qdisc del dev r1 root");
    goes_by(Engine::Xdp, "htb removed", &shuntd, &stage, &packet);
    shuntd.stop();
}

#[test]
fn the_cost_of_programs_is_unknown_after_a_change_of_engine_until_it_is_measured_again() {
    if !require_root() {
        return;
    }
    let (lab, shuntd, _stage, packet) = start();
    let there = Crossing::between(lab.lan(), lab.wan());
    let until = |what: &str, burst: usize, wanted: &dyn Fn(&OwnCosts) -> bool| {
        let seen = wait_for(Duration::from_secs(60), || {
            (0..burst).for_each(|_| there.from.send(&packet));
            shuntd.status().costs.filter(wanted)
        });
        seen.unwrap_or_else(|| panic!("{what}: {:#?}", shuntd.status().costs))
    };
    until("the programs are measured", 50, &|costs| costs.programs_cores.is_some());
    lab.router().run("tc qdisc add dev r1 root handle 1: htb default 10");
    // Without packets, nothing can be measured.
    let costs = until("the change is seen", 0, &|costs| costs.unmeasured_since.is_some());
    let EngineChange { port, from, to, at } = costs.unmeasured_since.unwrap();
    assert_eq!((port.as_str(), from, to), ("r1", Engine::Xdp, Engine::Tc));
    assert!(at > 0 && costs.programs_cores.is_none(), "{at}: {:?}", costs.programs_cores);
    until("the programs are measured again", 50, &|costs| {
        costs.programs_cores.is_some() && costs.unmeasured_since.is_none()
    });
    shuntd.stop();
}

/// Frames that XDP redirects to such a port are lost, so the daemon must change the engine soon.
#[test]
fn a_port_that_takes_no_xdp_frames_any_more_is_reached_by_tc() {
    if !require_root() {
        return;
    }
    let (lab, shuntd, stage, packet) = start();
    lab.wan().ns.run("ethtool -K wan0 gro off");
    stage.settle("GRO off at the peer", &packet, leaves_by(0));
    goes_by(Engine::Tc, "GRO off at the peer", &shuntd, &stage, &packet);
    lab.wan().ns.run("ethtool -K wan0 gro on");
    goes_by(Engine::Xdp, "GRO on at the peer", &shuntd, &stage, &packet);
    shuntd.stop();
}

#[test]
fn egress_filters_move_a_port_to_tc_until_they_are_removed() {
    if !require_root() {
        return;
    }
    let (lab, shuntd, stage, packet) = start();
    lab.router().run("tc qdisc add dev r1 clsact");
    lab.router().run("tc filter add dev r1 egress protocol ip pref 7 u32 match u32 0 0 classid 1:7");
    goes_by(Engine::Tc, "a filter added", &shuntd, &stage, &packet);
    assert!(epoch_moves(&shuntd.status(), "filter") > 0, "{:#?}", shuntd.status());
    lab.router().run("tc filter del dev r1 egress pref 7");
    goes_by(Engine::Xdp, "the filter removed", &shuntd, &stage, &packet);
    lab.router().run("tc qdisc del dev r1 clsact");
    shuntd.stop();
}

/// Packets that a socket makes have no room for XDP; a veth would copy each of them.
#[test]
fn auto_takes_xdp_on_a_veth_for_xdp_frames_only() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    let shuntd = Shuntd::on(lab.router()).engine("auto").start();
    let (stage, packet) = Stage::from_lan(&lab);
    stage.teach(&shuntd, &packet);
    (0..200).for_each(|_| drop(stage.pass(&packet)));
    let port = |status: &Status| status.ports.iter().find(|port| port.name == "r1").cloned().unwrap();
    shuntd.wait_until("r0's packets are known", |status| {
        port(status).engine_reason.contains("r0 receives packets that its native XDP would have to copy")
    });
    let status = shuntd.status();
    assert!(port(&status).engine == Engine::Tc && !status.ports.iter().any(|port| port.xdp_attached));
    offer_xdp_frames(&lab, &shuntd, "r1");
    stage.teach(&shuntd, &packet);
    let status = shuntd.status();
    assert!(
        port(&status).engine_reason.contains("r0 receives frames that XDP takes as they are"),
        "{status:#?}"
    );
    shuntd.stop();
}
