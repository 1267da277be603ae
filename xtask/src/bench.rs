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
use path::Path;
use record::{Ratio, Records, Summary, Target};
use rig::{Placement, Rig};
use serde_json::Value;
use shunt_lab::iperf::Load;
use shunt_testkit::Topology;
use std::{collections::BTreeMap, fs, time::Duration};

/// Measures, and leaves target/bench/summary.json.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Fewer and shorter runs: under a minute, and a wider spread.
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

/// One bench under way.
struct Bench {
    placement: Placement,
    quick: bool,
    records: Records,
    summary: Summary,
    runs: usize,
    run_time: Duration,
    shunt: Result<(), String>,
}

/// Nanoseconds of router CPU per packet, run by run.
type ByPath = BTreeMap<Path, Vec<f64>>;

/// Runs of one path by two measures.
#[derive(Default)]
struct Series {
    rate: Vec<f64>,
    per_cpu: Vec<f64>,
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
        run_time: Duration::from_millis(if options.quick { 150 } else { 500 }),
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
        if options.only.is_empty() || options.only.iter().any(|only| only == group) {
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
    /// Every path at 1,000 flows, in turn.
    fn packets(&mut self) -> anyhow::Result<()> {
        let (series, doubts) = self.paths("packets", &rig::topology())?;
        for (name, of, to, bound) in [
            ("cpu_xdp_vs_slow", Path::Xdp, Path::Slow, 1.0 / 6.0),
            ("cpu_tc_vs_slow", Path::Tc, Path::Slow, 0.5),
            ("cpu_xdp_vs_bare_redirect", Path::Xdp, Path::Bare, 1.25),
            ("cpu_bare_redirect_vs_slow", Path::Bare, Path::Slow, 1.0),
        ] {
            self.compare(name, &series, (of, to), bound, &doubts);
        }
        Ok(())
    }

    /// The same between two ports of a bridge.
    fn bridged(&mut self) -> anyhow::Result<()> {
        let (series, doubts) = self.paths("bridged", &rig::bridge())?;
        for (name, of) in [("bridged_cpu_xdp_vs_slow", Path::Xdp), ("bridged_cpu_tc_vs_slow", Path::Tc)] {
            self.compare(name, &series, (of, Path::Slow), 1.0, &doubts);
        }
        Ok(())
    }

    /// What a packet costs by each path.
    fn paths(&mut self, group: &'static str, lab: &Topology) -> anyhow::Result<(ByPath, Vec<String>)> {
        let mut rig = Rig::new(lab, 1000, self.placement)?;
        let mut paths = vec![Path::Slow, Path::Bare];
        if self.shunt.is_ok() {
            paths.extend([Path::Xdp, Path::Tc]);
        }
        let (mut series, mut doubts) = (ByPath::new(), Vec::new());
        for run in 0..self.runs {
            for path in &paths {
                let sample = packets::measure(lab, &mut rig, *path, self.run_time)?;
                doubts.extend(packets::doubts(*path, &sample, self.placement));
                self.records.keep(group, run, &path.to_string(), &sample)?;
                println!(
                    "{group} {run:2} {path:5} {:7.1} ns of router CPU per packet, {:5.2} Mpps",
                    sample.ns_per_packet(),
                    sample.packets_per_second() / 1e6
                );
                series.entry(*path).or_default().push(sample.ns_per_packet());
            }
        }
        Ok((series, doubts))
    }

    fn compare(
        &mut self,
        name: &'static str,
        series: &ByPath,
        (of, to): (Path, Path),
        bound: f64,
        doubts: &[String],
    ) {
        match series.get(&of).zip(series.get(&to)) {
            Some((of, to)) => self.ratio(name, of, to, "ns", Target::AtMost(bound), doubts),
            None => self.lacking(name),
        }
    }

    /// The engine xdp at 100,000 flows, whose packets come in turn or in no order, and at 1,000.
    fn flows(&mut self) -> anyhow::Result<()> {
        const RATIOS: [&str; 2] = ["cpu_100k_vs_1k_flows", "cpu_100k_shuffled_vs_1k_flows"];
        if self.shunt.is_err() {
            RATIOS.into_iter().for_each(|name| self.lacking(name));
            return Ok(());
        }
        let labs = [rig::topology(), rig::topology()];
        let mut many = Rig::new(&labs[0], 100_000, self.placement)?;
        let mut few = Rig::new(&labs[1], 1000, self.placement)?;
        let (mut series, mut doubts) = ([const { Vec::new() }; 3], Vec::new());
        for run in 0..self.runs {
            for (label, series) in ["100000", "100000-shuffled", "1000"].into_iter().zip(&mut series) {
                let (lab, rig) = if label == "1000" { (&labs[1], &mut few) } else { (&labs[0], &mut many) };
                rig.shuffle(label.ends_with("shuffled").then_some(run as u64))?;
                let sample = packets::measure(lab, rig, Path::Xdp, self.run_time)?;
                doubts.extend(packets::doubts(Path::Xdp, &sample, self.placement));
                self.records.keep("flows", run, label, &sample)?;
                println!("flows {run:2} {label:15} {:7.1} ns per packet", sample.ns_per_packet());
                series.push(sample.ns_per_packet());
            }
        }
        let [in_turn, shuffled, few] = series;
        for (name, many) in RATIOS.into_iter().zip([in_turn, shuffled]) {
            self.ratio(name, &many, &few, "ns", Target::AtMost(1.6), &doubts);
        }
        Ok(())
    }

    /// One TCP stream with all offloads on, between hosts that cost little and between those of iperf3, and one with frames of the MTU
    /// from the hosts, as a wire carries them.
    fn tcp(&mut self) -> anyhow::Result<()> {
        if self.shunt.is_err() {
            self.lacking("tcp_goodput_tc_vs_slow");
            return Ok(());
        }
        // Aggregates go up on the sender's CPU, so there is nothing to poll or to pin.
        let lab = unpaced(rig::topology());
        self.goodput("tcp", "tcp_goodput_tc_vs_slow", &lab, |lab, duration| {
            let sample = stream::measure(lab.lan(), lab.wan(), duration)?;
            Ok((sample.bits_per_second(), serde_json::to_value(sample)?))
        })?;
        self.goodput("tcp-iperf3", "tcp_goodput_tc_vs_slow_iperf3", &lab, iperf3)?;
        let lab = unpaced(rig::topology());
        lab.try_gather(true)?;
        self.goodput("tcp-mtu", "tcp_goodput_tc_vs_slow_mtu_frames", &lab, |lab, duration| {
            rig::threads(lab, Placement::TwoCpus)?;
            iperf3(lab, duration)
        })
    }

    fn goodput(
        &mut self,
        group: &'static str,
        name: &'static str,
        lab: &Topology,
        measure: impl Fn(&Topology, Duration) -> anyhow::Result<(f64, Value)>,
    ) -> anyhow::Result<()> {
        let duration = Duration::from_secs(if self.quick { 1 } else { 3 });
        let (mut of, mut to) = (Vec::new(), Vec::new());
        for run in 0..self.runs {
            for (path, series) in [(Path::Slow, &mut to), (Path::Tc, &mut of)] {
                let open = path.open(lab.router())?;
                let (bits_per_second, sample) = measure(lab, duration)?;
                drop(open);
                self.records.keep(group, run, &path.to_string(), &sample)?;
                println!("{group} {run:2} {path:5} {:6.2} Gbit/s", bits_per_second / 1e9);
                series.push(bits_per_second / 1e9);
            }
        }
        self.ratio(name, &of, &to, "Gbit/s", Target::AtLeast(1.3), &[]);
        Ok(())
    }

    /// New TCP connections with Shunt up and without. With the engine tc: on a veth, XDP has each skb copied first.
    fn connections(&mut self) -> anyhow::Result<()> {
        if self.shunt.is_err() {
            self.lacking("new_connections_with_vs_without");
            return Ok(());
        }
        let lab = rig::topology();
        lab.try_gather(false)?;
        let duration = Duration::from_millis(if self.quick { 700 } else { 2000 });
        let (mut of, mut to, mut doubts) = (Series::default(), Series::default(), Vec::new());
        for run in 0..self.runs {
            for (path, series) in [(Path::Slow, &mut to), (Path::Tc, &mut of)] {
                let sample = connections::measure(&lab, path, duration)?;
                if sample.failures > 0 {
                    doubts.push(format!("{path}: {} connections failed", sample.failures));
                }
                self.records.keep("connections", run, &path.to_string(), &sample)?;
                println!(
                    "connections {run:2} {path:5} {:8.0}/s, {:8.0}/s of router CPU",
                    sample.per_second(),
                    sample.per_cpu_second()
                );
                series.rate.push(sample.per_second());
                series.per_cpu.push(sample.per_cpu_second());
            }
        }
        let target = || Target::AtLeast(0.93);
        self.ratio(
            "new_connections_with_vs_without",
            &of.rate,
            &to.rate,
            "connections per second",
            target(),
            &doubts,
        );
        self.ratio(
            "new_connections_per_router_cpu_with_vs_without",
            &of.per_cpu,
            &to.per_cpu,
            "connections per second of router CPU, the daemon's included",
            target(),
            &doubts,
        );
        Ok(())
    }

    /// The slow path with Shunt up and nothing learned, and without it.
    fn idle(&mut self) -> anyhow::Result<()> {
        if self.shunt.is_err() {
            self.lacking("slow_path_cpu_with_vs_without");
            return Ok(());
        }
        let lab = rig::topology();
        let mut rig = Rig::new(&lab, 1000, self.placement)?;
        let (mut of, mut to, mut doubts) = (Vec::new(), Vec::new(), Vec::new());
        for run in 0..self.runs {
            for (path, series) in [(Path::Slow, &mut to), (Path::Idle, &mut of)] {
                let sample = packets::measure(&lab, &mut rig, path, self.run_time)?;
                doubts.extend(packets::doubts(path, &sample, self.placement));
                self.records.keep("idle", run, &path.to_string(), &sample)?;
                println!("idle {run:2} {path:5} {:7.1} ns per packet", sample.ns_per_packet());
                series.push(sample.ns_per_packet());
            }
        }
        self.ratio("slow_path_cpu_with_vs_without", &of, &to, "ns", Target::AtMost(1.0 / 0.93), &doubts);
        Ok(())
    }

    fn ratio(
        &mut self,
        name: &'static str,
        of: &[f64],
        to: &[f64],
        unit: &'static str,
        target: Target,
        doubts: &[String],
    ) {
        let ratio = Ratio::of_pairs(of, to, unit, target, doubts.to_vec());
        self.summary.ratios.insert(name, ratio);
    }

    fn lacking(&mut self, name: &'static str) {
        let why = self.shunt.clone().err().unwrap_or_default();
        self.summary.missing.insert(name, why);
    }
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
