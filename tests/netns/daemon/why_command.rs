//! `shunt why` explains why a connection is fast or slow.

use serde_json::Value;
use shunt_testkit::{
    Crossing, Handshake, Shunt, Tap, Topology, require_root, silent_router, wait_for, wait_until,
};
use shunt_wire::{Packet, Tcp, Transport};
use std::time::Duration;

const AGAIN: Duration = Duration::from_secs(20);

/// A ruleset with a conntrack helper, a zone, and untracked packets.
const RULES: &str = r#"
table inet filter {
	ct helper ftp-standard { type "ftp" protocol tcp; l3proto inet; };
	chain raw { type filter hook prerouting priority raw; udp dport 5001 ct zone set 9; udp dport 5002 notrack; };
	chain pre { type filter hook prerouting priority filter; tcp dport 21 ct helper set "ftp-standard"; };
	chain forward { type filter hook forward priority filter; ct state new accept; };
}
"#;

fn start() -> (Topology, Shunt) {
    let lab = silent_router(RULES);
    let shunt = Shunt::on(lab.router());
    shunt.done("up --engine xdp");
    (lab, shunt)
}

/// The only connection in the output.
#[track_caller]
fn ask(shunt: &Shunt, words: &str) -> Value {
    let found: Value = serde_json::from_str(&shunt.done(&format!("why --json {words}"))).unwrap();
    let connections = found["connections"].as_array().unwrap();
    assert_eq!(connections.len(), 1, "{found:#}");
    connections[0].clone()
}

/// The reason why the original direction is slow; `None` if it is fast or unknown.
fn reason(shunt: &Shunt, words: &str) -> Option<String> {
    let printed = shunt.run(&format!("why --json {words}"));
    let found: Value = serde_json::from_str(&printed.out).ok()?;
    let because = &found["connections"][0]["directions"][0]["because"];
    because["reason"].as_str().map(str::to_owned)
}

/// Sends packets until `shunt why` gives this reason.
#[track_caller]
fn says(shunt: &Shunt, words: &str, required: Option<&str>, mut send: impl FnMut()) {
    let printed = wait_for(AGAIN, || {
        send();
        (reason(shunt, words).as_deref() == required).then_some(())
    });
    assert!(printed.is_some(), "{words}: expected {required:?}: {:?}", shunt.run(&format!("why {words}")));
}

fn udp(lab: &Topology, port: u16) -> Packet {
    lab.lan().udp_to(4000, lab.wan().at(port)).payload("udp")
}

