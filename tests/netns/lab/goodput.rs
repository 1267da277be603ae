//! `shunt bench matrix` and `shunt bench rxtx`: iperf3 through routers of the lab.

use super::{
    agent::{TOKEN, agent},
    gen_command::{Bench, bench, json},
    sizes::namespaces,
};
use nix::sys::signal::Signal;
use serde_json::Value;
use shunt_testkit::{CommandOutput, NetNs, Shunt, require_root, wait_for, wait_until};
use std::{env, fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};
use tempfile::TempDir;

/// A rate that a busy machine can reach.
const PACED: &str = "--json --time 1 --speed 20M --no-load";

fn value(results: &Value, name: &str) -> f64 {
    let reading = &results["readings"][name];
    reading["value"].as_f64().unwrap_or_else(|| panic!("{name}: {reading:#}, {:#}", results["missing"]))
}

fn run<'r>(results: &'r Value, name: &str, n: usize) -> &'r Value {
    &results["readings"][name]["runs"][n]
}

/// A directory with a program of this name, and a PATH in which it comes first.
fn program(name: &str, script: &str) -> (TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let all = format!("{}:{}", directory.path().display(), env::var("PATH").unwrap());
    (directory, all)
}

/// An iperf3 that is the real one as a server, and runs this script as a client.
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

fn is_one_line(output: &CommandOutput, code: i32, parts: &[&str]) {
    assert_eq!(output.code, Some(code), "{}{}", output.err, output.out);
    assert!(output.err.contains("\"error\"") || output.err.starts_with("shunt: "), "{}", output.err);
    assert!(parts.iter().all(|part| output.err.contains(part)), "{}", output.err);
    assert_eq!(output.err.lines().count(), 1, "{}", output.err);
}

