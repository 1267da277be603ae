//! `cargo xtask savings`: what Shunt says that it saves, compared with the CPU time of the same packets.
//!
//! A router without Shunt and one with it get the same packets in turn, at a fixed rate. The CPU time of all threads
//! that handle them is the truth; the daemon knows nothing of it.

use crate::{
    rig::{
        packets::{PathRig, prepare},
        path::{Open, Path},
        router_rig::{Paced, Placement, Rig},
        setting::Setting,
    },
    rows,
};
use anyhow::{Context, ensure};
use serde::Serialize;
use shunt_api::{PathCosts, Status};
use shunt_lab::{Results, ResultsFile, Spread, statistics::difference_of_pairs};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Duration of a turn without or with Shunt.
const TURN: Duration = Duration::from_millis(500);
/// How long the daemon may take for its figure.
const FIGURE: Duration = Duration::from_secs(90);
/// Time between two looks at the daemon.
const LOOK: Duration = Duration::from_secs(1);
const LARGE: u32 = 1518;
const SMALL: u32 = 64;
const UNIT: &str = "ns/packet";
/// The readings of a figure: what the daemon names, and what is measured from outside.
const NAMED: [&str; 3] = ["named", "named, low", "named, high"];
const MEASURED: [&str; 3] = ["measured", "measured, low", "measured, high"];
/// The daemon's costs of both paths, and those measured from outside.
const COSTS: [&str; 2] = ["slow path", "fast path"];
const COSTS_OUTSIDE: [&str; 2] = ["slow path, outside", "fast path, outside"];

/// Compares what Shunt says that it saves with measurements from outside, and writes target/bench/savings.json.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Print the rows as JSON
    #[arg(long)]
    json: bool,
    /// Packets in a second, at most: each burst waits for an RCU grace period before it is sent
    #[arg(long, default_value_t = 50_000)]
    rate: u64,
    /// Number of figures for each case
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Turns without and with Shunt before and after each figure
    #[arg(long, default_value_t = 8)]
    turns: u32,
    /// Number of flows
    #[arg(long, default_value_t = 100)]
    flows: u32,
    /// Only cases whose names contain this
    #[arg(long, default_value = "")]
    only: String,
}

/// A kind of traffic and of router.
#[derive(Debug, Clone, Copy)]
struct Case {
    path: Path,
    nat: bool,
    frame_bytes: u32,
    /// Whether threads poll the devices, not softirqs.
    threads: bool,
}

/// A figure of the daemon and the truth, in ns for each packet.
#[derive(Debug, Clone, Serialize)]
struct Row {
    case: String,
    round: u32,
    saved_ns: f64,
    saved_range_ns: [f64; 2],
    truth_ns: f64,
    truth_range_ns: [f64; 2],
    /// Whether the truth is within the range that the daemon names.
    within: bool,
    /// The daemon's costs of both paths.
    slow_ns: f64,
    fast_ns: f64,
    /// The mean costs of the two routers, measured from outside.
    slow_outside_ns: f64,
    fast_outside_ns: f64,
}

/// Runs the comparison.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let wanted: Vec<Case> = cases().filter(|case| case.name().contains(&options.only)).collect();
    ensure!(!wanted.is_empty(), "no case has a name with `{}`", options.only);
    let mut file = rows::begin("savings", "savings that shunt status names")?;
    for case in wanted {
        compare(case, options, &mut file)?;
    }
    rows::show("savings.json", &rows(&file.finish()?)?, options.json, print)
}

/// The rows of a measurement, for the cases that it has.
fn rows(results: &Results) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for case in cases().map(|case| case.name()) {
        let Some(first) = results.readings.get(&reading(&case, NAMED[0])) else { continue };
        for at in 0..first.runs.len() {
            let value = |what: &str| -> anyhow::Result<f64> {
                let reading = results.readings.get(&reading(&case, what));
                let run = reading.and_then(|reading| reading.runs.get(at));
                Ok(run.with_context(|| format!("{case}: no reading `{what}` of round {}", at + 1))?.value)
            };
            let [saved_ns, low, high] = [value(NAMED[0])?, value(NAMED[1])?, value(NAMED[2])?];
            let truth_ns = value(MEASURED[0])?;
            rows.push(Row {
                case: case.clone(),
                round: at as u32 + 1,
                saved_ns,
                saved_range_ns: [low, high],
                truth_ns,
                truth_range_ns: [value(MEASURED[1])?, value(MEASURED[2])?],
                within: (low..=high).contains(&truth_ns),
                slow_ns: value(COSTS[0])?,
                fast_ns: value(COSTS[1])?,
                slow_outside_ns: value(COSTS_OUTSIDE[0])?,
                fast_outside_ns: value(COSTS_OUTSIDE[1])?,
            });
        }
    }
    Ok(rows)
}

fn reading(case: &str, what: &str) -> String {
    format!("{case}: {what}")
}

fn with_range(value: f64, [low, high]: [f64; 2]) -> String {
    format!("{value:.0} ns ({low:.0} to {high:.0})")
}

fn cases() -> impl Iterator<Item = Case> {
    let paths = [Path::Tc, Path::Xdp].into_iter();
    paths.flat_map(|path| {
        [
            Case { path, nat: true, frame_bytes: SMALL, threads: true },
            Case { path, nat: true, frame_bytes: LARGE, threads: true },
            Case { path, nat: false, frame_bytes: SMALL, threads: true },
            Case { path, nat: true, frame_bytes: SMALL, threads: false },
        ]
    })
}

