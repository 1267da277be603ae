//! Router CPU per packet.

use crate::bench::{
    path::Path,
    rig::{Placement, Rig, Sample},
};
use anyhow::ensure;
use shunt_testkit::Topology;
use std::time::Duration;

/// Rounds over all flows until the fast path must have learned them.
const ROUNDS: usize = 40;

/// One run of one path.
pub fn measure(lab: &Topology, rig: &mut Rig<'_>, path: Path, duration: Duration) -> anyhow::Result<Sample> {
    let open = path.open(lab.router())?;
    rig.settle()?;
    if path != Path::Bare {
        rig.establish()?;
    }
    if path.is_fast() {
        learn(rig, || Ok(open.fast_packets()?.unwrap_or(0)))?;
    }
    // Caches and the generator's pages are warm after a few thousand packets.
    rig.send(6400)?;
    let before = open.fast_packets()?;
    let mut sample = rig.sample(duration)?;
    sample.fast = before.zip(open.fast_packets()?).map(|(before, after)| after - before);
    Ok(sample)
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
    if let Some(share) = sample.fast_share().filter(|share| path.is_fast() && *share < 0.98) {
        doubts.push(format!("{path}: {:.1} % of the packets on the fast path", share * 100.0));
    }
    doubts
}
