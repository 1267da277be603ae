//! The bench: Shunt against Linux alone, measured in turn; every run is on disk as soon as it is over.

mod conditions;
mod connections;
pub mod table;

use crate::rig::{
    packets::{self, PathRig},
    path::{Open, Path},
    router_rig::{self, Placement, Rig},
    tcp_stream,
};
use crate::summary::{Ratio, Summary, Target};
use anyhow::Context;
use serde::Serialize;
use serde_json::{Map, Value, json};
use shunt_lab::{Doubt, Reading, Results, ResultsFile, Run};
use shunt_testkit::{
    Topology,
    tree::{built, target},
};
use std::{collections::BTreeMap, fs, path::PathBuf, time::Duration};

/// Measures, and writes target/bench/results.json and target/bench/summary.json.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Measure only ratios that have a bound, with fewer and shorter runs: takes less than a minute, with a wider
    /// spread.
    #[arg(long)]
    quick: bool,
    /// Measure only this group: packets, bridged, flows, tcp, connections, idle. May be given several times.
    #[arg(long, value_name = "GROUP")]
    only: Vec<String>,
    /// CPUs of the router and of everything else.
    #[arg(long, value_enum, default_value = "one-cpu")]
    placement: Placement,
    /// Number of runs of each path [default: 9, or 3 with --quick].
    #[arg(long)]
    runs: Option<usize>,
}

/// Ratios that have a bound. All others are measured for comparison.
pub const TARGETS: [(&str, Target); 8] = [
    ("cpu_xdp_vs_slow", Target::AtMost(1.0 / 6.0)),
    ("cpu_tc_vs_slow", Target::AtMost(0.5)),
    ("cpu_xdp_vs_bare_redirect", Target::AtMost(1.25)),
    ("cpu_100k_vs_1k_flows", Target::AtMost(1.6)),
    ("tcp_goodput_tc_vs_slow", Target::AtLeast(1.3)),
    ("new_connections_with_vs_without", Target::AtLeast(0.93)),
    ("new_connections_per_router_cpu_with_vs_without", Target::AtLeast(0.97)),
    ("slow_path_cpu_with_vs_without", Target::AtMost(1.0 / 0.93)),
];

/// The unit of TCP goodput.
const GOODPUT: &str = "Gbit/s";
/// The measurement's name in files of results.
const WHAT: &str = "bench";

/// Routers with the path that each of them has.
type Routers = Vec<(Path, Topology)>;

/// A bench under way.
struct Bench {
    placement: Placement,
    quick: bool,
    runs: usize,
    /// The reason why Shunt cannot be measured, if there is one.
    shunt: Result<(), String>,
    file: ResultsFile,
    summary: Summary,
    summary_path: PathBuf,
}

/// Runs the bench.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let mut bench = Bench::begin(options)?;
    for (group, work) in [
        ("packets", Bench::packets as fn(&mut Bench) -> anyhow::Result<()>),
        ("bridged", Bench::bridged),
        ("flows", Bench::flows),
        ("tcp", Bench::tcp),
        ("connections", Bench::connections),
        ("idle", Bench::idle),
    ] {
        let selected = if options.only.is_empty() {
            !options.quick || group != "bridged"
        } else {
            options.only.iter().any(|only| only == group)
        };
        if selected {
            if let Err(e) = work(&mut bench) {
                eprintln!("{group}: {e:#}");
                bench.add_missing(group, format!("{e:#}"));
            }
            bench.write_summary()?;
        }
    }
    bench.finish()
}

