//! `cargo xtask trace-cost`: how many packets/s fewer a router forwards while `shunt trace` runs.

use crate::{
    rig::{
        packets::{PathRig, prepare},
        path::Path,
        router_rig::{self, Placement, Rig},
        sample::Sample,
    },
    rows,
};
use anyhow::{Context, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::Serialize;
use serde_json::Value;
use shunt_lab::{
    Results, ResultsFile,
    statistics::{median, ratio_of_pairs},
};
use shunt_testkit::{NetNs, tree::built};
use std::{
    collections::BTreeSet,
    fmt::Write,
    io::{BufRead, BufReader, Read},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// Duration of a sample: several of the windows in which probes are attached, one of which begins each second.
const SAMPLE: Duration = Duration::from_secs(4);
const PATHS: [Path; 3] = [Path::Slow, Path::Tc, Path::Xdp];

/// Measures what `shunt trace` costs a router that forwards, and writes target/bench/trace-cost.json.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Print the rows as JSON
    #[arg(long)]
    json: bool,
    /// Trace one packet in N. May be given several times
    #[arg(long = "sample", value_name = "N", default_values_t = [64, 1])]
    samples: Vec<u32>,
    /// Number of rounds; without and with a trace take turns
    #[arg(long, default_value_t = 9)]
    rounds: u32,
    /// Number of flows
    #[arg(long, default_value_t = 1000)]
    flows: u32,
}

/// The result for a path and a share of traced packets.
#[derive(Debug, Serialize)]
struct Row {
    path: String,
    /// One packet in N was traced.
    sample: u32,
    /// Packets/s with a trace by those without, and the 95 % confidence interval.
    packets_ratio: f64,
    packets_ratio_range: [f64; 2],
    /// The same for the router's CPU time per packet.
    cpu_ratio: f64,
    cpu_ratio_range: [f64; 2],
    /// Router CPU time per packet without a trace.
    ns_per_packet: f64,
    /// What `shunt trace` printed as its cost for each packet: the median of its runs.
    printed_ns: f64,
}

/// A running `shunt trace`.
struct Trace(Child);

/// Runs the measurement.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let mut file = rows::begin("trace-cost", "cost of shunt trace")?;
    for path in PATHS {
        let lab = router_rig::topology();
        let mut path_rig = PathRig::new(path, Rig::new(&lab, options.flows, Placement::OneCpu)?);
        let _open = prepare(&mut path_rig)?;
        for sample in &options.samples {
            measure(&mut path_rig, *sample, options.rounds.max(1), &mut file)?;
        }
    }
    let results = file.finish()?;
    rows::show("trace-cost.json", &rows(&results)?, options.json, print)
}

fn measure(
    PathRig { label, rig, .. }: &mut PathRig<'_>,
    sample: u32,
    rounds: u32,
    file: &mut ResultsFile,
) -> anyhow::Result<()> {
    let name = |what: &str| name(label, sample, what);
    for round in 1..=rounds {
        eprintln!("{label}, one packet in {sample}: round {round} of {rounds}");
        let alone = rig.sample(SAMPLE)?;
        let trace = Trace::start(rig.router(), sample)?;
        let traced = rig.sample(SAMPLE)?;
        file.add(&name("printed cost"), "ns/packet", trace.end()?)?;
        for (which, sample) in [("alone", alone), ("traced", traced)] {
            file.add(&name(&format!("CPU, {which}")), "ns/packet", ns_per_packet(&sample))?;
            file.add(&name(&format!("rate, {which}")), "pps", sample.packets_per_second())?;
        }
        file.save()?;
    }
    Ok(())
}

fn name(path: &str, sample: u32, what: &str) -> String {
    format!("{path}, 1 in {sample}: {what}")
}

/// Router CPU time per packet in ns over the whole sample: the probes are attached in a part of its slices only.
fn ns_per_packet(sample: &Sample) -> f64 {
    sample.router.ran_ns as f64 / sample.delivered.max(1) as f64
}

