//! Router CPU time per packet.

use crate::rig::{
    path::{Open, Path},
    router_rig::{BATCH, Placement, Rig},
    sample::Sample,
    shunt::engine_of,
};
use anyhow::{Context, ensure};
use shunt_lab::Doubt;
use std::time::{Duration, Instant};

/// Number of rounds over all flows after which the fast path must have learned them.
const ROUNDS: usize = 40;
/// Time in which `auto` chooses the engine: four ticks of the daemon.
const CHOICE: Duration = Duration::from_secs(2);
/// Duration of a path's turn, after every flow has sent a packet.
const TURN: Duration = Duration::from_millis(100);
/// Largest time between two packets at the beginning of a turn.
const PACKET: Duration = Duration::from_micros(1);

/// A path and the router that it is measured on.
#[derive(Debug)]
pub struct PathRig<'a> {
    /// Name of the path in the results.
    pub label: String,
    /// The path to measure.
    pub path: Path,
    /// A router of its own.
    pub rig: Rig<'a>,
    /// Further lines of the daemon's configuration.
    pub config: &'static str,
}

impl<'a> PathRig<'a> {
    /// A path under its own name.
    pub fn new(path: Path, rig: Rig<'a>) -> Self {
        Self { label: path.to_string(), path, rig, config: "" }
    }
}

/// Makes one run: all paths are loaded in turn, several times, so that a disturbance of the machine affects all of
/// them.
pub fn measure(rigs: &mut [PathRig<'_>], turns: usize) -> anyhow::Result<Vec<Sample>> {
    let open = rigs.iter_mut().map(prepare).collect::<Result<Vec<_>, _>>()?;
    let before = counts(rigs, &open)?;
    let mut runs: Vec<Option<Sample>> = rigs.iter().map(|_| None).collect();
    for _ in 0..turns {
        for (path_rig, run) in rigs.iter_mut().zip(&mut runs) {
            let turn = path_rig.rig.sample(TURN + PACKET * u32::try_from(path_rig.rig.flows())?)?;
            match run {
                Some(run) => run.add(turn),
                None => *run = Some(turn),
            }
        }
    }
    let mut runs = runs.into_iter().collect::<Option<Vec<_>>>().context("no turns")?;
    for (run, (before, after)) in runs.iter_mut().zip(before.iter().zip(counts(rigs, &open)?)) {
        let delivered = after.0 - before.0;
        run.fast_share =
            before.1.zip(after.1).map(|(before, after)| (after - before) as f64 / delivered as f64);
    }
    for (run, open) in runs.iter_mut().zip(&open) {
        run.engine = open.status()?.map(|status| engine_of(&status, "r1")).transpose()?;
    }
    Ok(runs)
}

/// Packets delivered so far, and how many of them took the fast path.
fn counts(rigs: &[PathRig<'_>], open: &[Open<'_>]) -> anyhow::Result<Vec<(u64, Option<u64>)>> {
    rigs.iter()
        .zip(open)
        .map(|(path_rig, open)| Ok((path_rig.rig.delivered()?, open.fast_packets()?)))
        .collect()
}

/// Opens a path, and sends until the path handles the packets of all flows.
pub fn prepare<'a>(PathRig { path, rig, config, .. }: &mut PathRig<'a>) -> anyhow::Result<Open<'a>> {
    let open = path.open_with(rig.router(), config)?;
    rig.settle()?;
    if *path != Path::Bare {
        rig.establish()?;
    }
    if *path == Path::Auto {
        choose(rig)?;
    }
    if path.is_fast() {
        learn(rig, || Ok(open.fast_packets()?.unwrap_or(0)))?;
    }
    rig.place()?;
    Ok(open)
}

/// Sends for as long as the daemon needs to choose the engine.
fn choose(rig: &mut Rig<'_>) -> anyhow::Result<()> {
    let began = Instant::now();
    while began.elapsed() < CHOICE {
        rig.send(rig.flows())?;
    }
    // The choice may have attached XDP programs, which replaces the polling threads.
    rig.settle()
}

/// Sends until nearly all packets take the fast path.
fn learn(rig: &mut Rig<'_>, fast: impl Fn() -> anyhow::Result<u64>) -> anyhow::Result<()> {
    let mut taken = 0;
    for _ in 0..ROUNDS {
        let before = fast()?;
        rig.send(rig.flows())?;
        taken = fast()? - before;
        if taken * 100 >= rig.flows() * 98 {
            return Ok(());
        }
    }
    ensure!(taken > 0, "no packet took the fast path");
    Ok(())
}

/// Reasons why a sample may be wrong.
pub fn doubts(path: Path, sample: &Sample, placement: Placement) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    let lost = 1.0 - sample.delivered as f64 / sample.sent.max(1) as f64;
    if placement == Placement::OneCpu && lost > 0.001 {
        doubts.push(Doubt::Lost { percent: lost * 100.0 });
    }
    let waited = sample.router.waited_ns as f64 / sample.elapsed_ns.max(1) as f64;
    if waited > 0.02 {
        doubts.push(Doubt::RouterWaited { percent: waited * 100.0 });
    }
    let packets = sample.delivered as f64 / sample.router.slices.max(1) as f64;
    if placement == Placement::OneCpu && packets < 60.0 {
        doubts.push(Doubt::SmallBatches { packets, sent: BATCH });
    }
    if let Some(share) = sample.fast_share.filter(|share| path.is_fast() && *share < 0.98) {
        doubts.push(Doubt::SlowPath { percent: share * 100.0 });
    }
    doubts
}
