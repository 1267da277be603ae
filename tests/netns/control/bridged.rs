//! What a bridge forwards between two of its ports takes the fast path, and what Linux changes of that holds at once.

use crate::{
    ENGINES, OPEN, Stage, daemon, daemon_with, moves, silent,
    stage::{BOUND, by, nothing, one},
};
use shunt_api::{DirectionName, Engine, FlowState};
use shunt_testkit::{Crossing, Frame, Handshake, Host, Shuntd, Topology, require_root, skip, wait_until};
use shunt_wire::{Mac, Packet, Tcp, Transport};
use std::{
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

const SELDOM_PROVED: &str = "reprove = \"30s\"";
/// For what does not come.
const A_MOMENT: Duration = Duration::from_millis(50);
/// Has a station say nothing: its kernel would say something now and then.
const MUTE: &str = r#"
table netdev mute {
	chain egress {
		type filter hook egress device "lan0" priority 0; policy drop;
	}
}
"#;

/// No rules, and nobody who has iptables look at what is bridged.
fn switch() -> Topology {
    let lab = silent(Topology::bridged_lan(), "");
    only_bridge(&lab);
    lab
}

fn only_bridge(lab: &Topology) {
    call_iptables(lab, 0);
}

fn call_iptables(lab: &Topology, on: u8) {
    // Without br_netfilter there are no such sysctls.
    lab.router().run(&format!(
        "modprobe -q br_netfilter
        for f in /proc/sys/net/bridge/bridge-nf-call-ip*tables; do [ ! -e $f ] || echo {on} > $f; done"
    ));
}

fn calls_iptables(lab: &Topology) -> bool {
    lab.router().try_run("[ -e /proc/sys/net/bridge/bridge-nf-call-iptables ]").is_ok()
}

/// From one station to another, past the router.
fn bridged(packet: Packet, from: &Host, to: &Host) -> Packet {
    packet.macs(from.mac, to.mac)
}

fn udp(from: &Host, to: &Host) -> Packet {
    bridged(from.udp_to(4000, to.at(5000)), from, to).payload("between two stations")
}

fn udp6(from: &Host, to: &Host) -> Packet {
    bridged(from.udp_to(4000, to.at6(5000)), from, to).payload("between two stations")
}

/// The bridge knows where these are.
fn announce(hosts: &[&Host]) {
    for host in hosts {
        let mut hello = vec![0xff; 60];
        hello[6..12].copy_from_slice(&host.mac.0);
        hello[12..14].copy_from_slice(&0x88b5_u16.to_be_bytes());
        host.tap().send_bytes(&hello);
    }
}

struct Stations {
    lab: Topology,
    shuntd: Shuntd,
    stage: Stage,
}

/// A station that sends, and those where it is seen what leaves.
fn stations(engine: Engine) -> Stations {
    let lab = switch();
    let shuntd = daemon(&lab, engine);
    let stage = Stage::new(lab.lan(), &[lab.host("lan2"), lab.host("lan3")]);
    announce(&[lab.lan(), lab.host("lan2"), lab.host("lan3")]);
    Stations { lab, shuntd, stage }
}

impl Stations {
    fn packet(&self) -> Packet {
        udp(self.lab.lan(), self.lab.host("lan2"))
    }

    /// The bridge knows all stations, and the flow is fast.
    #[track_caller]
    fn settle(&self, packet: &Packet) {
        wait_until("it passes", || {
            announce(&["lan", "lan2", "lan3"].map(|label| self.lab.host(label)));
            by(0)(&self.stage.send(packet))
        });
        self.stage.teach(&self.shuntd, packet);
    }

    /// Runs a command on the router, after which packets leave as wanted.
    #[track_caller]
    fn react(&self, command: &str, packet: &Packet, wanted: impl Fn(&[Vec<Frame>]) -> bool) {
        self.lab.router().run(command);
        self.stage.react(command, packet, wanted);
    }

    /// Where not even the router is reached any more: within a second nothing leaves.
    #[track_caller]
    fn cut_off(&self, command: &str, packet: &Packet) {
        let way = Crossing::between(self.lab.lan(), self.lab.host("lan2"));
        self.lab.router().run(command);
        let mut left = 0;
        let since = Instant::now();
        while since.elapsed() < BOUND + 5 * A_MOMENT {
            way.from.send(packet);
            let seen = way.to.capture_packet(A_MOMENT, |seen| seen.payload == packet.payload);
            assert!(seen.is_none() || since.elapsed() < BOUND, "{command}: it still leaves");
            left += u32::from(seen.is_some());
        }
        eprintln!("reaction to {command}: {left} packets");
    }
}

fn flooded(left: &[Vec<Frame>]) -> bool {
    left.iter().all(|at| at.len() == 1)
}

/// Frames that a bridge must leave as they are: sizes, padding, ECN, checksums right and wrong.
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

#[test]
fn what_a_bridge_forwards_is_fast_and_the_same_to_the_last_byte() {
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
            let packets = variations(&bridged(a.udp_to(4000, to), a, b));
            there.teach(&shuntd, &packets[0]);
            passes_unchanged(&shuntd, &there, &packets);
            let answers = variations(&bridged(b.udp_to(5000, from), b, a));
            back.teach(&shuntd, &answers[0]);
            passes_unchanged(&shuntd, &back, &answers);

            let syn = bridged(a.tcp_to(4001, SocketAddr::new(to.ip(), 80), 0), a, b);
            let connection = Handshake::open(&there, &back, &syn, b);
            let data = variations(&connection.from_client(&syn, 0, []));
            there.teach(&shuntd, &data[0]);
            passes_unchanged(&shuntd, &there, &data);
            let answers = variations(&bridged(connection.from_server(b, 0, []), b, a));
            back.teach(&shuntd, &answers[0]);
            passes_unchanged(&shuntd, &back, &answers);
        }
        // Both directions of each are one connection, by the one that was learned first.
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

/// A packet that ends a connection goes to Linux, and both directions after it.
#[test]
fn a_fin_and_a_syn_end_both_directions_of_a_connection_that_nobody_tracks() {
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
fn a_box_that_only_bridges_needs_no_address_and_no_forwarding() {
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

#[test]
fn another_sender_and_another_class_of_the_same_tuple_are_for_linux() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let Stations { lab, shuntd, stage } = stations(engine);
        let (a, b) = (lab.lan(), lab.host("lan2"));
        let packet = udp(a, b);
        stage.teach(&shuntd, &packet);
        let before = shuntd.status();
        stage.pass(&packet.clone().with_class(0xb8));
        let after = shuntd.status();
        assert_eq!(after.reasons.get("class"), Some(&(before.reasons.get("class").unwrap_or(&0) + 1)));

        // It takes the address over on the same port, and the bridge learns where it is.
        let other = Mac([2, 0, 0, 0, 1, 0x99]);
        stage.teach(&shuntd, &packet);
        let taken_over = packet.clone().macs(other, b.mac);
        let before = moves(&shuntd.status(), "fdb");
        assert!(one(0, |seen| seen.ethernet.source == other)(&stage.send(&taken_over)));
        let known = lab.router().run("bridge fdb show br br0");
        assert!(known.contains(&format!("{other} dev r0")), "{known}");
        shuntd.wait_until("the bridge has told of it", |now| moves(now, "fdb") > before);
        stage.teach(&shuntd, &taken_over);
        stage.react("nothing", &taken_over, one(0, |seen| seen.ethernet.source == other));
        shuntd.stop();
    }
}

#[test]
fn a_station_that_roams_is_reached_where_it_is_at_once() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        for family in [udp, udp6] {
            let Stations { lab, shuntd, stage } = stations(engine);
            let (a, b, c) = (lab.lan(), lab.host("lan2"), lab.host("lan3"));
            let packet = family(a, b);
            stage.teach(&shuntd, &packet);
            let before = moves(&shuntd.status(), "fdb");
            b.ns.nft(MUTE);
            c.tap().send(&c.udp_to(1, a.at(1)).macs(b.mac, a.mac));
            stage.react("a station that roams", &packet, by(1));
            assert!(moves(&shuntd.status(), "fdb") > before, "{:#?}", shuntd.status());
            stage.teach_via(&shuntd, &packet, 1);
            shuntd.stop();
        }
    }
}

