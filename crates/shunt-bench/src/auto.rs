//! `cargo xtask auto`: the engine that Shunt chooses for each kind of traffic, and its cost beside Linux alone.

pub mod table;

use crate::{
    rig::{
        live::{self, Row, TRAFFIC, Traffic},
        path::Path,
        router_rig::bridge,
        shunt,
        tcp_stream::{BBR, RENO, congestion_control, join},
    },
    rows,
};
use anyhow::Context;
use serde::Serialize;
use shunt_lab::{ResultsFile, iperf::Load, statistics::median};
use shunt_testkit::{Topology, rulesets};
use std::{collections::BTreeMap, io, time::Duration};

/// Measures Shunt with its own choice of engine and Linux alone in turn, and writes target/bench/auto.json and
/// target/bench/auto-results.json.
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
pub struct TestBed {
    pub name: &'static str,
    /// Whether the hosts send single packets, which the router gathers, and not aggregates.
    single: bool,
    bridged: bool,
    congestion_control: &'static str,
}

/// With BBR, the hosts' timers load the router's CPUs.
pub const TEST_BEDS: [TestBed; 4] = [
    TestBed { name: "veth, single packets", single: true, bridged: false, congestion_control: RENO },
    TestBed { name: "veth, TSO", single: false, bridged: false, congestion_control: RENO },
    TestBed { name: "veth, TSO, BBR", single: false, bridged: false, congestion_control: BBR },
    TestBed { name: "bridge of veths, TSO", single: false, bridged: true, congestion_control: RENO },
];

/// Kinds of traffic besides those of the demo.
pub const MORE: [Traffic; 4] = [
    Traffic { name: "TCP, IPv4, 4 streams", v6: false, load: Load::Tcp, streams: 4, two_classes: false },
    Traffic { name: "TCP, IPv6, 4 streams", v6: true, load: Load::Tcp, streams: 4, two_classes: false },
    Traffic {
        name: "UDP, IPv4, 1,400 bytes",
        v6: false,
        load: Load::Udp(1400),
        streams: 1,
        two_classes: false,
    },
    Traffic { name: "UDP, IPv4, two classes", v6: false, load: Load::Udp(64), streams: 1, two_classes: true },
];

/// The result for one kind of traffic.
#[derive(Debug, Serialize)]
struct Outcome {
    topology: &'static str,
    traffic: &'static str,
    engine_chosen: String,
    reason: String,
    /// CPU time per packet, relative to Linux alone: the median of the rounds. Of the router's polling threads; with
    /// TSO, of the whole machine, hosts included, so that only a quiet machine gives a figure.
    cpu_vs_linux: f64,
    /// Goodput relative to Linux alone: the median of the rounds.
    goodput_vs_linux: f64,
    /// The same two figures of a tc program that redirects every packet without reading it: the least that a fast path
    /// at tc can cost. With IPv4 only.
    #[serde(skip_serializing_if = "Option::is_none")]
    bare_tc_vs_linux: Option<(f64, f64)>,
    fast_share: Option<f64>,
    /// The two figures of each round.
    runs: Vec<(f64, f64)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    bare_tc_runs: Vec<(f64, f64)>,
}

/// The names of the two figures in the file of results.
pub fn reading_names(topology: &str, traffic: &str, path: Path) -> [String; 2] {
    let name = |figure: &str| format!("{topology}: {traffic}: {figure} of {path} vs Linux alone");
    [name("CPU time per packet"), name("goodput")]
}

/// Runs the check.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let known = |name: &String| TEST_BEDS.iter().any(|bed| bed.name == name);
    if let Some(name) = options.only.as_ref().filter(|name| !known(name)) {
        let names: Vec<_> = TEST_BEDS.iter().map(|bed| bed.name).collect();
        anyhow::bail!("no topology is named `{name}`; there are: {}", names.join("; "));
    }
    let mut file = rows::begin("auto", "the engine that Shunt chooses beside Linux alone")?;
    let mut results = Vec::new();
    for bed in TEST_BEDS.iter().filter(|bed| options.only.as_ref().is_none_or(|only| only == bed.name)) {
        for outcome in at(bed, options)? {
            outcome.record(&mut file)?;
            file.save()?;
            results.push(outcome);
        }
    }
    file.finish()?;
    rows::show("auto.json", &results, options.json, print)
}

/// One round of a kind of traffic.
struct Round {
    alone: Row,
    with: Row,
    bare_tc: Option<Row>,
}