#[test]
fn why_names_the_engine_or_the_reason() {
    if !require_root() {
        return;
    }
    let (lab, shunt) = start();
    let (there, back) = (Crossing::between(lab.lan(), lab.wan()), Crossing::between(lab.wan(), lab.lan()));
    let packet = udp(&lab, 5000);
    there.pass(&packet);
    let first = ask(&shunt, "--dst 198.18.0.2 --dport 5000");
    assert_eq!(first["directions"][0]["because"]["reason"], "miss", "{first:#}");
    says(&shunt, "--dst 198.18.0.2 --dport 5000", None, || drop(there.pass(&packet)));
    for words in ["--dst 198.18.0.2 --dport 5000", "udp 192.168.1.2:4000 198.18.0.2:5000", "192.168.1.0/24"] {
        // On a slow machine, a flow is soon idle.
        let found = wait_for(AGAIN, || {
            there.pass(&packet);
            Some(ask(&shunt, words)).filter(|found| found["directions"][0]["fast"] == true)
        });
        let found = found.unwrap_or_else(|| panic!("not fast: {:#}", ask(&shunt, words)));
        let [orig, reply] = &found["directions"].as_array().unwrap()[..] else { panic!("{found:#}") };
        // By tc until XDP has proved the flow, too.
        assert!(orig["engine"] == "tc" || orig["engine"] == "xdp", "{found:#}");
        assert_eq!((&orig["in_port"], &orig["out_port"]), (&"r0".into(), &"r1".into()), "{found:#}");
        assert!(orig["since_s"].is_u64() && orig["because"].is_null(), "{found:#}");
        assert_eq!((&reply["fast"], &reply["because"]["reason"]), (&false.into(), &"miss".into()));
    }
    // On a slow machine, the flow is idle by now.
    let is_fast =
        |text: &String| text.starts_with("udp\n  orig   192.168.1.2:4000 > 198.18.0.2:5000  fast by ");
    let text = wait_for(AGAIN, || {
        there.pass(&packet);
        Some(shunt.done("why --dport 5000")).filter(is_fast)
    });
    let text = text.unwrap_or_else(|| panic!("not fast: {}", shunt.done("why --dport 5000")));
    assert!(
        text.contains(", r0 -> r1, first learned ")
            && text.contains("\n  reply  198.18.0.2:5000 > 192.168.1.2:4000  idle; not fast: miss\n"),
        "{text}"
    );

    says(&shunt, "--dport 5001", Some("no-conntrack"), || drop(there.pass(&udp(&lab, 5001))));
    assert!(shunt.done("why --dport 5001").contains("the connection is in zone 9"));
    // Only the data plane knows the connection.
    let untracked = "udp 192.168.1.2:4000 198.18.0.2:5002";
    says(&shunt, untracked, Some("no-conntrack"), || drop(there.pass(&udp(&lab, 5002))));
    assert!(shunt.done(&format!("why {untracked}")).starts_with("udp, unknown to conntrack\n"));

    let ftp = lab.lan().tcp_to(4021, lab.wan().at(21), 0);
    Handshake::open(&there, &back, &ftp, lab.wan());
    let helper = ask(&shunt, "-p tcp --dport 21");
    assert_eq!(helper["directions"][0]["because"]["reason"], "helper", "{helper:#}");
    assert_eq!(helper["directions"][1]["because"]["detail"], "the helper is ftp", "{helper:#}");

    for words in ["--dst 203.0.113.9", "udp 192.168.1.2:4000 198.18.0.2:5999"] {
        let printed = shunt.run(&format!("why {words}"));
        assert!(printed.code == Some(27) && printed.out.is_empty(), "{printed:?}");
        assert!(printed.err.contains("no such connection"), "{printed:?}");
    }
    assert_eq!(shunt.run("why 1.2.3.4 tcp").code, Some(2));

    // A capture sees all packets, so they are slow.
    let capture = Tap::open(lab.router(), "r1");
    says(&shunt, "--dport 5000", Some("egress-capture"), || drop(there.pass(&packet)));
    drop(capture);
    says(&shunt, "--dport 5000", None, || drop(there.pass(&packet)));

    lab.router().run("nft add rule inet filter forward tcp dport 9 synproxy mss 1460 wscale 7");
    says(&shunt, "--dport 5000", Some("ruleset"), || drop(there.pass(&packet)));
    let printed = shunt.done("why --dport 5000");
    assert!(
        printed.contains("(`synproxy") && printed.contains("in inet filter forward handle "),
        "{printed}"
    );
    lab.router().run("nft flush chain inet filter forward");
    lab.router().run("nft add rule inet filter forward ct state new accept");
    says(&shunt, "--dport 5000", None, || drop(there.pass(&packet)));
    shunt.done("down");
}

#[test]
fn why_names_what_ended_a_connection() {
    if !require_root() {
        return;
    }
    let (lab, shunt) = start();
    let (there, back) = (Crossing::between(lab.lan(), lab.wan()), Crossing::between(lab.wan(), lab.lan()));
    let packet = udp(&lab, 5000);
    says(&shunt, "--dport 5000", None, || drop(there.pass(&packet)));
    // The retired flow is in the table for only one second, and this machine may be slow.
    says(&shunt, "--dport 5000", Some("conntrack-gone"), || {
        there.pass(&packet);
        lab.router().run("conntrack -D -p udp --dport 5000 2>/dev/null || true");
    });

    let mut port = 4100;
    let ended = wait_for(AGAIN, || {
        port += 1;
        let syn = lab.lan().tcp_to(port, lab.wan().at(80), 0);
        let connection = Handshake::open(&there, &back, &syn, lab.wan());
        let words = format!("tcp 192.168.1.2:{port} 198.18.0.2:80");
        let data = connection.from_client(&syn, 0, "data");
        says(&shunt, &words, None, || drop(there.pass(&data)));
        let mut end = connection.from_client(&syn, 4, "end");
        if let Transport::Tcp(tcp) = &mut end.transport {
            tcp.flags |= Tcp::FIN;
        }
        there.pass(&end);
        let soon = reason(&shunt, &words);
        // The reason from conntrack lasts longer.
        wait_until("the flow has left the table", || {
            reason(&shunt, &words).as_deref() == Some("not-established")
        });
        let text = shunt.done(&format!("why {words}"));
        assert!(
            text.starts_with("tcp FIN_WAIT\n") && text.contains("its state in conntrack is FIN_WAIT"),
            "{text}"
        );
        (soon.as_deref() == Some("tcp-flags")).then_some(())
    });
    assert!(ended.is_some(), "the reason never was tcp-flags");
    shunt.done("down");
}

