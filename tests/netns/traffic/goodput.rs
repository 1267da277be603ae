//! `shunt bench matrix` and `shunt bench rxtx`: real iperf3 through routers of their own.

use super::{
    agent::{TOKEN, agent},
    command::{Bench, bench, json},
    sizes::namespaces,
};
use nix::sys::signal::Signal;
use serde_json::Value;
use shunt_testkit::{NetNs, Said, Shunt, require_root, wait_for, wait_until};
use std::{env, fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};
use tempfile::TempDir;

/// Slow enough for a busy machine.
const PACED: &str = "--json --time 1 --speed 20M --no-load";

fn value(results: &Value, name: &str) -> f64 {
    let reading = &results["readings"][name];
    reading["value"].as_f64().unwrap_or_else(|| panic!("{name}: {reading:#}, {:#}", results["missing"]))
}

fn run<'r>(results: &'r Value, name: &str, n: usize) -> &'r Value {
    &results["readings"][name]["runs"][n]
}

/// A directory with a program of this name, and a PATH that finds it first.
fn program(name: &str, script: &str) -> (TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let all = format!("{}:{}", directory.path().display(), env::var("PATH").unwrap());
    (directory, all)
}

/// An iperf3 that is the real one as a server, and as a client behaves as it says here.
fn iperf3(client: &str) -> (TempDir, String) {
    let path = env::var("PATH").unwrap();
    let real = path.split(':').map(|dir| Path::new(dir).join("iperf3")).find(|path| path.exists()).unwrap();
    program(
        "iperf3",
        &format!(
            "#!/bin/sh\nreal={}\n[ \"$1\" = --version ] && exec $real --version\n[ \"$1\" = --server ] && exec $real \"$@\"\n{client}\n",
            real.display()
        ),
    )
}

fn is_one_line(said: &Said, code: i32, parts: &[&str]) {
    assert_eq!(said.code, Some(code), "{}{}", said.err, said.out);
    assert!(said.err.contains("\"error\"") || said.err.starts_with("shunt: "), "{}", said.err);
    assert!(parts.iter().all(|part| said.err.contains(part)), "{}", said.err);
    assert_eq!(said.err.lines().count(), 1, "{}", said.err);
}

#[test]
fn engines_are_measured_in_turn_and_what_cannot_be_is_named() {
    if !require_root() {
        return;
    }
    let place = NetNs::new("place");
    let results = json(&Shunt::on(&place).run(
        "bench matrix --json --runs 2 --time 1 --speed 20M --ip 4 --nat on --direction duplex --engine slow --engine tc",
    ));
    assert_eq!((&results["format"], &results["complete"]), (&"shunt-result".into(), &true.into()));
    let version = results["conditions"]["tools"]["iperf3"].as_str().unwrap();
    assert!(version.starts_with("3."), "{version}");
    for (protocol, limit) in [("TCP", 18.83), ("UDP", 19.14)] {
        for engine in ["slow", "tc"] {
            for way in ["forward", "reverse"] {
                let name = format!("{protocol} IPv4 NAT duplex {way} {engine}");
                let mbps = value(&results, &name);
                // TCP is let go in blocks of 128 kB.
                assert!((0.5 * limit..1.15 * limit).contains(&mbps), "{name}: {mbps}");
                let told = results["readings"][&name]["limit"]["value"].as_f64().unwrap();
                assert!((told - limit).abs() < 0.01, "{told}");
                let details = &run(&results, &name, 1)["details"];
                let number = |name: &str| details[name].as_f64().unwrap();
                let headers = number("device_bytes") / number("bytes");
                assert!((1.0..1.3).contains(&headers), "{name}: {details:#}");
                match engine {
                    "tc" => assert!(number("fast_share") > 0.3, "{name}: {details:#}"),
                    _ => assert!(details["fast_share"].is_null()),
                }
            }
        }
        let ratio = &results["readings"][format!("{protocol} IPv4 NAT duplex forward tc to slow")];
        assert_eq!((&ratio["spread"]["kind"], &ratio["unit"]), (&"confidence-95".into(), &"1".into()));
    }
    let at =
        |engine: &str, n| run(&results, &format!("UDP IPv4 NAT duplex forward {engine}"), n)["at"].as_str();
    let order = [at("slow", 0), at("tc", 0), at("slow", 1), at("tc", 1)];
    assert!(order.is_sorted() && order[0].is_some(), "{order:?}");
    // A CPU on which others leave no time is not calibrated.
    match results["missing"]["CPU"].as_str() {
        Some(why) => assert!(why.contains("too busy"), "{why}"),
        None => {
            let load = value(&results, "TCP IPv4 NAT duplex slow CPU");
            assert!((0.5..=100.0).contains(&load), "{load}");
            value(&results, "TCP IPv4 NAT duplex slow /proc/stat");
        }
    }
    let tagged = "TCP IPv4 NAT VLAN duplex";
    match results["missing"][tagged].as_str() {
        Some(why) => assert!(why.contains("CONFIG_VLAN_8021Q"), "{why}"),
        None => assert!(value(&results, &format!("{tagged} forward slow")) > 5.0),
    }
}

