//! VLAN devices and VLAN-aware bridges of the router: by either engine, what leaves is what Linux alone sends.

use crate::{SELDOM_PROVED, daemon, refusal, silent_lab, variations};
use shunt_api::FilterHook;
use shunt_testkit::{
    Crossing, Frame, Handshake, Host, Segment, Shuntd, Tap, Topology, engines, require_root, require_vlans,
    silent,
};
use shunt_wire::{Packet, Tag, Tcp};
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

/// All kinds of translation, by where a flow goes.
const RULES: &str = r#"
    table ip nat {
        chain pre { type nat hook prerouting priority dstnat;
            ip daddr 203.0.113.9 udp dport 80 dnat to 198.18.0.2:8080;
            ip daddr 198.18.0.1 udp dport 8081 dnat to 192.168.1.2:80; };
        chain post { type nat hook postrouting priority srcnat;
            ip saddr 192.168.1.0/24 ip daddr 198.18.0.0/24 masquerade; }; };
    table inet filter { chain forward { type filter hook forward priority filter; ct state invalid drop; }; }"#;
const TEN: &[Tag] = &[Tag::vlan(10)];
const TWENTY: &[Tag] = &[Tag::vlan(20)];
const QINQ: &[Tag] = &[Tag::service(100), Tag::vlan(5)];

/// What Linux alone makes of packets that go one way.
struct Recorded<'a> {
    from: &'a Host,
    to: &'a Host,
    packets: Vec<Packet>,
    left: Vec<Frame>,
}

impl<'a> Recorded<'a> {
    fn new(from: &'a Host, to: &'a Host, packets: Vec<Packet>) -> Self {
        let left = Crossing::between(from, to).pass_all(&packets);
        assert_eq!(left[0].packet().unwrap().ethernet.tags, to.tags, "tags of what Linux sends");
        Self { from, to, packets, left }
    }

    /// UDP, and the answers to it.
    fn udp(from: &'a Host, to: &'a Host, port: u16, destination: SocketAddr) -> [Self; 2] {
        let there = Self::new(from, to, variations(&from.udp_to(port, destination)));
        let answer = to.answer_to(&there.left[0].packet().unwrap());
        [there, Self::new(to, from, variations(&answer))]
    }

    /// A connection that was opened before Shunt came.
    fn tcp(from: &'a Host, to: &'a Host, port: u16, destination: SocketAddr) -> [Self; 2] {
        let (there, back) = (Crossing::between(from, to), Crossing::between(to, from));
        let syn = from.tcp_to(port, destination, 0);
        let connection = Handshake::open(&there, &back, &syn, to);
        let data = variations(&connection.from_client(&syn, 0, []));
        let answers = variations(&connection.from_server(to, 0, []));
        [Self::new(from, to, data), Self::new(to, from, answers)]
    }

    /// With Shunt all but those that teach are fast, and leave the same.
    #[track_caller]
    fn demand_the_same(&self, shuntd: &Shuntd) {
        let way = Crossing::between(self.from, self.to);
        way.teach(shuntd, &self.packets[0]);
        let before = shuntd.status().packets.fast;
        for (packet, left) in self.packets.iter().zip(&self.left) {
            assert_eq!(way.pass(packet).bytes, left.bytes, "{packet:?}");
        }
        let status = shuntd.status();
        assert_eq!(
            status.packets.fast - before,
            self.packets.len() as u64,
            "{status:#?} {:#?}",
            shuntd.flows()
        );
    }
}

