//! VLAN devices and VLAN-aware bridges of the router: by either engine, what leaves is what Linux alone sends.

use crate::{ENGINES, daemon, variations};
use shunt_testkit::{Crossing, Frame, Handshake, Segment, Shuntd, Topology, require_vlans, silent};
use shunt_wire::{Packet, Tag};

const MASQUERADE: &str = r#"table ip nat { chain post { type nat hook postrouting priority srcnat;
    ip saddr 192.168.1.0/24 ip daddr 198.18.0.0/24 masquerade; }; }"#;
const TEN: &[Tag] = &[Tag::vlan(10)];
const TWENTY: &[Tag] = &[Tag::vlan(20)];
const QINQ: &[Tag] = &[Tag::service(100), Tag::vlan(5)];

/// All are fast, and leave as they have left without Shunt.
#[track_caller]
fn demand_the_same(shuntd: &Shuntd, way: &Crossing, packets: &[Packet], left: &[Frame]) {
    let before = shuntd.status().packets.fast;
    for (packet, left) in packets.iter().zip(left) {
        assert_eq!(way.pass(packet).bytes, left.bytes, "{packet:?}");
    }
    let status = shuntd.status();
    assert_eq!(status.packets.fast - before, packets.len() as u64, "{status:#?} {:#?}", shuntd.flows());
}

/// UDP and TCP, in both directions.
#[track_caller]
fn vlans_are_the_same(lan: Segment, wan: Segment) {
    if !require_vlans() {
        return;
    }
    for engine in ENGINES {
        let lab = silent(Topology::of(&[lan, wan]), MASQUERADE);
        let (lan, wan) = (lab.lan(), lab.wan());
        let (there, back) = (Crossing::between(lan, wan), Crossing::between(wan, lan));

        let packets = variations(&lan.udp_to(4000, wan.at(5000)));
        let left = there.pass_all(&packets);
        let seen = left[0].packet().unwrap();
        assert_eq!(seen.ethernet.tags, wan.tags, "tags of what Linux sends");
        let answers = variations(&wan.answer_to(&seen));
        let answers_left = back.pass_all(&answers);
        assert_eq!(answers_left[0].packet().unwrap().ethernet.tags, lan.tags, "tags of what Linux sends");

        let syn = lan.tcp_to(4001, wan.at(80), 0);
        let data = variations(&Handshake::open(&there, &back, &syn, wan).from_client(&syn, 0, []));
        let data_left = there.pass_all(&data);

        let shuntd = daemon(&lab, engine);
        there.teach(&shuntd, &packets[0]);
        demand_the_same(&shuntd, &there, &packets[1..], &left[1..]);
        back.teach(&shuntd, &answers[0]);
        demand_the_same(&shuntd, &back, &answers[1..], &answers_left[1..]);
        there.teach(&shuntd, &data[0]);
        demand_the_same(&shuntd, &there, &data[1..], &data_left[1..]);
        shuntd.stop();
    }
}

#[test]
fn a_tagged_lan_and_an_untagged_wan() {
    vlans_are_the_same(Segment::LAN.tagged(TEN), Segment::WAN);
}

#[test]
fn an_untagged_lan_and_a_tagged_wan() {
    vlans_are_the_same(Segment::LAN, Segment::WAN.tagged(TEN));
}

#[test]
fn a_tag_for_another() {
    vlans_are_the_same(Segment::LAN.tagged(TEN), Segment::WAN.tagged(TWENTY));
}

#[test]
fn two_tags_for_one() {
    vlans_are_the_same(Segment::LAN.tagged(QINQ), Segment::WAN.tagged(TEN));
}

#[test]
fn two_tags_and_none() {
    vlans_are_the_same(Segment::LAN.tagged(QINQ), Segment::WAN);
}

#[test]
fn none_and_two_tags() {
    vlans_are_the_same(Segment::LAN, Segment::WAN.tagged(QINQ));
}

#[test]
fn a_trunk_port_of_a_bridge_that_knows_vlans() {
    vlans_are_the_same(Segment::LAN.bridged("br0").tagged(TEN), Segment::WAN);
}

#[test]
fn an_access_port_of_a_bridge_that_knows_vlans() {
    let lan = Segment { access: true, ..Segment::LAN.bridged("br0").tagged(TEN) };
    vlans_are_the_same(lan, Segment::WAN);
}
