//! Packets that leave a router with Shunt, compared with those that leave it without, by each engine.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod balanced;
mod bonds;
mod counters;
mod ethernet_tunnels;
mod fragments;
mod ip_tunnels;
mod nat;
mod no_l2;
mod order;
mod pppoe;
mod punts;
mod qdisc;
mod qdisc_kinds;
mod re_entry;
mod recorded;
mod sockets;
mod statics;
mod tcp;
mod tunnels;
mod vlans;
mod vrfs;

use shunt_api::Engine;
use shunt_testkit::{
    Crossing, Frame, SELDOM_PROVED, Shuntd, Topology, daemon_with, require_root, rulesets, sent_by,
};
use shunt_wire::{Checksum, Packet};

/// A daemon that uses one engine and re-proves flows only every 30 seconds.
fn daemon(lab: &Topology, engine: Engine) -> Shuntd {
    daemon_with(lab, engine, SELDOM_PROVED)
}

/// Packets of one flow that differ in everything that may differ: size, identification, ECN, padding, checksum.
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

/// Sends packets that left as `left` without Shunt, and asserts that all are fast now and leave the same.
#[track_caller]
fn assert_same_with_shunt(
    shuntd: &Shuntd,
    engine: Engine,
    way: &Crossing,
    packets: &[Packet],
    left: &[Frame],
) {
    let before = sent_by(engine, &shuntd.status());
    for (packet, left) in packets.iter().zip(left) {
        let now = way.pass(packet);
        assert_eq!(now.bytes, left.bytes, "by {engine}, and by Linux: {packet:?}");
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
