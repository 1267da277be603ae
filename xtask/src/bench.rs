//! The bench: Shunt against Linux alone, in turn, with every run kept.

mod connections;
mod others;
pub mod packets;
pub mod path;
pub mod record;
pub mod rig;
pub mod setting;
mod stream;
pub mod ways;

use crate::{iperf, shunt};
use packets::Lane;
use path::{Open, Path};
use record::{Ratio, Records, Summary, Target};
use rig::{Placement, Rig};
use serde_json::Value;
use shunt_lab::iperf::Load;
use shunt_testkit::Topology;
use std::{collections::BTreeMap, fs, time::Duration};

/// Measures, and leaves target/bench/summary.json.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Fewer and shorter runs of what there are bounds for: under a minute, and a wider spread.
    #[arg(long)]
    quick: bool,
    /// Measure only this ratio or group: packets, bridged, flows, tcp, connections, idle. May be given several times.
    #[arg(long, value_name = "GROUP")]
    only: Vec<String>,
    /// Where the router and everything else run.
    #[arg(long, value_enum, default_value = "one-cpu")]
    placement: Placement,
    /// How many runs of each.
    #[arg(long)]
    runs: Option<usize>,
}

/// The bounds that the project has set itself. What else is measured is for comparison.
const TARGETS: [(&str, Target); 7] = [
    ("cpu_xdp_vs_slow", Target::AtMost(1.0 / 6.0)),
    ("cpu_tc_vs_slow", Target::AtMost(0.5)),
    ("cpu_xdp_vs_bare_redirect", Target::AtMost(1.25)),
    ("cpu_100k_vs_1k_flows", Target::AtMost(1.6)),
    ("tcp_goodput_tc_vs_slow", Target::AtLeast(1.3)),
    ("new_connections_with_vs_without", Target::AtLeast(0.93)),
    ("slow_path_cpu_with_vs_without", Target::AtMost(1.0 / 0.93)),
];

/// A router alone, and one with Shunt.
const WITHOUT_AND_WITH: [Path; 2] = [Path::Slow, Path::Tc];

/// One bench under way.
struct Bench {
    placement: Placement,
    quick: bool,
    records: Records,
    summary: Summary,
    runs: usize,
    shunt: Result<(), String>,
}

/// Nanoseconds of router CPU per packet, run by run, by the label of their lane.
#[derive(Default)]
struct Costs {
    ns: BTreeMap<String, Vec<f64>>,
    doubts: Vec<String>,
}

/// Runs the bench.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let mut bench = Bench {
        placement: options.placement,
        quick: options.quick,
        records: Records::new(shunt::target().join("bench"))?,
        summary: Summary {
            conditions: conditions(options),
            ratios: BTreeMap::new(),
            missing: BTreeMap::new(),
        },
        runs: options.runs.unwrap_or(if options.quick { 3 } else { 9 }),
        shunt: shunt::binary().map(drop).map_err(|e| e.to_string()),
    };
    for (group, work) in [
        ("packets", Bench::packets as fn(&mut Bench) -> anyhow::Result<()>),
        ("bridged", Bench::bridged),
        ("flows", Bench::flows),
        ("tcp", Bench::tcp),
        ("connections", Bench::connections),
        ("idle", Bench::idle),
    ] {
        let wanted = if options.only.is_empty() {
            !options.quick || group != "bridged"
        } else {
            options.only.iter().any(|only| only == group)
        };
        if wanted {
            if let Err(e) = work(&mut bench) {
                eprintln!("{group}: {e:#}");
                bench.summary.missing.insert(group, format!("{e:#}"));
            }
        }
    }
    for (name, ratio) in &bench.summary.ratios {
        for doubt in &ratio.doubts {
            println!("{name}: doubt: {doubt}");
        }
        println!("{name}: {ratio}");
    }
    println!("{}", bench.records.summarize(&bench.summary)?.display());
    anyhow::ensure!(bench.summary.missing.is_empty(), "not everything could be measured");
    Ok(())
}

