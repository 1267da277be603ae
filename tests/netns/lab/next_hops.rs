//! A router that has to resolve the generator's addresses itself.

use super::gen_command::{Bench, bench, json};
use serde_json::Value;
use shunt_testkit::{require_root, wait_until};
use std::collections::BTreeMap;

/// The MAC that the router resolved for each address at a port.
fn neighbours(bench: &Bench, port: &str) -> BTreeMap<String, String> {
    let shown = bench.router.run(&format!("ip -json neigh show dev {port}"));
    let all: Vec<Value> = serde_json::from_str(&shown).unwrap();
    let text = |one: &Value, name: &str| one[name].as_str().map(str::to_owned);
    all.iter().filter_map(|one| Some((text(one, "dst")?, text(one, "lladdr")?))).collect()
}

fn mac(bench: &Bench, port: &str) -> String {
    bench.host.run(&format!("cat /sys/class/net/{port}/address")).trim().to_owned()
}

/// Adds IPv6 addresses to the router and the ports.
fn with_ipv6(bench: &Bench) {
    bench.router.sysctl("ipv6/conf/all/forwarding", 1);
    for n in [0, 1] {
        bench.host.run(&format!("ip address add fd00:{n}::2/64 dev t{n} nodad"));
        bench.router.run(&format!("ip address add fd00:{n}::1/64 dev p{n} nodad"));
    }
}

#[test]
fn a_router_without_neighbours_resolves_all_of_both_ranges() {
    if !require_root() {
        return;
    }
    let bench = bench();
    with_ipv6(&bench);
    for (sender, gateways, src, dst) in [
        (
            "xdp",
            "--gateway 192.0.2.1 --rx-gateway 198.51.100.1",
            "192.0.2.100-192.0.2.104",
            "198.51.100.10-198.51.100.29",
        ),
        (
            "socket",
            "--gateway 192.0.2.1 --rx-gateway 198.51.100.1",
            "192.0.2.110-192.0.2.114",
            "198.51.100.40-198.51.100.59",
        ),
        ("xdp", "--gateway fd00:0::1 --rx-gateway fd00:1::1", "fd00::100-fd00::104", "fd00:1::a0-fd00:1::b3"),
        (
            "socket",
            "--gateway fd00:0::1 --rx-gateway fd00:1::1",
            "fd00::110-fd00::114",
            "fd00:1::c0-fd00:1::d3",
        ),
    ] {
        let report = json(&bench.shunt.run(&format!(
            "gen --json --no-floor --tx t0 --rx t1 --sender {sender} {gateways} --both --src {src} --dst {dst} \
             --size 100 --rate 2kpps --time 1s --warm-up 1s"
        )));
        // Packets that waited for resolution arrive before or during the warm-up; afterwards all pass.
        assert_eq!(report["lost"].as_u64(), Some(0), "{sender} {dst}: {report:#}");
        assert_eq!(report["flows"].as_u64(), Some(200), "{sender} {dst}");
        for (port, range, count) in [("0", src, 5), ("1", dst, 20)] {
            let found = neighbours(&bench, &format!("p{port}"));
            let range: shunt_gen::Addresses = range.parse().unwrap();
            let ours: Vec<_> =
                found.iter().filter(|(address, _)| range.contains(address.parse().unwrap())).collect();
            assert_eq!(ours.len(), count, "{found:?}");
            let own = mac(&bench, &format!("t{port}"));
            assert!(ours.iter().all(|(_, mac)| **mac == own), "{ours:?}, and {own}");
        }
    }
}

#[test]
fn a_port_without_an_address_sits_next_to_a_router_too() {
    if !require_root() {
        return;
    }
    let bench = bench();
    bench.host.run("ip address flush dev t0 scope global && ip address flush dev t1 scope global");
    for sender in ["xdp", "socket"] {
        let report = json(&bench.shunt.run(&format!(
            "gen --json --no-floor --tx t0 --rx t1 --sender {sender} --gateway 192.0.2.1 --src 192.0.2.7 \
             --dst 198.51.100.7 --rate 2kpps --count 500 --warm-up 500ms"
        )));
        assert_eq!((&report["sent"], &report["lost"]), (&500.into(), &0.into()), "{report:#}");
    }
    // Nobody answers neighbour requests after the end.
    bench.router.run("ip neigh flush dev p1; bash -c 'echo > /dev/udp/198.51.100.7/9'");
    let known = || bench.router.run("ip neigh show 198.51.100.7 dev p1");
    wait_until("resolution fails", || known().contains("FAILED"));
}
