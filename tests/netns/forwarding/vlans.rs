//! VLAN devices and VLAN-aware bridges: packets leave as Linux alone sends them, by either engine.

use crate::{
    daemon,
    recorded::{RULES, Recorded},
    variations,
};
use shunt_api::{Engine, FilterHook};
use shunt_testkit::{
    Crossing, Host, KernelObjects, SELDOM_PROVED, Segment, Shuntd, Tap, Topology, engines,
    kernel_is_at_least, refusals, require_root, require_vlans, silent, silent_router,
};
use shunt_wire::{Packet, Tag, Tcp};
use std::time::{Duration, Instant};

const TEN: &[Tag] = &[Tag::vlan(10)];
const TWENTY: &[Tag] = &[Tag::vlan(20)];
const QINQ: &[Tag] = &[Tag::service(100), Tag::vlan(5)];

/// UDP and TCP over both families, with and without translation, in both directions.
#[track_caller]
fn vlans_are_the_same(lan: Segment, wan: Segment) {
    if !require_vlans() {
        return;
    }
    for engine in engines() {
        let lab = silent(Topology::new(&[lan, wan]), RULES);
        let (lan, wan) = (lab.lan(), lab.wan());
        let recorded = Recorded::all(lan, wan);
        let shuntd = daemon(&lab, engine);
        recorded.iter().for_each(|way| way.assert_same_with_shunt(&shuntd));
        // Since Linux 6.8, a veth tells XDP programs of tags.
        if engine == Engine::Xdp && kernel_is_at_least(6, 8) {
            let ports = shuntd.status().ports;
            assert!(ports.iter().all(|port| port.packets.xdp > port.packets.tc), "{ports:#?}");
        }
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

/// The kernel redirects no frame longer than the MTU plus an Ethernet header and one tag.
#[test]
fn full_packets_with_two_tags() {
    if !require_vlans() {
        return;
    }
    for engine in engines() {
        let lab = silent(Topology::new(&[Segment::LAN, Segment::WAN.tagged(QINQ)]), RULES);
        let (lan, wan) = (lab.lan(), lab.wan());
        let sized = |port, bytes: usize| {
            let packet = lan.udp_to(port, wan.at(5000)).payload(vec![7; bytes]);
            Recorded::new(lan, wan, (0..20).map(|n| packet.clone().with_id(n)).collect())
        };
        let recorded = [sized(4000, 1472), sized(4001, 1469), sized(4002, 1468)];
        let shuntd = daemon(&lab, engine);
        recorded.iter().for_each(|way| way.assert_same_with_shunt(&shuntd));
        assert_eq!(shuntd.status().packets.dropped, 0, "{:#?}", shuntd.status());
        shuntd.stop();
    }
}

/// The program is then exchanged for one that asks the driver for tags. The device is never without one, which would
/// reset the link of some NICs.
#[test]
fn xdp_goes_on_when_a_vlan_device_is_added() {
    if !require_vlans() || !kernel_is_at_least(6, 8) {
        return;
    }
    let lab = silent_router(RULES);
    let (lan, wan) = (lab.lan(), lab.wan());
    let [there, back] = Recorded::udp(lan, wan, 4000, wan.at(5000));
    let shuntd = daemon(&lab, Engine::Xdp);
    there.assert_same_with_shunt(&shuntd);
    let links = || KernelObjects::held_by(shuntd.pid()).links();
    let attached = links();
    lab.router().run("ip link add link r0 name r0.10 type vlan id 10 && ip link set r0.10 up");
    let by_xdp = || shuntd.status().ports.iter().map(|port| port.packets.xdp).sum::<u64>();
    let before = by_xdp();
    there.assert_same_with_shunt(&shuntd);
    back.assert_same_with_shunt(&shuntd);
    let sent = there.packets.len() + back.packets.len();
    assert!(by_xdp() - before > sent as u64 / 2, "{:#?}", shuntd.status());
    assert_eq!(links(), attached);
    shuntd.stop();
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

#[test]
fn a_bridge_on_top_of_a_vlan_device() {
    vlans_are_the_same(Segment::LAN.tagged(TEN).below("br0"), Segment::WAN.tagged(TWENTY));
}

/// Raw sockets put a VLAN tag into the frame; a VLAN device passes it in the metadata of the frame if the port supports
/// that.
#[test]
fn tags_beside_the_frame_and_in_it() {
    if !require_vlans() {
        return;
    }
    for (engine, offload) in engines().into_iter().flat_map(|engine| [(engine, "on"), (engine, "off")]) {
        let lan = Segment::LAN.tagged(TEN).with_tagged_host();
        let lab = silent(Topology::new(&[lan, Segment::WAN.tagged(TWENTY)]), RULES);
        let (lan, wan) = (lab.lan(), lab.wan());
        lan.ns.run(&format!("ethtool -K lan0 txvlan {offload} rxvlan {offload}"));
        lab.router()
            .run(&format!("for port in r0 r1; do ethtool -K $port txvlan {offload} rxvlan {offload}; done"));
        let [there, back] = Recorded::udp(lan, wan, 4000, wan.at(5000));
        let shuntd = daemon(&lab, engine);
        there.assert_same_with_shunt(&shuntd);
        back.assert_same_with_shunt(&shuntd);
        let device = Tap::open(&lan.ns, "lan0.10");
        let mut by_device = Crossing::between(lan, wan);
        by_device.from = device;
        let before = shuntd.status().packets.fast;
        for (packet, left) in there.packets.iter().zip(&there.left) {
            assert_eq!(by_device.pass(&packet.clone().with_tags(&[])).bytes, left.bytes, "{packet:?}");
        }
        assert_eq!(
            shuntd.status().packets.fast - before,
            there.packets.len() as u64,
            "{:#?}",
            shuntd.flows()
        );
        shuntd.stop();
    }
}

/// A tag with VLAN ID 0: Linux treats the frame as untagged.
#[test]
fn priority_tags() {
    if !require_root() {
        return;
    }
    for engine in engines() {
        let lab = silent_router(RULES);
        let (lan, wan) = (lab.lan(), lab.wan());
        let tags = [vec![], vec![Tag { priority: 5, ..Tag::vlan(0) }], vec![Tag::vlan(0)]];
        let recorded = tags.map(|tags| {
            let packets = variations(&lan.udp_to(4000, wan.at(5000)));
            Recorded::new(lan, wan, packets.into_iter().map(|packet| packet.with_tags(&tags)).collect())
        });
        let shuntd = daemon(&lab, engine);
        for way in &recorded {
            way.assert_same_with_shunt(&shuntd);
        }
        // The two flows are in any order.
        let way = Crossing::between(lan, wan);
        for n in 0..recorded[0].packets.len() {
            for one in &recorded {
                assert_eq!(way.pass(&one.packets[n]).bytes, one.left[n].bytes);
            }
        }
        shuntd.stop();
    }
}

/// The egress QoS map sets the tag's priority from `skb->priority`, which is 0 here.
#[test]
fn a_changed_qos_map_of_a_vlan_device_takes_effect() {
    if !require_vlans() {
        return;
    }
    for engine in engines() {
        let lab = silent(Topology::new(&[Segment::LAN, Segment::WAN.tagged(TEN)]), RULES);
        let (lan, wan) = (lab.lan(), lab.wan());
        let way = Crossing::between(lan, wan);
        let packet = lan.udp_to(4000, wan.at(5000)).payload("to the wan");
        let shuntd = daemon(&lab, engine);
        for priority in [5, 3, 0] {
            way.teach(&shuntd, &packet);
            let change = format!("ip link set r1.10 type vlan egress-qos-map 0:{priority}");
            lab.router().run(&change);
            react(&change, &way, &packet, Some(&[Tag { priority, ..Tag::vlan(10) }]));
        }
        shuntd.stop();
    }
}

/// Packets that leave below a VLAN device would bypass the device's qdisc.
#[test]
fn a_qdisc_of_a_vlan_device_is_not_bypassed() {
    if !require_vlans() {
        return;
    }
    for engine in engines() {
        let lab = silent(Topology::new(&[Segment::LAN, Segment::WAN.tagged(TEN)]), RULES);
        let (lan, wan) = (lab.lan(), lab.wan());
        let there = Crossing::between(lan, wan);
        let packet = lan.udp_to(4000, wan.at(5000)).payload("to the wan");
        let shuntd = Shuntd::on(lab.router()).engine(&engine.to_string()).config(SELDOM_PROVED).start();
        there.teach(&shuntd, &packet);
        lab.router().run("tc qdisc add dev r1.10 root handle 1: prio");
        let is_seen = |port: &shunt_api::PortStatus| port.filters.iter().any(|f| f.hook == FilterHook::Qdisc);
        shuntd.wait_until("the daemon knows the qdisc", |status| status.ports.iter().any(is_seen));
        let fast = shuntd.status().packets.fast;
        (0..20).for_each(|_| drop(there.pass(&packet)));
        let status = shuntd.status();
        assert_eq!(status.packets.fast, fast, "{:#?}", shuntd.flows());
        assert!(refusals(&status, "egress-filter") > 0, "{status:#?}");
        lab.router().run("tc qdisc del dev r1.10 root");
        there.teach(&shuntd, &packet);
        shuntd.stop();
    }
}

const TRUNK: Segment = Segment::LAN.bridged("br0").tagged(TEN);
const ACCESS: Segment = Segment { access: true, ..Segment::SECOND_LAN.bridged("br0").tagged(TEN) };

/// Two stations of a bridge whose traffic conntrack does not track.
fn two_stations(from: Segment, to: Segment) -> Topology {
    let lab = silent(Topology::new(&[from, to, Segment::WAN]), "");
    lab.router()
        .run("for f in /proc/sys/net/bridge/bridge-nf-call-ip*tables; do [ ! -e $f ] || echo 0 > $f; done");
    lab
}

fn past_the_router(from: &Host, to: &Host, packet: &Packet) -> Vec<Packet> {
    variations(&packet.clone().macs(from.mac, to.mac))
}

/// UDP and TCP over both families, in both directions.
#[track_caller]
fn bridged_is_the_same(from: Segment, to: Segment) {
    if !require_vlans() {
        return;
    }
    for engine in engines() {
        let lab = two_stations(from, to);
        let (a, b) = (lab.lan(), lab.host("lan2"));
        let record = |from, to, packet: Packet| Recorded::new(from, to, past_the_router(from, to, &packet));
        let recorded = [
            record(a, b, a.udp_to(4000, b.at(5000))),
            record(b, a, b.udp_to(5000, a.at(4000))),
            record(a, b, a.udp_to(4000, b.at6(5000))),
            record(a, b, a.tcp_to(4001, b.at(80), Tcp::ACK)),
            record(b, a, b.tcp_to(80, a.at6(4001), Tcp::ACK)),
        ];
        let shuntd = daemon(&lab, engine);
        recorded.iter().for_each(|way| way.assert_same_with_shunt(&shuntd));
        shuntd.stop();
    }
}

#[test]
fn bridged_from_a_trunk_port_to_an_access_port_and_back() {
    bridged_is_the_same(TRUNK, ACCESS);
}

#[test]
fn bridged_between_two_trunk_ports() {
    bridged_is_the_same(TRUNK, Segment::SECOND_LAN.bridged("br0").tagged(TEN));
}

#[test]
fn bridged_between_two_access_ports() {
    bridged_is_the_same(Segment { access: true, ..TRUNK }, ACCESS);
}

/// Sends packets until they leave as expected, for five seconds at most, and then some more, which must leave so, too.
#[track_caller]
fn react(change: &str, way: &Crossing, packet: &Packet, required: Option<&[Tag]>) {
    let (since, mut good) = (Instant::now(), 0);
    while good < 20 {
        way.from.send(packet);
        let seen = way.to.capture_packet(Duration::from_millis(50), |seen| seen.payload == packet.payload);
        let seen = seen.map(|seen| seen.ethernet.tags);
        if seen.as_deref() == required {
            good += 1;
        } else {
            good = 0;
            assert!(since.elapsed() < Duration::from_secs(5), "{change}: the packet leaves with {seen:?}");
        }
    }
}

#[test]
fn vlan_membership_takes_effect_on_bridged_flows() {
    if !require_vlans() {
        return;
    }
    for engine in engines() {
        let lab = two_stations(TRUNK, ACCESS);
        let (a, b) = (lab.lan(), lab.host("lan2"));
        let way = Crossing::between(a, b);
        let packet = a.udp_to(4000, b.at(5000)).macs(a.mac, b.mac).payload("for a member only");
        b.tap().send(&b.udp_to(5000, a.at(4000)).macs(b.mac, a.mac));
        let shuntd = daemon(&lab, engine);
        for (change, required) in [
            ("bridge vlan del dev r2 vid 10", None),
            ("bridge vlan add dev r2 vid 10 pvid untagged", Some(&[][..])),
            ("bridge vlan add dev r2 vid 10 pvid", Some(TEN)),
            ("bridge vlan del dev r0 vid 10", None),
            ("bridge vlan add dev r0 vid 10", Some(TEN)),
            ("bridge vlan add dev r2 vid 10 pvid untagged", Some(&[])),
            ("ip link set br0 type bridge vlan_filtering 0", Some(TEN)),
            ("ip link set br0 type bridge vlan_filtering 1", Some(&[])),
        ] {
            lab.router().run(change);
            react(change, &way, &packet, required);
            if required.is_some() {
                way.teach(&shuntd, &packet);
            }
        }
        shuntd.stop();
    }
}
