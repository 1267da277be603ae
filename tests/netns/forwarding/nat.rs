//! Network address translation, in both directions and by both engines.

use crate::{assert_same_with_shunt, daemon, variations};
use shunt_api::Engine;
use shunt_testkit::{
    Crossing, Frame, Handshake, Host, SELDOM_PROVED, Shuntd, Topology, daemon_with, engines, program,
    require_root, silent_router,
};
use shunt_wire::{Checksum, Packet};
use std::{net::SocketAddr, process::Command};

/// A flow's addresses before and after Linux translates them.
struct Case {
    ruleset: &'static str,
    /// Destination to which the LAN host sends.
    to: &'static str,
    /// Source and destination that the WAN host sees.
    source: &'static str,
    destination: &'static str,
}

const PORT: u16 = 4000;

const MASQUERADE: Case = Case {
    ruleset: r#"table ip nat { chain post { type nat hook postrouting priority srcnat; oifname "r1" masquerade; }; }"#,
    to: "198.18.0.2:5000",
    source: "198.18.0.1:4000",
    destination: "198.18.0.2:5000",
};

const SOURCE_PORTS: Case = Case {
    ruleset: r#"table ip nat { chain post { type nat hook postrouting priority srcnat;
        meta l4proto { tcp, udp } oifname "r1" snat to 198.18.0.1:6000; }; }"#,
    source: "198.18.0.1:6000",
    ..MASQUERADE
};

const DESTINATION: Case = Case {
    ruleset: r#"table ip nat { chain pre { type nat hook prerouting priority dstnat;
        ip daddr 203.0.113.9 meta l4proto { tcp, udp } th dport 80 dnat to 198.18.0.2:8080; }; }"#,
    to: "203.0.113.9:80",
    source: "192.168.1.2:4000",
    destination: "198.18.0.2:8080",
};

const BOTH: Case = Case {
    ruleset: r#"table ip nat {
        chain pre { type nat hook prerouting priority dstnat;
            ip daddr 203.0.113.9 meta l4proto { tcp, udp } th dport 80 dnat to 198.18.0.2:8080; };
        chain post { type nat hook postrouting priority srcnat;
            meta l4proto { tcp, udp } oifname "r1" snat to 198.18.0.1:6000; }; }"#,
    to: "203.0.113.9:80",
    source: "198.18.0.1:6000",
    destination: "198.18.0.2:8080",
};

const NONE_V4: Case = Case {
    ruleset: "table inet filter { chain forward { type filter hook forward priority filter;
        ct state invalid drop; }; }",
    to: "198.18.0.2:5000",
    source: "192.168.1.2:4000",
    destination: "198.18.0.2:5000",
};

const NONE_V6: Case =
    Case { to: "[fd00:2::2]:5000", source: "[fd00:1::2]:4000", destination: "[fd00:2::2]:5000", ..NONE_V4 };

const NAT66: Case = Case {
    ruleset: r#"table ip6 nat {
        chain pre { type nat hook prerouting priority dstnat;
            ip6 daddr fd00:99::9 meta l4proto { tcp, udp } th dport 80 dnat to [fd00:2::2]:8080; };
        chain post { type nat hook postrouting priority srcnat;
            meta l4proto { tcp, udp } oifname "r1" snat to [fd00:2::1]:6000; }; }"#,
    to: "[fd00:99::9]:80",
    source: "[fd00:2::1]:6000",
    destination: "[fd00:2::2]:8080",
};

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[track_caller]
fn assert_translated(case: &Case, seen: &Packet) {
    assert_eq!(seen.source(), Some(address(case.source)));
    assert_eq!(seen.destination(), Some(address(case.destination)));
    assert_eq!(seen.l4_checksum(), Some(Checksum::Good));
    assert_eq!(seen.hop_limit(), Some(63));
}

/// Learns each flow from its first packet, and asserts that the others leave as they did before Shunt was started.
#[track_caller]
fn learned_are_the_same(shuntd: Shuntd, engine: Engine, ways: [(&Crossing, &[Packet], &[Frame]); 2]) {
    for (way, packets, left) in ways {
        way.teach(&shuntd, &packets[0]);
        assert_same_with_shunt(&shuntd, engine, way, &packets[1..], &left[1..]);
    }
    shuntd.stop();
}

/// UDP in one direction, and its answers.
#[track_caller]
fn udp_is_the_same(case: &Case) {
    udp_is_the_same_with(case, daemon);
}