#[test]
fn why_reports_an_egress_device_that_is_not_a_port() {
    if !require_root() {
        return;
    }
    let lab = silent_router(RULES);
    let shunt = Shunt::on(lab.router());
    shunt.done("up --engine tc --port r0");
    let (there, back) = (Crossing::between(lab.lan(), lab.wan()), Crossing::between(lab.wan(), lab.lan()));
    let (packet, answer) = (udp(&lab, 5000), lab.wan().udp_to(5000, lab.lan().at(4000)).payload("an answer"));
    for _ in 0..4 {
        there.pass(&packet);
        back.pass(&answer);
    }
    let found = ask(&shunt, "--dport 5000");
    let detail = |at: usize| found["directions"][at]["because"]["detail"].as_str().unwrap();
    assert!(
        detail(0).contains("arrived on r0") && detail(0).ends_with("left by r1, which is not a port"),
        "{found:#}"
    );
    assert_eq!(detail(1), "its packets arrive by r1, which is not a port", "{found:#}");
    shunt.done("down");
}

/// A rule drops packets of a connection that was fast, and of one that never began.
#[test]
fn why_tells_packets_that_are_dropped_from_none() {
    if !require_root() {
        return;
    }
    let lab = silent_router(RULES);
    let shunt = Shunt::on(lab.router());
    shunt.done("up --engine tc");
    let there = Crossing::between(lab.lan(), lab.wan());
    says(&shunt, "--dport 5000", None, || drop(there.pass(&udp(&lab, 5000))));
    lab.router().run("nft insert rule inet filter forward udp dport { 5000, 5003 } drop");
    for (port, tracked) in [(5000, true), (5003, false)] {
        // Nothing is kept of packets that come while the new rule is read.
        let found = wait_for(AGAIN, || {
            for _ in 0..4 {
                assert_eq!(there.all_that_leave(&udp(&lab, port)), []);
            }
            let printed = shunt.run(&format!("why --json --dport {port}"));
            let found: Value = serde_json::from_str(&printed.out).ok()?;
            let detail = found["connections"][0]["directions"][0]["because"]["detail"].as_str()?;
            detail.ends_with("was not seen to leave through a port").then(|| found.clone())
        });
        let found = found.unwrap_or_else(|| panic!("{:?}", shunt.run(&format!("why --dport {port}"))));
        let [connection] = &found["connections"].as_array().unwrap()[..] else { panic!("{found:#}") };
        let orig = &connection["directions"][0];
        assert!(orig["because"]["detail"].as_str().unwrap().contains("r0"), "{found:#}");
        assert!(orig["because"]["remedy"].as_str().unwrap().contains("a rule"), "{found:#}");
        assert!(orig["idle"].is_null() && connection["tracked"] == tracked, "{found:#}");
    }
    shunt.done("down");
}

/// A host behind masquerade is no destination, as conntrack has it, of connections that it began.
#[test]
fn why_makes_up_no_connection_of_packets_that_conntrack_knows() {
    if !require_root() {
        return;
    }
    let lab = silent_router(RULES);
    lab.router().run("nft add table ip nat");
    lab.router().run("nft 'add chain ip nat post { type nat hook postrouting priority srcnat; }'");
    lab.router().run("nft add rule ip nat post oifname r1 masquerade");
    let shunt = Shunt::on(lab.router());
    // Each second look sees packets that are slow to prove the flow.
    let file = shunt.file("often.toml", "reprove = \"250ms\"\n");
    shunt.done(&format!("up --engine tc --config {}", file.display()));
    let there = Crossing::between(lab.lan(), lab.wan());
    for _ in 0..8 {
        let printed = std::thread::scope(|scope| {
            let asked = scope.spawn(|| shunt.run("why --json --dst 192.168.1.2"));
            while !asked.is_finished() {
                there.from.send(&udp(&lab, 5000));
                std::thread::sleep(Duration::from_millis(1));
            }
            asked.join().unwrap()
        });
        assert!(printed.err.contains(" 192.168.1.2`?") && printed.code == Some(27), "{printed:?}");
    }
    shunt.done("down");
}

