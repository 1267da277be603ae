//! `shunt bench ndr` on a router with a known limit, and on routers of the lab.

use crate::{
    gen_command::{self, Bench},
    sizes,
};
use nix::sys::signal::Signal;
use serde_json::Value;
use shunt_testkit::{NetNs, Shunt, require_root, wait_until};
use std::{
    fs, hint,
    num::NonZero,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

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
        // On a busy machine, the result can be lower than the limit or absent, but never higher.
        match result["upper_pps"].as_f64() {
            Some(upper) => assert!(upper <= most * 1.005 / 0.99, "{result}"),
            None => assert_eq!(result["irregular"], "sender-late", "{result}"),
        }
        assert!(result["throughput_pps"].as_f64().is_none_or(|pps| pps <= most), "{result}");
    }
    // 1 Mbit/s carries 1488 frames/s.
    let above = |result: &Value| result["throughput_pps"].as_f64().is_some_and(|pps| pps > 1489.0);
    let any_above = searched["results"].as_array().unwrap().iter().any(above);
    assert_eq!(has_doubt(searched, "above-line"), any_above, "{searched:#}");
    if !has_doubt(searched, "generator-bound") {
        let pdr = &searched["results"][1];
        match pdr["throughput_pps"].as_f64() {
            Some(pps) => assert!(pps > 0.5 * LIMIT_PPS, "{searched:#}"),
            None => assert_eq!(pdr["irregular"], "sender-late", "{searched:#}"),
        }
    }
}

/// The rate of a router with a token bucket of 20 Mbit/s, in frames/s of 1518 bytes; the bucket counts no FCS.
const TOKEN_RATE_PPS: f64 = 20e6 / 8.0 / 1514.0;

/// A thread for each CPU that does nothing but spin, until dropped.
struct BusyLoops(Arc<AtomicBool>);

impl BusyLoops {
    fn start() -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            let ended = ended.clone();
            thread::spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    hint::spin_loop();
                }
            });
        }
        Self(ended)
    }
}

impl Drop for BusyLoops {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A router whose queue holds the burst and two more frames: of a larger bunch, it loses a part.
fn bench_with_token_bucket() -> Bench {
    let bench = gen_command::bench();
    bench.router.run("tc qdisc replace dev p1 root tbf rate 20mbit burst 3100 limit 6200");
    bench
}

#[test]
#[ignore = "keeps every CPU busy; in make test-long"]
fn busy_loops_beside_the_sender_do_not_lower_the_throughput() {
    if !require_root() {
        return;
    }
    let Bench { shunt, .. } = &bench_with_token_bucket();
    let _busy = BusyLoops::start();
    let report =
        bench(shunt, "--tx t0 --rx t1 --gateway 192.0.2.1 --size 1518 --min-load 1400 --max-load 2000");
    for result in report["searches"][0]["results"].as_array().unwrap() {
        match result["throughput_pps"].as_f64() {
            // In half a second, the burst and the queue add four frames.
            Some(pps) => {
                assert!((0.97 * TOKEN_RATE_PPS..1.03 * TOKEN_RATE_PPS).contains(&pps), "{report:#}");
            }
            None => assert_eq!(result["irregular"], "sender-late", "{report:#}"),
        }
    }
}

#[test]
#[ignore = "keeps every CPU busy; in make test-long"]
fn busy_loops_beside_the_sender_show_no_collapse() {
    if !require_root() {
        return;
    }
    let Bench { shunt, .. } = &bench_with_token_bucket();
    let _busy = BusyLoops::start();
    let report = gen_command::json(&shunt.run(
        "bench sweep --json --one-way --from 10M --to 30M --step 10M --time 300ms --tx t0 --rx t1 --gateway 192.0.2.1",
    ));
    let knee = &report["knees"][0];
    // If the sender was held up at the highest rate, the rates below have too few packets for a verdict.
    let honest = ["flat", "held-up", "too-few-packets"];
    assert!(honest.iter().any(|beyond| knee["beyond"] == *beyond), "{report:#}");
    // At half of the router's rate nothing is lost, and at one and a half times a third.
    assert!(knee["loses_bps"].as_f64().is_none_or(|bps| bps > 15e6), "{report:#}");
    let top = &report["steps"][2];
    let held_up = top["doubts"].as_array().unwrap().iter().any(|doubt| doubt["kind"] == "sent-late");
    let loss = top["directions"][0]["loss_ratio"].as_f64().unwrap();
    assert!(held_up || (0.25..0.4).contains(&loss), "{top:#}");
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
        "bench ndr --json --engine slow --rfc2544 100ms --min-load 10 --max-load 20 --runs 1000 --keep {}",
        file.display()
    ));
    let kept = || -> Value {
        serde_json::from_str(&fs::read_to_string(&file).unwrap_or_default()).unwrap_or_default()
    };
    let runs = || kept()["readings"]["ndr slow"]["runs"].as_array().map_or(0, Vec::len);
    wait_until("a search has ended", || runs() >= 1);
    running.signal(Signal::SIGTERM);
    wait_until("the command has ended", || running.ended().is_some());
    assert_eq!(running.ended(), Some(Some(143)), "{}", running.err());
    let report: Value = serde_json::from_str(&running.out()).unwrap();
    assert_eq!(report["searches"].as_array().map(Vec::len), Some(runs()));
    assert_eq!(kept()["complete"], false);
}

#[test]
#[ignore = "takes more than a minute; the card and the other searches run the same code"]
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

pub(crate) fn namespaces() -> Vec<String> {
    let entries = fs::read_dir("/run/netns").unwrap();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.starts_with("shunt-")).collect()
}
