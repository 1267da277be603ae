//! `shunt flows` and `shunt top` show connections that Linux forwards, with their rates if conntrack counts.

use serde_json::Value;
use shunt_testkit::{Crossing, Shunt, require_root, rulesets, silent_router, wait_for};
use shunt_wire::Packet;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(30);
const PAYLOAD: usize = 1000;

/// Runs a command while packets cross the router. Returns what it printed on both outputs.
fn meanwhile(shunt: &Shunt, there: &Crossing, packet: &Packet, words: &str) -> (String, String) {
    while_sending(shunt, words, || drop(there.pass(packet)))
}

fn while_sending(shunt: &Shunt, words: &str, mut send: impl FnMut()) -> (String, String) {
    let mut running = shunt.start(words);
    let start = Instant::now();
    while running.ended().is_none() {
        assert!(start.elapsed() < LIMIT, "{words}: {}", running.err());
        send();
    }
    assert_eq!(running.ended(), Some(Some(0)), "{words}: {}", running.err());
    (running.out(), running.err())
}

#[test]
fn a_slow_connection_is_listed_with_its_rate_if_conntrack_counts() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::HOME_GATEWAY);
    let shunt = Shunt::on(lab.router());
    shunt.done("up --engine tc");
    shunt.done("off 192.168.1.2");
    let there = Crossing::between(lab.lan(), lab.wan());
    let packet = |port: u16| lab.lan().udp_to(4000, lab.wan().at(port)).payload("x".repeat(PAYLOAD));

    lab.router().sysctl("netfilter/nf_conntrack_acct", 0);
    let (out, err) = meanwhile(&shunt, &there, &packet(5001), "flows --json --over 500ms");
    let listed: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&listed[0]["state"], &listed[0]["count"]), (&"slow".into(), &Value::Null), "{listed:#}");
    assert!(err.contains("nf_conntrack_acct=1"), "{err}");

    lab.router().sysctl("netfilter/nf_conntrack_acct", 1);
    let busy = packet(5002);
    there.pass(&busy);
    let (out, err) = meanwhile(&shunt, &there, &busy, "flows --json --over 1s --dport 5002");
    let listed: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed:#}");
    let (slow, count) = (&listed[0], &listed[0]["count"]);
    assert_eq!(
        (&slow["state"], &slow["orig"]["dport"], &slow["protocol"]),
        (&"slow".into(), &5002.into(), &17.into())
    );
    let [pps, bps] = ["rate_pps", "rate_bps"].map(|rate| count[rate].as_f64().unwrap());
    let bits_per_packet = 8.0 * (PAYLOAD as f64 + 28.0);
    assert!(pps >= 2.0 && (0.8..1.2).contains(&(bps / pps / bits_per_packet)), "{slow:#}");
    assert!(!err.contains("conntrack"), "{err}");

    let (text, _) = meanwhile(&shunt, &there, &busy, "flows --over 500ms");
    assert!(
        text.starts_with("udp slow: off  ") && text.contains("198.18.0.2:5002, by Linux: off: "),
        "{text}"
    );
    let (hosts, _) = meanwhile(&shunt, &there, &busy, "flows --by host --json --over 500ms");
    let hosts: Value = serde_json::from_str(&hosts).unwrap();
    let lan = hosts.as_array().unwrap().iter().find(|host| host["addr"] == "192.168.1.2").unwrap();
    assert!(lan["slow_bps"].as_u64().unwrap() > 0 && lan["slow_bps"] == lan["sent_bps"], "{hosts:#}");
    let (top, _) = meanwhile(&shunt, &there, &busy, "top --once --interval 500ms");
    assert!(top.contains("192.168.1.2:4000 > 198.18.0.2:5002  udp    slow    slow: off "), "{top}");

    // Each of many has its reason.
    let many: Vec<Packet> = (6001..6013).map(packet).collect();
    let (out, _) = while_sending(&shunt, "flows --json --over 1s --state slow", || {
        many.iter().for_each(|packet| drop(there.pass(packet)));
    });
    let listed: Value = serde_json::from_str(&out).unwrap();
    let listed = listed.as_array().unwrap();
    let is_off = |one: &Value| {
        let slow = one["directions"].as_array().unwrap();
        slow.iter().any(|half| half["dir"] == "orig" && half["because"]["reason"] == "off")
    };
    assert!(listed.len() >= many.len() && listed.iter().all(is_off), "{listed:#?}");

    // Of a connection that is silent, no rate is measured, so it is left out.
    let (out, _) = meanwhile(&shunt, &there, &packet(5003), "flows --json --over 1s --dport 5002");
    assert_eq!(out, "[]\n");

    // Once it is fast, it is not listed as slow.
    shunt.done("on");
    let (out, _) = meanwhile(&shunt, &there, &busy, "flows --json --over 2s");
    let (again, _) = meanwhile(&shunt, &there, &busy, "flows --json --over 1s --dport 5002");
    let again: Value = serde_json::from_str(&again).unwrap();
    assert_eq!(again.as_array().unwrap().len(), 1, "{again:#}\n{out}");
    assert_eq!(again[0]["state"], "active", "{again:#}");
    shunt.done("down");
}

#[test]
fn a_connection_with_slow_replies_is_listed_once_with_the_reason() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::HOME_GATEWAY);
    lab.router().sysctl("netfilter/nf_conntrack_acct", 1);
    lab.router().run(
        "tc qdisc add dev r1 clsact; tc filter add dev r1 ingress protocol all bpf bytecode '1,6 0 0 0'",
    );
    let shunt = Shunt::on(lab.router());
    shunt.done("up --engine tc");
    let (there, back) = (Crossing::between(lab.lan(), lab.wan()), Crossing::between(lab.wan(), lab.lan()));
    let request = lab.lan().udp_to(4000, lab.wan().at(5000)).payload("x".repeat(PAYLOAD));
    let answer = lab.wan().answer_to(&there.pass(&request).packet().unwrap()).payload("y".repeat(PAYLOAD));
    let flows = |words: &str| {
        while_sending(&shunt, words, || {
            there.pass(&request);
            back.pass(&answer);
        })
    };
    // Until the first direction is learned, both are slow.
    let mut listed = Value::Null;
    let mixed = wait_for(LIMIT, || {
        listed = serde_json::from_str(&flows("flows --json --over 500ms").0).unwrap();
        (listed[0]["state"] == "active").then_some(())
    });
    assert!(mixed.is_some() && listed.as_array().unwrap().len() == 1, "{listed:#}");
    let slow = &listed[0]["slow"]["directions"];
    assert_eq!((slow.as_array().unwrap().len(), &slow[0]["dir"]), (1, &"reply".into()), "{listed:#}");
    assert_eq!(slow[0]["because"]["reason"], "ingress-filter", "{listed:#}");
    let (text, _) = flows("flows --over 500ms");
    assert!(text.starts_with("udp fast, replies slow: ingress-filter  "), "{text}");
    let (brief, _) = flows("flows -br --over 500ms");
    assert_eq!(brief.lines().count(), 1, "{brief}");
    let (hosts, _) = flows("flows --by host --json --over 500ms");
    let hosts: Value = serde_json::from_str(&hosts).unwrap();
    assert!(hosts.as_array().unwrap().iter().all(|host| host["connections"] == 1), "{hosts:#}");
    let (top, _) = flows("top --once --interval 500ms");
    assert!(top.contains("half    fast, replies slow: ingress-filter "), "{top}");
    shunt.done("down");
}
