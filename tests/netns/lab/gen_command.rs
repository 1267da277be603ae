//! `shunt gen`, in namespaces of its own, and between two devices with a router that drops a known share.

use nix::sys::signal::Signal;
use serde_json::Value;
use shunt_lab::{Doubt, Results};
use shunt_testkit::{CommandOutput, NetNs, Shunt, require_root, wait_until};
use std::fs;

/// A machine with two devices, and a router between them.
pub(crate) struct Bench {
    pub(crate) host: NetNs,
    pub(crate) router: NetNs,
    pub(crate) shunt: Shunt,
}

pub(crate) const NICS: &str =
    "--tx t0 --rx t1 --gateway 192.0.2.1 --rx-gateway 198.51.100.1 --no-floor --json";

pub(crate) fn bench() -> Bench {
    let (host, router) = (NetNs::new("machine"), NetNs::new("dut"));
    router.sysctl("ipv4/ip_forward", 1);
    for (n, net) in [(0, "192.0.2"), (1, "198.51.100")] {
        host.run(&format!("ip link add t{n} type veth peer name p{n} netns {}", router.name()));
        host.run(&format!("ip address add {net}.2/24 dev t{n} && ip link set t{n} up"));
        router.run(&format!("ip address add {net}.1/24 dev p{n} && ip link set p{n} up"));
        // Without NAPI, a veth accepts no XDP frames from its peer.
        router.run(&format!("ethtool -K p{n} gro on"));
    }
    let shunt = Shunt::on(&host);
    Bench { host, router, shunt }
}

pub(crate) fn json(output: &CommandOutput) -> Value {
    assert_eq!(output.code, Some(0), "{}{}", output.err, output.out);
    serde_json::from_str(&output.out).unwrap_or_else(|e| panic!("{e}: {}", output.out))
}

pub(crate) fn doubts(report: &Value) -> Vec<&str> {
    report["doubts"].as_array().unwrap().iter().map(|doubt| doubt["kind"].as_str().unwrap()).collect()
}

#[test]
fn the_loss_equals_what_the_router_drops() {
    if !require_root() {
        return;
    }
    let bench = bench();
    bench.router.nft(
        "table inet f { chain c { type filter hook forward priority 0; \
         udp dport 5001 ip id & 7 == 3 counter drop; }; }",
    );
    for sender in ["xdp", "socket"] {
        let before = dropped(&bench.router);
        let report = json(&bench.shunt.run(&format!(
            "gen {NICS} --sender {sender} --count 3500 --rate 20kpps --sport 1000-1009 --warm-up 0s"
        )));
        let dropped = dropped(&bench.router) - before;
        // Among 3500 consecutive IDs.
        assert_eq!(dropped, 438, "the router lost more than its rule drops");
        let count = |name: &str| report[name].as_u64().unwrap();
        assert_eq!((count("sent"), count("lost"), count("received")), (3500, dropped, 3500 - dropped));
        assert_eq!((count("duplicated"), count("reordered"), count("flows")), (0, 0, 10), "{report:#}");
        assert_eq!(doubts(&report).contains(&"socket-sender"), sender == "socket");
        assert_eq!(report["loss_ratio"].as_f64(), Some(438.0 / 3500.0));
    }
    // The devices have their old settings.
    assert!(!bench.host.run("ip -details link show").contains("xdp"));
}

fn dropped(router: &NetNs) -> u64 {
    let rules: Value = serde_json::from_str(&router.run("nft -j list table inet f")).unwrap();
    let all = rules["nftables"].as_array().unwrap();
    let counter =
        all.iter().find_map(|one| one["rule"]["expr"].as_array()?.iter().find_map(|e| e.get("counter")));
    counter.unwrap()["packets"].as_u64().unwrap()
}

