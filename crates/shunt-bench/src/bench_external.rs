//! The external engine's loop in memory: rings without a kernel, on one core. Its scheduler, in simulated time. And, as
//! root, the load of the other cores while it forwards between namespaces, its queues beside Linux's, and its ways to
//! wait for packets.

mod application_core;
mod memory;
mod probes;
mod queues;
mod scheduler;
pub mod table;
mod waits;

use crate::rig::{router_rig::Placement, shunt::engine_of};
use anyhow::{Context, ensure};
use memory::{Flows, Order};
pub use queues::QUEUES;
use serde::Serialize;
use shunt_lab::{Conditions, Results, ResultsFile};
use shunt_testkit::{Shuntd, tree::target};
use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};
pub use waits::{BULK, MODES};

/// Measures the external engine without a kernel.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Number of rounds; the cases take turns
    #[arg(long, default_value_t = 15)]
    rounds: u32,
    /// Number of rounds of the queues and of the ways to wait
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    path_rounds: u32,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
    /// File for the results [default: bench-external.json in the target directory]
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
}

/// Longest time until the engine serves a port.
const READY: Duration = Duration::from_secs(10);

/// Flows in the table, and the order in which their packets arrive.
const CASES: [(&str, usize, Order); 5] = [
    ("mpps_memory_1k", 1_000, Order::InTurn),
    ("mpps_memory_1k_random", 1_000, Order::Random),
    ("mpps_memory_100k", 100_000, Order::InTurn),
    ("mpps_memory_100k_random", 100_000, Order::Random),
    ("mpps_memory_1m_random", MOST_FLOWS as usize, Order::Random),
];

const MOST_FLOWS: u32 = 1_000_000;

const COPIED: &str = "mpps_memory_copied";

