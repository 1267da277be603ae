//! What leaves a router with Shunt is what would leave it without, by either engine.

#![expect(clippy::unwrap_used, reason = "a test fails where what it expects is not there")]

mod forwarding_counters;
mod forwarding_fragments;
mod forwarding_order;
mod forwarding_punts;
mod forwarding_qdisc;
mod forwarding_rates;
mod forwarding_shapers;
mod forwarding_tcp;
mod learning;
mod learning_refused;
mod nat;
mod statics;
mod vlans;

use shunt_api::{Engine, Status};
use shunt_testkit::{Crossing, Frame, Shuntd, Topology, require_root, rulesets, silent};
use shunt_wire::{Checksum, Packet};

const ENGINES: [Engine; 2] = [Engine::Tc, Engine::Xdp];

/// No packet goes to Linux to prove a flow again while packets are counted one by one.
const SELDOM_PROVED: &str = "reprove = \"30s\"";

/// A router between two silent hosts that know all neighbours, with this ruleset.
fn silent_lab(ruleset: &str) -> Topology {
    silent(Topology::two_hosts_and_a_router(), ruleset)
}

/// The daemon with one engine for all ports.
fn daemon(lab: &Topology, engine: Engine) -> Shuntd {
    Shuntd::on(lab.router()).engine(&engine.to_string()).config(SELDOM_PROVED).start()
}

/// Packets that an engine has sent on.
fn sent_by(engine: Engine, status: &Status) -> u64 {
    let by = status.ports.iter().map(|port| match engine {
        Engine::Tc => port.packets.tc,
        Engine::Xdp => port.packets.xdp,
    });
    by.sum()
}

/// Packets that went to Linux for this reason.
fn reason(status: &Status, name: &str) -> u64 {
    status.reasons.get(name).copied().unwrap_or(0)
}

/// Packets that taught nothing for this reason.
fn refusal(status: &Status, name: &str) -> u64 {
    status.refusals.get(name).copied().unwrap_or(0)
}

/// Packets of one flow that differ in all that may differ within it: size, identification, ECN, padding, checksum.
fn variations(packet: &Packet) -> Vec<Packet> {
    let data: Vec<u8> = (0..1200_u32).map(|n| (n * 7 + n / 256) as u8).collect();
    let with = |bytes: usize, id: u16| packet.clone().payload(&data[..bytes]).with_id(id);
    let mut all = vec![
        with(1200, 1),
        with(1, 2),
        with(17, 0xffff).with_class(1),
        with(18, 0).with_class(2),
        with(500, 0x8000).with_class(3),
        with(3, 77).padded_to(60),
    ];
    if packet.udp().is_some() {
        all.push(with(0, 3));
        if packet.ipv4().is_some() {
            all.push(with(33, 4).with_l4_checksum(Checksum::Zero));
        }
    }
    all
}

/// Sends packets that have left as `left` without Shunt. Now all of them are fast, and leave the same.
#[track_caller]
fn demand_the_same(shuntd: &Shuntd, engine: Engine, way: &Crossing, packets: &[Packet], left: &[Frame]) {
    let before = sent_by(engine, &shuntd.status());
    for (packet, left) in packets.iter().zip(left) {
        let now = way.pass(packet);
        assert_eq!(now.bytes, left.bytes, "by {engine}, then by Linux: {packet:?}");
    }
    let status = shuntd.status();
    assert_eq!(sent_by(engine, &status) - before, packets.len() as u64, "{status:#?} {:#?}", shuntd.flows());
}

#[test]
fn a_daemon_that_ends_leaves_nothing_behind() {
    if !require_root() {
        return;
    }
    let lab = Topology::two_hosts_and_a_router();
    lab.router().nft(rulesets::HOME_GATEWAY);
    for engine in ["auto", "tc", "xdp"] {
        Shuntd::on(lab.router()).engine(engine).start().stop();
    }
}