/// Its packets come in elsewhere, and the answers must follow it.
#[test]
fn a_sender_that_roams_is_answered_where_it_is_at_once() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = switch();
        let shuntd = daemon(&lab, engine);
        let (a, b, c) = (lab.lan(), lab.host("lan2"), lab.host("lan3"));
        announce(&[a, b]);
        let packet = udp(a, b);
        Stage::new(a, &[b]).teach(&shuntd, &packet);
        let answers = Stage::new(b, &[a, c]);
        let answer = bridged(b.udp_to(5000, a.at(4000)), b, a).payload("an answer");
        answers.teach(&shuntd, &answer);
        a.ns.nft(MUTE);
        c.tap().send(&packet);
        answers.react("a sender that roams", &answer, by(1));
        answers.teach_via(&shuntd, &answer, 1);
        shuntd.stop();
    }
}

#[test]
fn the_state_of_a_port_holds_at_once() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let stations = stations(engine);
        let (packet, router) = (stations.packet(), stations.lab.router());
        // 0 is disabled, 1 listening, 2 learning, 3 forwarding. Without a spanning tree none stays blocked.
        for state in [0, 1, 2] {
            stations.settle(&packet);
            stations.react(&format!("bridge link set dev r2 state {state}"), &packet, nothing);
            router.run("bridge link set dev r2 state 3");
        }
        stations.settle(&packet);
        stations.cut_off("bridge link set dev r0 state 1", &packet);
        router.run("bridge link set dev r0 state 3");
        stations.settle(&packet);
        stations.cut_off("ip link set br0 down", &packet);
        router.run("ip link set br0 up");
        // A bridge forgets the stations of a port that is gone, and looks for them at the others.
        for (gone, back) in [
            ("ip link set r2 nomaster", "ip link set r2 master br0"),
            ("ip link set r2 down", "ip link set r2 up"),
        ] {
            stations.settle(&packet);
            stations.react(gone, &packet, by(1));
            router.run(back);
        }
        stations.settle(&packet);
        stations.react("ip link set br0 type bridge fdb_flush", &packet, flooded);
        stations.stage.never_fast(&stations.shuntd, &packet, flooded);
        stations.shuntd.stop();
    }
}