#[track_caller]
fn udp_is_the_same_with(case: &Case, daemon: impl Fn(&Topology, Engine) -> Shuntd) {
    if !require_root() {
        return;
    }
    for engine in engines() {
        let lab = silent_router(case.ruleset);
        let (lan, wan) = (lab.lan(), lab.wan());
        let (there, back) = (Crossing::between(lan, wan), Crossing::between(wan, lan));
        let packets = variations(&lan.udp_to(PORT, address(case.to)));
        let left = there.pass_all(&packets);
        let seen = left[0].packet().unwrap();
        assert_translated(case, &seen);
        let answers = variations(&wan.answer_to(&seen));
        let answers_left = back.pass_all(&answers);

        learned_are_the_same(
            daemon(&lab, engine),
            engine,
            [(&there, &packets, &left), (&back, &answers, &answers_left)],
        );
    }
}

/// Both directions of a TCP connection that was opened before Shunt was started.
#[track_caller]
fn tcp_is_the_same(case: &Case) {
    tcp_is_the_same_with(case, daemon);
}

#[track_caller]
fn tcp_is_the_same_with(case: &Case, daemon: impl Fn(&Topology, Engine) -> Shuntd) {
    if !require_root() {
        return;
    }
    for engine in engines() {
        let lab = silent_router(case.ruleset);
        let (lan, wan) = (lab.lan(), lab.wan());
        let (there, back) = (Crossing::between(lan, wan), Crossing::between(wan, lan));
        let syn = lan.tcp_to(PORT, address(case.to), 0);
        let connection = Handshake::open(&there, &back, &syn, wan);
        assert_translated(case, &connection.at_server);
        let packets = variations(&connection.from_client(&syn, 0, []));
        let answers = variations(&connection.from_server(wan, 0, []));
        let (left, answers_left) = (there.pass_all(&packets), back.pass_all(&answers));

        learned_are_the_same(
            daemon(&lab, engine),
            engine,
            [(&there, &packets, &left), (&back, &answers, &answers_left)],
        );
    }
}

#[test]
fn masqueraded_udp_is_the_same() {
    udp_is_the_same(&MASQUERADE);
}

#[test]
fn masqueraded_tcp_is_the_same() {
    tcp_is_the_same(&MASQUERADE);
}

#[test]
fn udp_from_another_port_is_the_same() {
    udp_is_the_same(&SOURCE_PORTS);
}

#[test]
fn tcp_from_another_port_is_the_same() {
    tcp_is_the_same(&SOURCE_PORTS);
}

#[test]
fn udp_to_another_destination_is_the_same() {
    udp_is_the_same(&DESTINATION);
}

#[test]
fn udp_with_both_ends_changed_is_the_same() {
    udp_is_the_same(&BOTH);
}

#[test]
fn tcp_with_both_ends_changed_is_the_same() {
    tcp_is_the_same(&BOTH);
}

#[test]
fn plain_udp_is_the_same() {
    udp_is_the_same(&NONE_V4);
}

#[test]
fn plain_udp_over_ipv6_is_the_same() {
    udp_is_the_same(&NONE_V6);
}

#[test]
fn plain_tcp_over_ipv6_is_the_same() {
    tcp_is_the_same(&NONE_V6);
}

#[test]
fn udp_with_both_ends_changed_over_ipv6_is_the_same() {
    udp_is_the_same(&NAT66);
}

#[test]
fn tcp_with_both_ends_changed_over_ipv6_is_the_same() {
    tcp_is_the_same(&NAT66);
}

/// As on a kernel without BTF: the programs know the kernel's structures from a file, and call no kfunc.
#[test]
fn what_is_learned_by_a_file_of_the_kernels_types_is_the_same() {
    if !require_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let made = Command::new(program("SHUNTD", "shuntd"))
        .args(["--reduce-btf", "/sys/kernel/btf/vmlinux"])
        .current_dir(&directory)
        .output()
        .unwrap();
    let name = String::from_utf8(made.stdout).unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let config = format!("{SELDOM_PROVED}\nbtf = \"{}\"", directory.path().join(name.trim()).display());
    let daemon = |lab: &Topology, engine| daemon_with(lab, engine, &config);
    udp_is_the_same_with(&MASQUERADE, daemon);
    tcp_is_the_same_with(&NAT66, daemon);
}

