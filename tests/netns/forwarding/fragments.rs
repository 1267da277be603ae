//! Frames whose linear part is short: drivers leave the rest, even headers, in pages.

use crate::daemon;
use shunt_api::Engine;
use shunt_testkit::{
    Crossing, Handshake, Shuntd, Topology, punts, require_root, rulesets, sent_by, silent_router,
};
use shunt_wire::Packet;

/// More than a page.
const PAYLOAD: usize = 6000;
/// Sizes of the linear part: from the Ethernet header alone to headers and data, around the end of each header of both
/// families.
const FIRST: [u16; 14] = [14, 15, 24, 33, 34, 38, 41, 42, 53, 54, 61, 62, 74, 200];

fn lab() -> Topology {
    let lab = silent_router(rulesets::HOME_GATEWAY);
    for host in lab.hosts() {
        lab.router().run(&format!("ip link set {} mtu 9000", host.port));
        host.ns.run(&format!("ip link set {} mtu 9000", host.nic));
    }
    lab
}

/// Asserts that a flow's packets leave the same with any size of the linear part, and that all are fast.
#[track_caller]
fn leaves_the_same(shuntd: &Shuntd, way: &Crossing, packet: &Packet) {
    way.teach(shuntd, packet);
    let whole = way.pass(packet);
    let before = sent_by(Engine::Tc, &shuntd.status());
    for first in FIRST {
        way.from.send_in_pages(&packet.to_bytes(), first);
        let left = way.seen(packet);
        assert!(left.bytes == whole.bytes, "{first} bytes in the linear part: {packet:?}");
    }
    let status = shuntd.status();
    assert_eq!(sent_by(Engine::Tc, &status) - before, FIRST.len() as u64, "{status:#?}");
    assert_eq!(punts(&status, "bad-header"), 0);
}

#[test]
fn headers_in_pages_are_read_and_written() {
    if !require_root() {
        return;
    }
    let lab = lab();
    let shuntd = daemon(&lab, Engine::Tc);
    let (there, back, syn, connection) = Handshake::through(&lab);
    leaves_the_same(&shuntd, &there, &connection.from_client(&syn, 0, vec![1; PAYLOAD]));
    leaves_the_same(&shuntd, &back, &connection.from_server(lab.wan(), 0, vec![2; PAYLOAD]));
    for to in [lab.wan().at(5000), lab.wan().at6(5000)] {
        leaves_the_same(&shuntd, &there, &lab.lan().udp_to(4000, to).payload(vec![3; PAYLOAD]));
    }
    shuntd.stop();
}