#[test]
fn what_a_variant_changes_shows() {
    if !require_root() {
        return;
    }
    let place = NetNs::new("place");
    let shunt = Shunt::on(&place);
    // One datagram of four, both ways.
    let rule = shunt.file(
        "rule",
        "nft 'insert rule inet filter forward meta l4proto udp meta length > 1000 ip id & 3 == 3 drop'",
    );
    let words = format!(
        "bench rxtx {PACED} --runs 2 --udp-rate 5M --variant plain= --variant lossy=sh<{}",
        rule.display()
    );
    let results = json(&shunt.run(&words));
    for way in ["forward", "reverse"] {
        let lost = |variant: &str| value(&results, &format!("UDP IPv4 {way} {variant} loss"));
        assert!(
            lost("plain") < 2.0 && (24.0..26.5).contains(&lost("lossy")),
            "{} {}",
            lost("plain"),
            lost("lossy")
        );
        for variant in ["plain", "lossy"] {
            let name = format!("TCP IPv4 {way} {variant}");
            assert!((9.0..22.0).contains(&value(&results, &name)), "{name}");
            assert_eq!(results["readings"][&name]["runs"].as_array().unwrap().len(), 2);
        }
    }
}

/// What of a device is to be as it was.
fn of_device(bench: &Bench, device: &str) -> String {
    let addresses = bench.host.run(&format!("ip -o address show dev {device} scope global"));
    let routes = format!("ip -4 route show dev {device}; ip -6 route show dev {device} table 100");
    // Of `stable_secret` nothing can be read before it is set.
    let settings = format!("grep -rs . /proc/sys/net/ipv[46]/*/{device} | sort");
    addresses + &bench.host.run(&routes) + &bench.host.run(&settings)
}

fn machine() -> Bench {
    let bench = bench();
    bench.router.sysctl("ipv6/conf/all/forwarding", 1);
    for (n, net) in [(0, "2001:db8:a::"), (1, "2001:db8:b::")] {
        bench.host.run(&format!("ip address add {net}2/64 dev t{n} nodad"));
        bench.router.run(&format!("ip address add {net}1/64 dev p{n} nodad"));
    }
    for (setting, value) in
        [("ipv4/conf/t0/rp_filter", 2), ("ipv4/neigh/t0/gc_stale_time", 77), ("ipv6/conf/t0/accept_ra", 0)]
    {
        bench.host.sysctl(setting, value);
    }
    bench.host.run("ip route add 203.0.113.0/24 via 192.0.2.1 metric 7");
    bench.host.run("ip -6 route add 2001:db8:c::/64 via 2001:db8:a::1 table 100");
    bench
}

