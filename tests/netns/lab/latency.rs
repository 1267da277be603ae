//! `shunt bench latency`: a queue that TCP fills shows in the round-trip times.

use super::gen_command::{Bench, bench, json};
use serde_json::Value;
use shunt_testkit::{NetNs, Shunt, require_root};
use std::fs;

/// Between the devices of [`bench`].
const NICS: &str = "--tx t0 --rx t1 --gateway 192.0.2.1 --rx-gateway 198.51.100.1";
/// Two seconds of load, from the LAN to the WAN.
const SHORT: &str = "bench latency --json --runs 1 --idle 1s --time 2s --streams 2 --direction forward";

fn value(results: &Value, name: &str) -> f64 {
    let value = results["readings"][name]["value"].as_f64();
    value.unwrap_or_else(|| panic!("{name}: {:#}", results["missing"]))
}

/// The values of a curve: seconds since the load began, and the value.
fn curve(results: &Value, of: &str, line: &str) -> Vec<(f64, f64)> {
    let readings = results["readings"].as_object().unwrap().values();
    let points = readings.filter(|reading| {
        let position = &reading["position"];
        position["of"] == of && position["line"] == line
    });
    let mut points: Vec<_> = points
        .map(|point| (point["position"]["value"].as_f64().unwrap(), point["value"].as_f64().unwrap()))
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

/// A router that sends at most 20 Mbit/s to the WAN, and keeps up to 250 kB before it drops: 100 ms.
fn with_a_long_queue() -> Bench {
    let bench = bench();
    bench.router.run("tc qdisc add dev p1 root tbf rate 20mbit burst 10kb limit 250kb");
    bench
}

#[test]
fn a_queue_that_tcp_fills_delays_the_probes_while_the_load_lasts() {
    if !require_root() {
        return;
    }
    let bench = with_a_long_queue();
    let results = json(&bench.shunt.run(&format!("{SHORT} {NICS}")));
    let [idle, loaded] = ["idle", "loaded"].map(|phase| value(&results, &format!("{phase} RTT median dut")));
    assert!(loaded > 20.0 && loaded < 200.0, "100 ms of queue make {loaded} ms");
    assert!(idle < loaded / 2.0, "{idle} ms without a load, {loaded} ms with it");
    let mbps = value(&results, "received on the WAN under load dut");
    assert!((8.0..=21.0).contains(&mbps), "{mbps} Mbit/s of 20");
    // Nothing but the load is limited; it takes one direction only.
    assert!(results["readings"]["received on the LAN under load dut"].is_null());
    let rtt = curve(&results, "RTT median", "dut");
    let most = |from: f64, to: f64| {
        rtt.iter().filter(|(at, _)| (from..to).contains(at)).map(|(_, ms)| *ms).fold(0.0, f64::max)
    };
    let before = rtt.iter().filter(|(at, _)| *at < 0.0).count();
    assert!(before >= 1 && most(0.0, 2.0) > 20.0, "{rtt:?}");
    assert!(!curve(&results, "received on the WAN", "dut").is_empty());
}

#[test]
fn engines_carry_probes_and_load_and_curves_appear_in_the_report() {
    if !require_root() {
        return;
    }
    let place = NetNs::new("place");
    let shunt = Shunt::on(&place);
    let kept = shunt.file("kept.json", "");
    fs::remove_file(&kept).unwrap();
    let options = "--engine slow --engine tc --engine external --nat on --direction duplex";
    let words = SHORT.replace("--direction forward", options);
    let results = json(&shunt.run(&format!("{words} --keep {}", kept.display())));
    for engine in ["tc", "external"] {
        let name = format!("loaded RTT median {engine}");
        let fast = &results["readings"][&name]["runs"][0]["details"]["fast_share"];
        assert!(fast.as_f64().unwrap() > 0.5, "{engine}: {fast}");
    }
    for engine in ["slow", "tc", "external"] {
        assert!(value(&results, &format!("idle RTT p99 {engine}")) > 0.0);
        for side in ["LAN", "WAN"] {
            let mbps = value(&results, &format!("received on the {side} under load {engine}"));
            assert!(mbps > 1.0, "{engine}, {side}: {mbps}");
        }
    }
    // A veth has no clock of its own.
    let conditions = &results["conditions"];
    assert!(conditions["clock"].as_str().unwrap().contains("kernel's time stamps"), "{conditions}");
    let why = conditions["clock_not_better"][0].as_str().unwrap();
    assert!(why.ends_with(": the driver offers no hardware time stamps"), "{why}");
    assert_eq!(results["readings"]["idle RTT p99 tc"]["runs"][0]["details"]["clock"], "kernel");
    let again: Value = serde_json::from_str(&fs::read_to_string(&kept).unwrap()).unwrap();
    assert_eq!((&again["complete"], &again["readings"]), (&true.into(), &results["readings"]));
    let page = shunt.run(&format!("report {}", kept.display()));
    assert_eq!(page.code, Some(0), "{}", page.err);
    assert!(page.out.contains("RTT p99 by time since the load began"), "{}", &page.out[..2000]);
}

#[test]
fn the_kernels_clock_gives_less_than_the_programs_and_the_nics_is_refused() {
    if !require_root() {
        return;
    }
    let bench = bench();
    let refused = bench.shunt.run(&format!("bench latency --clock nic {NICS}"));
    assert_eq!(refused.code, Some(2), "{}", refused.err);
    let line = "--clock nic: t0: the driver offers no hardware time stamps; --clock auto takes another clock";
    assert!(refused.err.contains(line), "{}", refused.err);
    let idle = |clock: &str| {
        let words = "bench latency --json --runs 1 --idle 500ms --time 1s --streams 1 --direction forward";
        let results = json(&bench.shunt.run(&format!("{words} --clock {clock} {NICS}")));
        assert!(results["conditions"]["clock_not_better"].is_null());
        value(&results, "idle RTT median dut")
    };
    // The program's time has two wake-ups more, whatever the machine does.
    let (kernel, program) = (idle("kernel"), idle("program"));
    assert!(kernel > 0.0 && kernel < program, "{kernel} ms by the kernel, {program} ms by the programs");
}

#[test]
fn a_router_that_drops_the_probes_is_named() {
    if !require_root() {
        return;
    }
    let bench = bench();
    bench
        .router
        .nft("table inet f { chain c { type filter hook forward priority 0; udp dport 5202 drop; }; }");
    let output = bench.shunt.run(&format!("bench latency --runs 1 --idle 0s --time 1s {NICS}"));
    assert_eq!(output.code, Some(2), "{}{}", output.err, output.out);
    assert!(output.err.contains("was answered: does the router forward UDP to port 5202?"), "{}", output.err);
    // The devices are back.
    assert!(bench.host.run("ip -br address show dev t0").contains("192.0.2.2/24"));
}
