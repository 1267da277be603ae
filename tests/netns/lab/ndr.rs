//! `shunt bench ndr` on a router with a known limit, and on routers of the lab.

use crate::{
    gen_command::{self, Bench},
    sizes,
};
use nix::sys::signal::Signal;
use serde_json::Value;
use shunt_testkit::{NetNs, Shunt, require_root, wait_until};
use std::{fs, path::Path};

/// Packets per second that the router lets through, with the burst of its bucket in a trial of 0.5 s.
const LIMIT_PPS: f64 = 5000.0;
const BUCKET: f64 = 500.0;

fn bench(shunt: &Shunt, options: &str) -> Value {
    let output = shunt.run(&format!("bench ndr --quick --json {options}"));
    assert_eq!(output.code, Some(0), "{}{}", output.err, output.out);
    serde_json::from_str(&output.out).unwrap()
}

fn has_doubt(searched: &Value, kind: &str) -> bool {
    searched["doubts"].as_array().unwrap().iter().any(|doubt| doubt["kind"] == kind)
}

#[test]
fn the_search_finds_the_limit_of_a_router() {
    if !require_root() {
        return;
    }
    let Bench { router, shunt, .. } = &gen_command::bench();
    router.nft(&format!(
        "table inet f {{ chain c {{ type filter hook forward priority 0; \
         udp dport 5001 limit rate over {LIMIT_PPS}/second burst {BUCKET} packets drop; }}; }}"
    ));
    let report =
        bench(shunt, "--tx t0 --rx t1 --gateway 192.0.2.1 --min-load 500 --max-load 20000 --speed 1M");
    let searched = &report["searches"][0];
    assert_eq!((&searched["device"], &searched["run"]), (&"dut".into(), &1.into()));
    let most = (LIMIT_PPS + BUCKET / 0.5) * 1.01;
    for result in searched["results"].as_array().unwrap() {
        // On a busy machine, the result can be lower than the limit, but never higher.
        let upper = result["upper_pps"].as_f64().unwrap();
        assert!(upper <= most * 1.005 / 0.99, "{result}");
        assert!(result["throughput_pps"].as_f64().is_none_or(|pps| pps <= most), "{result}");
    }
    // 1 Mbit/s carries 1488 frames/s.
    let above = |result: &Value| result["throughput_pps"].as_f64().is_some_and(|pps| pps > 1489.0);
    let any_above = searched["results"].as_array().unwrap().iter().any(above);
    assert_eq!(has_doubt(searched, "above-line"), any_above, "{searched:#}");
    if !has_doubt(searched, "generator-bound") {
        let pdr = searched["results"][1]["throughput_pps"].as_f64();
        assert!(pdr.is_some_and(|pps| pps > 0.5 * LIMIT_PPS), "{searched:#}");
        assert_eq!(searched["latency"][2]["percent"], 90);
    }
}

#[test]
fn an_interrupted_search_says_so_and_leaves_nothing_behind() {
    if !require_root() {
        return;
    }
    let host = NetNs::new("machine");
    let shunt = Shunt::on(&host);
    let mut running = shunt.start("bench ndr --engine slow");
    let pid = running.pid();
    wait_until("the command has made its router", || sizes::namespaces(pid) == 3);
    running.signal(Signal::SIGHUP);
    wait_until("the command has ended", || running.ended().is_some());
    assert_eq!(running.ended(), Some(Some(129)), "{}", running.err());
    assert_eq!(running.err(), "shunt: interrupted before the first search was complete\n");
    assert_eq!(sizes::namespaces(pid), 0);
}

#[test]
fn an_interrupt_shows_and_keeps_the_searches_until_then() {
    if !require_root() {
        return;
    }
    let host = NetNs::new("machine");
    let shunt = Shunt::on(&host);
    let file = shunt.directory().join("kept.json");
    let mut running = shunt.start(&format!(
        "bench ndr --json --engine slow --rfc2544 100ms --min-load 500 --max-load 1000 --runs 1000 --keep {}",
        file.display()
    ));
    let kept = || -> Value {
        serde_json::from_str(&fs::read_to_string(&file).unwrap_or_default()).unwrap_or_default()
    };
    let runs = || kept()["readings"]["ndr slow"]["runs"].as_array().map_or(0, Vec::len);
    wait_until("two searches have ended", || runs() >= 2);
    running.signal(Signal::SIGTERM);
    wait_until("the command has ended", || running.ended().is_some());
    assert_eq!(running.ended(), Some(Some(143)), "{}", running.err());
    let report: Value = serde_json::from_str(&running.out()).unwrap();
    assert_eq!(report["searches"].as_array().map(Vec::len), Some(runs()));
    assert_eq!(kept()["complete"], false);
}

#[test]
fn engines_are_searched_side_by_side_and_leave_nothing_behind() {
    if !require_root() {
        return;
    }
    let host = NetNs::new("machine");
    let shunt = Shunt::on(&host);
    let before = namespaces();
    let report = bench(&shunt, "--min-load 500 --max-load 2000");
    let searches = report["searches"].as_array().unwrap();
    let devices: Vec<_> = searches.iter().map(|searched| searched["device"].as_str().unwrap()).collect();
    assert_eq!(devices, ["slow", "tc", "xdp"]);
    for searched in searches {
        assert!(has_doubt(searched, "virtual-links") && has_doubt(searched, "too-short"), "{searched}");
        assert!(searched["trials"].as_u64() >= Some(3), "{searched}");
    }
    // Namespaces of running processes belong to other tests.
    let ended =
        |name: &String| name.split('-').nth(2).is_some_and(|pid| !Path::new("/proc").join(pid).exists());
    let left: Vec<_> =
        namespaces().into_iter().filter(|name| !before.contains(name) && ended(name)).collect();
    assert_eq!(left, [""; 0]);
    let files: Vec<_> =
        fs::read_dir(shunt.directory()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(files, [""; 0]);
}

fn namespaces() -> Vec<String> {
    let entries = fs::read_dir("/run/netns").unwrap();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.starts_with("shunt-")).collect()
}
