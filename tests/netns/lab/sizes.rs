//! `shunt bench size` on a router of the lab, by Linux and by the fast path.

use super::gen_command::{doubts, json};
use nix::sys::signal::Signal;
use serde_json::Value;
use shunt_testkit::{NetNs, Shunt, require_root, wait_until};
use std::fs;

/// Number of namespaces that a process has made; their names contain the process id.
pub(crate) fn namespaces(pid: u32) -> usize {
    let own = format!("-{pid}-");
    let names = fs::read_dir("/run/netns").unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("shunt-") && name.contains(&own)).count()
}

#[test]
fn rates_by_size_are_measured_in_turn_and_kept() {
    if !require_root() {
        return;
    }
    let place = NetNs::new("place");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("size.json");
    let report = json(&Shunt::on(&place).run(&format!(
        "bench size --json --runs 2 --time 300ms --size 1518,64 --engine slow --engine tc --speed 10G --keep {}",
        file.display()
    )));
    let points = report["points"].as_array().unwrap();
    let of = |point: &Value| {
        (point["router"].as_str().unwrap().to_owned(), point["frame_bytes"].as_u64().unwrap())
    };
    let want = [("slow", 64), ("slow", 1518), ("tc", 64), ("tc", 1518)];
    assert_eq!(points.iter().map(of).collect::<Vec<_>>(), want.map(|(router, n)| (router.to_owned(), n)));
    for point in points {
        let pps = point["forwarded_pps"]["value"].as_f64().unwrap();
        let bits = 8.0 * point["frame_bytes"].as_f64().unwrap();
        assert!(pps > 1000.0 && pps <= point["offered_pps"].as_f64().unwrap() * 1.01, "{point:#}");
        assert!((point["l2_bps"].as_f64().unwrap() / (pps * bits) - 1.0).abs() < 1e-9);
        assert!((point["line_share"].as_f64().unwrap() / (pps * (bits + 160.0) / 1e10) - 1.0).abs() < 1e-9);
        assert_eq!(point["forwarded_pps"]["runs"].as_array().unwrap().len(), 2);
    }
    assert!(points[2]["gain"]["value"].as_f64().is_some() && points[0]["gain"].is_null());
    assert!(doubts(&report).contains(&"virtual-links") && doubts(&report).contains(&"too-short"));

    let kept: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(kept["complete"], true);
    let at = |name: &str, run: usize| kept["readings"][name]["runs"][run]["at"].as_str().unwrap().to_owned();
    // Both sizes with one engine, then with the other, and again.
    let order = [at("slow 64", 0), at("slow 1518", 0), at("tc 64", 0), at("tc 1518", 0), at("slow 64", 1)];
    assert!(order.is_sorted() && at("tc 1518", 0) < at("slow 64", 1), "{order:?}");
}

#[test]
fn an_interrupt_keeps_the_runs_until_then() {
    if !require_root() {
        return;
    }
    let place = NetNs::new("place");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("size.json");
    let shunt = Shunt::on(&place);
    let mut running = shunt.start(&format!(
        "bench size --json --runs 100 --time 200ms --size 64 --engine slow --keep {}",
        file.display()
    ));
    let kept =
        || serde_json::from_str::<Value>(&fs::read_to_string(&file).unwrap_or_default()).unwrap_or_default();
    let runs = |kept: &Value| kept["readings"]["slow 64"]["runs"].as_array().map_or(0, Vec::len);
    wait_until("two runs are kept", || runs(&kept()) >= 2);
    running.signal(Signal::SIGINT);
    wait_until("the command has ended", || running.ended().is_some());
    assert_eq!(running.ended(), Some(Some(130)), "{}", running.err());
    let pid = running.pid();
    let report: Value = serde_json::from_str(&running.out()).unwrap();
    assert!(doubts(&report).contains(&"interrupted"), "{report:#}");
    let shown = report["points"][0]["forwarded_pps"]["runs"].as_array().unwrap().len();
    assert_eq!((shown, &kept()["complete"]), (runs(&kept()), &Value::Bool(false)));
    assert!((2..100).contains(&shown));
    assert_eq!(namespaces(pid), 0);
}