/// A LAN host, the router's WAN address, and a server in the same LAN.
#[test]
fn a_hairpin_is_the_same() {
    if !require_root() {
        return;
    }
    for engine in engines() {
        let lab = hairpin_lab();
        let lan = lab.lan();
        let way = Crossing::between(lan, lan);
        let packets = variations(&lan.udp_to(PORT, address("198.18.0.1:80")));
        let left = way.pass_all(&packets);
        let seen = left[0].packet().unwrap();
        assert_eq!(seen.source(), Some(address("192.168.1.1:4000")));
        assert_eq!(seen.destination(), Some(address("192.168.1.3:8080")));
        let answers = variations(&lan.answer_to(&seen));
        let answers_left = way.pass_all(&answers);
        assert_eq!(answers_left[0].packet().unwrap().source(), Some(address("198.18.0.1:80")));

        let shuntd = daemon(&lab, engine);
        way.teach(&shuntd, &packets[0]);
        assert_same_with_shunt(&shuntd, engine, &way, &packets[1..], &left[1..]);
        way.teach(&shuntd, &answers[0]);
        assert_same_with_shunt(&shuntd, engine, &way, &answers[1..], &answers_left[1..]);
        let flow = shuntd.wait_for_flow("the hairpin", |c| c.directions.len() == 2);
        assert!(flow.directions.iter().all(|d| d.in_port == "r0" && d.out_port == "r0"), "{flow:#?}");
        shuntd.stop();
    }
}

/// Gives the LAN host a second address, 192.168.1.3, so that it stands for two hosts.
fn hairpin_lab() -> Topology {
    let lab = silent_router(
        r#"table ip nat {
            chain pre { type nat hook prerouting priority dstnat; ip daddr 198.18.0.1 udp dport 80 dnat to 192.168.1.3:8080; };
            chain post { type nat hook postrouting priority srcnat; iifname "r0" oifname "r0" masquerade; }; }"#,
    );
    let Host { mac, port, .. } = lab.lan();
    lab.router().run(&format!("ip neigh replace 192.168.1.3 lladdr {mac} dev {port} nud permanent"));
    for name in ["all", "r0"] {
        lab.router().sysctl(&format!("ipv4/conf/{name}/send_redirects"), 0);
    }
    lab
}

/// A UDP checksum of 0 means none, so a computed 0 is sent as 0xffff.
#[test]
fn a_udp_checksum_that_becomes_zero_is_sent_as_ffff() {
    if !require_root() {
        return;
    }
    for engine in engines() {
        let lab = silent_router(SOURCE_PORTS.ruleset);
        let (lan, wan) = (lab.lan(), lab.wan());
        let there = Crossing::between(lan, wan);
        let packet = lan.udp_to(PORT, address(SOURCE_PORTS.to));
        let checksum_after = |word: u16| {
            let translated =
                packet.clone().with_source(address(SOURCE_PORTS.source)).payload(word.to_be_bytes());
            let bytes = translated.to_bytes();
            u16::from_be_bytes([bytes[40], bytes[41]])
        };
        let word = (0..=u16::MAX).find(|word| checksum_after(*word) == 0xffff).unwrap();
        let packet = packet.payload(word.to_be_bytes());
        let left = there.pass(&packet);
        assert_eq!(left.bytes[40..42], [0xff, 0xff]);
        let shuntd = daemon(&lab, engine);
        there.teach(&shuntd, &packet);
        assert_same_with_shunt(&shuntd, engine, &there, &[packet], &[left]);
        shuntd.stop();
    }
}

/// With nf_conntrack_checksum off, Linux updates a wrong L4 checksum like a right one, and so does Shunt.
#[test]
fn a_wrong_l4_checksum_stays_as_wrong() {
    if !require_root() {
        return;
    }
    for engine in engines() {
        let lab = silent_router(BOTH.ruleset);
        lab.router().sysctl("netfilter/nf_conntrack_checksum", 0);
        let there = Crossing::between(lab.lan(), lab.wan());
        let packet = lab.lan().udp_to(PORT, address(BOTH.to)).payload("wrong");
        let packets = [0x1234, 0xffff, 1].map(|n| packet.clone().with_l4_checksum(Checksum::Value(n)));
        let left = there.pass_all(&packets);
        for frame in &left {
            assert!(matches!(frame.packet().unwrap().l4_checksum(), Some(Checksum::Value(_))));
        }
        let config = format!("{SELDOM_PROVED}\nverify_checksums = \"never\"");
        let shuntd = Shuntd::on(lab.router()).engine(&engine.to_string()).config(&config).start();
        there.teach(&shuntd, &packet);
        assert_same_with_shunt(&shuntd, engine, &there, &packets, &left);
        shuntd.stop();
    }
}