/// A connection that was fast, on a router that forwards no more, and then without its LAN port.
#[test]
fn why_names_what_stops_every_packet() {
    if !require_root() {
        return;
    }
    let lab = silent_router(RULES);
    let shunt = Shunt::on(lab.router());
    shunt.done("up --engine tc");
    let there = Crossing::between(lab.lan(), lab.wan());
    says(&shunt, "--dport 5000", None, || drop(there.pass(&udp(&lab, 5000))));
    for (change, what, remedy) in [
        (
            "sysctl -w net.ipv4.ip_forward=0",
            "Linux does not forward: net.ipv4.ip_forward is 0",
            "`sysctl -w net.ipv4.ip_forward=1`",
        ),
        ("ip link set r0 down", "r0 is down", "`ip link set r0 up`"),
    ] {
        lab.router().run(change);
        let because = wait_for(AGAIN, || {
            there.from.send(&udp(&lab, 5000));
            let printed = shunt.run("why --json --dport 5000");
            let found: Value = serde_json::from_str(&printed.out).ok()?;
            let because = found["connections"][0]["directions"][0]["because"].clone();
            because["detail"].as_str()?.starts_with(what).then_some(because)
        });
        let because = because.unwrap_or_else(|| panic!("{change}: {:?}", shunt.run("why --dport 5000")));
        assert_eq!(because["remedy"], remedy, "{because:#}");
    }
    shunt.done("down");
}

/// A flow that has had no packet for `idle` leaves the table; its connection stays in conntrack.
#[test]
fn why_calls_a_connection_without_packets_idle() {
    if !require_root() {
        return;
    }
    let lab = silent_router(RULES);
    let shunt = Shunt::on(lab.router());
    let file = shunt.file("idle.toml", "idle = \"1s\"\n");
    shunt.done(&format!("up --engine tc --config {}", file.display()));
    let (there, back) = (Crossing::between(lab.lan(), lab.wan()), Crossing::between(lab.wan(), lab.lan()));
    let syn = lab.lan().tcp_to(4200, lab.wan().at(80), 0);
    let connection = Handshake::open(&there, &back, &syn, lab.wan());
    let words = "tcp 192.168.1.2:4200 198.18.0.2:80";
    let fast = |shunt: &Shunt| ask(shunt, words)["directions"][0]["fast"] == true;
    let learned = wait_for(AGAIN, || {
        there.pass(&connection.from_client(&syn, 0, "data"));
        fast(&shunt).then_some(())
    });
    assert!(learned.is_some(), "{}", shunt.done(&format!("why {words}")));
    let idle = wait_for(AGAIN, || {
        let found = ask(&shunt, words)["directions"][0].clone();
        found["idle"].is_object().then_some(found)
    });
    let idle = idle.unwrap_or_else(|| panic!("never idle: {}", shunt.done(&format!("why {words}"))));
    assert_eq!(
        (&idle["fast"], &idle["idle"]["was_fast"], &idle["because"]),
        (&false.into(), &true.into(), &Value::Null)
    );
    assert!(idle["idle"]["for_s"].as_u64().is_some_and(|seconds| seconds >= 1), "{idle:#}");
    wait_until("the flow has left the table", || {
        let flows: Value = serde_json::from_str(&shunt.done("flows --json --over 0s --dport 80")).unwrap();
        flows.as_array().unwrap().iter().all(|flow| flow["state"] == "slow")
    });
    let text = shunt.done(&format!("why {words}"));
    assert!(text.contains("  idle for ") && text.contains("s; was fast\n"), "{text}");
    // Packets end the pause.
    let lives = wait_for(AGAIN, || {
        there.pass(&connection.from_client(&syn, 0, "data"));
        ask(&shunt, words)["directions"][0]["idle"].is_null().then_some(())
    });
    assert!(lives.is_some(), "still idle: {}", shunt.done(&format!("why {words}")));
    shunt.done("down");
}