#[test]
fn a_router_between_two_devices_is_measured_and_they_come_back_as_they_were() {
    if !require_root() {
        return;
    }
    let bench = machine();
    let (_agent, _running, address) = agent(&bench);
    // It is asked by another way than those that are measured.
    let way = format!("ip link add a0 type veth peer name a1 netns {}", bench.router.name());
    bench.host.run(&format!(
        "{way} && ip address add 203.0.113.66/32 peer 203.0.113.65 dev a0 && ip link set a0 up"
    ));
    bench.router.run("ip address add 203.0.113.65/32 peer 203.0.113.66 dev a1 && ip link set a1 up");
    bench.host.run("ip route add 192.0.2.1 via 203.0.113.65 dev a0");
    let before = ["t0", "t1"].map(|device| of_device(&bench, device));
    let shunt = Shunt::on(&bench.host).variable("SHUNT_AGENT_TOKEN", TOKEN);
    let results = json(&shunt.run(&format!(
        "bench matrix --json --runs 2 --time 1 --speed 20M --direction duplex --tx t0 --rx t1 --dut-agent http://{address} \
         --gateway 192.0.2.1 --gateway 2001:db8:a::1 --rx-gateway 198.51.100.1 --rx-gateway 2001:db8:b::1"
    )));
    let forwarded = bench.router.run("ip -s -j link show dev p1");
    let forwarded: Value = serde_json::from_str(&forwarded).unwrap();
    for (name, limit) in [("TCP IPv4", 18.83), ("UDP IPv6", 18.87)] {
        for way in ["forward", "reverse"] {
            let mbps = value(&results, &format!("{name} duplex {way} dut"));
            assert!((0.4 * limit..1.15 * limit).contains(&mbps), "{name} {way}: {mbps}");
        }
        let load = value(&results, &format!("{name} duplex dut CPU"));
        assert!((0.0..=100.0).contains(&load), "{load}");
    }
    // Four kinds of traffic, two runs of a second each, no less than 40 % of the line.
    let bytes = forwarded[0]["stats64"]["tx"]["bytes"].as_u64().unwrap();
    assert!(bytes > 8 * 1_000_000, "{bytes}");
    assert!(results["conditions"]["dut"]["kernel"].is_string(), "{:#}", results["conditions"]);
    assert_eq!(["t0", "t1"].map(|device| of_device(&bench, device)), before);
}

#[test]
fn devices_that_cannot_be_measured_between_are_left_as_they_are() {
    if !require_root() {
        return;
    }
    let bench = machine();
    bench.host.run(
        "ip link add br0 type bridge && ip link add d0 type veth peer name d1 && ip link set d0 master br0",
    );
    let before = of_device(&bench, "t0");
    for (options, code, why) in [
        ("--tx t0 --rx d0", 2, "d0 is part of br0: `ip link set d0 nomaster` takes it out"),
        ("--tx t0 --rx d1", 2, "d1 has no link after 10 s"),
        ("--tx t0 --rx nosuch", 13, "nosuch: no such device"),
        ("--tx t0 --rx t0", 2, "--rx t0: that is --tx too"),
        ("--tx t0 --rx t1 --gateway 203.0.113.200 --rx-gateway 198.51.100.1", 2, "203.0.113.200"),
        ("--tx t0 --rx t1 --nat on", 2, "cannot be used with"),
    ] {
        let said = bench.shunt.run(&format!("bench matrix --json --quick --ip 4 -p tcp {options}"));
        assert_eq!(said.code, Some(code), "{options}: {}{}", said.err, said.out);
        assert!(said.err.contains(why), "{options}: {}", said.err);
        assert_eq!(of_device(&bench, "t0"), before, "{options}");
    }
}

#[test]
fn a_version_of_ip_without_a_gateway_is_left_out_where_the_other_has_one() {
    if !require_root() {
        return;
    }
    let bench = machine();
    let matrix = "bench matrix --json --runs 1 --time 1 --speed 20M --no-load -p tcp --direction forward --tx t0 --rx t1 \
                  --gateway 192.0.2.1 --rx-gateway 198.51.100.1";
    let results = json(&bench.shunt.run(matrix));
    assert!(value(&results, "TCP IPv4 forward dut") > 5.0);
    assert_eq!(results["missing"]["TCP IPv6 forward"], "no --gateway of IPv6 is named");
    is_one_line(&bench.shunt.run(&format!("{matrix} --ip 6")), 2, &["no --gateway of IPv6 is named"]);
}

#[test]
fn a_variant_whose_command_fails_is_named_and_the_rest_is_kept() {
    if !require_root() {
        return;
    }
    let place = NetNs::new("place");
    let shunt = Shunt::on(&place);
    let bad = shunt.file("bad", "echo no such knob >&2; exit 7");
    let said = shunt
        .run(&format!("bench rxtx {PACED} --runs 2 --variant plain= --variant bad=sh<{}", bad.display()));
    is_one_line(&said, 2, &["bad: `sh<", "exit status: 7", "no such knob"]);
    let results: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(results["readings"]["TCP IPv4 reverse plain"]["runs"].as_array().unwrap().len(), 2);
    assert_eq!(results["complete"], false);
    assert!(results["missing"]["bad"].as_str().unwrap().contains("exit status: 7"));
}

const ONE: &str = "bench matrix --ip 4 --nat off --vlan off -p tcp --engine slow";

