//! What the external engine does while no packets come, by what it costs: CPU time of its process, and the time that
//! packets take.

use super::{probes, wait_for_external};
use crate::rig::shunt;
use anyhow::Context;
use shunt_lab::{ResultsFile, load::RunTime};
use shunt_testkit::{NetNs, rulesets, silent_router};
use std::{
    collections::BTreeMap,
    fs,
    time::{Duration, Instant},
};

/// Values of `external_wait`.
pub const MODES: [&str; 3] = ["poll", "adaptive", "interrupt"];
/// Packets per second with the probes, and bytes of payload per second beside them.
pub const BULK: [(&str, f64); 3] =
    [("200 packets/s", 0.0), ("1200 packets/s", 1.2e6), ("10200 packets/s", 12e6)];
const TIME: Duration = Duration::from_secs(3);

/// Measures each mode in turn, and adds the runs to the results.
pub fn measure(file: &mut ResultsFile, rounds: u32, cpu: usize, core: usize) -> anyhow::Result<()> {
    for round in 1..=rounds {
        for mode in MODES {
            run(file, mode, cpu, core)?;
        }
        eprintln!("waiting, round {round} of {rounds}");
    }
    Ok(())
}

fn run(file: &mut ResultsFile, mode: &str, cpu: usize, core: usize) -> anyhow::Result<()> {
    let lab = silent_router(rulesets::OPEN);
    let config = format!("external_core = {core}\nexternal_wait = \"{mode}\"\n");
    let shuntd = shunt::start(lab.router(), "external", &config)?;
    wait_for_external(&shuntd)?;
    probes::learn(&lab, &shuntd)?;
    let process = engine_process(lab.router())?;
    for (load, bytes_per_s) in BULK {
        let (before, since) = (RunTime::of_process(process)?, Instant::now());
        let seen = probes::send(&lab, cpu, bytes_per_s, TIME)?;
        let ran_ns = RunTime::of_process(process)?.ran_ns - before.ran_ns;
        file.add(
            &format!("CPU {mode} {load}"),
            "%",
            ran_ns as f64 / since.elapsed().as_nanos() as f64 * 100.0,
        )?;
        for (share, text) in [(0.5, "p50"), (0.99, "p99")] {
            file.add(&format!("probe {text} {mode} {load}"), "us", seen.quantile_us(share)?)?;
        }
    }
    file.save()?;
    shunt::stop(shuntd)
}

/// The engine's process: the only one in the router's namespace with that argument.
fn engine_process(router: &NetNs) -> anyhow::Result<u32> {
    let pids = router.try_run(&format!("ip netns pids {}", router.name()))?;
    let is_engine = |pid: &u32| {
        let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split('\0').any(|word| word == "--external-engine")
    };
    pids.split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .find(is_engine)
        .context("no external engine runs")
}

/// Prints a row for each mode and load.
pub fn print(figures: &BTreeMap<String, f64>) {
    if figures.is_empty() {
        return;
    }
    println!("\n{:9}  {:16}  CPU      p50 / p99 of a probe", "waits by", "packets");
    for (mode, (load, _)) in MODES.into_iter().flat_map(|mode| BULK.map(|bulk| (mode, bulk))) {
        let figure = |of: &str| figures.get(&format!("{of} {mode} {load}")).copied().unwrap_or(f64::NAN);
        println!(
            "{mode:9}  {load:16}  {:5.1} %  {:6.0} / {:6.0} us",
            figure("CPU"),
            figure("probe p50"),
            figure("probe p99"),
        );
    }
}
