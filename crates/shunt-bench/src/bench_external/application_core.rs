//! The load of the other cores while the external engine forwards.

use super::wait_for_external;
use crate::rig::{
    router_rig::{self, Placement, Rig},
    shunt::{self, fast_packets},
};
use anyhow::{Context, ensure};
use shunt_lab::load::Meter;
use std::{thread, time::Duration};

/// Number of flows.
const FLOWS: u32 = 1000;
/// Rounds over all flows after which they must be learned.
const ROUNDS: u32 = 100;
/// Part of a round's packets that must be fast.
const LEARNED: f64 = 0.98;
const MEASURED: Duration = Duration::from_secs(5);

/// What was measured.
#[derive(Debug)]
pub struct Measured {
    /// Load of the busiest other core, with whatever else runs on this machine.
    pub load_percent: f64,
    /// The same while no packets were sent.
    pub idle_percent: f64,
    /// Packets per second that the engine forwarded meanwhile.
    pub packets_per_second: f64,
}

/// Sends packets as fast as one core makes, forwards and receives them, and measures the load of the other cores.
pub fn measure() -> anyhow::Result<Measured> {
    let cpus = thread::available_parallelism()?.get();
    let (own, _) = Placement::OneCpu.cpus();
    let others: Vec<usize> = (0..cpus).filter(|cpu| *cpu != own).collect();
    ensure!(!others.is_empty(), "the load of other cores needs two cores");
    // The meter is calibrated on an idle machine.
    let mut meter = Meter::start(Some(&others))?;
    let lab = router_rig::topology();
    let mut rig = Rig::new(&lab, FLOWS, Placement::OneCpu)?;
    let config = format!("max_flows = 16384\nexternal_core = {own}\nreprove = \"30s\"\nidle = \"600s\"\n");
    let shuntd = shunt::start(lab.router(), "external", &config)?;
    wait_for_external(&shuntd)?;
    rig.settle()?;
    rig.establish()?;
    let mut share = 0.0;
    for _ in 0..ROUNDS {
        let before = fast_packets(&shuntd)?;
        rig.send(rig.flows())?;
        share = (fast_packets(&shuntd)? - before) as f64 / rig.flows() as f64;
        if share >= LEARNED {
            break;
        }
    }
    ensure!(share >= LEARNED, "only {:.1} % of the packets are fast", share * 100.0);
    let busiest = |meter: &mut Meter| -> anyhow::Result<f64> {
        let load = meter.read()?;
        load.cpus.iter().map(|cpu| cpu.load_percent).max_by(f64::total_cmp).context("no CPU was measured")
    };
    busiest(&mut meter)?;
    thread::sleep(MEASURED);
    let idle_percent = busiest(&mut meter)?;
    let before = fast_packets(&shuntd)?;
    let sample = rig.sample(MEASURED)?;
    let load_percent = busiest(&mut meter)?;
    let forwarded = fast_packets(&shuntd)? - before;
    ensure!(forwarded > 0, "none of {} packets was fast", sample.sent);
    shunt::stop(shuntd)?;
    let packets_per_second = forwarded as f64 / MEASURED.as_secs_f64();
    Ok(Measured { load_percent, idle_percent, packets_per_second })
}