impl Bench {
    fn begin(options: &Options) -> anyhow::Result<Self> {
        let directory = target().join("bench");
        fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
        let (conditions, summary_conditions) = conditions::conditions(options.placement, options.quick);
        let file = ResultsFile::begin(directory.join("results.json"), Results::new(WHAT, conditions))?;
        let (ratios, missing) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self {
            placement: options.placement,
            quick: options.quick,
            runs: options.runs.unwrap_or(if options.quick { 3 } else { 9 }),
            shunt: built("shuntd").map(drop).map_err(|e| e.to_string()),
            file,
            summary: Summary { conditions: summary_conditions, ratios, missing },
            summary_path: directory.join("summary.json"),
        })
    }

    fn write_summary(&self) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(&self.summary)? + "\n";
        fs::write(&self.summary_path, text).with_context(|| self.summary_path.display().to_string())
    }

    /// Prints the ratios, their doubts first, and completes both files.
    fn finish(mut self) -> anyhow::Result<()> {
        for (name, ratio) in &self.summary.ratios {
            for doubt in &ratio.doubts {
                println!("{name}: doubt: {doubt}");
            }
            println!("{name}: {ratio}");
        }
        let names: Vec<String> = self.file.results().readings.keys().cloned().collect();
        for doubt in self.file.results().conditions.doubts().into_iter().chain([Doubt::VirtualLinks]) {
            names.iter().for_each(|name| self.file.add_doubt(name, doubt.clone()));
        }
        self.write_summary()?;
        println!("{}", self.summary_path.display());
        if self.summary.missing.is_empty() {
            self.file.finish()?;
            return Ok(());
        }
        self.file.save_incomplete()?;
        let missing: Vec<&str> = self.summary.missing.keys().copied().collect();
        anyhow::bail!("not measured: {}", missing.join(", "))
    }

    /// Every path with 1,000 flows.
    fn packets(&mut self) -> anyhow::Result<()> {
        self.measure_paths("packets", router_rig::topology, &[Path::Slow, Path::Bare, Path::Xdp, Path::Tc])?;
        for (name, of, to) in [
            ("cpu_xdp_vs_slow", "xdp", "slow"),
            ("cpu_tc_vs_slow", "tc", "slow"),
            ("cpu_xdp_vs_bare_redirect", "xdp", "bare"),
            ("cpu_bare_redirect_vs_slow", "bare", "slow"),
        ] {
            self.compare(name, "packets", (of, to), "ns")?;
        }
        Ok(())
    }

    /// The same paths between two ports of a bridge.
    fn bridged(&mut self) -> anyhow::Result<()> {
        self.measure_paths("bridged", router_rig::bridge, &[Path::Slow, Path::Xdp, Path::Tc])?;
        for (name, of) in [("bridged_cpu_xdp_vs_slow", "xdp"), ("bridged_cpu_tc_vs_slow", "tc")] {
            self.compare(name, "bridged", (of, "slow"), "ns")?;
        }
        Ok(())
    }

    /// The slow path with Shunt up and nothing learned, and with hooks that return at once, against the slow path
    /// alone. All are measured on one router, one after the other: a second router with programs of its own adds as
    /// much cost as there is to be seen.
    fn idle(&mut self) -> anyhow::Result<()> {
        let lab = router_rig::topology();
        let mut rigs = vec![PathRig::new(Path::Slow, Rig::new(&lab, 1000, self.placement)?)];
        let paths = [Path::Slow, Path::Hooks, Path::Idle].into_iter().filter(|path| self.is_able(*path));
        let paths: Vec<Path> = paths.collect();
        for run in 0..self.runs {
            for &path in &paths {
                (rigs[0].path, rigs[0].label) = (path, path.to_string());
                self.measure_run("idle", run, &mut rigs)?;
            }
        }
        self.compare("slow_path_cpu_with_vs_without", "idle", ("idle", "slow"), "ns")?;
        self.compare("slow_path_cpu_hooks_vs_without", "idle", ("hooks", "slow"), "ns")
    }

    /// The xdp engine with 100,000 flows, whose packets come in turn or shuffled, against 1,000 flows.
    fn flows(&mut self) -> anyhow::Result<()> {
        let mut rigs = Vec::new();
        let sets = [("1000", 1000), ("100000", 100_000), ("100000-shuffled", 100_000)];
        // Learning so many flows takes longer than measuring them.
        let (sets, runs) = if self.quick { (&sets[..2], self.runs.min(2)) } else { (&sets[..], self.runs) };
        let labs: Vec<Topology> = sets.iter().map(|_| router_rig::topology()).collect();
        if self.shunt.is_ok() {
            for ((label, flows), lab) in sets.iter().zip(&labs) {
                let mut rig = Rig::new(lab, *flows, self.placement)?;
                if label.ends_with("shuffled") {
                    rig.shuffle(1)?;
                }
                rigs.push(PathRig { label: (*label).to_owned(), ..PathRig::new(Path::Xdp, rig) });
            }
        }
        self.measure_runs("flows", runs, rigs)?;
        self.compare("cpu_100k_vs_1k_flows", "flows", ("100000", "1000"), "ns")?;
        if !self.quick {
            self.compare("cpu_100k_shuffled_vs_1k_flows", "flows", ("100000-shuffled", "1000"), "ns")?;
        }
        Ok(())
    }

    /// Measures router CPU per packet on each path with 1,000 flows; each path has a router of its own.
    fn measure_paths(
        &mut self,
        group: &str,
        topology: fn() -> Topology,
        paths: &[Path],
    ) -> anyhow::Result<()> {
        let paths: Vec<Path> = paths.iter().copied().filter(|path| self.is_able(*path)).collect();
        let labs: Vec<Topology> = paths.iter().map(|_| topology()).collect();
        let rig = |lab| Rig::new(lab, 1000, self.placement);
        let rigs = paths.into_iter().zip(&labs).map(|(path, lab)| Ok(PathRig::new(path, rig(lab)?)));
        let rigs = rigs.collect::<anyhow::Result<_>>()?;
        self.measure_runs(group, self.runs, rigs)
    }

    fn measure_runs(&mut self, group: &str, runs: usize, mut rigs: Vec<PathRig<'_>>) -> anyhow::Result<()> {
        (0..runs).try_for_each(|run| self.measure_run(group, run, &mut rigs))
    }

    /// Adds one run of each rig to the results.
    fn measure_run(&mut self, group: &str, run: usize, rigs: &mut [PathRig<'_>]) -> anyhow::Result<()> {
        let samples = packets::measure(rigs, if self.quick { 2 } else { 5 })?;
        for (PathRig { label, path, .. }, sample) in rigs.iter().zip(samples) {
            let value = sample.ns_per_packet()?;
            println!(
                "{group} {run:2} {label:15} {value:7.1} ns of router CPU per packet, {:5.2} Mpps",
                sample.packets_per_second() / 1e6
            );
            let doubts = packets::doubts(*path, &sample, self.placement);
            self.add_run(&reading_name(group, label), "ns/packet", value, &sample, doubts)?;
        }
        Ok(())
    }

    fn add_run(
        &mut self,
        name: &str,
        unit: &str,
        value: f64,
        details: &impl Serialize,
        doubts: Vec<Doubt>,
    ) -> anyhow::Result<()> {
        let details = match serde_json::to_value(details)? {
            Value::Object(fields) => fields,
            turns => Map::from_iter([("turns".to_owned(), turns)]),
        };
        self.file.add(name, unit, Run { value, at: None, details })?;
        doubts.into_iter().for_each(|doubt| self.file.add_doubt(name, doubt));
        Ok(self.file.save()?)
    }

    fn is_able(&self, path: Path) -> bool {
        self.shunt.is_ok() || matches!(path, Path::Slow | Path::Bare | Path::Hooks)
    }

    /// Adds the ratio of two readings of a group to the results and to the summary, or the reason why it is missing.
    fn compare(
        &mut self,
        name: &'static str,
        group: &str,
        (of, to): (&str, &str),
        unit: &'static str,
    ) -> anyhow::Result<()> {
        let readings = &self.file.results().readings;
        let both = [of, to].map(|label| readings.get(&reading_name(group, label)));
        let [Some(numerator), Some(denominator)] = both else {
            let why = self.shunt.clone().err().unwrap_or_else(|| "its runs failed".to_owned());
            self.add_missing(name, why);
            return Ok(());
        };
        let target = TARGETS.iter().find(|(of, _)| *of == name).map(|(_, target)| *target);
        let ratio = Ratio::new((of, numerator), (to, denominator), unit, target);
        self.summary.ratios.insert(name, ratio);
        if let Some(ratio) = Reading::ratio(numerator, denominator) {
            self.file.insert(name, ratio);
            self.file.save()?;
        }
        Ok(())
    }

    fn add_missing(&mut self, name: &'static str, why: String) {
        self.file.add_missing(name, why.clone());
        self.summary.missing.insert(name, why);
    }

    /// One TCP stream: between hosts that cost little with all offloads on, the same by iperf3, and by iperf3 with
    /// frames of the MTU from the hosts, as a wire carries them.
    fn tcp(&mut self) -> anyhow::Result<()> {
        const MTU: &str = "tcp-mtu";
        if self.shunt.is_err() {
            return self.compare("tcp_goodput_tc_vs_slow", "tcp", ("tc", "slow"), GOODPUT);
        }
        // Aggregates are received on the sender's CPU, so there is nothing to poll or to pin.
        let routers = unpaced_routers(&[Path::Slow, Path::Tc])?;
        self.goodput("tcp", &routers, |lab, duration| {
            let sample = tcp_stream::measure(lab.lan(), lab.wan(), duration)?;
            Ok((sample.bits_per_second(), serde_json::to_value(sample)?))
        })?;
        self.compare("tcp_goodput_tc_vs_slow", "tcp", ("tc", "slow"), GOODPUT)?;
        if self.quick {
            return Ok(());
        }
        self.goodput("tcp-iperf3", &routers, tcp_stream::iperf3)?;
        self.compare("tcp_goodput_tc_vs_slow_iperf3", "tcp-iperf3", ("tc", "slow"), GOODPUT)?;
        let routers = unpaced_routers(&[Path::Slow, Path::Tc, Path::BareTc])?;
        for (path, lab) in &routers {
            lab.try_gather(true)?;
            if *path == Path::BareTc {
                tcp_stream::join(lab)?;
            }
        }
        self.goodput(MTU, &routers, |lab, duration| {
            router_rig::threads(lab, Placement::TwoCpus)?;
            tcp_stream::iperf3(lab, duration)
        })?;
        self.compare("tcp_goodput_tc_vs_slow_mtu_frames", MTU, ("tc", "slow"), GOODPUT)?;
        self.compare("tcp_goodput_bare_tc_vs_slow_mtu_frames", MTU, ("bare-tc", "slow"), GOODPUT)
    }

    fn goodput(
        &mut self,
        group: &str,
        routers: &Routers,
        measure: impl Fn(&Topology, Duration) -> anyhow::Result<(f64, Value)>,
    ) -> anyhow::Result<()> {
        for run in 0..self.runs {
            let turns = self.turns(routers, |lab, _| measure(lab, self.turn()))?;
            for ((path, _), turns) in routers.iter().zip(turns) {
                let (rates, samples): (Vec<f64>, Vec<Value>) = turns.into_iter().unzip();
                let best = best(rates) / 1e9;
                println!("{group} {run:2} {path:8} {best:6.2} Gbit/s");
                let reading = reading_name(group, &path.to_string());
                self.add_run(&reading, GOODPUT, best, &samples, Vec::new())?;
            }
        }
        Ok(())
    }

    /// New TCP connections with Shunt up, without it, and with what Shunt needs from the kernel. The engine is tc: on a
    /// veth, the xdp engine has each skb copied first.
    fn connections(&mut self) -> anyhow::Result<()> {
        const PER_SECOND: &str = "new_connections_with_vs_without";
        const BY_CPU: &str = "new_connections_per_router_cpu_with_vs_without";
        const FLOOR: &str = "new_connections_per_router_cpu_listener_vs_without";
        const BY_CPU_GROUP: &str = "connections per router CPU";
        const BY_CPU_UNIT: &str = "connections per second of router CPU, the daemon's included";
        if self.shunt.is_err() {
            return self.compare(PER_SECOND, "connections", ("tc", "slow"), "connections per second");
        }
        let routers = routers(&[Path::Slow, Path::Tc, Path::Listener], router_rig::topology);
        routers.iter().try_for_each(|(_, lab)| lab.try_gather(false))?;
        for run in 0..self.runs {
            let turns = self.turns(&routers, |lab, open| connections::measure(lab, open, self.turn()))?;
            for ((path, _), turns) in routers.iter().zip(turns) {
                let connections = turns.iter().map(|turn| turn.failures).sum();
                let doubts =
                    if connections > 0 { vec![Doubt::ConnectionsFailed { connections }] } else { vec![] };
                let rate = best(turns.iter().map(connections::Sample::per_second));
                let by_cpu = best(turns.iter().map(connections::Sample::per_cpu_second));
                println!("connections {run:2} {path:8} {rate:8.0}/s, {by_cpu:8.0}/s of router CPU");
                let label = path.to_string();
                let [reading, cpu_reading] =
                    ["connections", BY_CPU_GROUP].map(|group| reading_name(group, &label));
                self.add_run(&reading, "1/s", rate, &turns, doubts.clone())?;
                self.add_run(&cpu_reading, "1/s", by_cpu, &json!({}), doubts)?;
            }
        }
        self.compare(PER_SECOND, "connections", ("tc", "slow"), "connections per second")?;
        self.compare(BY_CPU, BY_CPU_GROUP, ("tc", "slow"), BY_CPU_UNIT)?;
        self.compare(FLOOR, BY_CPU_GROUP, ("listener", "slow"), BY_CPU_UNIT)
    }

    /// Duration of a turn in which sockets send.
    fn turn(&self) -> Duration {
        Duration::from_millis(if self.quick { 500 } else { 1000 })
    }

    /// Measures one run: the routers in turn.
    fn turns<T>(
        &self,
        routers: &Routers,
        measure: impl Fn(&Topology, &Open<'_>) -> anyhow::Result<T>,
    ) -> anyhow::Result<Vec<Vec<T>>> {
        let open = routers.iter().map(|(path, lab)| path.open(lab.router()));
        let open = open.collect::<anyhow::Result<Vec<_>>>()?;
        let mut turns: Vec<Vec<T>> = routers.iter().map(|_| Vec::new()).collect();
        for _ in 0..if self.quick { 1 } else { 3 } {
            for (((_, lab), open), turns) in routers.iter().zip(&open).zip(&mut turns) {
                turns.push(measure(lab, open)?);
            }
        }
        Ok(turns)
    }
}

/// A router for each path.
fn routers(paths: &[Path], topology: impl Fn() -> Topology) -> Routers {
    paths.iter().map(|path| (*path, topology())).collect()
}

/// A router for each path, between hosts whose TCP does not pace.
fn unpaced_routers(paths: &[Path]) -> anyhow::Result<Routers> {
    let routers = routers(paths, router_rig::topology);
    for (_, lab) in &routers {
        tcp_stream::congestion_control(lab, tcp_stream::RENO)?;
    }
    Ok(routers)
}

/// A reading's name in the file of results.
fn reading_name(group: &str, label: &str) -> String {
    format!("{group}: {label}")
}

/// The best turn of a run: other work of the machine only makes turns slower.
fn best(rates: impl IntoIterator<Item = f64>) -> f64 {
    rates.into_iter().fold(0.0, f64::max)
}