impl Bench {
    /// Every path at 1,000 flows.
    fn packets(&mut self) -> anyhow::Result<()> {
        let costs = self.costs("packets", rig::topology, &[Path::Slow, Path::Bare, Path::Xdp, Path::Tc])?;
        for (name, of, to) in [
            ("cpu_xdp_vs_slow", "xdp", "slow"),
            ("cpu_tc_vs_slow", "tc", "slow"),
            ("cpu_xdp_vs_bare_redirect", "xdp", "bare"),
            ("cpu_bare_redirect_vs_slow", "bare", "slow"),
        ] {
            self.compare(name, &costs, (of, to));
        }
        Ok(())
    }

    /// The same between two ports of a bridge.
    fn bridged(&mut self) -> anyhow::Result<()> {
        let costs = self.costs("bridged", rig::bridge, &[Path::Slow, Path::Xdp, Path::Tc])?;
        for (name, of) in [("bridged_cpu_xdp_vs_slow", "xdp"), ("bridged_cpu_tc_vs_slow", "tc")] {
            self.compare(name, &costs, (of, "slow"));
        }
        Ok(())
    }

    /// The slow path with Shunt up and nothing learned, and without it. On one router, one after the other: that another one is there,
    /// with programs of its own, costs as much as is to be seen.
    fn idle(&mut self) -> anyhow::Result<()> {
        let lab = rig::topology();
        let mut lanes = vec![Lane::of(Path::Slow, Rig::new(&lab, 1000, self.placement)?)];
        let mut costs = Costs::default();
        for run in 0..self.runs {
            for path in [Path::Slow, Path::Idle].into_iter().filter(|path| self.is_able(*path)) {
                (lanes[0].path, lanes[0].label) = (path, path.to_string());
                self.measure("idle", run, &mut lanes, &mut costs)?;
            }
        }
        self.compare("slow_path_cpu_with_vs_without", &costs, ("idle", "slow"));
        Ok(())
    }

    /// The engine xdp at 100,000 flows, whose packets come in turn or in no order, and at 1,000.
    fn flows(&mut self) -> anyhow::Result<()> {
        let mut lanes = Vec::new();
        let ways = [("1000", 1000), ("100000", 100_000), ("100000-shuffled", 100_000)];
        // To learn so many takes longer than to measure them.
        let (ways, runs) = if self.quick { (&ways[..2], self.runs.min(2)) } else { (&ways[..], self.runs) };
        let labs: Vec<Topology> = ways.iter().map(|_| rig::topology()).collect();
        if self.shunt.is_ok() {
            for ((label, flows), lab) in ways.iter().zip(&labs) {
                let mut rig = Rig::new(lab, *flows, self.placement)?;
                if label.ends_with("shuffled") {
                    rig.shuffle(1)?;
                }
                lanes.push(Lane { label: (*label).to_owned(), path: Path::Xdp, rig });
            }
        }
        let costs = self.run("flows", runs, lanes)?;
        self.compare("cpu_100k_vs_1k_flows", &costs, ("100000", "1000"));
        if !self.quick {
            self.compare("cpu_100k_shuffled_vs_1k_flows", &costs, ("100000-shuffled", "1000"));
        }
        Ok(())
    }

    /// What a packet costs by each path, at 1,000 flows.
    fn costs(
        &mut self,
        group: &'static str,
        topology: fn() -> Topology,
        paths: &[Path],
    ) -> anyhow::Result<Costs> {
        let paths: Vec<Path> = paths.iter().copied().filter(|path| self.is_able(*path)).collect();
        let labs: Vec<Topology> = paths.iter().map(|_| topology()).collect();
        let rig = |lab| Rig::new(lab, 1000, self.placement);
        let lanes = paths.into_iter().zip(&labs).map(|(path, lab)| Ok(Lane::of(path, rig(lab)?)));
        let lanes = lanes.collect::<anyhow::Result<_>>()?;
        self.run(group, self.runs, lanes)
    }

    /// What a packet costs in each lane.
    fn run(&mut self, group: &'static str, runs: usize, mut lanes: Vec<Lane<'_>>) -> anyhow::Result<Costs> {
        let mut costs = Costs::default();
        for run in 0..runs {
            self.measure(group, run, &mut lanes, &mut costs)?;
        }
        Ok(costs)
    }