#[test]
fn what_a_port_may_holds_at_once() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let stations = stations(engine);
        let (packet, router) = (stations.packet(), stations.lab.router());
        router.run("bridge link set dev r0 isolated on");
        stations.settle(&packet);
        stations.react("bridge link set dev r2 isolated on", &packet, nothing);
        router.run("bridge link set dev r2 isolated off");
        stations.settle(&packet);
        // The port is for stations only that are known, and this one is forgotten.
        let forget = format!("bridge fdb del {} dev r0 master", stations.lab.lan().mac);
        stations.cut_off(&format!("bridge link set dev r0 locked on learning off; {forget}"), &packet);
        router.run("bridge link set dev r0 locked off learning on");
        stations.settle(&packet);
        for setting in ["learning off", "flood off", "hairpin on", "guard on", "mcast_flood off", "locked on"]
        {
            let before = stations.shuntd.status().epoch;
            router.run(&format!("bridge link set dev r3 {setting}"));
            assert!(stations.shuntd.status().epoch > before, "{setting}");
        }
        stations.shuntd.stop();
    }
}

/// With two ports, what is for a station that is not known leaves once, by the other one.
#[test]
fn what_is_flooded_to_one_port_follows_its_station_as_soon_as_it_is_known() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = switch();
        lab.router().run("ip link set r3 nomaster");
        let shuntd = daemon_with(&lab, engine, SELDOM_PROVED);
        let (a, b) = (lab.lan(), lab.host("lan2"));
        let stage = Stage::new(a, &[b, lab.host("lan3")]);
        announce(&[a, b]);
        let unknown = Mac([2, 0, 0, 0, 1, 0x77]);
        let packet = udp(a, b).macs(a.mac, unknown);
        stage.teach(&shuntd, &packet);
        // It is where the packets come from, so they stay there.
        a.tap().send(&a.udp_to(1, b.at(1)).macs(unknown, a.gateway_mac));
        stage.react("a station that is heard of", &packet, nothing);
        shuntd.stop();
    }
}

#[test]
fn a_rule_of_the_bridge_holds_at_once() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let stations = stations(engine);
        let packet = stations.packet();
        stations.settle(&packet);
        stations.lab.router().nft(
            "table bridge guard { chain forward { type filter hook forward priority 0; udp dport 5000 drop; }; }",
        );
        stations.stage.react("a rule of the bridge", &packet, nothing);
        stations.react("nft delete table bridge guard", &packet, by(0));
        stations.settle(&packet);
        stations.shuntd.stop();
    }
}

/// A rule that is not met by what a bridge forwards, until br_netfilter has it met.
const NO_SUCH_UDP: &str =
    "table inet guard { chain forward { type filter hook forward priority 0; udp dport 5000 drop; }; }";

#[test]
fn iptables_that_bridges_begin_to_call_is_heard_within_a_second() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let stations = stations(engine);
        if !calls_iptables(&stations.lab) {
            return skip("this kernel has no br_netfilter");
        }
        let packet = stations.packet();
        stations.lab.router().nft(NO_SUCH_UDP);
        stations.settle(&packet);
        call_iptables(&stations.lab, 1);
        stations.stage.react("bridge-nf-call-iptables", &packet, nothing);
        call_iptables(&stations.lab, 0);
        stations.settle(&packet);
        stations.react("ip link set br0 type bridge nf_call_iptables 1", &packet, nothing);
        stations.shuntd.stop();
    }
}

