//! Packets leave a bridge unchanged.

use super::{
    SELDOM_PROVED, Stations, announce, bridged, call_iptables, calls_iptables, stations, switch, udp,
};
use shunt_api::{DirectionName, Engine, FlowState};
use shunt_testkit::{
    Crossing, ENGINES, Handshake, Shuntd, Stage, Topology, daemon_with, require_root, rulesets, silent, skip,
    stage::leaves_by, wait_until,
};
use shunt_wire::{Packet, Tcp, Transport};
use std::net::SocketAddr;

/// Packets that a bridge must not change: various sizes, padding, ECN, right and wrong checksums.
fn variations(packet: &Packet) -> Vec<Packet> {
    let data: Vec<u8> = (0..1200_u32).map(|n| (n * 7 + n / 256) as u8).collect();
    let with = |bytes: usize, id: u16| packet.clone().payload(&data[..bytes]).with_id(id);
    vec![
        with(1200, 1),
        with(2, 2),
        with(17, 0xffff).with_class(1),
        with(500, 0x8000).with_class(3),
        with(3, 77).padded_to(60),
        with(21, 78).padded_to(300),
        with(40, 5).with_l4_checksum(shunt_wire::Checksum::Value(0x1234)),
    ]
}

#[track_caller]
fn passes_unchanged(shuntd: &Shuntd, way: &Crossing, packets: &[Packet]) {
    let before = shuntd.status().packets.fast;
    for packet in packets {
        assert_eq!(way.pass(packet).bytes, packet.to_bytes(), "{packet:?}");
    }
    let status = shuntd.status();
    assert_eq!(status.packets.fast - before, packets.len() as u64, "{status:#?} {:#?}", shuntd.flows());
}

/// Learns the flow of a packet, and sends all forms of it, which must leave unchanged.
#[track_caller]
fn fast_and_unchanged(shuntd: &Shuntd, way: &Crossing, packet: &Packet) {
    let packets = variations(packet);
    way.teach(shuntd, &packets[0]);
    passes_unchanged(shuntd, way, &packets);
}

#[test]
fn bridged_packets_are_fast_and_the_same_to_the_last_byte() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = switch();
        let shuntd = daemon_with(&lab, engine, SELDOM_PROVED);
        let (a, b) = (lab.lan(), lab.host("lan2"));
        announce(&[a, b]);
        let (there, back) = (Crossing::between(a, b), Crossing::between(b, a));
        for (to, from) in [(b.at(5000), a.at(4000)), (b.at6(5000), a.at6(4000))] {
            fast_and_unchanged(&shuntd, &there, &bridged(a.udp_to(4000, to), a, b));
            fast_and_unchanged(&shuntd, &back, &bridged(b.udp_to(5000, from), b, a));

            let syn = bridged(a.tcp_to(4001, SocketAddr::new(to.ip(), 80), 0), a, b);
            let connection = Handshake::open(&there, &back, &syn, b);
            fast_and_unchanged(&shuntd, &there, &connection.from_client(&syn, 0, []));
            fast_and_unchanged(&shuntd, &back, &bridged(connection.from_server(b, 0, []), b, a));
        }
        // Both directions are one connection, named by the direction that was learned first.
        let flows = shuntd.flows();
        assert_eq!(flows.len(), 4, "{flows:#?}");
        for connection in &flows {
            let ways: Vec<_> = connection.directions.iter().map(|direction| direction.dir).collect();
            assert_eq!(ways, [DirectionName::Orig, DirectionName::Reply], "{connection:#?}");
            assert!(matches!(connection.orig.source().port(), 4000 | 4001), "{connection:#?}");
            assert_eq!(connection.orig.source(), connection.reply.destination());
            assert_eq!(connection.state, FlowState::Active);
        }
        shuntd.stop();
    }
}

/// A packet that ends a connection goes to Linux, and so do all later packets of both directions.
#[test]
fn a_fin_and_a_syn_end_both_directions_of_an_untracked_connection() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = switch();
        let shuntd = daemon_with(&lab, engine, SELDOM_PROVED);
        let (a, b) = (lab.lan(), lab.host("lan2"));
        announce(&[a, b]);
        let (there, back) = (Crossing::between(a, b), Crossing::between(b, a));
        let syn = bridged(a.tcp_to(4001, b.at(80), 0), a, b);
        for flags in [Tcp::FIN | Tcp::ACK, Tcp::SYN, Tcp::RST | Tcp::ACK] {
            let connection = Handshake::open(&there, &back, &syn, b);
            let data = connection.from_client(&syn, 0, "there");
            let answer = bridged(connection.from_server(b, 0, "back"), b, a);
            there.teach(&shuntd, &data);
            back.teach(&shuntd, &answer);
            let mut end = data.clone();
            if let Transport::Tcp(tcp) = &mut end.transport {
                tcp.flags = flags;
            }
            let before = shuntd.status().packets.fast;
            assert_eq!(there.pass(&end).bytes, end.to_bytes());
            assert_eq!(back.pass(&answer).bytes, answer.to_bytes());
            assert_eq!(shuntd.status().packets.fast, before);
            assert!(shuntd.flows().iter().all(|c| c.state == FlowState::Retired), "{:#?}", shuntd.flows());
        }
        shuntd.stop();
    }
}

