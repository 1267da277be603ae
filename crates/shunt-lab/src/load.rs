//! CPU load, measured by what is left of each CPU.
//!
//! On each CPU a thread of the lowest class (SCHED_IDLE) does rounds of work that take a known time. What it does not get done,
//! somebody else had the CPU for: processes, and also interrupts and softirqs, which accounting by ticks misses.
//!
//! A round is timed in pieces of some microseconds. Most pieces are not interrupted, so their lower quartile says how fast
//! the CPU is *now*, however busy it is: load is a share of time, and a change of frequency shows as a speed, not as load.
//! A round has pieces in registers and pieces in memory. If only those in memory slow down, somebody else has the caches or the bus.
//!
//! The meter keeps its CPUs out of idle states and at their highest clock, and walks through 4 MiB: [`CpuLoad`] says what it
//! took. Measure throughput with and without it.

mod calibration;
mod group;
mod kernels;
mod proc_stat;
mod self_test;
mod soaker;

use crate::{Conditions, Doubt};
pub use calibration::Calibration;
use group::IdleGroup;
pub use proc_stat::StatShares;
use proc_stat::{ProcStat, Throttles};
pub use self_test::{SelfTest, SelfTestStep};
use serde::{Deserialize, Serialize};
use soaker::{Sample, Soaker};
use std::{io, sync::Arc};

/// A change of speed, or a spread, that is worth a doubt.
const DOUBTFUL: f64 = 0.01;
/// Steal that is worth a doubt.
const DOUBTFUL_STEAL_PERCENT: f64 = 0.5;

/// A soaker on each CPU, from [`start`](Self::start) to [`stop`](Self::stop).
#[derive(Debug)]
pub struct Meter {
    soakers: Vec<Soaker>,
    left_out: Vec<usize>,
    last: Snapshot,
    conditions: Conditions,
    standing: Vec<Doubt>,
    // After the soakers, since a group that has threads cannot be removed.
    _group: Option<Arc<IdleGroup>>,
}

/// The load of a machine over some time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Over how long.
    pub seconds: f64,
    /// The mean of the CPUs.
    pub load_percent: f64,
    /// Each.
    pub cpus: Vec<CpuLoad>,
    /// Why it may be wrong.
    pub doubts: Vec<Doubt>,
    /// Of the machine, when the meter was started.
    pub conditions: Conditions,
}

/// The load of one CPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CpuLoad {
    /// Its number.
    pub cpu: usize,
    /// The share of time that anything but the meter had it.
    pub load_percent: f64,
    /// How far that may be off, by the spread of the calibration.
    pub error_points: f64,
    /// Its speed in terms of that at calibration.
    pub speed_percent: f64,
    /// How much longer work in memory took than at calibration, beyond what speed explains.
    pub memory_slowdown_percent: f64,
    /// How long the meter was on it.
    pub soaked_percent: Option<f64>,
    /// At most what the meter took from others, by its weight in the scheduler. Part of the load.
    pub taken_percent: f64,
    /// What the meter moved through caches and memory.
    pub soaker_mbytes_per_second: f64,
    /// What /proc/stat says.
    pub proc_stat: StatShares,
}

/// Why load cannot be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A CPU that was asked for.
    #[error("CPU {cpu} is not online or not allowed here (cpuset); allowed: {allowed:?}")]
    NotAllowed {
        /// Which.
        cpu: usize,
        /// Which are.
        allowed: Vec<usize>,
    },
    /// A CPU on which others left no time.
    #[error("CPU {cpu} is too busy to calibrate: start the meter before what it is to measure")]
    Busy {
        /// Which.
        cpu: usize,
    },
    /// The system refused.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// Why not.
        source: io::Error,
    },
    /// By a signal.
    #[error("interrupted: of a test that was not over nothing can be said")]
    Interrupted,
}

/// What the meter had seen by some moment.
#[derive(Debug)]
pub struct Mark(Snapshot);

#[derive(Debug)]
struct Snapshot {
    soakers: Vec<Sample>,
    stat: ProcStat,
    throttles: Throttles,
}

impl Meter {
    /// Starts a soaker on each of these CPUs, or on each that is allowed, and calibrates them together, since CPUs share
    /// power, caches and memory. Takes about a second.
    ///
    /// # Errors
    /// When a CPU that was asked for is not allowed, or is too busy.
    pub fn start(cpus: Option<&[usize]>) -> Result<Self, LoadError> {
        let conditions = Conditions::of_this_machine();
        let (allowed, forbidden) = proc_stat::allowed_cpus()?;
        let wanted = cpus.unwrap_or(&allowed);
        if let Some(&cpu) = wanted.iter().find(|cpu| !allowed.contains(cpu)) {
            return Err(LoadError::NotAllowed { cpu, allowed });
        }
        let group = group::idle_group().map(Arc::new);
        let starting: Vec<_> =
            wanted.iter().map(|&cpu| Soaker::begin(cpu, group.clone())).collect::<Result<_, _>>()?;
        let soakers: Vec<_> = starting.into_iter().map(soaker::Starting::ready).collect::<Result<_, _>>()?;
        let left_out = if cpus.is_none() { forbidden } else { Vec::new() };
        let mut standing = conditions.doubts();
        if group.is_none() && group::weighs_as_others() {
            standing.push(Doubt::GroupWeight);
        }
        if group::has_quota(group.is_some()) {
            standing.push(Doubt::Quota);
        }
        let last = Snapshot::of(&soakers)?;
        Ok(Self { soakers, left_out, last, conditions, standing, _group: group })
    }

