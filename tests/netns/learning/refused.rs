//! Packets that Linux handles in a way that no action can repeat stay slow.

use crate::daemon;
use shunt_testkit::{
    Crossing, ENGINES, Frame, Handshake, Host, SELDOM_PROVED, Shuntd, Tap, Topology, punts, refusals,
    require_root, silent, silent_router,
};
use shunt_wire::{Packet, Tcp, Transport};
use std::time::Duration;

/// Ten times as many packets as it takes to learn a flow.
const MANY: usize = 20;

/// Sends a packet again and again with another IP identification. Asserts that each leaves and none is fast; returns
/// the frames.
#[track_caller]
fn stays_slow(shuntd: &Shuntd, way: &Crossing, packet: &Packet) -> Vec<Frame> {
    let before = shuntd.status().packets.fast;
    let once = |n: usize| {
        let bytes = packet.clone().with_id(n as u16).to_bytes();
        way.all_that_leave_for(&bytes, |seen| seen.protocol() == packet.protocol())
    };
    let left = (0..MANY).flat_map(once).collect();
    assert_eq!(shuntd.status().packets.fast, before, "{:#?}", shuntd.flows());
    left
}

/// A stateful forward chain with this rule.
fn forward(rule: &str) -> String {
    format!(
        "table inet filter {{ chain forward {{ type filter hook forward priority filter; ct state invalid drop; {rule}; }}; }}"
    )
}

#[track_caller]
fn is_refused(ruleset: &str, packet: impl Fn(&Topology) -> Packet, why: &str, check: impl Fn(&Packet)) {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent_router(ruleset);
        let shuntd = daemon(&lab, engine);
        let there = Crossing::between(lab.lan(), lab.wan());
        let left = stays_slow(&shuntd, &there, &packet(&lab));
        assert_eq!(left.len(), MANY);
        left.iter().for_each(|frame| check(&frame.packet().unwrap()));
        let status = shuntd.status();
        assert!(refusals(&status, why) > 0, "{status:#?}");
        assert_eq!(shuntd.flows(), []);
        shuntd.stop();
    }
}

fn udp(lab: &Topology) -> Packet {
    lab.lan().udp_to(4000, lab.wan().at(5000)).payload("udp")
}

fn udp6(lab: &Topology) -> Packet {
    lab.lan().udp_to(4000, lab.wan().at6(5000)).payload("udp")
}

#[test]
fn a_rule_that_sets_the_dscp_keeps_its_packets_slow() {
    is_refused(&forward("ip dscp set cs1"), udp, "not-proved", |seen| {
        assert_eq!(seen.ipv4().unwrap().tos, 0x20);
    });
    is_refused(&forward("ip6 dscp set cs1"), udp6, "not-proved", |seen| {
        assert_eq!(seen.ipv6().unwrap().traffic_class, 0x20);
    });
}

/// The rule does not change packets that have the class already, so these may be fast, but packets of other classes may
/// not.
#[test]
fn a_packet_of_another_class_is_not_part_of_the_flow() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent_router(&forward("ip dscp set cs1"));
        let shuntd = daemon(&lab, engine);
        let there = Crossing::between(lab.lan(), lab.wan());
        let packet = udp(&lab).with_class(0x20);
        there.teach(&shuntd, &packet);
        let before = shuntd.status();
        let seen = there.pass(&packet.clone().with_class(0x40)).packet().unwrap();
        assert_eq!(seen.ipv4().unwrap().tos, 0x20);
        let status = shuntd.status();
        assert_eq!(punts(&status, "class"), punts(&before, "class") + 1);
        assert_eq!(status.packets.fast, before.packets.fast);
        shuntd.stop();
    }
}

/// WebRTC sends two classes on one tuple. The flow stays that of one of them, so half of the packets are fast, and none
/// of the others is proved. A class that is the only one takes the flow over.
#[test]
fn of_two_classes_that_alternate_one_is_fast() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent_router(&forward("accept"));
        let shuntd = daemon(&lab, engine);
        let there = Crossing::between(lab.lan(), lab.wan());
        for other in [udp(&lab).with_class(0xb8), udp(&lab).with_hop_limit(33)] {
            there.teach(&shuntd, &udp(&lab));
            let before = shuntd.status();
            for _ in 0..MANY {
                there.pass(&other);
                there.pass(&udp(&lab));
            }
            let after = shuntd.status();
            let fast = after.packets.fast - before.packets.fast;
            assert!((MANY as u64 - 1..=MANY as u64).contains(&fast), "{engine}: {fast} {after:#?}");
            there.teach(&shuntd, &other);
        }
        shuntd.stop();
    }
}

