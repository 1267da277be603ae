//! Static flows: forwarded without rules, routes and connection tracking.

use crate::{
    recorded::{RULES, Recorded},
    variations,
};
use shunt_api::{
    Engine, FailureCode, FlowState, RouteChoice, StaticFlow, StaticRemoval, StaticRoute, StaticTable, Status,
};
use shunt_testkit::{
    Crossing, ENGINES, Host, SELDOM_PROVED, Shuntd, Topology, engines, punts, require_root, sent_by,
    silent_router, skip, wait_for,
};
use shunt_wire::{Checksum, Mac, Packet, Tag, Transport};
use std::{
    fs,
    net::{SocketAddr, UdpSocket},
    time::Duration,
};

const NEXT_HOP: Mac = Mac([2, 0, 0, 0, 9, 9]);
/// A destination to which the router has no route.
const FAR: &str = "203.0.113.9:80";
const FAR6: &str = "[fd00:99::9]:80";

/// A router whose own routes lead to none of these destinations.
pub(crate) fn lab() -> Topology {
    let lab = Topology::two_hosts_and_a_router();
    lab.pin_neighbours();
    lab.hosts().iter().for_each(Host::be_silent);
    lab.router().run("ip route add blackhole 203.0.113.0/24; ip -6 route add blackhole fd00:99::/64");
    lab
}

pub(crate) fn daemon(lab: &Topology, engine: Engine) -> Shuntd {
    Shuntd::on(lab.router()).engine(&engine.to_string()).config("learn = false").config(SELDOM_PROVED).start()
}

pub(crate) fn table(text: &str) -> StaticTable {
    StaticTable::parse(text).unwrap()
}

/// The LAN host, at this port, as a source of packets to `far`.
fn near(port: u16, far: &str) -> SocketAddr {
    address(&format!("{}:{port}", if address(far).is_ipv6() { "[fd00:1::2]" } else { "192.168.1.2" }))
}