#[test]
fn without_iperf3_it_says_what_to_install() {
    if !require_root() {
        return;
    }
    let place = NetNs::new("place");
    let directory = tempfile::tempdir().unwrap();
    let path = env::var("PATH").unwrap();
    let ip = path.split(':').map(|dir| Path::new(dir).join("ip")).find(|path| path.exists()).unwrap();
    std::os::unix::fs::symlink(ip, directory.path().join("ip")).unwrap();
    let shunt = Shunt::on(&place).variable("PATH", &directory.path().display().to_string());
    for command in [ONE, "bench rxtx --variant a="] {
        is_one_line(&shunt.run(command), 2, &["iperf3 is not installed", "`apt install iperf3`"]);
    }
    let (_old, path) = program("iperf3", "#!/bin/sh\necho 'iperf 3.9 (cJSON 1.7.13)'\n");
    let said = Shunt::on(&place).variable("PATH", &path).run(ONE);
    is_one_line(&said, 2, &["iperf3 is of version 3.9, and one of 3.11 or later is needed"]);
}

#[test]
fn what_iperf3_garbles_is_told_and_what_went_before_is_kept() {
    if !require_root() {
        return;
    }
    let place = NetNs::new("place");
    let (_fake, path) = iperf3("echo '{\"start\": 7'");
    let said = Shunt::on(&place).variable("PATH", &path).run(&format!("{ONE} {PACED}"));
    is_one_line(&said, 70, &["TCP IPv4 forward slow, run 1: iperf3 3.", "its JSON is not understood", "`{"]);

    let (fake, path) =
        iperf3("mkdir \"${0%/*}/once\" 2>/dev/null && exec $real \"$@\"\necho ouch >&2; exit 3");
    let file = fake.path().join("kept.json");
    let shunt = Shunt::on(&place).variable("PATH", &path);
    let said = shunt.run(&format!("{ONE} {PACED} --runs 9 --direction forward --keep {}", file.display()));
    is_one_line(&said, 2, &["TCP IPv4 forward slow, run 2", "exit status: 3", "it complained: ouch"]);
    let results: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(results["readings"]["TCP IPv4 forward slow"]["runs"].as_array().unwrap().len(), 1);
    // Not all nine are tried.
    assert_eq!(results["missing"].as_object().unwrap().len(), 3);
    let kept: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(kept, results);
}

#[test]
fn an_iperf3_that_hangs_is_ended() {
    if !require_root() {
        return;
    }
    let place = NetNs::new("place");
    let (_fake, path) = iperf3("exec sleep 1000");
    let shunt = Shunt::on(&place).variable("PATH", &path);
    let mut running = shunt.start(&format!("{ONE} {PACED} --runs 1 --direction reverse"));
    let ended = wait_for(Duration::from_secs(60), || running.ended());
    assert_eq!(ended, Some(Some(70)), "{}", running.err());
    assert!(running.err().contains("did not end within 11 s and was ended"), "{}", running.err());
    assert_eq!(namespaces(running.pid()), 0);
}

#[test]
fn an_interrupt_keeps_the_runs_until_then() {
    if !require_root() {
        return;
    }
    let place = NetNs::new("place");
    let shunt = Shunt::on(&place);
    let file = shunt.file("unused", "").with_file_name("kept.json");
    let mut running =
        shunt.start(&format!("{ONE} {PACED} --runs 100 --direction forward --keep {}", file.display()));
    let runs = || {
        let kept: Value = serde_json::from_str(&fs::read_to_string(&file).ok()?).ok()?;
        Some(kept["readings"]["TCP IPv4 forward slow"]["runs"].as_array()?.len())
    };
    let two = wait_for(Duration::from_secs(60), || runs().filter(|runs| *runs >= 2));
    assert!(two.is_some(), "{}", running.err());
    running.signal(Signal::SIGINT);
    wait_until("it has ended", || running.ended().is_some());
    assert_eq!(running.ended(), Some(Some(130)), "{}", running.err());
    let results: Value = serde_json::from_str(&running.out()).unwrap();
    let shown = results["readings"]["TCP IPv4 forward slow"]["runs"].as_array().unwrap().len();
    assert_eq!((Some(shown), &results["complete"]), (runs(), &Value::Bool(false)));
    assert_eq!((namespaces(running.pid()), &results["missing"]), (0, &serde_json::json!({})));
}