#[test]
#[ignore = "half a minute of CPU time; in make test-long"]
fn engines_are_measured_in_turn_and_impossible_ones_named() {
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
                // iperf3 sends TCP in blocks of 128 kB.
                assert!((0.5 * limit..1.15 * limit).contains(&mbps), "{name}: {mbps}");
                let kernel_limit = results["readings"][&name]["limit"]["value"].as_f64().unwrap();
                assert!((kernel_limit - limit).abs() < 0.01, "{kernel_limit}");
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
        assert_eq!((&ratio["spread"]["kind"], &ratio["unit"]), (&"range".into(), &"1".into()));
    }
    let at =
        |engine: &str, n| run(&results, &format!("UDP IPv4 NAT duplex forward {engine}"), n)["at"].as_str();
    let order = [at("slow", 0), at("tc", 0), at("slow", 1), at("tc", 1)];
    assert!(order.is_sorted() && order[0].is_some(), "{order:?}");
    // A CPU that other programs keep busy cannot be calibrated.
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
fn the_effect_of_a_variant_is_measured() {
    if !require_root() {
        return;
    }
    let place = NetNs::new("place");
    let shunt = Shunt::on(&place);
    // One of four datagrams is dropped, in both directions.
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
            // A busy machine may lose some more.
            lost("lossy") > lost("plain") + 10.0 && lost("lossy") > 24.0,
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

/// The settings of a device that must be restored.
fn device_settings(bench: &Bench, device: &str) -> String {
    let addresses = bench.host.run(&format!("ip -o address show dev {device} scope global"));
    let routes = format!("ip -4 route show dev {device}; ip -6 route show dev {device} table 100");
    // `stable_secret` cannot be read before it is set.
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
fn devices_get_their_settings_back_after_a_measurement() {
    if !require_root() {
        return;
    }
    let bench = machine();
    let (_agent, _running, address) = agent(&bench);
    // The control connection takes another route than the measured traffic.
    let way = format!("ip link add a0 type veth peer name a1 netns {}", bench.router.name());
    bench.host.run(&format!(
        "{way} && ip address add 203.0.113.66/32 peer 203.0.113.65 dev a0 && ip link set a0 up"
    ));
    bench.router.run("ip address add 203.0.113.65/32 peer 203.0.113.66 dev a1 && ip link set a1 up");
    bench.host.run("ip route add 192.0.2.1 via 203.0.113.65 dev a0");
    let before = ["t0", "t1"].map(|device| device_settings(&bench, device));
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
    // Four kinds of traffic, two runs of a second each, at least 40 % of the offered rate.
    let bytes = forwarded[0]["stats64"]["tx"]["bytes"].as_u64().unwrap();
    assert!(bytes > 8 * 1_000_000, "{bytes}");
    assert!(results["conditions"]["dut"]["kernel"].is_string(), "{:#}", results["conditions"]);
    assert_eq!(["t0", "t1"].map(|device| device_settings(&bench, device)), before);
}

#[test]
fn unsuitable_devices_are_left_as_they_are() {
    if !require_root() {
        return;
    }
    let bench = machine();
    bench.host.run(
        "ip link add br0 type bridge && ip link add d0 type veth peer name d1 && ip link set d0 master br0",
    );
    let before = device_settings(&bench, "t0");
    for (options, code, why) in [
        ("--tx t0 --rx d0", 2, "d0 is part of br0: take it out with `ip link set d0 nomaster`"),
        ("--tx t0 --rx d1", 2, "d1 has no link after 10 s"),
        ("--tx t0 --rx nosuch", 13, "nosuch: no such device"),
        ("--tx t0 --rx t0", 2, "--rx t0: the same device as --tx"),
        ("--tx t0 --rx t1 --gateway 203.0.113.200 --rx-gateway 198.51.100.1", 2, "203.0.113.200"),
        ("--tx t0 --rx t1 --nat on", 2, "cannot be used with"),
    ] {
        let output = bench.shunt.run(&format!("bench matrix --json --quick --ip 4 -p tcp {options}"));
        assert_eq!(output.code, Some(code), "{options}: {}{}", output.err, output.out);
        assert!(output.err.contains(why), "{options}: {}", output.err);
        assert_eq!(device_settings(&bench, "t0"), before, "{options}");
    }
}

#[test]
fn an_ip_version_without_a_gateway_is_left_out() {
    if !require_root() {
        return;
    }
    let bench = machine();
    let matrix = "bench matrix --json --runs 1 --time 1 --speed 20M --no-load -p tcp --direction forward --tx t0 --rx t1 \
                  --gateway 192.0.2.1 --rx-gateway 198.51.100.1";
    let results = json(&bench.shunt.run(matrix));
    assert!(value(&results, "TCP IPv4 forward dut") > 5.0);
    assert_eq!(results["missing"]["TCP IPv6 forward"], "no IPv6 --gateway was given");
    is_one_line(&bench.shunt.run(&format!("{matrix} --ip 6")), 2, &["no IPv6 --gateway was given"]);
}

#[test]
fn a_variant_whose_command_fails_is_named_and_the_rest_is_kept() {
    if !require_root() {
        return;
    }
    let place = NetNs::new("place");
    let shunt = Shunt::on(&place);
    let bad = shunt.file("bad", "echo no such knob >&2; exit 7");
    let output = shunt
        .run(&format!("bench rxtx {PACED} --runs 2 --variant plain= --variant bad=sh<{}", bad.display()));
    is_one_line(&output, 2, &["bad: `sh<", "exit status: 7", "no such knob"]);
    let results: Value = serde_json::from_str(&output.out).unwrap();
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
    let output = Shunt::on(&place).variable("PATH", &path).run(ONE);
    is_one_line(&output, 2, &["iperf3 has version 3.9; 3.11 or later is needed"]);
}

#[test]
fn garbled_output_of_iperf3_is_reported_and_earlier_runs_are_kept() {
    if !require_root() {
        return;
    }
    let place = NetNs::new("place");
    let (_fake, path) = iperf3("echo '{\"start\": 7'");
    let output = Shunt::on(&place).variable("PATH", &path).run(&format!("{ONE} {PACED}"));
    is_one_line(&output, 70, &["TCP IPv4 forward slow, run 1: iperf3 3.", "unexpected JSON", "`{"]);

    let (fake, path) =
        iperf3("mkdir \"${0%/*}/once\" 2>/dev/null && exec $real \"$@\"\necho ouch >&2; exit 3");
    let file = fake.path().join("kept.json");
    let shunt = Shunt::on(&place).variable("PATH", &path);
    let output = shunt.run(&format!("{ONE} {PACED} --runs 9 --direction forward --keep {}", file.display()));
    is_one_line(&output, 2, &["TCP IPv4 forward slow, run 2", "exit status: 3", "stderr: ouch"]);
    let results: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!(results["readings"]["TCP IPv4 forward slow"]["runs"].as_array().unwrap().len(), 1);
    // The remaining ones of nine are not tried.
    assert_eq!(results["missing"].as_object().unwrap().len(), 3);
    let kept: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(kept, results);
}

#[test]
fn an_iperf3_that_hangs_is_killed() {
    if !require_root() {
        return;
    }
    let place = NetNs::new("place");
    let (_fake, path) = iperf3("exec sleep 1000");
    let shunt = Shunt::on(&place).variable("PATH", &path);
    let mut running = shunt.start(&format!("{ONE} {PACED} --runs 1 --direction reverse"));
    let ended = wait_for(Duration::from_secs(60), || running.ended());
    assert_eq!(ended, Some(Some(70)), "{}", running.err());
    assert!(running.err().contains("did not end within 11 s and was killed"), "{}", running.err());
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
    wait_until("the command has ended", || running.ended().is_some());
    assert_eq!(running.ended(), Some(Some(130)), "{}", running.err());
    let results: Value = serde_json::from_str(&running.out()).unwrap();
    let shown = results["readings"]["TCP IPv4 forward slow"]["runs"].as_array().unwrap().len();
    assert_eq!((Some(shown), &results["complete"]), (runs(), &Value::Bool(false)));
    assert_eq!((namespaces(running.pid()), &results["missing"]), (0, &serde_json::json!({})));
}