fn at(bed: &TestBed, options: &Options) -> anyhow::Result<Vec<Outcome>> {
    let [lab, bare] = match [router(bed), router(bed)] {
        [Ok(lab), Ok(bare)] => [lab, bare],
        [Err(why), _] | [_, Err(why)] if bed.congestion_control == BBR => {
            eprintln!("{}: left out, because hosts cannot use {BBR} here: {why}", bed.name);
            return Ok(Vec::new());
        }
        [lab, bare] => [lab?, bare?],
    };
    if !bed.bridged {
        lab.router().nft(rulesets::HOME_GATEWAY);
        join(&bare)?;
    }
    let mut rounds: BTreeMap<&str, Vec<Round>> = BTreeMap::new();
    let time = Duration::from_secs(options.seconds);
    for number in 1..=options.runs {
        for traffic in TRAFFIC.into_iter().chain(MORE).filter(|traffic| bed.carries(traffic)) {
            eprintln!("{}, round {number}: {} ...", bed.name, traffic.name);
            let alone = live::measure(&lab, None, Path::Slow, traffic, time, bed.single)?;
            let shuntd = shunt::start(lab.router(), "auto", "")?;
            let with = live::measure(&lab, Some(&shuntd), Path::Auto, traffic, time, bed.single)?;
            shunt::stop(shuntd)?;
            let redirected = || {
                let _open = Path::BareTc.open(bare.router())?;
                live::measure(&bare, None, Path::BareTc, traffic, time, bed.single)
            };
            let bare_tc = (!traffic.v6).then(redirected).transpose()?;
            rounds.entry(traffic.name).or_default().push(Round { alone, with, bare_tc });
        }
    }
    if bed.single {
        for _ in 0..options.runs {
            let mut rows = live::generated(&lab, &[Path::Slow, Path::Auto])?.into_iter();
            let (alone, with) = rows.next().zip(rows.next()).context("two rows")?;
            rounds.entry(live::GENERATED).or_default().push(Round { alone, with, bare_tc: None });
        }
    }
    Ok(rounds.into_iter().map(|(traffic, rounds)| Outcome::new(bed, traffic, &rounds)).collect())
}

impl TestBed {
    fn carries(&self, traffic: &Traffic) -> bool {
        let paced = self.congestion_control == BBR;
        !(traffic.v6 && (self.bridged || paced)) && (traffic.load == Load::Tcp || !paced)
    }
}

fn router(bed: &TestBed) -> io::Result<Topology> {
    let lab = if bed.bridged { bridge() } else { Topology::two_hosts_and_a_router() };
    congestion_control(&lab, bed.congestion_control)?;
    if bed.single {
        lab.try_gather(true)?;
    }
    Ok(lab)
}

impl Outcome {
    fn new(bed: &TestBed, traffic: &'static str, rounds: &[Round]) -> Self {
        let cpu = |row: &Row| if bed.single { row.cpu_ns } else { row.machine_ns };
        let goodput = |row: &Row| row.arrived.bits_per_second;
        let versus = |alone: &Row, row: &Row| (cpu(row) / cpu(alone), goodput(row) / goodput(alone));
        let runs: Vec<_> = rounds.iter().map(|round| versus(&round.alone, &round.with)).collect();
        let bare: Vec<_> =
            rounds.iter().filter_map(|round| Some(versus(&round.alone, round.bare_tc.as_ref()?))).collect();
        let (cpu_vs_linux, goodput_vs_linux) = medians(&runs).unwrap_or((f64::NAN, f64::NAN));
        let last = rounds.last().map(|round| &round.with);
        Self {
            topology: bed.name,
            traffic,
            engine_chosen: last.map_or(String::new(), |row| row.engine.clone()),
            reason: last.map_or(String::new(), |row| row.reason.clone()),
            cpu_vs_linux,
            goodput_vs_linux,
            bare_tc_vs_linux: medians(&bare),
            fast_share: last.and_then(|row| row.fast_share),
            runs,
            bare_tc_runs: bare,
        }
    }

    /// Adds the figures of each round to the file of results.
    fn record(&self, file: &mut ResultsFile) -> anyhow::Result<()> {
        for (path, runs) in [(Path::Auto, &self.runs), (Path::BareTc, &self.bare_tc_runs)] {
            let [cpu, goodput] = reading_names(self.topology, self.traffic, path);
            for run in runs {
                file.add(&cpu, "1", run.0)?;
                file.add(&goodput, "1", run.1)?;
            }
        }
        Ok(())
    }
}

fn medians(pairs: &[(f64, f64)]) -> Option<(f64, f64)> {
    let (first, second): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
    median(&first).zip(median(&second))
}

fn print(results: &[Outcome]) {
    println!(
        "{:22} {:22} {:>6} {:>20} {:>20}",
        "topology", "traffic", "engine", "CPU vs Linux", "goodput vs Linux"
    );
    for row in results {
        let figures = |runs: &[(f64, f64)]| {
            let (cpu, goodput): (Vec<_>, Vec<_>) = runs.iter().copied().unzip();
            format!("{:>20} {:>20}", percent(&cpu), percent(&goodput))
        };
        let (topology, traffic) = (row.topology, row.traffic);
        println!("{topology:22} {traffic:22} {:>6} {}", row.engine_chosen, figures(&row.runs));
        if row.bare_tc_vs_linux.is_some() {
            println!("{:52} {}", "  a tc program that only redirects", figures(&row.bare_tc_runs));
        }
    }
}

/// The median of some ratios and their range, such as `93 % (88 to 101)`.
fn percent(ratios: &[f64]) -> String {
    let (low, high) = ratios
        .iter()
        .fold((f64::INFINITY, 0.0_f64), |(low, high), ratio| (low.min(*ratio), high.max(*ratio)));
    let median = median(ratios).unwrap_or(f64::NAN);
    format!("{:.0} % ({:.0} to {:.0})", 100.0 * median, 100.0 * low, 100.0 * high)
}