/// The rows of a measurement, for the paths and shares that it has.
fn rows(results: &Results) -> anyhow::Result<Vec<Row>> {
    let values = |name: &str| -> anyhow::Result<Vec<f64>> {
        let reading = results.readings.get(name).with_context(|| format!("no reading `{name}`"))?;
        Ok(reading.runs.iter().map(|run| run.value).collect())
    };
    let samples: BTreeSet<u32> = results
        .readings
        .keys()
        .filter_map(|name| name.split_once(", 1 in ")?.1.split_once(':')?.0.parse().ok())
        .collect();
    let row = |path: Path, sample: u32| {
        let path = path.to_string();
        let of = |what: &str| values(&name(&path, sample, what));
        let ratio = |what: &str| -> anyhow::Result<(f64, [f64; 2])> {
            let (traced, alone) = (of(&format!("{what}, traced"))?, of(&format!("{what}, alone"))?);
            let (ratio, spread) = ratio_of_pairs(&traced, &alone, 1).context("no rounds")?;
            Ok((ratio, [spread.low, spread.high]))
        };
        let (packets_ratio, packets_ratio_range) = ratio("rate")?;
        let (cpu_ratio, cpu_ratio_range) = ratio("CPU")?;
        Ok(Row {
            sample,
            packets_ratio,
            packets_ratio_range,
            cpu_ratio,
            cpu_ratio_range,
            ns_per_packet: median(&of("CPU, alone")?).context("no rounds")?,
            printed_ns: median(&of("printed cost")?).context("no rounds")?,
            path,
        })
    };
    PATHS.iter().flat_map(|path| samples.iter().rev().map(|sample| row(*path, *sample))).collect()
}

/// The table of docs/performance/trace.md.
pub fn markdown(results: &Results) -> anyhow::Result<String> {
    let mut text =
        "| path | packets traced | packets/s | router CPU per packet | printed cost per packet |\n\
                    | --- | --- | --- | --- | --- |\n"
            .to_owned();
    for row in rows(results)? {
        let percent = |ratio: f64| format!("{:+.1} %", (ratio - 1.0) * 100.0);
        let with_range = |ratio, [low, high]: [f64; 2]| {
            format!("{} ({} to {})", percent(ratio), percent(low), percent(high))
        };
        writeln!(
            text,
            "| {} | 1 in {} | {} | {:.0} ns, {} | {:.0} ns |",
            row.path,
            row.sample,
            with_range(row.packets_ratio, row.packets_ratio_range),
            row.ns_per_packet,
            with_range(row.cpu_ratio, row.cpu_ratio_range),
            row.printed_ns
        )?;
    }
    Ok(text)
}

impl Trace {
    /// Starts a trace of all packets of a router, and waits until probes are attached.
    fn start(router: &NetNs, sample: u32) -> anyhow::Result<Self> {
        let mut command: Command = router.command(&built("shunt")?.to_string_lossy());
        command.args(["trace", "--json", "--rows", "0", "--seconds", "60", "--sample", &sample.to_string()]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let mut trace = Self(child);
        let mut line = String::new();
        let stderr = trace.0.stderr.take().context("no standard error")?;
        BufReader::new(stderr).read_line(&mut line)?;
        ensure!(line.contains("tracing"), "shunt trace: {line}");
        Ok(trace)
    }

    /// Ends the trace, and returns what it says that it costs, in ns for each packet.
    fn end(mut self) -> anyhow::Result<f64> {
        kill(Pid::from_raw(i32::try_from(self.0.id())?), Signal::SIGINT)?;
        let mut text = String::new();
        self.0.stdout.take().context("no standard output")?.read_to_string(&mut text)?;
        self.0.wait()?;
        let report: Value = serde_json::from_str(&text).context("shunt trace --json")?;
        ensure!(report["packets"].as_u64() > Some(0), "no packet was traced");
        report["cost"]["per_packet_ns"].as_f64().context("shunt trace does not know its cost")
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn print(rows: &[Row]) {
    println!("path  1 in  packets/s of untraced    router CPU of untraced    ns/packet  printed ns");
    for row in rows {
        let [low, high] = row.packets_ratio_range;
        let [cpu_low, cpu_high] = row.cpu_ratio_range;
        println!(
            "{:4}  {:>4}  {:.3} ({low:.3} to {high:.3})   {:.3} ({cpu_low:.3} to {cpu_high:.3})    {:>9.0}  {:>10.0}",
            row.path, row.sample, row.packets_ratio, row.cpu_ratio, row.ns_per_packet, row.printed_ns
        );
    }
}