#[test]
fn both_directions_pass_a_router_of_the_lab() {
    if !require_root() {
        return;
    }
    let place = NetNs::new("place");
    let shunt = Shunt::on(&place);
    for words in ["--size 64", "-6 --tcp --size 128", "--size 9018 --burst 4"] {
        let report = json(&shunt.run(&format!("gen --json --both --count 2000 --rate 20kpps {words}")));
        let directions = report["directions"].as_array().unwrap();
        assert_eq!(directions.len(), 2);
        for one in directions {
            assert_eq!(
                (&one["sent"], &one["received"], &one["lost"]),
                (&2000.into(), &2000.into(), &0.into())
            );
        }
        assert_eq!((report["sent"].as_u64(), report["offered_pps"].as_f64()), (Some(4000), Some(40_000.0)));
        let floor = &report["floor"];
        for latency in [&report["latency_us"], &floor["latency_us"]] {
            let at = |name: &str| latency[name].as_f64().unwrap();
            assert!(0.0 < at("min") && at("min") <= at("p50") && at("p50") <= at("p99"), "{latency}");
            assert!(at("p99") <= at("p999") && at("p999") <= at("max"), "{latency}");
        }
        assert!(floor["max_pps"].as_f64().unwrap() > 1000.0 && report["jitter_us"].as_f64().is_some());
        assert!(doubts(&report).contains(&"virtual-links"), "{report:#}");
    }
}

#[test]
fn printed_and_kept_results_are_result_files() {
    if !require_root() {
        return;
    }
    let bench = bench();
    let directory = tempfile::tempdir().unwrap();
    let [kept, printed] = ["kept.json", "printed.json"].map(|name| directory.path().join(name));
    let gen_one = |options: &str| {
        bench
            .shunt
            .run(&format!("gen {NICS} --count 2000 --rate 20kpps --sport 1000-1009 --warm-up 0s {options}"))
    };
    for _ in 0..2 {
        let output = gen_one(&format!("--keep {}", kept.display()));
        let report = json(&output);
        fs::write(&printed, &output.out).unwrap();
        // Each packet has a latency, and all but the first of a flow have a jitter.
        for (name, count) in [("latency_ns", 2000), ("jitter_ns", 1990)] {
            assert_eq!(report[name]["count"].as_u64(), Some(count), "{report:#}");
            assert_eq!(report[name]["unit"], "ns");
        }
    }
    let [kept_results, printed_results] = [&kept, &printed].map(|path| Results::read(path).unwrap());
    assert!(kept_results.complete && printed_results.complete);
    assert_eq!(kept_results.what, printed_results.what);
    for (name, unit) in [
        ("offered", "pps"),
        ("sent", "pps"),
        ("received", "pps"),
        ("loss", "%"),
        ("duplicates", "%"),
        ("reordering", "%"),
        ("latency p50", "us"),
        ("latency p99", "us"),
        ("jitter", "us"),
    ] {
        let of = |results: &Results| results.readings[&format!("{name} t0 to t1")].clone();
        let (both, last) = (of(&kept_results), of(&printed_results));
        assert_eq!((both.runs.len(), last.runs.len(), both.unit.as_str()), (2, 1, unit), "{name}");
        assert_eq!(both.runs[1].value, last.runs[0].value, "{name}");
        assert!(both.doubts.contains(&Doubt::VirtualLinks) && last.doubts.contains(&Doubt::VirtualLinks));
    }
    let [kept, printed] = [&kept, &printed].map(|path| path.display().to_string());
    let compared = json(&bench.shunt.run(&format!("compare --json {kept} {printed}")));
    assert_eq!(compared["readings"].as_array().unwrap().len(), 9);
    let page = bench.shunt.run(&format!("report {printed}"));
    assert!(page.code == Some(0) && page.out.contains("latency_ns of each run"), "{}", page.err);
}

/// The highest number of packets that a device has sent, in all namespaces of a process.
fn most_sent(pid: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    // A thread may have ended meanwhile.
    let devices = threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("net/dev")).ok());
    let sent = |device: &str| device.split_once(':')?.1.split_whitespace().nth(9)?.parse().ok();
    devices.flat_map(|devices| devices.lines().filter_map(sent).max()).max().unwrap_or(0)
}

#[test]
fn an_interrupt_keeps_the_results_and_leaves_nothing_behind() {
    if !require_root() {
        return;
    }
    let place = NetNs::new("place");
    let shunt = Shunt::on(&place);
    let mut running = shunt.start("gen --json --time 60s --no-floor --warm-up 0s");
    let own = format!("-{}-", running.pid());
    let namespaces = || {
        let names =
            fs::read_dir("/run/netns").unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("shunt-") && name.contains(&own)).count()
    };
    wait_until("the three namespaces exist", || namespaces() == 3);
    // At 10,000 packets a second.
    wait_until("packets are sent", || most_sent(running.pid()) > 2000);
    running.signal(Signal::SIGINT);
    wait_until("the command has ended", || running.ended().is_some());
    assert_eq!(running.ended(), Some(Some(130)), "{}", running.err());
    assert!(running.err().contains("\"code\":\"interrupted\""), "{}", running.err());
    let report: Value = serde_json::from_str(&running.out()).unwrap();
    assert!(doubts(&report).contains(&"interrupted"), "{report:#}");
    let (sent, seconds) = (report["sent"].as_u64().unwrap(), report["seconds"].as_f64().unwrap());
    assert!(sent > 0 && (0.1..20.0).contains(&seconds), "{sent} in {seconds} s");
    assert_eq!(report["received"].as_u64(), Some(sent));
    assert_eq!(namespaces(), 0);
}

