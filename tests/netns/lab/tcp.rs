//! `shunt bench tcp` through routers that check windows, translate, drop a known share, reject, or rewrite.

use crate::gen_command::{self, Bench, json};
use serde_json::Value;
use shunt_testkit::{NetNs, Shunt, require_root};
use std::collections::BTreeSet;

const NICS: &str = "--tx t0 --rx t1 --gateway 192.0.2.1 --rx-gateway 198.51.100.1 --json";
/// A firewall that drops what conntrack finds invalid, and counts it.
const STRICT: &str = "table inet f { chain c { type filter hook forward priority 0; policy drop; \
    ct state invalid counter drop; ct state established,related accept; iifname p0 ct state new accept; }; }";
const MASQUERADE: &str =
    "table inet n { chain c { type nat hook postrouting priority srcnat; oifname p1 masquerade; }; }";
/// Counts what it drops: about one segment in 30 each way.
const LOSSY: &str = "table inet l { chain c { type filter hook forward priority -300; \
    numgen random mod 30 == 7 counter drop; }; }";

/// A router that tracks connections and is not liberal.
fn strict() -> Bench {
    let bench = gen_command::bench();
    bench.router.nft(STRICT);
    bench.router.sysctl("netfilter/nf_conntrack_tcp_be_liberal", 0);
    bench
}

fn measure(bench: &Bench, words: &str) -> Value {
    let report = json(&bench.shunt.run(&format!("bench tcp {NICS} {words}")));
    report["routers"][0].clone()
}

/// Packets that the rules of a table dropped.
fn dropped(router: &NetNs, table: &str) -> u64 {
    let rules: Value = serde_json::from_str(&router.run(&format!("nft -j list table inet {table}"))).unwrap();
    let all = rules["nftables"].as_array().unwrap();
    let counters = all.iter().filter_map(|one| one["rule"]["expr"].as_array()).flatten();
    counters.filter_map(|expression| expression["counter"]["packets"].as_u64()).sum()
}

fn count(of: &Value, path: &str) -> u64 {
    of.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path}: {of:#}"))
}

#[test]
fn a_router_that_checks_windows_passes_all_connections_and_tracks_each() {
    if !require_root() {
        return;
    }
    let bench = strict();
    let words = "--connections 400 --rate 2000/s --request 200..3k --response 8..100k --exchanges 3";
    let seen = measure(&bench, words);
    let counts = ["opened", "established", "completed"].map(|name| count(&seen, &format!("/{name}")));
    assert_eq!(counts, [400; 3], "{seen:#}");
    assert_eq!((count(&seen, "/stray"), dropped(&bench.router, "f")), (0, 0), "{seen:#}");
    assert_eq!(count(&seen, "/to_server/lost") + count(&seen, "/to_client/lost"), 0, "{seen:#}");
    assert!(count(&seen, "/to_client/bytes") > 400 * 3 * 20_000, "{seen:#}");
    assert_eq!(count(&seen, "/exchange/count"), 1200);
    // Conntrack has these connections and no others, and saw both ends close each.
    let table = bench.router.run("conntrack -L -p tcp 2> /dev/null");
    let closed: BTreeSet<&str> = table
        .lines()
        .filter(|line| line.contains("TIME_WAIT") && line.contains("src=192.0.2.2 dst=198.51.100.2"))
        .filter_map(|line| line.split("sport=").nth(1)?.split(' ').next())
        .collect();
    assert_eq!((closed.len(), table.lines().count()), (400, 400), "{table}");
}