/// Where conntrack sees what is bridged, its word counts, and Linux trims what the link padded.
#[test]
fn what_conntrack_sees_of_a_bridge_is_fast_as_what_is_routed() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent(Topology::bridged_lan(), OPEN);
        call_iptables(&lab, 1);
        if !calls_iptables(&lab) {
            return skip("this kernel has no br_netfilter");
        }
        // It tells of the end of connections that are older than the daemon, too.
        lab.router().sysctl("netfilter/nf_conntrack_events", 1);
        let (a, b) = (lab.lan(), lab.host("lan2"));
        announce(&[a, b]);
        let (there, back) = (Crossing::between(a, b), Crossing::between(b, a));
        let mut packets = variations(&udp(a, b));
        // Conntrack calls it invalid where the checksum is wrong.
        packets.pop();
        let left = there.pass_all(&packets);
        let mut trimmed = packets[5].clone();
        trimmed.trailer.clear();
        assert_eq!(left[5].bytes, trimmed.to_bytes(), "Linux trims it");
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
        assert_eq!(shuntd.status().packets.fast, before, "conntrack has forgotten it");
        // Nothing is tracked that it does not see from the start.
        lab.router().nft("add rule inet filter forward ct state untracked accept");
        lab.router()
            .nft("table inet raw { chain pre { type filter hook prerouting priority raw; notrack; }; }");
        lab.router().run("conntrack -F");
        let stage = Stage::new(a, &[b]);
        wait_until("it is refused", || {
            stage.pass(&packets[0]);
            shuntd.status().refusals.contains_key("no-conntrack")
        });
        stage.never_fast(&shuntd, &packets[0], by(0));
        shuntd.stop();
    }
}

/// Linux learns where a station is from each of its packets. Fast ones it does not see.
#[test]
fn a_station_that_only_sends_is_known_for_as_long_as_it_sends() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = switch();
        lab.router().run("ip link set br0 type bridge ageing_time 200");
        let shuntd = daemon(&lab, engine);
        let (a, b) = (lab.lan(), lab.host("lan2"));
        announce(&[a, b]);
        let way = Crossing::between(a, b);
        let packet = udp(a, b);
        way.teach(&shuntd, &packet);
        let knows = || lab.router().run("bridge fdb show br br0").contains(&format!("{} dev r0", a.mac));
        let (since, before, mut sent) = (Instant::now(), shuntd.status().packets.fast, 0);
        while since.elapsed() < Duration::from_secs(7) {
            way.from.send(&packet);
            sent += 1;
            thread::sleep(A_MOMENT);
            announce(&[b]);
            assert!(knows(), "after {:?}", since.elapsed());
        }
        let fast = shuntd.status().packets.fast - before;
        assert!(fast > sent / 2, "{fast} of {sent} {:#?}", shuntd.status());
        wait_until("it is forgotten", || !knows());
        shuntd.stop();
    }
}

#[test]
fn a_bridge_that_forgets_within_a_second_is_left_to_linux() {
    if !require_root() {
        return;
    }
    let stations = stations(Engine::Tc);
    let packet = stations.packet();
    stations.settle(&packet);
    stations.lab.router().run("ip link set br0 type bridge ageing_time 90");
    let sent = |left: &[Vec<Frame>]| left[0].len() == 1;
    stations.stage.react("an ageing time", &packet, sent);
    stations.stage.never_fast(&stations.shuntd, &packet, sent);
    assert!(stations.shuntd.status().refusals.contains_key("not-routed"));
    stations.shuntd.stop();
}

/// What a device on top of the bridge gets, nobody sees leave by a port.
#[test]
fn a_device_that_listens_on_the_bridge_has_bridged_traffic_left_to_linux() {
    if !require_root() {
        return;
    }
    let stations = stations(Engine::Tc);
    let packet = stations.packet();
    stations.settle(&packet);
    for (come, go) in [
        ("ip link set br0 promisc on", "ip link set br0 promisc off"),
        ("ip link add link br0 name top0 type macvlan mode bridge", "ip link del top0"),
        ("ip link add dum0 type dummy; ip link set dum0 master br0", "ip link del dum0"),
    ] {
        if stations.lab.router().try_run(come).is_err() {
            eprintln!("not tried: {come}");
            continue;
        }
        stations.stage.react(come, &packet, by(0));
        stations.stage.never_fast(&stations.shuntd, &packet, by(0));
        stations.lab.router().run(go);
        stations.settle(&packet);
    }
    stations.shuntd.stop();
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
    let said = |arguments: &[&str]| {
        let output = shuntd.shunt(arguments);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let (from, to) = (a.at(4000).to_string(), b.at(5000).to_string());
    let why = said(&["why", &from, &to]);
    assert!(why.contains("fast"), "{why}");
    assert!(!said(&["conntrack"]).contains("4000"));
    assert!(said(&["flows"]).contains(&to));
    shuntd.stop();
}