impl Case {
    fn name(&self) -> String {
        let nat = if self.nat { "NAT" } else { "no NAT" };
        let polled = if self.threads { "threads" } else { "softirqs" };
        format!("{}, {nat}, {} bytes, {polled}", self.path, self.frame_bytes)
    }

    /// CPU time of everything that handles a packet.
    fn ns_per_packet(&self, paced: &Paced) -> anyhow::Result<f64> {
        ensure!(
            paced.packets * 100 >= paced.sent * 99,
            "{} of {} packets arrived",
            paced.packets,
            paced.sent
        );
        let ns = if self.threads { paced.router_ns + paced.hosts_ns } else { paced.sender_ns };
        Ok(ns as f64 / paced.packets as f64)
    }
}

fn compare(case: Case, options: &Options, file: &mut ResultsFile) -> anyhow::Result<()> {
    let setting = Setting { nat: case.nat, ..Setting::default() };
    let (without_lab, with_lab) = (setting.topology(), setting.topology());
    let rig = |lab| Rig::with_setting(lab, setting, options.flows, Placement::OneCpu);
    let mut without = PathRig::new(Path::Slow, rig(&without_lab)?);
    let mut with = PathRig { config: "savings = true\n", ..PathRig::new(case.path, rig(&with_lab)?) };
    let _slow = prepare(&mut without)?;
    let open = prepare(&mut with)?;
    for rig in [&mut without.rig, &mut with.rig] {
        rig.send_frames_of(case.frame_bytes)?;
        // Larger packets must be seen by Linux before they are fast.
        rig.sample_paced(options.rate, TURN)?;
        if !case.threads {
            rig.poll_in_softirqs()?;
        }
    }
    for round in 1..=options.rounds {
        eprintln!("{}: round {round} of {}", case.name(), options.rounds);
        let (mut slow, mut fast) = (Vec::new(), Vec::new());
        turns(case, options, [&mut without.rig, &mut with.rig], [&mut slow, &mut fast])?;
        let costs = figure(&mut with.rig, &open, options.rate)?;
        turns(case, options, [&mut without.rig, &mut with.rig], [&mut slow, &mut fast])?;
        let (truth_ns, Spread { low, high, .. }) =
            difference_of_pairs(&slow, &fast, 1).context("too few turns for an interval")?;
        let saved = costs.saved_ns;
        let named = NAMED.into_iter().zip([saved.value, saved.low, saved.high]);
        let measured = MEASURED.into_iter().zip([truth_ns, low, high]);
        let both = COSTS.into_iter().zip([costs.slow_ns, costs.fast_ns]);
        let outside = [&slow, &fast].map(|costs| costs.iter().sum::<f64>() / costs.len() as f64);
        let outside = COSTS_OUTSIDE.into_iter().zip(outside);
        for (what, value) in named.chain(measured).chain(both).chain(outside) {
            file.add(&reading(&case.name(), what), UNIT, value)?;
        }
        file.save()?;
    }
    Ok(())
}

/// Both routers in turn.
fn turns(
    case: Case,
    options: &Options,
    rigs: [&mut Rig<'_>; 2],
    costs: [&mut Vec<f64>; 2],
) -> anyhow::Result<()> {
    let [without, with] = rigs;
    let [slow, fast] = costs;
    for _ in 0..options.turns {
        slow.push(case.ns_per_packet(&without.sample_paced(options.rate, TURN)?)?);
        fast.push(case.ns_per_packet(&with.sample_paced(options.rate, TURN)?)?);
    }
    Ok(())
}

/// Loads the router until the daemon has measured the costs once more.
fn figure(rig: &mut Rig<'_>, open: &Open<'_>, rate: u64) -> anyhow::Result<PathCosts> {
    let Open::Shunt(shuntd) = open else { anyhow::bail!("no daemon") };
    let look = || -> anyhow::Result<Status> {
        let (code, text) = shuntd.request("GET", "/v1/status?measure=true", "")?;
        ensure!(code == 200, "{text}");
        Ok(serde_json::from_str(&text)?)
    };
    let costs = |status: &Status| status.savings.as_ref().and_then(|savings| savings.costs.clone());
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let loading = scope.spawn(|| -> anyhow::Result<()> {
            while !done.load(Ordering::Relaxed) {
                rig.sample_paced(rate, LOOK)?;
            }
            Ok(())
        });
        let watch = || -> anyhow::Result<PathCosts> {
            let start = Instant::now();
            // Rounds of an earlier figure count, too, but at least one must be of now.
            loop {
                thread::sleep(LOOK);
                let status = look()?;
                if let Some(costs) = costs(&status)
                    && start.elapsed().as_secs_f64() > costs.measured_ago_s + 2.0
                {
                    return Ok(costs);
                }
                let why = status.savings.and_then(|savings| savings.now_unknown);
                ensure!(
                    start.elapsed() < FIGURE,
                    "no figure: {}",
                    why.map_or_else(String::new, |why| why.to_string())
                );
            }
        };
        let costs = watch();
        done.store(true, Ordering::Relaxed);
        loading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        costs
    })
}

fn print(rows: &[Row]) {
    println!(
        "case                                 round  named, saved by a packet      measured                      within"
    );
    for row in rows {
        println!(
            "{:36} {:>5}  {:28}  {:28}  {}",
            row.case,
            row.round,
            with_range(row.saved_ns, row.saved_range_ns),
            with_range(row.truth_ns, row.truth_range_ns),
            if row.within { "yes" } else { "no" }
        );
    }
    let within = rows.iter().filter(|row| row.within).count();
    println!("{within} of {} within the range that Shunt names", rows.len());
}
