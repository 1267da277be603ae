//! `shunt bench sweep` finds the knee of a router with a known limit.

use super::gen_command::{NICS, bench, doubts, json};
use nix::sys::signal::Signal;
use serde_json::Value;
use shunt_testkit::{require_root, wait_until};
use std::fs;

const SWEEP: &str = "bench sweep --one-way --from 10M --to 150M --step 70M --time 2";
const LONG: &str = "bench sweep --one-way --from 10M --to 900M --step 10M --time 300ms";

#[test]
fn the_knee_is_where_the_router_was_told_to_drop() {
    if !require_root() {
        return;
    }
    let bench = bench();
    // 7000 frames/s of 1518 bytes are 85 Mbit/s.
    bench.router.nft(
        "table inet f { chain c { type filter hook forward priority 0; \
         udp dport 5001 limit rate over 7000/second burst 6000 packets drop; }; }",
    );
    let nics = NICS.replace(" --no-floor", "");
    let report = json(&bench.shunt.run(&format!("{SWEEP} {nics}")));
    let steps = report["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 3);
    for step in steps {
        let one = &step["directions"][0];
        let count = |name: &str| one[name].as_u64().unwrap();
        assert_eq!(count("sent"), count("received") + count("lost"));
        let offered = step["offered_bps"].as_f64().unwrap() / (8.0 * 1518.0);
        assert!((one["offered_pps"].as_f64().unwrap() / offered - 1.0).abs() < 1e-9, "{one:#}");
        // A veth reports 10 Gbit/s, which is no line rate.
        assert!(one.get("limit").is_none() && one.get("line_share").is_none(), "{one:#}");
        // The receiver drops the frames that it has counted, and the driver counts these drops.
        let dropped = step["changes"].as_array().unwrap().iter().find(|change| {
            (&change["device"], &change["counter"]) == (&"t1".into(), &"rx_queue_0_xdp_drops".into())
        });
        assert_eq!(dropped.and_then(|change| change["rise"].as_u64()), Some(count("received")), "{step:#}");
    }
    // Nothing follows from a step whose sender was held up in all attempts.
    if steps.iter().any(|step| doubts(step).contains(&"sent-late")) {
        return;
    }
    let knee = &report["knees"][0];
    let bps = |name: &str| knee[name].as_f64().unwrap();
    assert!((60e6..80.1e6).contains(&bps("passes_bps")), "{knee:#}");
    assert!((120e6..150.1e6).contains(&bps("loses_bps")) && bps("loss_ratio") > 0.02, "{knee:#}");
    assert_eq!(knee["beyond"], "flat");
}

#[test]
fn both_directions_have_a_step_and_a_knee_of_their_own() {
    if !require_root() {
        return;
    }
    let bench = bench();
    let report =
        json(&bench.shunt.run("bench sweep --json --from 1M --to 2M --step 1M --time 300ms --speed 100M"));
    let ends = |of: &Value| format!("{} {}", of["from"].as_str().unwrap(), of["to"].as_str().unwrap());
    for list in [&report["steps"][1]["directions"], &report["knees"]] {
        let both: Vec<String> = list.as_array().unwrap().iter().map(ends).collect();
        assert_eq!(both, ["lan0 wan0", "wan0 lan0"]);
    }
    assert_eq!(report["knees"][0]["loses_bps"], Value::Null, "{report:#}");
    // The output of `shunt line --speed 100M --frame 1518`.
    let limit = 1e8 / 8.0 / 1538.0;
    for one in report["steps"][0]["directions"].as_array().unwrap() {
        let number = |name: &str| one[name].as_f64().unwrap();
        let share = number("received") / number("seconds") / limit;
        assert!((one["limit"]["value"].as_f64().unwrap() / limit - 1.0).abs() < 1e-9, "{one:#}");
        assert!((number("line_share") / share - 1.0).abs() < 1e-9 && share < 0.011, "{one:#}");
    }
}

#[test]
fn impossible_sweeps_are_refused_in_one_line() {
    if !require_root() {
        return;
    }
    let bench = bench();
    for (words, code, why) in [
        (
            "--from 2M --to 1M",
            2,
            "expected the lowest rate first, then the highest; lower --from, or raise --to",
        ),
        ("--from 1M --to 100G --step 1M", 2, "steps: at most 1000 are possible; give a larger --step"),
        ("--speed 100M --to 200M", 2, "the link carries"),
        ("--watch nosuch", 13, "nosuch: no such device"),
    ] {
        let text = bench.shunt.run(&format!("bench sweep --quick {words}"));
        assert_eq!(text.code, Some(code), "{words}: {}{}", text.err, text.out);
        assert!(text.err.starts_with("shunt: ") && text.err.contains(why), "{words}: {}", text.err);
        assert_eq!(text.err.lines().count(), 1, "{words}: {}", text.err);
    }
}

#[test]
fn an_interrupt_shows_the_steps_until_then() {
    if !require_root() {
        return;
    }
    let bench = bench();
    let file = bench.shunt.directory().join("kept.json");
    let nics = NICS.replace(" --no-floor", "");
    let mut running = bench.shunt.start(&format!("{LONG} {nics} --keep {}", file.display()));
    wait_until("a step has ended", || fs::read_to_string(&file).is_ok_and(|kept| kept.contains("20Mbit")));
    running.signal(Signal::SIGTERM);
    wait_until("the command has ended", || running.ended().is_some());
    assert_eq!(running.ended(), Some(Some(143)), "{}", running.err());
    let report: Value = serde_json::from_str(&running.out()).unwrap();
    assert!((2..100).contains(&report["steps"].as_array().unwrap().len()), "{report:#}");
    let kept: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(kept["complete"], false);
}