#[test]
fn a_rule_that_sets_the_ttl_keeps_its_packets_slow() {
    is_refused(&forward("ip ttl set 9"), udp, "not-routed", |seen| assert_eq!(seen.hop_limit(), Some(9)));
    is_refused(&forward("ip6 hoplimit set 9"), udp6, "not-routed", |seen| {
        assert_eq!(seen.hop_limit(), Some(9));
    });
}

#[test]
fn untracked_packets_are_not_learned() {
    let ruleset = "table inet raw { chain pre { type filter hook prerouting priority raw; notrack; }; }";
    is_refused(ruleset, udp, "no-conntrack", |_| {});
    is_refused(ruleset, udp6, "no-conntrack", |_| {});
}

#[test]
fn a_connection_with_a_helper_is_not_learned() {
    if !require_root() {
        return;
    }
    let lab = silent_router(
        r#"table inet helpers {
            ct helper ftp-standard { type "ftp" protocol tcp; l3proto inet; };
            chain pre { type filter hook prerouting priority filter; tcp dport 21 ct helper set "ftp-standard"; }; }"#,
    );
    let shuntd = daemon(&lab, ENGINES[0]);
    let (there, back) = (Crossing::between(lab.lan(), lab.wan()), Crossing::between(lab.wan(), lab.lan()));
    let syn = lab.lan().tcp_to(4000, lab.wan().at(21), 0);
    let connection = Handshake::open(&there, &back, &syn, lab.wan());
    let tracked = lab.router().run("conntrack -L 2>/dev/null");
    assert!(tracked.contains("helper=ftp"), "{tracked}");
    assert_eq!(stays_slow(&shuntd, &there, &connection.from_client(&syn, 0, "NOOP\r\n")).len(), MANY);
    assert_eq!(stays_slow(&shuntd, &back, &connection.from_server(lab.wan(), 0, "200 OK\r\n")).len(), MANY);
    assert!(refusals(&shuntd.status(), "helper") > 0);
    assert_eq!(shuntd.flows(), []);
}

#[test]
fn a_refused_connection_does_not_leave_and_is_not_learned() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent_router(&forward("udp dport 5000 drop; tcp dport 5000 drop"));
        let shuntd = daemon(&lab, engine);
        let there = Crossing::between(lab.lan(), lab.wan());
        let tcp = lab.lan().tcp_to(4000, lab.wan().at(5000), Tcp::ACK).payload("tcp");
        for packet in [udp(&lab), udp6(&lab), tcp] {
            assert_eq!(stays_slow(&shuntd, &there, &packet), []);
        }
        let status = shuntd.status();
        assert!(punts(&status, "miss") >= 3 * MANY as u64);
        assert_eq!((status.learned, shuntd.flows()), (0, vec![]));
        shuntd.stop();
    }
}

/// Both copies leave through ports, so neither may be taken for the only one.
#[track_caller]
fn leaves_twice(ruleset: &str) {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = Topology::two_uplinks();
        lab.pin_neighbours();
        lab.hosts().iter().for_each(Host::be_silent);
        lab.router().nft(ruleset);
        let shuntd = daemon(&lab, engine);
        let there = Crossing::between(lab.lan(), lab.wan());
        let copies = lab.host("wan2").tap();
        let packet = udp(&lab);
        assert_eq!(stays_slow(&shuntd, &there, &packet).len(), MANY);
        assert_eq!(count(&copies, &packet), MANY);
        let status = shuntd.status();
        assert!(status.reasons.contains_key("ruleset"), "{status:#?}");
        shuntd.stop();
    }
}

/// The copies of a packet that arrived.
fn count(tap: &Tap, packet: &Packet) -> usize {
    let is_it = |seen: &Packet| seen.payload == packet.payload && matches!(seen.transport, Transport::Udp(_));
    tap.capture_packets(MANY + 1, Duration::from_millis(50), is_it).len()
}

#[test]
fn packets_that_the_firewall_duplicates_are_not_learned() {
    for hook in ["prerouting", "postrouting"] {
        leaves_twice(&format!(
            "table ip copies {{ chain copy {{ type filter hook {hook} priority mangle;
                udp dport 5000 dup to 198.18.1.2 device \"r2\"; }}; }}"
        ));
    }
}

#[test]
fn packets_duplicated_at_ingress_are_not_learned() {
    leaves_twice(
        r#"table netdev copies { chain in { type filter hook ingress device "r0" priority 0;
            udp dport 5000 dup to "r2"; }; }"#,
    );
}

