//! `shunt bench nat` on a router whose limits are known, compared with conntrack's own count.

use crate::gen_command::{self, Bench, json};
use serde_json::Value;
use shunt_testkit::{NetNs, Shunt, require_root};
use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
};

/// Connections that the router's rules let through, and a number below.
const TABLE: u32 = 1500;
/// Frames/s that leave towards the responder, those that wait in the queue, and those that leave at once after a pause.
const SHAPED_PPS: f64 = 4000.0;
const QUEUE: f64 = 400.0;
const BURST: f64 = 100.0;
/// Bytes of a 64-byte frame without FCS.
const FRAME_BYTES: f64 = 60.0;

/// A masquerading router between t0 and t1, and the options to measure it. The table also forgets what the rules count.
fn nat() -> (Bench, String) {
    let bench = gen_command::bench();
    let name = bench.router.name();
    bench.router.nft(&format!(
        "table inet nat {{ chain post {{ type nat hook postrouting priority srcnat; oifname \"p1\" masquerade; }}; }}
         table inet f {{
           set room {{ type inet_service . inet_service; size {TABLE}; flags dynamic; }};
           chain c {{ type filter hook forward priority 10; }};
         }}"
    ));
    let command =
        format!("ip netns exec {name} conntrack -F && ip netns exec {name} nft flush set inet f room");
    let empty = bench.shunt.file("empty", &command);
    fs::set_permissions(&empty, Permissions::from_mode(0o755)).unwrap();
    let options = format!(
        "--json --tx t0 --rx t1 --gateway 192.0.2.1 --rx-gateway 198.51.100.1 --nat-address 198.51.100.1 --empty {}",
        empty.display()
    );
    (bench, options)
}

fn run(shunt: &Shunt, words: &str) -> Value {
    json(&shunt.run(&format!("bench nat {words}")))["routers"][0].clone()
}

#[test]
fn a_router_holds_exactly_as_many_connections_as_it_has_room_for() {
    if !require_root() {
        return;
    }
    let (Bench { router, shunt, .. }, options) = &nat();
    router.run(
        "nft 'add rule inet f c iifname p0 ct state new add @room { udp sport . udp dport } accept; \
         add rule inet f c ct state new drop'",
    );
    let found = run(shunt, &format!("{options} --what capacity --table {TABLE} --open-rate 5000"));
    let capacity = &found["capacity"];
    assert_eq!(
        (&capacity["held"], &capacity["failed"], &capacity["trials"]),
        (&TABLE.into(), &(TABLE + 1).into(), &2.into())
    );
    // A frame that passes without translation, or whose answer is lost, is no connection.
    router.run("nft 'flush chain inet f c; add rule inet f c ct direction reply udp sport 5001-5030 drop'");
    let lossy = run(shunt, &format!("{options} --what capacity --table 1000 --open-rate 5000"));
    assert_eq!(lossy["capacity"]["held"], Value::Null);
    router.run("nft 'flush chain inet f c; flush chain inet nat post'");
    let plain = shunt.run(&format!("bench nat {options} --what capacity --table 1000 --open-rate 5000"));
    assert_eq!(plain.code, Some(2), "{}", plain.out);
    assert!(plain.err.contains("1000 were not translated to the NAT's address"), "{}", plain.err);
}

#[test]
#[ignore = "half a minute of CPU time; in make test-long"]
fn a_router_with_a_known_time_for_each_connection_is_not_overrated() {
    if !require_root() {
        return;
    }
    let (Bench { router, shunt, .. }, options) = &nat();
    let [bits, burst, queue] = [8.0 * SHAPED_PPS, BURST, QUEUE].map(|frames| frames * FRAME_BYTES);
    router.run(&format!("tc qdisc add dev p1 root tbf rate {bits}bit burst {burst} limit {queue}"));
    let connections = 2000.0;
    let found = run(shunt, &format!("{options} --quick --what rate --connections {connections}"));
    let rate = found["establishment"]["result"]["throughput_pps"].as_f64();
    // Some frames leave before the shaper slows them, and those in the queue after the last one was sent. On a busy
    // machine, the rate may be lower.
    let most = SHAPED_PPS / (1.0 - (QUEUE + BURST) / connections);
    assert!(rate.is_none_or(|rate| rate <= most * 1.02), "{rate:?}, at most {most}");
    assert!(rate.is_some() || found["establishment"]["sender_bound"] == true, "{found:#}");
}

/// With the router in a namespace, for Linux alone and an engine.
#[test]
#[ignore = "takes more than a minute; the limited routers of the other tests run the same code"]
fn connections_are_those_that_conntrack_counts_and_are_kept() {
    if !require_root() {
        return;
    }
    let place = NetNs::new("place");
    let shunt = Shunt::on(&place);
    let file = shunt.directory().join("nat.json");
    let report = json(&shunt.run(&format!(
        "bench nat --json --quick --engine slow --engine xdp --connections 2000 --sessions 500 --table 2000 \
         --max-load 20000 --open-rate 10000 --keep {}",
        file.display()
    )));
    for router in report["routers"].as_array().unwrap() {
        // Where all connections were established, conntrack has as many. On a busy machine, there may be no such rate.
        let established = &router["establishment"];
        let found = !established["result"]["throughput_pps"].is_null();
        let difference = established["tracked_difference"].as_f64();
        assert!(difference.map_or(!found, |packets| packets == 0.0), "{established:#}");
        assert_eq!(router["tear_down"]["connections"], 2000, "{router:#}");
        assert!(router["tear_down"]["seconds"].as_f64() > Some(0.0));
        // More than asked for was tried, since conntrack has room.
        let capacity = &router["capacity"];
        assert!(
            capacity["held"].as_u64() > Some(2000) && capacity["held"] == capacity["tracked"],
            "{capacity:#}"
        );
        let throughput = &router["throughput"][0];
        assert_eq!((&throughput["sessions"], &throughput["left"]), (&500.into(), &500.into()));
        assert_eq!(throughput["fast_share"].is_null(), router["device"] == "slow", "{throughput:#}");
    }
    let kept: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!((&kept["what"], &kept["readings"]), (&"stateful NAT".into(), &report["readings"]));
    let reading = &kept["readings"]["connection capacity slow"];
    assert_eq!(reading["unit"], "connections", "{kept:#}");
}