#[derive(Debug, Serialize)]
struct Figures {
    /// Frames of the VLAN that is copied.
    mpps_memory_copied: f64,
    mpps_memory_1k: f64,
    mpps_memory_1k_random: f64,
    mpps_memory_100k: f64,
    mpps_memory_100k_random: f64,
    mpps_memory_1m_random: f64,
    /// Cost of a packet with 100,000 flows in random order, by that with 1,000 in turn.
    cost_ratio_100k_random: f64,
    #[serde(flatten)]
    forwarding: Forwarding,
    #[serde(flatten)]
    scheduler: Simulated,
    /// The figures that are computed, not measured: those of the scheduler alone, in simulated time.
    simulated: [&'static str; 2],
    /// Medians of what was measured between namespaces, by the names in the file of results; empty without root.
    path: BTreeMap<String, f64>,
}

/// The engine between namespaces; None without root.
#[derive(Debug, Default, Serialize)]
struct Forwarding {
    /// Load of the busiest other core while the engine's core forwards as much as it can.
    app_core_load_percent: Option<f64>,
    /// The same without packets.
    app_core_idle_percent: Option<f64>,
    forwarded_mpps: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Simulated {
    shaper_error_percent: f64,
    priority_p99_ratio: f64,
}

/// Runs all cases in turn.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let path = options.keep.clone().unwrap_or_else(|| target().join("bench-external.json"));
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let title = "External engine: its loop in memory, its queues and its ways to wait";
    let mut file = ResultsFile::begin(path.clone(), Results::new(title, Conditions::of_this_machine()))?;
    let all = Flows::new(MOST_FLOWS)?;
    for round in 1..=options.rounds.max(1) {
        for (name, flows, order) in CASES {
            file.add(name, "Mpps", all.mpps(flows, order)?)?;
        }
        file.add(COPIED, "Mpps", memory::copied_mpps()?)?;
        file.save()?;
        eprintln!("round {round} of {}", options.rounds.max(1));
    }
    let forwarding = if nix::unistd::geteuid().is_root() {
        between_namespaces(&mut file, options.path_rounds)?
    } else {
        eprintln!("nothing is measured between network namespaces, which need root");
        Forwarding::default()
    };
    let results = file.finish()?;
    let value = |name: &str| results.readings.get(name).map_or(0.0, |reading| reading.value);
    let mpps = CASES.map(|(name, ..)| value(name));
    let of_path = results.readings.iter().filter(|(name, _)| !name.starts_with("mpps_memory"));
    let path_figures = of_path.map(|(name, reading)| (name.clone(), reading.value)).collect();
    let figures = Figures {
        mpps_memory_copied: value(COPIED),
        forwarding,
        mpps_memory_1k: mpps[0],
        mpps_memory_1k_random: mpps[1],
        mpps_memory_100k: mpps[2],
        mpps_memory_100k_random: mpps[3],
        mpps_memory_1m_random: mpps[4],
        cost_ratio_100k_random: mpps[0] / mpps[3],
        scheduler: Simulated {
            shaper_error_percent: scheduler::shaper_error_percent()?,
            priority_p99_ratio: scheduler::priority_p99_ratio()?,
        },
        simulated: ["shaper_error_percent", "priority_p99_ratio"],
        path: path_figures,
    };
    if options.json {
        println!("{}", serde_json::to_string_pretty(&figures)?);
        return Ok(());
    }
    for ((name, ..), mpps) in CASES.iter().zip(mpps) {
        println!("{name:28} {mpps:7.2} Mpps");
    }
    println!("{COPIED:28} {:7.2} Mpps", figures.mpps_memory_copied);
    if let Forwarding {
        app_core_load_percent: Some(load),
        app_core_idle_percent: Some(idle),
        forwarded_mpps: Some(mpps),
    } = figures.forwarding
    {
        println!("{:28} {load:7.2} % at {mpps:.2} Mpps; {idle:.2} % without packets", "load of other cores");
    }
    println!("{:28} {:7.2} times", "cost 100k random / 1k", figures.cost_ratio_100k_random);
    println!("{:28} {:7.4} % (simulated time)", "shaper error", figures.scheduler.shaper_error_percent);
    println!(
        "{:28} {:7.2} times (simulated time)",
        "p99 of the high class", figures.scheduler.priority_p99_ratio
    );
    queues::print(&figures.path);
    waits::print(&figures.path);
    println!("results: {}", path.display());
    Ok(())
}

/// The core of the external engine, and the CPU of everything else.
fn cores() -> anyhow::Result<(usize, usize)> {
    let (core, _) = Placement::OneCpu.cpus();
    let others = 0..thread::available_parallelism()?.get();
    let cpu = others
        .rev()
        .find(|cpu| *cpu != core)
        .context("the external engine's core and other work need two cores")?;
    Ok((core, cpu))
}

fn wait_for_external(shuntd: &Shuntd) -> anyhow::Result<()> {
    let since = Instant::now();
    while engine_of(&shuntd.try_status()?, "r1")?.0 != "external" {
        ensure!(
            since.elapsed() < READY,
            "the external engine does not serve r1: {:?}",
            engine_of(&shuntd.try_status()?, "r1")?
        );
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// The load of other cores, the queues, and the ways to wait.
fn between_namespaces(file: &mut ResultsFile, rounds: u32) -> anyhow::Result<Forwarding> {
    let measured = application_core::measure()?;
    let forwarded_mpps = measured.packets_per_second / 1e6;
    file.add("load of the busiest other core", "%", measured.load_percent)?;
    file.add("load of the busiest other core without packets", "%", measured.idle_percent)?;
    file.add("forwarded between veths", "Mpps", forwarded_mpps)?;
    file.save()?;
    let (core, cpu) = cores()?;
    queues::measure(file, rounds, cpu, core)?;
    waits::measure(file, rounds, cpu, core)?;
    Ok(Forwarding {
        app_core_load_percent: Some(measured.load_percent),
        app_core_idle_percent: Some(measured.idle_percent),
        forwarded_mpps: Some(forwarded_mpps),
    })
}