#[test]
fn connections_pass_a_nat_and_the_routers_of_the_lab() {
    if !require_root() {
        return;
    }
    let bench = strict();
    bench.router.nft(MASQUERADE);
    let seen = measure(&bench, "--connections 200 --rate 2000/s --think 5ms --exchanges 2");
    assert_eq!((count(&seen, "/completed"), count(&seen, "/stray")), (200, 0), "{seen:#}");
    assert_eq!(dropped(&bench.router, "f"), 0);
    let table = bench.router.run("conntrack -L -p tcp 2> /dev/null");
    assert_eq!(table.lines().filter(|line| line.contains("dst=198.51.100.1 ")).count(), 200, "{table}");
    // Routers of the lab, with Linux alone and an engine.
    let place = NetNs::new("place");
    let shunt = Shunt::on(&place);
    let words =
        "--json --engine slow --engine tc --connections 200 --rate 1000/s --response 60k --think 10ms";
    for more in ["--nat", "--ip 6"] {
        let report = json(&shunt.run(&format!("bench tcp {words} {more}")));
        for router in report["routers"].as_array().unwrap() {
            assert_eq!((count(router, "/completed"), count(router, "/stray")), (200, 0), "{router:#}");
            let tracked = [count(router, "/tracked/connections"), count(router, "/tracked/invalid")];
            assert_eq!(tracked, [200, 0], "{router:#}");
            assert_eq!(
                router["fast_share"].as_f64().is_some_and(|share| share > 0.0),
                router["device"] == "tc"
            );
        }
    }
}

#[test]
fn each_lost_segment_is_counted_and_repeated() {
    if !require_root() {
        return;
    }
    let bench = strict();
    bench.router.nft(LOSSY);
    let seen = measure(&bench, "--connections 100 --rate 1000/s --response 30k --exchanges 2 --patience 60s");
    assert_eq!((count(&seen, "/completed"), count(&seen, "/stray")), (100, 0), "{seen:#}");
    let lost = count(&seen, "/to_server/lost") + count(&seen, "/to_client/lost");
    assert_eq!((lost, dropped(&bench.router, "f")), (dropped(&bench.router, "l"), 0), "{seen:#}");
    assert!(lost > 50 && count(&seen, "/to_client/retransmitted") > 20, "{seen:#}");
}

#[test]
fn routers_that_reject_reset_drop_or_rewrite_are_told_apart() {
    if !require_root() {
        return;
    }
    let bench = gen_command::bench();
    // By default, Linux sends one host an ICMP error each second.
    bench.router.sysctl("ipv4/icmp_ratelimit", 0);
    // A quarter of the client ports each.
    bench.router.nft(
        "table inet r { chain c { type filter hook forward priority 0; \
         iifname p0 tcp sport & 3 == 0 tcp flags syn reject; \
         iifname p0 tcp sport & 3 == 1 tcp flags syn reject with tcp reset; \
         iifname p0 tcp sport & 3 == 2 tcp flags syn drop; \
         iifname p1 tcp dport & 3 == 3 ip length > 1000 tcp sequence set 7; }; }",
    );
    let seen = measure(&bench, "--connections 80 --rate 2000/s --response 20k --patience 1s");
    let failed = ["refused", "unanswered", "silent", "reset", "corrupted"]
        .map(|cause| count(&seen, &format!("/failed/{cause}")));
    assert_eq!(failed, [40, 20, 20, 0, 0], "{seen:#}");
    assert_eq!((count(&seen, "/established"), count(&seen, "/completed")), (20, 0), "{seen:#}");
    assert!(count(&seen, "/stray") >= 20, "{seen:#}");
    let doubts: Vec<&str> =
        seen["doubts"].as_array().unwrap().iter().filter_map(|doubt| doubt["kind"].as_str()).collect();
    assert!(doubts.contains(&"connections-failed"), "{doubts:?}");
}

#[test]
fn bad_input_is_refused_in_one_line() {
    if !require_root() {
        return;
    }
    let place = NetNs::new("place");
    let shunt = Shunt::on(&place);
    for (words, why) in [
        ("--tx no0 --rx no1", "no0: no such device"),
        ("--request 5", "sizes are from 8 bytes"),
        ("--tx lo --rx lo", "a device does not receive what it sends"),
    ] {
        let refused = shunt.run(&format!("bench tcp {words}"));
        assert_ne!(refused.code, Some(0), "{words}");
        assert!(refused.err.contains(why), "{words}: {}", refused.err);
    }
}
