//! What moves a port from one engine to the other.

use crate::{OPEN, Stage, engine_of, moves, silent, stage::by};
use shunt_api::Engine;
use shunt_testkit::{Shuntd, Topology, require_root};
use shunt_wire::Packet;
use std::time::Instant;

fn start() -> (Topology, Shuntd, Stage, Packet) {
    let lab = silent(Topology::two_hosts_and_a_router(), OPEN);
    let shuntd = Shuntd::on(lab.router()).engine("auto").start();
    let (stage, packet) = Stage::from_lan(&lab);
    stage.teach(&shuntd, &packet);
    assert_eq!(engine_of(&shuntd.status(), "r1"), Engine::Xdp);
    (lab, shuntd, stage, packet)
}

/// Waits until packets leave r1 by this engine, fast ones too.
#[track_caller]
fn goes_by(engine: Engine, change: &str, shuntd: &Shuntd, stage: &Stage, packet: &Packet) {
    let since = Instant::now();
    shuntd.wait_until("the engine is another", |s| engine_of(s, "r1") == engine);
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
    stage.react(change, packet, by(0));
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
        let said = lab.router().run("tc -s qdisc show dev r1 root");
        let words: Vec<&str> = said.split_whitespace().collect();
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
    assert!(moves(&shuntd.status(), "engine") > 0, "{:#?}", shuntd.status());

    lab.router().run("tc qdisc del dev r1 root");
    goes_by(Engine::Xdp, "htb removed", &shuntd, &stage, &packet);
    shuntd.stop();
}

/// What XDP redirects to such a port is lost, so it must not go on for long.
#[test]
fn a_port_that_xdp_cannot_reach_any_more_is_reached_by_tc() {
    if !require_root() {
        return;
    }
    let (lab, shuntd, stage, packet) = start();
    lab.wan().ns.run("ethtool -K wan0 gro off");
    stage.react("GRO off at the peer", &packet, by(0));
    goes_by(Engine::Tc, "GRO off at the peer", &shuntd, &stage, &packet);
    lab.wan().ns.run("ethtool -K wan0 gro on");
    goes_by(Engine::Xdp, "GRO on at the peer", &shuntd, &stage, &packet);
    shuntd.stop();
}

#[test]
fn filters_on_the_egress_are_not_bypassed_and_are_forgotten_when_they_go() {
    if !require_root() {
        return;
    }
    let (lab, shuntd, stage, packet) = start();
    lab.router().run("tc qdisc add dev r1 clsact");
    lab.router().run("tc filter add dev r1 egress protocol ip pref 7 u32 match u32 0 0 classid 1:7");
    goes_by(Engine::Tc, "a filter added", &shuntd, &stage, &packet);
    assert!(moves(&shuntd.status(), "filter") > 0, "{:#?}", shuntd.status());
    lab.router().run("tc filter del dev r1 egress pref 7");
    goes_by(Engine::Xdp, "the filter removed", &shuntd, &stage, &packet);
    lab.router().run("tc qdisc del dev r1 clsact");
    shuntd.stop();
}
