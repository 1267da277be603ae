//! The row of a path: its cost in one setting.

use crate::rig::{
    path::Path,
    sample::Sample,
    setting::{Family, Setting, Tagging},
};
use serde::{Deserialize, Serialize};
use shunt_lab::statistics::median;

/// The cost of a packet on one path, with one setting and number of flows, or the reason why it is unknown.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    pub path: Path,
    pub family: Family,
    pub nat: bool,
    /// Whether one side is tagged.
    pub vlan: bool,
    pub tag: Tagging,
    pub flows: u32,
    /// The median of the runs.
    pub instructions_per_packet: Option<f64>,
    /// The least and the greatest run.
    pub spread: Option<(f64, f64)>,
    pub runs: Vec<Run>,
    /// Why there is no figure; None if there is one.
    pub missing: Option<String>,
}

/// One run of a path.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    /// Instructions of the router's polling threads, without generator and sink.
    pub instructions_per_packet: f64,
    /// For comparison: instructions of generator, router and sink, less the baseline.
    pub less_baseline: f64,
    /// The baseline: instructions of generator and sink when packets are dropped on arrival at the router.
    pub baseline: f64,
    pub packets: u64,
}

/// A line of a guest's output.
#[derive(Debug, Serialize, Deserialize)]
pub enum GuestMessage {
    /// Release of the guest's kernel.
    Kernel(String),
    Row(Row),
}

impl Row {
    pub fn new(path: Path, setting: Setting, flows: u32, runs: anyhow::Result<Vec<Run>>) -> Self {
        let (runs, missing) = match runs {
            Ok(runs) => (runs, None),
            Err(e) => (Vec::new(), Some(format!("{e:#}"))),
        };
        let costs: Vec<f64> = runs.iter().map(|run| run.instructions_per_packet).collect();
        let least = costs.iter().copied().reduce(f64::min);
        let Setting { family, nat, tag } = setting;
        Self {
            path,
            family,
            nat,
            vlan: tag != Tagging::None,
            tag,
            flows,
            instructions_per_packet: median(&costs),
            spread: least.zip(costs.iter().copied().reduce(f64::max)),
            runs,
            missing,
        }
    }

    pub fn setting(&self) -> Setting {
        Setting { family: self.family, nat: self.nat, tag: self.tag }
    }
}

impl Run {
    pub fn from_sample(sample: &Sample, baseline: f64) -> Self {
        let packets = sample.delivered;
        Self {
            instructions_per_packet: sample.router.ran_ns as f64 / packets.max(1) as f64,
            less_baseline: total_ns_per_packet(sample) - baseline,
            baseline,
            packets,
        }
    }
}

/// Cost of a packet for generator, router and hosts together. In a guest that counts instructions, a nanosecond is one
/// instruction.
pub fn total_ns_per_packet(sample: &Sample) -> f64 {
    let ran = sample.generator + sample.router + sample.hosts;
    ran.ran_ns as f64 / sample.delivered.max(1) as f64
}