    /// How each CPU was calibrated.
    pub fn calibrations(&self) -> impl Iterator<Item = (usize, &Calibration)> {
        self.soakers.iter().map(|soaker| (soaker.cpu(), soaker.calibration()))
    }

    /// The load since the last call, or since the start.
    ///
    /// # Errors
    /// When /proc cannot be read.
    pub fn read(&mut self) -> Result<Load, LoadError> {
        let now = self.mark()?;
        let load = self.between_snapshots(&self.last, &now.0);
        self.last = now.0;
        Ok(load)
    }

    /// This moment.
    ///
    /// # Errors
    /// When /proc cannot be read.
    pub fn mark(&self) -> Result<Mark, LoadError> {
        Snapshot::of(&self.soakers).map(Mark)
    }

    /// The load from one moment to a later one.
    pub fn between(&self, then: &Mark, now: &Mark) -> Load {
        self.between_snapshots(&then.0, &now.0)
    }

    fn between_snapshots(&self, then: &Snapshot, now: &Snapshot) -> Load {
        let cpus: Vec<_> =
            self.soakers.iter().enumerate().map(|(n, soaker)| soaker_load(soaker, n, then, now)).collect();
        let doubts = self.doubts(&cpus, then, now);
        let seconds = match (then.soakers.first(), now.soakers.first()) {
            (Some(then), Some(now)) => now.at.duration_since(then.at).as_secs_f64(),
            _ => 0.0,
        };
        let load_percent = cpus.iter().map(|cpu| cpu.load_percent).sum::<f64>() / cpus.len().max(1) as f64;
        Load { seconds, load_percent, cpus, doubts, conditions: self.conditions.clone() }
    }

    /// The load since the last call, and the end of the soakers.
    ///
    /// # Errors
    /// When /proc cannot be read.
    pub fn stop(mut self) -> Result<Load, LoadError> {
        self.read()
    }

    fn doubts(&self, cpus: &[CpuLoad], then: &Snapshot, now: &Snapshot) -> Vec<Doubt> {
        let mut doubts = self.standing.clone();
        if !self.left_out.is_empty() {
            doubts.push(Doubt::CpusLeftOut { cpus: self.left_out.clone() });
        }
        for (soaker, load) in self.soakers.iter().zip(cpus) {
            let cpu = load.cpu;
            let spread = soaker.calibration().spread;
            if spread > DOUBTFUL {
                doubts.push(Doubt::Calibration { cpu, percent: spread * 100.0 });
            }
            if (load.speed_percent / 100.0 - 1.0).abs() > DOUBTFUL {
                doubts.push(Doubt::Clock { cpu, percent: load.speed_percent });
            }
            if load.proc_stat.steal_percent > DOUBTFUL_STEAL_PERCENT {
                doubts.push(Doubt::Stolen { cpu, percent: load.proc_stat.steal_percent });
            }
            if now.throttles.grew_since(&then.throttles, cpu) {
                doubts.push(Doubt::Throttled { cpu });
            }
        }
        doubts
    }
}

impl Snapshot {
    fn of(soakers: &[Soaker]) -> Result<Self, LoadError> {
        let cpus = soakers.iter().map(Soaker::cpu);
        Ok(Self {
            throttles: Throttles::read(cpus),
            stat: ProcStat::read()?,
            soakers: soakers.iter().map(Soaker::sample).collect(),
        })
    }
}

fn soaker_load(soaker: &Soaker, n: usize, then: &Snapshot, now: &Snapshot) -> CpuLoad {
    let cpu = soaker.cpu();
    let share = soaker.share(&then.soakers[n], &now.soakers[n]);
    let soaked_percent = share.soaked.map(|soaked| soaked * 100.0);
    CpuLoad {
        cpu,
        load_percent: share.load * 100.0,
        error_points: soaker.calibration().spread * (1.0 - share.load) * 100.0,
        speed_percent: share.speed * 100.0,
        memory_slowdown_percent: share.memory_slowdown * 100.0,
        soaked_percent,
        taken_percent: share.taken * 100.0,
        soaker_mbytes_per_second: share.bytes_per_second / 1e6,
        proc_stat: now.stat.since(&then.stat, cpu, soaked_percent),
    }
}

#[cfg(test)]
mod tests;
