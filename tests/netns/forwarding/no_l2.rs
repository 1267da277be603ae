//! Ports without layer 2: packets begin with their IP header. The port here is a tun device; `pppoe` has ppp devices.

use crate::{
    daemon,
    recorded::{RULES, Recorded},
    tcp::arrives,
};
use shunt_api::Engine;
use shunt_testkit::{
    Crossing, Segment, Shuntd, Topology, port_engine, punts, require_root, require_vlans, rulesets, silent,
};
use shunt_wire::{Packet, Tag};

const LAN: Segment = Segment::LAN;
const WAN: Segment = Segment::WAN.without_l2();
const TEN: &[Tag] = &[Tag::vlan(10)];
const QINQ: &[Tag] = &[Tag::service(100), Tag::vlan(5)];

/// UDP and TCP over both families, with and without translation, in both directions.
#[track_caller]
fn packets_are_the_same(lan: Segment, wan: Segment) {
    let is_possible = if lan.vlans.is_empty() { require_root() } else { require_vlans() };
    if !is_possible {
        return;
    }
    let lab = silent(Topology::new(&[lan, wan]), RULES);
    let recorded = Recorded::all(lab.lan(), lab.wan());
    let shuntd = daemon(&lab, Engine::Tc);
    recorded.iter().for_each(|way| way.assert_same_with_shunt(&shuntd));
    shuntd.stop();
}

#[test]
fn packets_between_ethernet_and_a_port_without_it() {
    packets_are_the_same(LAN, WAN);
}

#[test]
fn packets_between_two_ports_without_ethernet() {
    packets_are_the_same(LAN.without_l2(), WAN);
}

#[test]
fn packets_between_a_vlan_and_a_port_without_ethernet() {
    packets_are_the_same(LAN.tagged(TEN), WAN);
}

#[test]
fn packets_between_two_tags_and_a_port_without_ethernet() {
    packets_are_the_same(LAN.tagged(QINQ), WAN);
}

/// The LAN host sends aggregates, which the kernel segments at the tun device.
#[test]
fn aggregates_arrive_whole_and_nearly_all_bytes_are_fast() {
    if !require_root() {
        return;
    }
    let lab = Topology::new(&[LAN, WAN]);
    lab.router().nft(rulesets::HOME_GATEWAY);
    let shuntd = Shuntd::on(lab.router()).engine("auto").start();
    assert_eq!(port_engine(&shuntd.status(), "r1"), Engine::Tc);
    for server in [lab.wan().at(80), lab.wan().at6(80)] {
        let [fast, slow] = arrives(&lab, &shuntd, server);
        assert!(fast >= 19 * slow, "{server}: fast {fast}, slow {slow}");
    }
    shuntd.stop();
}

/// A flow that crosses the port in both directions, and is fast.
struct Known<'a> {
    there: Crossing,
    packet: Packet,
    shuntd: Shuntd,
    lab: &'a Topology,
}

impl<'a> Known<'a> {
    fn flow(lab: &'a Topology) -> Self {
        let there = Crossing::between(lab.wan(), lab.lan());
        let packet = lab.wan().udp_to(4000, lab.lan().at(5000)).payload("known");
        let shuntd = daemon(lab, Engine::Tc);
        there.teach(&shuntd, &packet);
        Self { there, packet, shuntd, lab }
    }

    /// Asserts that the flow becomes fast again.
    fn is_fast_again(&self) {
        self.there.teach(&self.shuntd, &self.packet);
        let left = self.there.pass(&self.packet).packet().unwrap();
        assert_eq!(left.ipv4().unwrap().ttl, self.packet.ipv4().unwrap().ttl - 1);
    }
}

fn router() -> Topology {
    silent(Topology::new(&[LAN, WAN]), rulesets::OPEN)
}

/// Linux decides about packets that are truncated, no IP, to a group, or at the end of their life.
#[test]
fn packets_that_no_action_fits_are_left_to_linux() {
    if !require_root() {
        return;
    }
    let lab = router();
    let known = Known::flow(&lab);
    let frame = known.packet.to_bytes();
    let is_udp = |seen: &Packet| seen.udp().is_some();
    let before = known.shuntd.status();
    for length in [15, 33, 34, 41] {
        assert_eq!(known.there.all_that_leave_for(&frame[..length], is_udp).len(), 0, "{length} bytes");
    }
    let mut wrong = frame.clone();
    wrong[14] = 0x4f; // options that are not there
    assert_eq!(known.there.all_that_leave_for(&wrong, is_udp).len(), 0);
    let group = known.packet.clone().with_destination("239.1.2.3:5000".parse().unwrap());
    assert_eq!(known.there.all_that_leave(&group), []);
    assert_eq!(known.there.all_that_leave(&known.packet.clone().with_hop_limit(1)), []);
    let status = known.shuntd.status();
    assert_eq!(status.packets.fast, before.packets.fast, "{status:#?}");
    for reason in ["bad-header", "not-ours", "ttl"] {
        assert!(punts(&status, reason) > punts(&before, reason), "{reason}: {status:#?}");
    }
    known.is_fast_again();
    known.shuntd.stop();
}

#[test]
fn a_device_that_goes_down_and_comes_back_is_fast_again() {
    if !require_root() {
        return;
    }
    let lab = router();
    let known = Known::flow(&lab);
    for _ in 0..3 {
        known.lab.router().run("ip link set r1 down && ip link set r1 up");
        known.is_fast_again();
    }
    known.shuntd.stop();
}

#[test]
fn a_device_that_is_removed_is_no_port_any_more() {
    if !require_root() {
        return;
    }
    let lab = router();
    let known = Known::flow(&lab);
    lab.router().run("ip link del r1");
    known.shuntd.wait_until("r1 is no port", |status| status.ports.iter().all(|port| port.name != "r1"));
    known.shuntd.stop();
}