#[test]
fn a_bridge_without_routing_needs_no_address_and_no_forwarding() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = switch();
        for device in ["br0", "r1"] {
            lab.router().run(&format!("ip address flush dev {device}"));
        }
        lab.router().sysctl("ipv4/ip_forward", 0);
        lab.router().sysctl("ipv6/conf/all/forwarding", 0);
        let shuntd = daemon_with(&lab, engine, SELDOM_PROVED);
        let ports: Vec<String> = shuntd.status().ports.into_iter().map(|port| port.name).collect();
        assert_eq!(ports, ["r0", "r2", "r3"]);
        let (a, b) = (lab.lan(), lab.host("lan2"));
        announce(&[a, b]);
        let way = Crossing::between(a, b);
        way.teach(&shuntd, &udp(a, b));
        passes_unchanged(&shuntd, &way, &[udp(a, b)]);
        shuntd.stop();
    }
}

/// If conntrack sees bridged packets, it decides which are fast, and Linux trims the padding of the link.
#[test]
fn bridged_packets_that_conntrack_sees_are_fast_like_routed_ones() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent(Topology::bridged_lan(), rulesets::OPEN);
        call_iptables(&lab, 1);
        if !calls_iptables(&lab) {
            return skip("this kernel has no br_netfilter");
        }
        // Conntrack reports the end of connections that are older than the daemon, too.
        lab.router().sysctl("netfilter/nf_conntrack_events", 1);
        let (a, b) = (lab.lan(), lab.host("lan2"));
        announce(&[a, b]);
        let (there, back) = (Crossing::between(a, b), Crossing::between(b, a));
        let mut packets = variations(&udp(a, b));
        // Conntrack takes packets with a wrong checksum for invalid.
        packets.pop();
        let left = there.pass_all(&packets);
        let mut trimmed = packets[5].clone();
        trimmed.trailer.clear();
        assert_eq!(left[5].bytes, trimmed.to_bytes(), "Linux trims the padding");
        let syn = bridged(a.tcp_to(4001, b.at(80), 0), a, b);
        let connection = Handshake::open(&there, &back, &syn, b);
        let data = connection.from_client(&syn, 0, "there");
        let shuntd = daemon_with(&lab, engine, SELDOM_PROVED);
        there.teach(&shuntd, &packets[0]);
        let before = shuntd.status().packets.fast;
        for (packet, left) in packets.iter().zip(&left) {
            assert_eq!(there.pass(packet).bytes, left.bytes, "{packet:?}");
        }
        assert_eq!(shuntd.status().packets.fast - before, packets.len() as u64);
        there.teach(&shuntd, &data);
        passes_unchanged(&shuntd, &there, std::slice::from_ref(&data));

        lab.router().run("conntrack -D -p udp");
        let before = shuntd.status().packets.fast;
        there.pass(&packets[0]);
        assert_eq!(shuntd.status().packets.fast, before, "conntrack has no entry any more");
        // Conntrack does not track a connection whose beginning it has not seen.
        lab.router().nft("add rule inet filter forward ct state untracked accept");
        lab.router()
            .nft("table inet raw { chain pre { type filter hook prerouting priority raw; notrack; }; }");
        lab.router().run("conntrack -F");
        let stage = Stage::new(a, &[b]);
        wait_until("the flow is refused", || {
            stage.pass(&packets[0]);
            shuntd.status().refusals.contains_key("no-conntrack")
        });
        stage.never_fast(&shuntd, &packets[0], leaves_by(0));
        shuntd.stop();
    }
}

#[test]
fn a_bridged_connection_says_why_it_is_fast_and_leaves_no_trace_in_conntrack() {
    if !require_root() {
        return;
    }
    let Stations { lab, shuntd, stage } = stations(Engine::Tc);
    let (a, b) = (lab.lan(), lab.host("lan2"));
    let packet = udp(a, b);
    stage.teach(&shuntd, &packet);
    let text = |arguments: &[&str]| {
        let output = shuntd.shunt(arguments);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let (from, to) = (a.at(4000).to_string(), b.at(5000).to_string());
    let why = text(&["why", &from, &to]);
    assert!(why.contains("fast"), "{why}");
    assert!(!text(&["conntrack"]).contains("4000"));
    assert!(text(&["flows"]).contains(&to));
    shuntd.stop();
}