    /// The same in one run.
    fn measure(
        &self,
        group: &str,
        run: usize,
        lanes: &mut [Lane<'_>],
        costs: &mut Costs,
    ) -> anyhow::Result<()> {
        let samples = packets::measure(lanes, if self.quick { 2 } else { 5 })?;
        for (Lane { label, path, .. }, sample) in lanes.iter().zip(samples) {
            costs.doubts.extend(packets::doubts(*path, &sample, self.placement));
            self.records.keep(group, run, label, &sample)?;
            println!(
                "{group} {run:2} {label:15} {:7.1} ns of router CPU per packet, {:5.2} Mpps",
                sample.ns_per_packet(),
                sample.packets_per_second() / 1e6
            );
            costs.ns.entry(label.clone()).or_default().push(sample.ns_per_packet());
        }
        Ok(())
    }

    fn is_able(&self, path: Path) -> bool {
        self.shunt.is_ok() || matches!(path, Path::Slow | Path::Bare)
    }

    fn compare(&mut self, name: &'static str, costs: &Costs, (of, to): (&str, &str)) {
        match costs.ns.get(of).zip(costs.ns.get(to)) {
            Some((of, to)) => self.ratio(name, of, to, "ns", &costs.doubts),
            None => self.lacking(name),
        }
    }

    /// One TCP stream with all offloads on, between hosts that cost little and between those of iperf3, and one with frames of the MTU
    /// from the hosts, as a wire carries them.
    fn tcp(&mut self) -> anyhow::Result<()> {
        if self.shunt.is_err() {
            self.lacking("tcp_goodput_tc_vs_slow");
            return Ok(());
        }
        // Aggregates go up on the sender's CPU, so there is nothing to poll or to pin.
        let labs = [(); 2].map(|()| unpaced(rig::topology()));
        self.goodput("tcp", "tcp_goodput_tc_vs_slow", &labs, |lab, duration| {
            let sample = stream::measure(lab.lan(), lab.wan(), duration)?;
            Ok((sample.bits_per_second(), serde_json::to_value(sample)?))
        })?;
        if self.quick {
            return Ok(());
        }
        self.goodput("tcp-iperf3", "tcp_goodput_tc_vs_slow_iperf3", &labs, iperf3)?;
        let labs = [(); 2].map(|()| unpaced(rig::topology()));
        labs.iter().try_for_each(|lab| lab.try_gather(true))?;
        self.goodput("tcp-mtu", "tcp_goodput_tc_vs_slow_mtu_frames", &labs, |lab, duration| {
            rig::threads(lab, Placement::TwoCpus)?;
            iperf3(lab, duration)
        })
    }

    fn goodput(
        &mut self,
        group: &'static str,
        name: &'static str,
        labs: &[Topology; 2],
        measure: impl Fn(&Topology, Duration) -> anyhow::Result<(f64, Value)>,
    ) -> anyhow::Result<()> {
        let mut gigabits = [Vec::new(), Vec::new()];
        for run in 0..self.runs {
            let turns = self.turns(labs, |lab, _| measure(lab, self.turn()))?;
            for ((path, turns), gigabits) in WITHOUT_AND_WITH.iter().zip(turns).zip(&mut gigabits) {
                let (rates, samples): (Vec<f64>, Vec<Value>) = turns.into_iter().unzip();
                let best = best(rates) / 1e9;
                self.records.keep(group, run, &path.to_string(), &samples)?;
                println!("{group} {run:2} {path:5} {best:6.2} Gbit/s");
                gigabits.push(best);
            }
        }
        let [to, of] = gigabits;
        self.ratio(name, &of, &to, "Gbit/s", &[]);
        Ok(())
    }

    /// New TCP connections with Shunt up and without. With the engine tc: on a veth, XDP has each skb copied first.
    fn connections(&mut self) -> anyhow::Result<()> {
        if self.shunt.is_err() {
            self.lacking("new_connections_with_vs_without");
            return Ok(());
        }
        let labs = [(); 2].map(|()| rig::topology());
        labs.iter().try_for_each(|lab| lab.try_gather(false))?;
        let (mut rates, mut per_cpu, mut doubts) = ([vec![], vec![]], [vec![], vec![]], Vec::new());
        for run in 0..self.runs {
            let turns = self.turns(&labs, |lab, open| connections::measure(lab, open, self.turn()))?;
            for (nth, (path, turns)) in WITHOUT_AND_WITH.iter().zip(turns).enumerate() {
                let failures: u64 = turns.iter().map(|turn| turn.failures).sum();
                if failures > 0 {
                    doubts.push(format!("{path}: {failures} connections failed"));
                }
                let rate = best(turns.iter().map(connections::Sample::per_second));
                let by_cpu = best(turns.iter().map(connections::Sample::per_cpu_second));
                self.records.keep("connections", run, &path.to_string(), &turns)?;
                println!("connections {run:2} {path:5} {rate:8.0}/s, {by_cpu:8.0}/s of router CPU");
                rates[nth].push(rate);
                per_cpu[nth].push(by_cpu);
            }
        }
        for (name, [to, of], unit) in [
            ("new_connections_with_vs_without", rates, "connections per second"),
            (
                "new_connections_per_router_cpu_with_vs_without",
                per_cpu,
                "connections per second of router CPU, the daemon's included",
            ),
        ] {
            self.ratio(name, &of, &to, unit, &doubts);
        }
        Ok(())
    }

    /// How long a turn lasts that sockets make.
    fn turn(&self) -> Duration {
        Duration::from_millis(if self.quick { 500 } else { 1000 })
    }

    /// One run of a router without Shunt and of one with it, which have their turns one after the other.
    fn turns<T>(
        &self,
        labs: &[Topology; 2],
        measure: impl Fn(&Topology, &Open<'_>) -> anyhow::Result<T>,
    ) -> anyhow::Result<[Vec<T>; 2]> {
        let [without, with] = WITHOUT_AND_WITH;
        let open = [without.open(labs[0].router())?, with.open(labs[1].router())?];
        let mut turns = [Vec::new(), Vec::new()];
        for _ in 0..if self.quick { 1 } else { 3 } {
            for ((lab, open), turns) in labs.iter().zip(&open).zip(&mut turns) {
                turns.push(measure(lab, open)?);
            }
        }
        Ok(turns)
    }

    fn ratio(&mut self, name: &'static str, of: &[f64], to: &[f64], unit: &'static str, doubts: &[String]) {
        let target = TARGETS.iter().find(|(of, _)| *of == name).map(|(_, target)| *target);
        let ratio = Ratio::of_pairs(of, to, unit, target, doubts.to_vec());
        self.summary.ratios.insert(name, ratio);
    }

    fn lacking(&mut self, name: &'static str) {
        let why = self.shunt.clone().err().unwrap_or_default();
        self.summary.missing.insert(name, why);
    }
}

/// The best turn of a run: what else the machine does only takes away.
fn best(rates: impl IntoIterator<Item = f64>) -> f64 {
    rates.into_iter().fold(0.0, f64::max)
}

/// Hosts whose TCP sends what it can: BBR's pacing waits for timers, and where these are slow the stream is.
fn unpaced(lab: Topology) -> Topology {
    for host in lab.hosts() {
        host.ns.sysctl("ipv4/tcp_congestion_control", "reno");
    }
    lab
}

fn iperf3(lab: &Topology, duration: Duration) -> anyhow::Result<(f64, Value)> {
    let arrived = iperf::run(lab.lan(), lab.wan(), false, Load::Tcp, duration)?;
    Ok((arrived.bits_per_second, serde_json::to_value(arrived)?))
}

fn conditions(options: &Options) -> BTreeMap<&'static str, String> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpu_info = read("/proc/cpuinfo");
    let model = cpu_info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    BTreeMap::from([
        ("kernel", read("/proc/sys/kernel/osrelease").trim().to_owned()),
        ("cpu", model.trim_start_matches([' ', '\t', ':']).to_owned()),
        ("cpus", cpu_info.matches("processor\t").count().to_string()),
        ("load_at_start", read("/proc/loadavg").trim().to_owned()),
        ("placement", format!("{:?}", options.placement)),
        ("quick", options.quick.to_string()),
        ("frame", "64 bytes with FCS, UDP, IPv4".to_owned()),
        ("batch", "64 frames".to_owned()),
        ("devices", "veth, native XDP, threaded NAPI".to_owned()),
    ])
}