/// UDP and TCP over both families, with and without translation, in both directions.
#[track_caller]
fn vlans_are_the_same(lan: Segment, wan: Segment) {
    if !require_vlans() {
        return;
    }
    for engine in engines() {
        let lab = silent(Topology::of(&[lan, wan]), RULES);
        let (lan, wan) = (lab.lan(), lab.wan());
        let recorded = [
            Recorded::udp(lan, wan, 4000, wan.at(5000)),
            Recorded::udp(lan, wan, 4000, wan.at6(5000)),
            Recorded::udp(lan, wan, 4002, ([203, 0, 113, 9], 80).into()),
            Recorded::udp(wan, lan, 4003, (wan.gateway_v4, 8081).into()),
            Recorded::tcp(lan, wan, 4001, wan.at(80)),
            Recorded::tcp(lan, wan, 4001, wan.at6(80)),
        ];
        let shuntd = daemon(&lab, engine);
        for way in recorded.iter().flatten() {
            way.demand_the_same(&shuntd);
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

/// A VLAN device gives its tag to the port beside the frame, where the port takes it so; otherwise, as raw sockets do, in it.
#[test]
fn tags_beside_the_frame_and_in_it() {
    if !require_vlans() {
        return;
    }
    for (engine, offload) in engines().into_iter().flat_map(|engine| [(engine, "on"), (engine, "off")]) {
        let lan = Segment::LAN.tagged(TEN).with_tagged_host();
        let lab = silent(Topology::of(&[lan, Segment::WAN.tagged(TWENTY)]), RULES);
        let (lan, wan) = (lab.lan(), lab.wan());
        lan.ns.run(&format!("ethtool -K lan0 txvlan {offload} rxvlan {offload}"));
        lab.router()
            .run(&format!("for port in r0 r1; do ethtool -K $port txvlan {offload} rxvlan {offload}; done"));
        let [there, back] = Recorded::udp(lan, wan, 4000, wan.at(5000));
        let shuntd = daemon(&lab, engine);
        there.demand_the_same(&shuntd);
        back.demand_the_same(&shuntd);
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

/// A tag that is of no VLAN: Linux takes the frame for an untagged one.
#[test]
fn priority_tags() {
    if !require_root() {
        return;
    }
    for engine in engines() {
        let lab = silent_lab(RULES);
        let (lan, wan) = (lab.lan(), lab.wan());
        let tags = [vec![], vec![Tag { priority: 5, ..Tag::vlan(0) }], vec![Tag::vlan(0)]];
        let recorded = tags.map(|tags| {
            let packets = variations(&lan.udp_to(4000, wan.at(5000)));
            Recorded::new(lan, wan, packets.into_iter().map(|packet| packet.with_tags(&tags)).collect())
        });
        let shuntd = daemon(&lab, engine);
        for way in &recorded {
            way.demand_the_same(&shuntd);
        }
        // In any order.
        let way = Crossing::between(lan, wan);
        for n in 0..recorded[0].packets.len() {
            for one in &recorded {
                assert_eq!(way.pass(&one.packets[n]).bytes, one.left[n].bytes);
            }
        }
        shuntd.stop();
    }
}

/// What leaves below a VLAN device would go by its qdisc.
#[test]
fn a_qdisc_of_a_vlan_device_is_not_bypassed() {
    if !require_vlans() {
        return;
    }
    for engine in engines() {
        let lab = silent(Topology::of(&[Segment::LAN, Segment::WAN.tagged(TEN)]), RULES);
        let (lan, wan) = (lab.lan(), lab.wan());
        let there = Crossing::between(lan, wan);
        let packet = lan.udp_to(4000, wan.at(5000)).payload("to the wan");
        let shuntd = Shuntd::on(lab.router()).engine(&engine.to_string()).config(SELDOM_PROVED).start();
        there.teach(&shuntd, &packet);
        lab.router().run("tc qdisc add dev r1.10 root handle 1: prio");
        let is_seen = |port: &shunt_api::PortStatus| port.filters.iter().any(|f| f.hook == FilterHook::Qdisc);
        shuntd.wait_until("it is seen", |status| status.ports.iter().any(is_seen));
        let fast = shuntd.status().packets.fast;
        (0..20).for_each(|_| drop(there.pass(&packet)));
        let status = shuntd.status();
        assert_eq!(status.packets.fast, fast, "{:#?}", shuntd.flows());
        assert!(refusal(&status, "egress-filter") > 0, "{status:#?}");
        lab.router().run("tc qdisc del dev r1.10 root");
        there.teach(&shuntd, &packet);
        shuntd.stop();
    }
}

const TRUNK: Segment = Segment::LAN.bridged("br0").tagged(TEN);
const ACCESS: Segment = Segment { access: true, ..Segment::SECOND_LAN.bridged("br0").tagged(TEN) };

/// Two stations of a bridge, where nobody tracks what it forwards.
fn two_stations(from: Segment, to: Segment) -> Topology {
    let lab = silent(Topology::of(&[from, to, Segment::WAN]), "");
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
        recorded.iter().for_each(|way| way.demand_the_same(&shuntd));
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

/// Sends packets for a second at most until they leave as wanted, and then so for a while.
#[track_caller]
fn react(change: &str, way: &Crossing, packet: &Packet, wanted: Option<&[Tag]>) {
    let (since, mut good) = (Instant::now(), 0);
    while good < 20 {
        way.from.send(packet);
        let seen = way.to.capture_packet(Duration::from_millis(50), |seen| seen.payload == packet.payload);
        let seen = seen.map(|seen| seen.ethernet.tags);
        if seen.as_deref() == wanted {
            good += 1;
        } else {
            good = 0;
            assert!(since.elapsed() < Duration::from_secs(1), "{change}: it leaves with {seen:?}");
        }
    }
}

#[test]
fn who_is_in_a_vlan_and_how_holds_at_once_for_what_is_bridged() {
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
        for (change, wanted) in [
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
            react(change, &way, &packet, wanted);
            if wanted.is_some() {
                way.teach(&shuntd, &packet);
            }
        }
        shuntd.stop();
    }
}
