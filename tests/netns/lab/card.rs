//! `shunt bench card` on a router with a known limit, and on a router of the lab.

use crate::{
    gen_command::{self, Bench},
    ndr,
};
use nix::sys::signal::Signal;
use shunt_lab::Results;
use shunt_testkit::{NetNs, Shunt, require_root, wait_for};
use std::{fs, time::Duration};

/// Frames/s that the router lets through, and the burst that it lets through besides.
const LIMIT_PPS: f64 = 2000.0;
const BURST: f64 = 20.0;
/// Duration of a trial with --quick.
const TRIAL_S: f64 = 0.1;
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
#[ignore = "half a minute of CPU time; in make test-long"]
fn a_card_does_not_overrate_a_limited_router_and_does_not_differ_from_itself() {
    if !require_root() {
        return;
    }
    let Bench { router, shunt, .. } = &gen_command::bench();
    router.nft(&format!(
        "table inet f {{ chain c {{ type filter hook forward priority 0; \
         udp dport 5001 limit rate over {LIMIT_PPS}/second burst {BURST} packets drop; }}; }}"
    ));
    let [first, second] = ["first.json", "second.json"].map(|name| shunt.directory().join(name));
    for file in [&first, &second] {
        // 5 Mbit/s carry 7440 frames/s of 64 bytes, and 1671 of IMIX, which the router lets through.
        let output = shunt.run(&format!(
            "bench card --quick --rounds 1 --tx t0 --rx t1 --gateway 192.0.2.1 --speed 5M --keep {}",
            file.display()
        ));
        assert_eq!(output.code, Some(0), "{}{}", output.err, output.out);
        assert!(
            output.out.contains("Router card of ") && output.out.contains("cannot tell"),
            "{}",
            output.out
        );
        assert!(
            output.out.lines().all(|line| !line.contains("fixed work") || line.len() <= 100),
            "{}",
            output.out
        );
        let page = fs::read_to_string(file.with_extension("html")).unwrap();
        assert!(page.contains("<h1>Router card</h1>") && page.contains("Calibration: fixed work took"));
    }
    let card = Results::read(&first).unwrap();
    assert!(card.complete && card.what == "router card" && card.machine_state().is_some());
    let most = (LIMIT_PPS + BURST / TRIAL_S) * 1.05;
    for quantity in ["ndr 64 bytes dut", "pdr 64 bytes dut"] {
        // On a busy machine, the result can be lower than the limit or absent, but never higher.
        match card.readings.get(quantity) {
            Some(reading) => assert!(reading.value <= most, "{reading:?}"),
            None => assert!(!card.missing[quantity].is_empty()),
        }
    }
    let missing = |name: &str, why: &str| assert!(card.missing[name].contains(why), "{:?}", card.missing);
    missing("connections dut", "give --gateway and --rx-gateway");
    let cpu_time = "CPU time at 50 % of the NDR imix dut";
    assert!(card.missing[cpu_time].starts_with("cannot tell: "), "{:?}", card.missing);
    if card.readings.contains_key("ndr imix dut") && !card.missing[cpu_time].contains("held up") {
        missing(cpu_time, "--dut-agent");
    }
    let compared = shunt.run(&format!("compare {} {}", first.display(), second.display()));
    if compared.code == Some(0) {
        assert!(!compared.out.contains("better") && !compared.out.contains("worse"), "{}", compared.out);
        assert!(compared.out.contains("cannot tell: at least 6 runs of each are needed"), "{}", compared.out);
    }
}

#[test]
fn an_interrupted_card_keeps_its_figures_and_leaves_nothing_behind() {
    if !require_root() {
        return;
    }
    let place = NetNs::new("place");
    let shunt = Shunt::on(&place);
    let file = shunt.directory().join("card.json");
    let mut running = shunt.start(&format!("bench card --quick --rounds 1000 --keep {}", file.display()));
    let kept = || Results::read(&file).ok();
    let has_all = || {
        kept().is_some_and(|card| {
            let is_known = |name: &str| card.readings.contains_key(name) || card.missing.contains_key(name);
            is_known("CPU time at 50 % of the NDR imix slow") && is_known("connection capacity slow")
        })
    };
    // A round takes half a minute, and longer on a busy machine.
    wait_for(PATIENCE, || (has_all() || running.ended().is_some()).then_some(()));
    let pid = running.pid();
    running.signal(Signal::SIGINT);
    wait_for(PATIENCE, || running.ended().map(drop));
    assert_eq!(running.ended(), Some(Some(130)), "{}", running.err());
    let card = kept().unwrap();
    assert!(!card.complete && !card.readings.is_empty(), "{card:?}");
    // A thread needs some time for a packet, and less than a tenth of a millisecond.
    if let Some(cpu_time) = card.readings.get("CPU time at 50 % of the NDR imix slow") {
        assert!((50.0..1e5).contains(&cpu_time.value), "{cpu_time:?}");
        assert_eq!(cpu_time.unit, "ns/packet");
    }
    // The router holds what is tried; if it lost some on a busy machine, the number is lower.
    if let Some(capacity) = card.readings.get("connection capacity slow") {
        assert!(capacity.value <= 5000.0, "{capacity:?}");
    }
    assert!(
        running.out().contains("interrupted") && file.with_extension("html").exists(),
        "{}",
        running.out()
    );
    let own = format!("-{pid}-");
    assert!(ndr::namespaces().iter().all(|name| !name.contains(&own)), "{own}");
}
