//! Short runs of the twin-router oracle (crates/shunt-twin) with fixed seeds. `cargo xtask twin` runs longer ones.

use shunt_api::Engine;
use shunt_testkit::{engines, is_guest, require_root};
use shunt_twin::{Options, Report, run};
use std::time::Duration;

/// Options of a short run; shorter in a QEMU guest, where VLANs are added.
fn options(seed: u64, engine: Option<&str>) -> Options {
    let (packets, changes) = if is_guest() { (20_000, 30) } else { (40_000, 40) };
    Options {
        packets,
        changes,
        seed,
        engine: engine.map(str::to_owned),
        program: None,
        // Generous, for machines that run other tests.
        reaction: Duration::from_millis(if is_guest() { 500 } else { 100 }),
        vlans: is_guest(),
        ipsec: is_guest(),
        one_sided: false,
        shrink: Duration::ZERO,
    }
}

#[track_caller]
fn assert_same(report: &Report) {
    eprintln!("{report}");
    assert!(report.is_good(), "{report}");
    // A few in a million packets are usual.
    assert!(report.other_resets < 6, "{report:?}");
    let planned = options(0, None).packets;
    assert!(report.packets > planned / 6 * 5 && report.compared > report.packets / 2, "{report:?}");
}

#[track_caller]
fn assert_shunt_is_not_seen(engine: &str, seed: u64) {
    if !require_root() {
        return;
    }
    let report = run(&options(seed, Some(engine)));
    assert_same(&report);
    assert!(report.fast_share > 0.4, "too few packets were fast for a comparison: {report:?}");
}

#[test]
fn linux_does_the_same_twice() {
    if !require_root() {
        return;
    }
    let report = run(&options(1, None));
    assert_same(&report);
    assert_eq!(report.reordered + report.reordered_reproof, 0);
}

#[test]
fn tc_cannot_be_told_from_linux() {
    assert_shunt_is_not_seen("tc", 2);
}

#[test]
fn xdp_cannot_be_told_from_linux() {
    if !engines().contains(&Engine::Xdp) {
        return;
    }
    assert_shunt_is_not_seen("xdp", 3);
}

#[test]
fn auto_cannot_be_told_from_linux() {
    assert_shunt_is_not_seen("auto", 4);
}

#[test]
fn a_change_on_one_router_only_is_found() {
    if !require_root() {
        return;
    }
    let report = run(&Options { one_sided: true, ..options(5, None) });
    assert!(!report.is_good(), "{report:?}");
    assert!(report.failure.is_some_and(|failure| !failure.found.is_empty()));
}
