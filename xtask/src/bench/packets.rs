//! Router CPU per packet.

use crate::bench::{
    path::{Open, Path},
    rig::{Placement, Rig, Sample},
};
use anyhow::{Context, ensure};
use std::time::Duration;

/// Rounds over all flows until the fast path must have learned them.
const ROUNDS: usize = 40;
/// How long a path is loaded before it is the next one's turn, once every flow has sent a packet.
const TURN: Duration = Duration::from_millis(100);
/// How long a flow's packet takes at most.
const PACKET: Duration = Duration::from_micros(1);

/// A path and the router that it is opened on.
#[derive(Debug)]
pub struct Lane<'a> {
    /// What its runs are called.
    pub label: String,
    /// What is measured.
    pub path: Path,
    /// A router of its own.
    pub rig: Rig<'a>,
}

impl<'a> Lane<'a> {
    /// The lane of a path, under that path's name.
    pub fn of(path: Path, rig: Rig<'a>) -> Self {
        Self { label: path.to_string(), path, rig }
    }
}

/// One run of paths that have their turns one after the other, again and again: whatever the machine's neighbours do, they do it to
/// all of them.
pub fn measure(lanes: &mut [Lane<'_>], turns: usize) -> anyhow::Result<Vec<Sample>> {
    let open = lanes.iter_mut().map(prepare).collect::<Result<Vec<_>, _>>()?;
    let before = counts(lanes, &open)?;
    let mut runs: Vec<Option<Sample>> = lanes.iter().map(|_| None).collect();
    for _ in 0..turns {
        for (lane, run) in lanes.iter_mut().zip(&mut runs) {
            let turn = lane.rig.sample(TURN + PACKET * u32::try_from(lane.rig.flows())?)?;
            match run {
                Some(run) => run.add(turn),
                None => *run = Some(turn),
            }
        }
    }
    let mut runs = runs.into_iter().collect::<Option<Vec<_>>>().context("no turns")?;
    for (run, (before, after)) in runs.iter_mut().zip(before.iter().zip(counts(lanes, &open)?)) {
        let delivered = after.0 - before.0;
        run.fast_share =
            before.1.zip(after.1).map(|(before, after)| (after - before) as f64 / delivered as f64);
    }
    Ok(runs)
}

/// Packets that have come through, and those of them that were fast.
fn counts(lanes: &[Lane<'_>], open: &[Open<'_>]) -> anyhow::Result<Vec<(u64, Option<u64>)>> {
    lanes.iter().zip(open).map(|(lane, open)| Ok((lane.rig.delivered()?, open.fast_packets()?))).collect()
}

/// Opens a path, and has it take the packets of all flows.
fn prepare<'a>(Lane { path, rig, .. }: &mut Lane<'a>) -> anyhow::Result<Open<'a>> {
    let open = path.open(rig.router())?;
    rig.settle()?;
    if *path != Path::Bare {
        rig.establish()?;
    }
    if path.is_fast() {
        learn(rig, || Ok(open.fast_packets()?.unwrap_or(0)))?;
    }
    rig.place()?;
    Ok(open)
}

/// Sends until the fast path has nearly all of the packets.
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
    ensure!(taken > 0, "the fast path took no packet");
    Ok(())
}

/// What makes one doubt a sample.
pub fn doubts(path: Path, sample: &Sample, placement: Placement) -> Vec<String> {
    let mut doubts = Vec::new();
    let lost = 1.0 - sample.delivered as f64 / sample.sent.max(1) as f64;
    if placement == Placement::OneCpu && lost > 0.001 {
        doubts.push(format!("{path}: {:.1} % of the packets were lost", lost * 100.0));
    }
    let waited = sample.router.waited_ns as f64 / sample.elapsed_ns.max(1) as f64;
    if waited > 0.02 {
        doubts.push(format!("{path}: the router waited {:.0} % of the time for its CPU", waited * 100.0));
    }
    let batch = sample.delivered as f64 / sample.router.slices.max(1) as f64;
    if placement == Placement::OneCpu && batch < 60.0 {
        doubts.push(format!("{path}: batches of {batch:.0} packets where 64 were sent"));
    }
    if let Some(share) = sample.fast_share.filter(|share| path.is_fast() && *share < 0.98) {
        doubts.push(format!("{path}: {:.1} % of the packets on the fast path", share * 100.0));
    }
    doubts
}