#[test]
fn impossible_measurements_are_refused_in_one_line() {
    if !require_root() {
        return;
    }
    let bench = bench();
    bench.host.run("ip link add d0 type veth peer name d1");
    for (words, code, why) in [
        (
            "--rate 2Mpps --speed 1G",
            2,
            "2Mpps is 2000000 packets/s: the link carries at most 1488095 packets/s of this size",
        ),
        ("--rate 50%", 2, "--speed"),
        (
            "-6 --size 64",
            2,
            "IPv6/UDP: a frame of 64 bytes has no room for flow, number and time (at least 78 bytes)",
        ),
        ("--dst fd00::1 --src 10.0.0.1", 2, "both must be IPv4, or both IPv6"),
        ("--rate 1pps --time 0s", 2, "no packet is due in that time"),
        ("--tx t0 --rx nosuch", 13, "nosuch: no such device"),
        ("--tx d0 --rx t1", 2, "d0: the device is down; `ip link set d0 up`"),
        ("--tx t0 --rx t1 --size 9018", 2, "t0: the MTU is 1500, but packets have 9000 bytes"),
        ("--tx t0 --rx t1 --gateway 192.0.2.77", 2, "t0: 192.0.2.77 does not answer ARP"),
        ("--tx t0 --rx t1 --gateway 203.0.113.1", 2, "203.0.113.1"),
        ("--tx t0 --rx t1 --gateway 192.0.2.1 -6 --size 78", 2, "address"),
        (
            "--tx t0 --rx t1 --gateway 192.0.2.1 --both",
            2,
            "both directions need --rx-gateway, too: the router's address at t1",
        ),
    ] {
        let output = bench.shunt.run(&format!("gen --no-floor --warm-up 0s {words}"));
        assert_eq!(output.code, Some(code), "{words}: {}{}", output.err, output.out);
        assert!(output.err.starts_with("shunt: ") && output.err.contains(why), "{words}: {}", output.err);
        assert_eq!(output.err.lines().count(), 1, "{words}: {}", output.err);
    }
    let mut other = bench.shunt.start("gen --tx t0 --rx t1 --time 60s --no-floor --warm-up 0s");
    wait_until("the receiver is attached", || bench.host.run("ip link show t1").contains("prog/xdp"));
    let output = bench.shunt.run("gen --tx t0 --rx t1");
    other.signal(Signal::SIGINT);
    wait_until("the other command has ended", || other.ended().is_some());
    let why =
        "shunt: t1: another XDP program is attached; stop its owner, or type `ip link set t1 xdp off`\n";
    assert_eq!((output.code, output.err.as_str()), (Some(14), why));
    bench.router.run("ethtool -K p0 gro off");
    let output = bench.shunt.run("gen --tx t0 --rx t1 --sender xdp --no-floor");
    assert!(
        output.err.contains("t0: the device does not take XDP frames; use --sender socket"),
        "{}",
        output.err
    );
    bench.host.run("ip link set d0 up");
    let output = bench.shunt.run("gen --tx d0 --rx t1");
    assert!(output.err.contains("d0: no link"), "{}", output.err);
}

#[test]
fn a_router_that_loses_everything_is_measured_with_doubts() {
    if !require_root() {
        return;
    }
    let bench = bench();
    bench.router.sysctl("ipv4/ip_forward", 0);
    let report = json(&bench.shunt.run(&format!("gen {NICS} --count 100 --warm-up 0s")));
    assert_eq!((&report["sent"], &report["lost"]), (&100.into(), &100.into()));
    assert!(report["latency_us"].is_null() && doubts(&report).contains(&"nothing-arrived"), "{report:#}");
}
