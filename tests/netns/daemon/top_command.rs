//! `shunt top --once` and `shunt flows --by host` show who uses the router, with rates of their own measurement.

use serde_json::Value;
use shunt_testkit::{Crossing, Shunt, require_root, rulesets, silent_router, wait_for};
use shunt_wire::Packet;
use std::time::{Duration, Instant};

const AGAIN: Duration = Duration::from_secs(20);
/// Bytes of payload of the busy connection; with headers of IPv4 and UDP, a packet has 28 more.
const PAYLOAD: usize = 1000;

fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// The flow of this destination port has an action in use.
fn is_active(shunt: &Shunt, port: u16) -> bool {
    let flows = parse(&shunt.done(&format!("flows --json --over 0s --state active --dport {port}")));
    !flows.as_array().unwrap().is_empty()
}

#[track_caller]
fn make_fast(shunt: &Shunt, there: &Crossing, packet: &Packet, port: u16) {
    let fast = wait_for(AGAIN, || {
        there.pass(packet);
        is_active(shunt, port).then_some(())
    });
    assert!(fast.is_some(), "{port} is not fast: {}", shunt.done("status"));
}

#[test]
fn the_busiest_connection_is_first_with_its_rate() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::HOME_GATEWAY);
    let shunt = Shunt::on(lab.router());
    shunt.done("up");
    let there = Crossing::between(lab.lan(), lab.wan());
    let packet =
        |port: u16, bytes: usize| lab.lan().udp_to(4000, lab.wan().at(port)).payload("x".repeat(bytes));
    let (quiet, busy) = (packet(5001, 100), packet(5002, PAYLOAD));
    make_fast(&shunt, &there, &quiet, 5001);
    make_fast(&shunt, &there, &busy, 5002);

    let mut top = shunt.start("top --once --json --interval 2s");
    let (start, mut sent) = (Instant::now(), 0u64);
    while top.ended().is_none() {
        assert!(start.elapsed() < AGAIN, "{}", top.err());
        there.pass(&quiet);
        for _ in 0..4 {
            there.pass(&busy);
            sent += 1;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    assert_eq!(top.ended(), Some(Some(0)), "{}", top.err());
    let shown = parse(&top.out());
    let [first, second, ..] = &shown["connections"].as_array().unwrap()[..] else { panic!("{shown:#}") };
    assert_eq!((&first["orig"]["dport"], &second["orig"]["dport"]), (&5002.into(), &5001.into()));

    // The traffic began before the first sample and ended after the second one, at about the same pace.
    let rate = |value: &Value| value.as_f64().unwrap();
    let near = |value: f64, expected: f64| (0.3..3.0).contains(&(value / expected));
    let paced = sent as f64 / seconds;
    let (pps, bps) = (rate(&first["rate_pps"]), rate(&first["rate_bps"]));
    assert!(near(pps, paced), "{sent} in {seconds} s: {first:#}");
    let bits_per_packet = 8.0 * (PAYLOAD as f64 + 28.0);
    assert!((0.9..1.1).contains(&(bps / pps / bits_per_packet)), "{first:#}");
    assert!(rate(&shown["over_s"]) >= 2.0, "{shown:#}");
    let fast = rate(&shown["rates"]["fast_pps"]);
    assert!(near(fast, paced * 1.25) && fast > pps, "{paced}: {shown:#}");
    assert!(rate(&shown["rates"]["fast_share"]) > 0.5, "{shown:#}");
    let port = &shown["ports"][0];
    assert_eq!((&port["name"], port["fast_pps"].as_f64()), (&"r0".into(), Some(fast)), "{shown:#}");

    // Both hosts have the whole traffic.
    let hosts: Vec<&str> =
        shown["hosts"].as_array().unwrap().iter().map(|host| host["addr"].as_str().unwrap()).collect();
    assert_eq!(hosts.len(), 2, "{hosts:?}");
    assert!(hosts.contains(&"192.168.1.2") && hosts.contains(&"198.18.0.2"), "{hosts:?}");

    let text = shunt.done("top --once --interval 100ms --limit 1");
    assert!(
        text.contains("\nconnection ") && text.contains("\nport ") && text.contains("192.168.1.2:4000 > ")
    );
    assert_eq!(text.matches("192.168.1.2:4000 > ").count(), 1, "{text}");
    by_host(&shunt, sent);
    let refused = shunt.run("top");
    assert!(refused.code == Some(2) && refused.err.contains("`shunt top --once`"), "{refused:?}");
    shunt.done("down");
    assert_eq!(shunt.run("top --once").code, Some(21));
}

/// `shunt flows --by host` adds up what the connections have sent, for the host on each side.
#[track_caller]
fn by_host(shunt: &Shunt, busy_packets: u64) {
    let hosts = parse(&shunt.done("flows --by host --json --sort src"));
    let [client, server] = &hosts.as_array().unwrap()[..] else { panic!("{hosts:#}") };
    assert_eq!((&client["addr"], &server["addr"]), (&"192.168.1.2".into(), &"198.18.0.2".into()));
    assert_eq!((&client["connections"], &server["connections"]), (&2.into(), &2.into()));
    let sent = client["sent_bytes"].as_u64().unwrap();
    assert!(sent > busy_packets * PAYLOAD as u64 / 2, "{busy_packets}: {hosts:#}");
    assert_eq!((server["received_bytes"].as_u64(), client["received_bytes"].as_u64()), (Some(sent), Some(0)));
    let listed = parse(&shunt.done("flows --json --over 0s"));
    let of_all: u64 = listed.as_array().unwrap().iter().map(|c| c["bytes"].as_u64().unwrap()).sum();
    assert_eq!(sent, of_all, "{hosts:#}");
}
