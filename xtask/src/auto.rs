//! `cargo xtask auto`: the engine that Shunt chooses for each kind of traffic, and its cost beside Linux alone.

use crate::{
    bench::path::Path,
    live::{self, Row, TRAFFIC, Traffic},
    shunt::{Shunt, target},
};
use anyhow::{Context, ensure};
use serde::Serialize;
use shunt_lab::{iperf::Load, statistics::median};
use shunt_testkit::{Topology, rulesets};
use std::{collections::BTreeMap, fs, time::Duration};

/// Measures Shunt with its own choice of engine and Linux alone in turn, and writes target/bench/auto.json.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Print the rows as JSON
    #[arg(long)]
    json: bool,
    /// Number of rounds; in each, every kind of traffic runs once with Shunt and once without
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Duration of each run; iperf3 takes whole seconds
    #[arg(long, default_value_t = 2, value_name = "SECONDS")]
    seconds: u64,
    /// Measure only this topology
    #[arg(long, value_name = "TOPOLOGY")]
    only: Option<String>,
}

/// A router and what its hosts send.
struct TestBed {
    name: &'static str,
    /// Whether the hosts send single packets, which the router gathers, and not aggregates.
    single: bool,
    bridged: bool,
}

const TEST_BEDS: [TestBed; 3] = [
    TestBed { name: "veth, single packets", single: true, bridged: false },
    TestBed { name: "veth, TSO", single: false, bridged: false },
    TestBed { name: "bridge of veths, TSO", single: false, bridged: true },
];

/// Kinds of traffic besides those of the demo.
const MORE: [Traffic; 3] = [
    Traffic { name: "TCP, IPv4, 4 streams", v6: false, load: Load::Tcp, streams: 4 },
    Traffic { name: "TCP, IPv6, 4 streams", v6: true, load: Load::Tcp, streams: 4 },
    Traffic { name: "UDP, IPv4, 1,400 bytes", v6: false, load: Load::Udp(1400), streams: 1 },
];

/// The result for one kind of traffic.
#[derive(Debug, Serialize)]
struct Outcome {
    topology: &'static str,
    traffic: &'static str,
    engine_chosen: String,
    reason: String,
    /// CPU time per packet, relative to Linux alone: the median of the rounds. Of the router's polling threads; with TSO, of
    /// the whole machine, hosts included, so that only a quiet machine gives a figure.
    cpu_vs_linux: f64,
    /// Goodput relative to Linux alone: the median of the rounds.
    goodput_vs_linux: f64,
    fast_share: Option<f64>,
    runs: Vec<(f64, f64)>,
}

/// Runs the check.
pub fn run(options: &Options) -> anyhow::Result<()> {
    ensure!(nix::unistd::geteuid().is_root(), "network namespaces need root: sudo cargo xtask auto");
    let known = |name: &String| TEST_BEDS.iter().any(|bed| bed.name == name);
    if let Some(name) = options.only.as_ref().filter(|name| !known(name)) {
        let names: Vec<_> = TEST_BEDS.iter().map(|bed| bed.name).collect();
        anyhow::bail!("no topology is named `{name}`; there are: {}", names.join("; "));
    }
    let mut results = Vec::new();
    for bed in TEST_BEDS.iter().filter(|bed| options.only.as_ref().is_none_or(|only| only == bed.name)) {
        results.extend(at(bed, options)?);
    }
    let path = target().join("bench/auto.json");
    fs::create_dir_all(target().join("bench"))?;
    let text = serde_json::to_string_pretty(&results)?;
    fs::write(&path, &text).with_context(|| path.display().to_string())?;
    if options.json {
        println!("{text}");
    } else {
        print(&results);
        println!("{}", path.display());
    }
    Ok(())
}

fn at(bed: &TestBed, options: &Options) -> anyhow::Result<Vec<Outcome>> {
    let lab =
        if bed.bridged { crate::bench::router_rig::bridge() } else { Topology::two_hosts_and_a_router() };
    if !bed.bridged {
        lab.router().nft(rulesets::HOME_GATEWAY);
    }
    if bed.single {
        lab.try_gather(true)?;
    }
    let mut pairs: BTreeMap<&str, Vec<(Row, Row)>> = BTreeMap::new();
    let time = Duration::from_secs(options.seconds);
    for round in 1..=options.runs {
        for traffic in TRAFFIC.into_iter().chain(MORE).filter(|traffic| !bed.bridged || !traffic.v6) {
            eprintln!("{}, round {round}: {} ...", bed.name, traffic.name);
            let alone = live::measure(&lab, None, Path::Slow, traffic, time)?;
            let shunt = Shunt::up(lab.router(), "auto", "")?;
            let with = live::measure(&lab, Some(&shunt), Path::Auto, traffic, time)?;
            shunt.down()?;
            pairs.entry(traffic.name).or_default().push((alone, with));
        }
    }
    if bed.single {
        for _ in 0..options.runs {
            let mut rows = live::generated(&lab, &[Path::Slow, Path::Auto])?.into_iter();
            let pair = rows.next().zip(rows.next()).context("two rows")?;
            pairs.entry(live::GENERATED).or_default().push(pair);
        }
    }
    Ok(pairs.into_iter().map(|(traffic, pairs)| Outcome::from_pairs(bed, traffic, &pairs)).collect())
}

impl Outcome {
    fn from_pairs(bed: &TestBed, traffic: &'static str, pairs: &[(Row, Row)]) -> Self {
        let ratio = |figure: fn(&Row) -> f64| -> Vec<f64> {
            pairs.iter().map(|(alone, with)| figure(with) / figure(alone)).collect()
        };
        let cpu = if bed.single { ratio(|row| row.cpu_ns) } else { ratio(|row| row.machine_ns) };
        let goodput = ratio(|row| row.arrived.bits_per_second);
        let last = pairs.last().map(|(_, with)| with);
        Self {
            topology: bed.name,
            traffic,
            engine_chosen: last.map_or(String::new(), |row| row.engine.clone()),
            reason: last.map_or(String::new(), |row| row.reason.clone()),
            cpu_vs_linux: median(&cpu).unwrap_or(f64::NAN),
            goodput_vs_linux: median(&goodput).unwrap_or(f64::NAN),
            fast_share: last.and_then(|row| row.fast_share),
            runs: cpu.into_iter().zip(goodput).collect(),
        }
    }
}

fn print(results: &[Outcome]) {
    println!(
        "{:22} {:22} {:>6} {:>13} {:>17}",
        "topology", "traffic", "engine", "CPU vs Linux", "goodput vs Linux"
    );
    for row in results {
        println!(
            "{:22} {:22} {:>6} {:>12.0}% {:>16.0}%",
            row.topology,
            row.traffic,
            row.engine_chosen,
            100.0 * row.cpu_vs_linux,
            100.0 * row.goodput_vs_linux
        );
    }
}