/// Sends packets to an unknown station of a bridge, which floods them to all of its ports. `ports` are those of Shunt;
/// all if empty.
#[track_caller]
fn is_flooded(ports: &[&str]) {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent(Topology::bridged_lan(), &forward("accept"));
        for port in ["r0", "r2", "r3"] {
            lab.router().run(&format!(
                "bridge link set dev {port} learning off; ip link set {port} type bridge_slave fdb_flush"
            ));
        }
        let shuntd = Shuntd::on(lab.router()).engine(&engine.to_string()).config(SELDOM_PROVED);
        let shuntd = ports.iter().fold(shuntd, |shuntd, port| shuntd.port(port)).start();
        let there = Crossing::between(lab.wan(), lab.lan());
        let copies = lab.host("lan2").tap();
        let packet = lab.wan().udp_to(5000, lab.lan().at(4000)).payload("udp");
        assert_eq!(stays_slow(&shuntd, &there, &packet).len(), MANY);
        assert_eq!(count(&copies, &packet), MANY);
        let status = shuntd.status();
        assert!(refusals(&status, "left-twice") > 0, "{status:#?}");
        shuntd.stop();
    }
}

#[test]
fn packets_that_a_bridge_floods_are_not_learned() {
    is_flooded(&[]);
}

/// The copies leave through devices where Shunt does not see them.
#[test]
fn packets_that_a_bridge_floods_to_devices_that_are_no_ports_are_not_learned() {
    for port in ["r0", "r3"] {
        is_flooded(&["r1", port]);
    }
}

/// A bridge whose members are not all ports delivers to known stations as ever.
#[test]
fn packets_to_a_known_station_are_fast_beside_devices_that_are_no_ports() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent(Topology::bridged_lan(), &forward("accept"));
        let shuntd = Shuntd::on(lab.router()).engine(&engine.to_string()).port("r0").port("r1").start();
        let (there, back) =
            (Crossing::between(lab.wan(), lab.lan()), Crossing::between(lab.lan(), lab.wan()));
        back.pass(&udp(&lab));
        there.teach(&shuntd, &lab.wan().udp_to(5000, lab.lan().at(4000)).payload("udp"));
        shuntd.stop();
    }
}

/// The next hop is a group: who gets the packets may change without an event.
#[test]
fn packets_that_leave_to_a_group_are_not_learned() {
    let to_group = |lab: &Topology| {
        let wan = lab.wan().v4;
        lab.router().run(&format!("ip neigh replace {wan} lladdr 01:00:5e:00:00:09 dev r1 nud permanent"));
        udp(lab)
    };
    is_refused(&forward("accept"), to_group, "odd-egress", |seen| {
        assert_eq!(seen.ethernet.destination.0[0], 1);
    });
}

/// Two hosts use the same addresses and ports, and zones keep their connections apart.
#[test]
fn a_connection_in_a_zone_is_not_taken_for_one_in_the_default_zone() {
    if !require_root() {
        return;
    }
    let zones = r#"table inet raw { chain pre { type filter hook prerouting priority raw; iifname "r2" ct zone set 1; }; }"#;
    for engine in ENGINES {
        let lab = silent(Topology::two_uplinks(), &format!("{zones}\n{}", forward("accept")));
        for device in ["all", "r2"] {
            lab.router().sysctl(&format!("ipv4/conf/{device}/rp_filter"), 0);
        }
        let shuntd = daemon(&lab, engine);
        let (there, back) =
            (Crossing::between(lab.lan(), lab.wan()), Crossing::between(lab.wan(), lab.lan()));
        there.teach(&shuntd, &udp(&lab));
        back.teach(&shuntd, &lab.wan().udp_to(5000, lab.lan().at(4000)).payload("answer"));
        let other = lab.host("wan2");
        let same = udp(&lab).macs(other.mac, other.gateway_mac);
        assert_eq!(stays_slow(&shuntd, &Crossing::between(other, lab.wan()), &same).len(), MANY);
        assert!(refusals(&shuntd.status(), "no-conntrack") > 0, "{:#?}", shuntd.status());
        shuntd.stop();
    }
}

#[test]
fn a_rule_that_sets_the_ttl_to_one_less_is_not_mistaken_for_routing() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent_router(&forward("ip ttl set 9"));
        let shuntd = daemon(&lab, engine);
        let there = Crossing::between(lab.lan(), lab.wan());
        for _ in 0..5 {
            there.pass(&udp(&lab).with_hop_limit(10));
        }
        let before = shuntd.status();
        assert_eq!(there.pass(&udp(&lab)).packet().unwrap().hop_limit(), Some(9));
        assert_eq!(punts(&shuntd.status(), "class"), punts(&before, "class") + 1);
        shuntd.stop();
    }
}