/// A UDP flow from this port of the LAN host, with an inline route to the next hop.
fn plain(port: u16, far: &str) -> StaticTable {
    let (source, destination) = (near(port, far), address(far));
    table(&format!(
        r#"
        [[flow]]
        in_port = "r0"
        proto = "udp"
        src = "{}"
        sport = {}
        dst = "{}"
        dport = {}
        route = {{ out_port = "r1", dmac = "{NEXT_HOP}" }}
        "#,
        source.ip(),
        source.port(),
        destination.ip(),
        destination.port(),
    ))
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// The bytes of a packet after routing: new MACs, one hop less, and `change` applied.
pub(crate) fn routed(lab: &Topology, packet: &Packet, change: impl Fn(Packet) -> Packet) -> Vec<u8> {
    let router = lab.wan().gateway_mac;
    let hops = packet.hop_limit().unwrap() - 1;
    let mut packet = change(packet.clone().macs(router, NEXT_HOP).with_hop_limit(hops));
    packet.trailer.clear();
    packet.to_bytes()
}

/// Asserts that all of a flow's packets are fast at once, and leave as they should.
#[track_caller]
pub(crate) fn assert_forwarded(
    lab: &Topology,
    shuntd: &Shuntd,
    engine: Engine,
    packets: &[Packet],
    change: impl Fn(Packet) -> Packet,
) {
    let there = Crossing::between(lab.lan(), lab.wan());
    let before = sent_by(engine, &shuntd.status());
    for packet in packets {
        assert_eq!(there.pass(packet).bytes, routed(lab, packet, &change), "{packet:?}");
    }
    assert_eq!(sent_by(engine, &shuntd.status()) - before, packets.len() as u64, "{:#?}", shuntd.status());
}

/// The kernel redirects no frame longer than the MTU plus an Ethernet header and one tag.
#[test]
fn a_full_packet_with_two_tags_leaves_by_tc() {
    if !require_root() {
        return;
    }
    for engine in engines() {
        let lab = lab();
        let shuntd = daemon(&lab, engine);
        let mut flow = plain(4000, FAR);
        let RouteChoice::Inline(hop) = &mut flow.flow[0].route else { panic!("not an inline route") };
        hop.vlans = vec![100, 5];
        assert_eq!(shuntd.load(&flow).unwrap(), 1);
        let packet = lab.lan().udp_to(4000, address(FAR));
        let tag = |packet: Packet| packet.with_tags(&[Tag::service(100), Tag::vlan(5)]);
        for (payload, by) in [(1472, Engine::Tc), (1469, Engine::Tc), (1468, engine), (100, engine)] {
            let packets: Vec<Packet> =
                (0..10).map(|n| packet.clone().payload(vec![7; payload]).with_id(n)).collect();
            assert_forwarded(&lab, &shuntd, by, &packets, tag);
        }
        assert_eq!(shuntd.status().packets.dropped, 0, "{:#?}", shuntd.status());
        shuntd.stop();
    }
}

#[test]
fn a_flow_is_forwarded_from_its_first_packet() {
    if !require_root() {
        return;
    }
    for engine in engines() {
        let lab = lab();
        let shuntd = daemon(&lab, engine);
        for far in [FAR, FAR6] {
            assert_eq!(shuntd.load(&plain(4000, far)).unwrap(), 1);
            let packets = variations(&lab.lan().udp_to(4000, address(far)));
            assert_forwarded(&lab, &shuntd, engine, &packets, |packet| packet);
        }
        let status = shuntd.status();
        assert_eq!((status.flows.static_, status.learned), (2, 0));
        assert!(shuntd.flows().iter().all(|c| c.state == FlowState::Static));
        // Conntrack has tracked nothing.
        assert_eq!(lab.router().run("conntrack -C"), "0\n");
        shuntd.stop();
    }
}

#[test]
fn a_flow_is_translated_as_configured() {
    if !require_root() {
        return;
    }
    for engine in engines() {
        let lab = lab();
        let shuntd = daemon(&lab, engine);
        for (far, snat, dnat) in
            [(FAR, "198.51.100.7:6000", "192.0.2.1:8080"), (FAR6, "[fd00:7::7]:6000", "[fd00:8::8]:8080")]
        {
            let mut table = plain(4000, far);
            table.flow[0].snat = Some(address(snat));
            table.flow[0].dnat = Some(address(dnat));
            shuntd.load(&table).unwrap();
            let mut packets = variations(&lab.lan().udp_to(4000, address(far)));
            packets.push(packets[0].clone().payload([5; 21]).with_l4_checksum(Checksum::Good));
            assert_forwarded(&lab, &shuntd, engine, &packets, |packet| {
                packet.with_source(address(snat)).with_destination(address(dnat))
            });
        }
        shuntd.stop();
    }
}

/// On a kernel without BTF, Shunt cannot tell whether a checksum is finished, so it leaves packets that look unfinished
/// to Linux.
#[test]
fn flows_are_forwarded_without_btf() {
    if !require_root() {
        return;
    }
    for engine in engines() {
        let lab = lab();
        let shuntd = Shuntd::on(lab.router()).variable("SHUNT_PRETEND_MISSING", "btf");
        let shuntd = shuntd.engine(&engine.to_string()).config("learn = false").config(SELDOM_PROVED).start();
        for (far, snat) in [(FAR, "198.51.100.7:6000"), (FAR6, "[fd00:7::7]:6000")] {
            let mut table = plain(4000, far);
            table.flow[0].snat = Some(address(snat));
            shuntd.load(&table).unwrap();
            let packets = variations(&lab.lan().udp_to(4000, address(far)));
            assert_forwarded(&lab, &shuntd, engine, &packets, |packet| packet.with_source(address(snat)));

            let before = shuntd.status();
            let socket = lab.lan().ns.within(|| UdpSocket::bind(near(4000, far))).unwrap();
            socket.send_to(b"unfinished", address(far)).unwrap();
            let is_counted = |status: &Status| punts(status, "bad-header") > punts(&before, "bad-header");
            let status = shuntd.wait_until("the packet is counted as slow", is_counted);
            assert_eq!(status.packets.fast, before.packets.fast);
        }
        shuntd.stop();
    }
}

#[test]
fn a_tcp_flow_is_forwarded_except_syn_fin_and_rst() {
    if !require_root() {
        return;
    }
    for engine in engines() {
        let lab = lab();
        let shuntd = daemon(&lab, engine);
        let mut table = plain(4000, FAR);
        table.flow[0].proto = shunt_api::Proto::Tcp;
        shuntd.load(&table).unwrap();
        let packet = |flags| lab.lan().tcp_to(4000, address(FAR), flags);
        let (ack, syn, fin) = (packet(0x10), packet(0x02), packet(0x11));
        assert_forwarded(&lab, &shuntd, engine, &variations(&ack), |packet| packet);
        let there = Crossing::between(lab.lan(), lab.wan());
        assert!(there.all_that_leave(&syn).is_empty() && there.all_that_leave(&fin).is_empty());
        assert_eq!(punts(&shuntd.status(), "tcp-flags"), 2);
        // They retire learned flows only.
        assert_forwarded(&lab, &shuntd, engine, &[ack], |packet| packet);
        shuntd.stop();
    }
}

#[test]
fn flows_are_replaced_listed_and_removed() {
    if !require_root() {
        return;
    }
    let lab = lab();
    let shuntd = daemon(&lab, ENGINES[0]);
    let there = Crossing::between(lab.lan(), lab.wan());
    let one = plain(4000, FAR);
    let two = plain(4001, FAR);
    shuntd.load(&one).unwrap();
    shuntd.load(&two).unwrap();
    assert_eq!(shuntd.statics().flow, [one.flow[0].clone(), two.flow[0].clone()]);

    let mut other = one.clone();
    other.flow[0].snat = Some(address("198.51.100.7:6000"));
    shuntd.load(&other).unwrap();
    assert_eq!(shuntd.status().flows.static_, 2);
    assert!(shuntd.statics().flow.contains(&other.flow[0]) && !shuntd.statics().flow.contains(&one.flow[0]));
    let packet = lab.lan().udp_to(4000, address(FAR)).payload("one");
    let seen = there.pass(&packet).packet().unwrap();
    assert_eq!(seen.source(), Some(address("198.51.100.7:6000")));

    let removal = StaticRemoval { flow: vec![other.flow[0].key()], ..StaticRemoval::default() };
    assert_eq!(shuntd.unload(&removal).unwrap(), 1);
    assert_eq!(shuntd.unload(&removal).unwrap(), 0, "removing a missing flow is no failure");
    assert_eq!(there.all_that_leave(&packet), [], "the router's own route is a blackhole");
    assert_eq!(shuntd.statics(), two);
    // A flush retires learned flows only.
    assert_eq!(shuntd.flush(), 0);
    there.pass(&lab.lan().udp_to(4001, address(FAR)).payload("two"));
    assert_eq!(shuntd.unload(&StaticRemoval { all: true, ..StaticRemoval::default() }).unwrap(), 1);
    assert_eq!(shuntd.statics(), StaticTable::default());
    assert_eq!(shuntd.flows(), []);
}

#[test]
fn a_changed_route_applies_to_its_flows() {
    if !require_root() {
        return;
    }
    let lab = lab();
    let shuntd = daemon(&lab, ENGINES[1]);
    let there = Crossing::between(lab.lan(), lab.wan());
    let route = |last: u8| StaticRoute {
        name: "uplink".to_owned(),
        out_port: "r1".to_owned(),
        dmac: Mac([2, 0, 0, 0, 9, last]),
        smac: None,
        vlans: Vec::new(),
    };
    let mut table = plain(4000, FAR);
    table.flow[0].route = shunt_api::RouteChoice::Named("uplink".to_owned());
    table.route = vec![route(1)];
    assert_eq!(shuntd.load(&table).unwrap(), 2);
    let packet = lab.lan().udp_to(4000, address(FAR)).payload("by route");
    let next_hop = || there.pass(&packet).packet().unwrap().ethernet.destination.0[5];
    assert_eq!(next_hop(), 1);
    shuntd.load(&StaticTable { route: vec![route(2)], flow: Vec::new() }).unwrap();
    assert_eq!(next_hop(), 2);
    let removal = StaticRemoval { route: vec!["uplink".to_owned()], ..StaticRemoval::default() };
    let refused = shuntd.unload(&removal).unwrap_err();
    assert!(refused.code == FailureCode::BadRequest && refused.message.contains("uplink"), "{refused:?}");
    assert_eq!(next_hop(), 2);
}

#[test]
fn flows_follow_the_names_of_their_ports() {
    if !require_root() {
        return;
    }
    for engine in engines() {
        let lab = lab();
        let shuntd = daemon(&lab, engine);
        shuntd.load(&plain(4000, FAR)).unwrap();
        let packet = lab.lan().udp_to(4000, address(FAR));
        assert_forwarded(&lab, &shuntd, engine, std::slice::from_ref(&packet), |packet| packet);
        let swap = "ip link set r0 name swap && ip link set r1 name r0 && ip link set swap name r1";
        if lab.router().try_run(swap).is_err() {
            return skip("this kernel cannot rename a device that is up");
        }
        let place = |ifindex: u32| format!("device {ifindex} is `r0`");
        let first =
            |status: &Status| status.ports.iter().find(|port| port.name == "r0").map(|port| port.ifindex);
        let there = Crossing::between(lab.lan(), lab.wan());
        let r0 = lab.router().ifindex("r0");
        shuntd.wait_until(&place(r0), |status| first(status) == Some(r0));
        let before = sent_by(engine, &shuntd.status());
        there.from.send(&packet);
        shuntd.wait_until("the packet is slow", |status| status.packets.slow > 0);
        assert_eq!(sent_by(engine, &shuntd.status()), before, "a packet that arrived on r1 matched the flow");
        lab.router().run(swap);
        let r0 = lab.router().ifindex("r0");
        shuntd.wait_until(&place(r0), |status| first(status) == Some(r0));
        assert_forwarded(&lab, &shuntd, engine, &[packet], |packet| packet);
        shuntd.stop();
    }
}

#[test]
fn wrong_flows_are_refused_and_change_nothing() {
    if !require_root() {
        return;
    }
    let lab = lab();
    let shuntd = daemon(&lab, ENGINES[0]);
    let good = plain(4000, FAR);
    shuntd.load(&good).unwrap();
    let with = |change: &dyn Fn(&mut StaticFlow)| {
        let mut flow = plain(4001, FAR).flow.remove(0);
        change(&mut flow);
        // Put a correct entry first: it must not be loaded either.
        StaticTable { flow: vec![plain(4002, FAR).flow.remove(0), flow], ..good.clone() }
    };
    let wrong = [
        (with(&|flow| flow.in_port = "nowhere".to_owned()), "nowhere"),
        (with(&|flow| flow.in_port = "lo".to_owned()), "lo"),
        (with(&|flow| flow.route = shunt_api::RouteChoice::Named("nameless".to_owned())), "nameless"),
        (with(&|flow| flow.dst = "fd00::1".parse().unwrap()), "famil"),
        (with(&|flow| flow.in_vlans = vec![4095]), "4095"),
        (with(&|flow| flow.in_vlans = vec![1, 2, 3]), "in_vlans"),
    ];
    for (table, named) in &wrong {
        let failure = shuntd.load(table).unwrap_err();
        assert_eq!(failure.code, FailureCode::BadRequest);
        assert!(failure.message.contains(named), "{failure}");
    }
    for text in ["", "{", r#"{"flow":[{}]}"#, r#"{"flows":[]}"#, r#"{"flow":[],"extra":1}"#] {
        assert_eq!(shuntd.request("POST", "/v1/static", text).unwrap().0, 400, "{text}");
    }
    assert_eq!(shuntd.statics(), good);
    assert_eq!(shuntd.status().flows.static_, 1);
    let there = Crossing::between(lab.lan(), lab.wan());
    let unplaced = lab.lan().udp_to(4002, address(FAR)).payload("not in the table");
    assert_eq!(there.all_that_leave(&unplaced), []);
}

#[test]
fn the_command_loads_a_file() {
    if !require_root() {
        return;
    }
    let lab = lab();
    let shuntd = daemon(&lab, ENGINES[0]);
    let path = shuntd.directory().join("flows.toml");
    let text = format!(
        r#"
        [[route]]
        name = "uplink"
        out_port = "r1"
        dmac = "{NEXT_HOP}"

        [[flow]]
        in_port = "r0"
        proto = "udp"
        src = "192.168.1.2"
        sport = 4000
        dst = "203.0.113.9"
        dport = 80
        route = "uplink"
        "#
    );
    fs::write(&path, &text).unwrap();
    let output = shuntd.shunt(&["flow", "load", path.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(shuntd.statics(), table(&text));
    let packet = lab.lan().udp_to(4000, address(FAR)).payload("from a file");
    assert_forwarded(&lab, &shuntd, ENGINES[0], &[packet], |packet| packet);

    fs::write(&path, text.replace("sport", "port")).unwrap();
    let output = shuntd.shunt(&["flow", "load", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(i32::from(FailureCode::BadConfig.exit_code())), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("port"), "{output:?}");
    assert_eq!(shuntd.statics(), table(&text));
}

/// Tags of the packets as they come in, and as they must leave.
struct Tags {
    come: &'static [Tag],
    leave: &'static [Tag],
}

const VLAN_5: &[Tag] = &[Tag::vlan(5)];
const VLAN_6: &[Tag] = &[Tag::vlan(6)];
const QINQ: &[Tag] = &[Tag::service(100), Tag::vlan(5)];
const OTHER_QINQ: &[Tag] = &[Tag::service(200), Tag::vlan(7)];

const CASES: [Tags; 9] = [
    Tags { come: VLAN_5, leave: VLAN_5 },
    Tags { come: &[], leave: VLAN_5 },
    Tags { come: VLAN_5, leave: &[] },
    Tags { come: VLAN_5, leave: VLAN_6 },
    Tags { come: QINQ, leave: QINQ },
    Tags { come: QINQ, leave: OTHER_QINQ },
    Tags { come: &[], leave: QINQ },
    Tags { come: QINQ, leave: &[] },
    Tags { come: QINQ, leave: VLAN_6 },
];

fn ids(tags: &[Tag]) -> Vec<u16> {
    tags.iter().map(|tag| tag.vid).collect()
}

#[test]
fn tags_are_kept_added_removed_and_changed() {
    if !require_root() {
        return;
    }
    for engine in engines() {
        let lab = lab();
        let shuntd = daemon(&lab, engine);
        for far in [FAR, FAR6] {
            for Tags { come, leave } in CASES {
                let mut table = plain(4000, far);
                table.flow[0].in_vlans = ids(come);
                if let shunt_api::RouteChoice::Inline(hop) = &mut table.flow[0].route {
                    hop.vlans = ids(leave);
                }
                shuntd.load(&table).unwrap();
                let packets = variations(&lab.lan().udp_to(4000, address(far)).with_tags(come));
                assert_forwarded(&lab, &shuntd, engine, &packets, |packet| packet.with_tags(leave));
                shuntd.unload(&StaticRemoval { all: true, ..StaticRemoval::default() }).unwrap();
            }
        }
        shuntd.stop();
    }
}

/// The same addresses and ports in another VLAN, or without one, are another flow.
#[test]
fn a_flow_matches_its_vlan_only() {
    if !require_root() {
        return;
    }
    for engine in engines() {
        let lab = lab();
        let shuntd = daemon(&lab, engine);
        let there = Crossing::between(lab.lan(), lab.wan());
        let packet = lab.lan().udp_to(4000, address(FAR)).payload("tagged");
        for tags in [&[][..], VLAN_5, QINQ] {
            let mut table = plain(4000, FAR);
            table.flow[0].in_vlans = ids(tags);
            shuntd.load(&table).unwrap();
            there.pass(&packet.clone().with_tags(tags));
            let three = [Tag::service(1), Tag::service(100), Tag::vlan(5)];
            for others in [&[][..], VLAN_5, VLAN_6, QINQ, OTHER_QINQ, &[Tag::service(5)], &three] {
                if others != tags {
                    let left = there.all_that_leave(&packet.clone().with_tags(others));
                    assert_eq!(left, [], "a packet with tags {others:?} matched a flow with {tags:?}");
                }
            }
            assert!(matches!(packet.transport, Transport::Udp(_)));
            shuntd.unload(&StaticRemoval { all: true, ..StaticRemoval::default() }).unwrap();
        }
        assert_eq!(punts(&shuntd.status(), "tags"), 3);
        shuntd.stop();
    }
}

/// Static flows make the daemon exchange the XDP programs of the ports, amid the packets of learned flows.
#[test]
fn learned_flows_go_on_while_static_ones_change_the_xdp_program() {
    if !require_root() {
        return;
    }
    const EXCHANGED: &str = "r0: XDP has the program for many flows";
    let lab = silent_router(RULES);
    let (lan, wan) = (lab.lan(), lab.wan());
    let ways = [Recorded::udp(lan, wan, 4000, wan.at(5000)), Recorded::udp(lan, wan, 4000, wan.at6(5000))];
    let shuntd = crate::daemon(&lab, Engine::Xdp);
    let all_are_the_same = || ways.iter().flatten().for_each(|way| way.assert_same_with_shunt(&shuntd));
    all_are_the_same();
    assert!(!shuntd.log().contains(EXCHANGED), "{}", shuntd.log());
    shuntd.load(&plain(4001, FAR)).unwrap();
    let exchanged = wait_for(Duration::from_secs(30), || {
        all_are_the_same();
        shuntd.log().contains(EXCHANGED).then_some(())
    });
    assert!(exchanged.is_some(), "{}", shuntd.log());
    let by_xdp = || shuntd.status().ports.iter().map(|port| port.packets.xdp).sum::<u64>();
    let before = by_xdp();
    all_are_the_same();
    let sent: usize = ways.iter().flatten().map(|way| way.packets.len()).sum();
    assert!(by_xdp() - before > sent as u64 / 2, "{:#?}", shuntd.status());
    shuntd.stop();
}
