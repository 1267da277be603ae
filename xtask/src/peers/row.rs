//! What is measured of one path.

use crate::bench::{
    path::Path,
    rig::Sample,
    setting::{Family, Setting, Tagging},
};
use serde::{Deserialize, Serialize};
use shunt_lab::statistics::median;

/// One path in one setting with so many flows: what a packet costs, or why that is not known.
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
    /// The least and the greatest of them.
    pub spread: Option<(f64, f64)>,
    pub runs: Vec<Run>,
    /// Why there is no number.
    pub missing: Option<String>,
}

/// One run of one path.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    /// Of the router's polling threads: neither the generator nor the sink is in it.
    pub instructions_per_packet: f64,
    /// To compare: those of everything, less those of everything where packets are dropped as they come to the router.
    pub less_baseline: f64,
    /// That baseline: generator and sink.
    pub baseline: f64,
    pub packets: u64,
}

/// What a guest says, a line each.
#[derive(Debug, Serialize, Deserialize)]
pub enum Said {
    /// Its kernel's release.
    Kernel(String),
    Row(Row),
}

impl Row {
    pub fn of(path: Path, setting: Setting, flows: u32, runs: anyhow::Result<Vec<Run>>) -> Self {
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
    pub fn of(sample: &Sample, baseline: f64) -> Self {
        let packets = sample.delivered;
        Self {
            instructions_per_packet: sample.router.ran_ns as f64 / packets.max(1) as f64,
            less_baseline: all(sample) - baseline,
            baseline,
            packets,
        }
    }
}

/// What a packet costs generator, router and hosts together. In a guest that counts, a nanosecond is an instruction.
pub fn all(sample: &Sample) -> f64 {
    let ran = sample.generator + sample.router + sample.hosts;
    ran.ran_ns as f64 / sample.delivered.max(1) as f64
}
