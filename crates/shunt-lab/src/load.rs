//! CPU load, measured by the time that is left on each CPU.
//!
//! On each CPU, a thread of the lowest scheduling class (SCHED_IDLE), the soaker, does rounds of work that take a known
//! time. Work that it does not get done is load: other processes had the CPU, or interrupts and softirqs, which
//! tick-based accounting misses.
//!
//! A round is timed in pieces of some microseconds. Most pieces are not interrupted, so their lower quartile gives the
//! CPU's current speed, however busy the CPU is. Load is a share of time: a change of frequency shows as speed, not as
//! load. A round has pieces that work in registers and pieces that work in memory. If only those in memory slow down,
//! other work uses the caches or the memory bus.
//!
//! The meter keeps its CPUs out of idle states and at their highest clock, and walks through 4 MiB of memory;
//! [`CpuLoad`] has its cost. Measure throughput with the meter and without it.

mod calibration;
mod fixed_work;
mod group;
mod kernels;
mod proc_stat;
pub(crate) mod router;
mod self_test;
mod soaker;
mod threads;

use crate::{Conditions, Doubt};
pub use calibration::Calibration;
pub(crate) use fixed_work::FixedWork;
use group::IdleGroup;
pub(crate) use proc_stat::cpu_ticks;
pub use proc_stat::{CpuTimes, StatShares};
use proc_stat::{ProcStat, Throttles};
pub use self_test::{SelfTest, SelfTestStep};
use serde::{Deserialize, Serialize};
use soaker::{Sample, Soaker};
use std::{io, sync::Arc};
pub use threads::{PollThreads, RunTime};

/// A change of speed, or a spread, from which on there is a doubt.
const DOUBTFUL: f64 = 0.01;
/// Steal from which on there is a doubt.
const DOUBTFUL_STEAL_PERCENT: f64 = 0.5;

/// A soaker on each CPU, from [`start`](Self::start) to [`stop`](Self::stop).
#[derive(Debug)]
pub struct Meter {
    soakers: Vec<Soaker>,
    left_out: Vec<usize>,
    last: Snapshot,
    conditions: Conditions,
    standing: Vec<Doubt>,
    // Dropped after the soakers: a group that has threads cannot be removed.
    _group: Option<Arc<IdleGroup>>,
}

/// The load of a machine over an interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Duration of the interval in seconds.
    pub seconds: f64,
    /// Mean load of the CPUs in percent.
    pub load_percent: f64,
    /// CPU time in percent of one core: the loads of all CPUs together. Absent in files of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core_percent: Option<f64>,
    /// The load of each CPU; empty for a router in a namespace, whose threads may use any CPU.
    pub cpus: Vec<CpuLoad>,
    /// Reasons why the load may be wrong.
    pub doubts: Vec<Doubt>,
    /// Conditions of the machine at the start of the meter.
    pub conditions: Conditions,
}

/// The load of one CPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CpuLoad {
    /// Number of the CPU.
    pub cpu: usize,
    /// Share of time in which anything but the meter had the CPU.
    pub load_percent: f64,
    /// Error of the load in percentage points, by the spread of the calibration.
    pub error_points: f64,
    /// Speed in percent of the speed at calibration.
    pub speed_percent: f64,
    /// Slowdown of work in memory since the calibration, beyond the change of speed.
    pub memory_slowdown_percent: f64,
    /// Share of time in which the meter ran; None if the scheduler does not report it.
    pub soaked_percent: Option<f64>,
    /// Largest share that the meter can have taken from others, by its scheduling weight. Part of the load.
    pub taken_percent: f64,
    /// Memory traffic of the meter in MB/s.
    pub soaker_mbytes_per_second: f64,
    /// Load by /proc/stat.
    pub proc_stat: StatShares,
}

fn numbers(cpus: &[usize]) -> String {
    let numbers: Vec<String> = cpus.iter().map(usize::to_string).collect();
    numbers.join(", ")
}

/// An error of the load meter.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The requested CPU is not allowed.
    #[error("CPU {cpu} is not online or not allowed here (cpuset); allowed: {}", numbers(allowed))]
    NotAllowed {
        /// Number of the CPU.
        cpu: usize,
        /// Numbers of the allowed CPUs.
        allowed: Vec<usize>,
    },
    /// Other work left no time on a CPU.
    #[error("CPU {cpu} is too busy to calibrate: start the meter before the load")]
    Busy {
        /// Number of the CPU.
        cpu: usize,
    },
    /// The operating system returned an error.
    #[error("{what}: {source}")]
    System {
        /// The failed operation.
        what: String,
        /// The error.
        source: io::Error,
    },
    /// A signal stopped the meter.
    #[error("interrupted before the test was complete")]
    Interrupted,
}

/// The meter's counters at one moment.
#[derive(Debug)]
pub struct Mark(Snapshot);

#[derive(Debug)]
struct Snapshot {
    soakers: Vec<Sample>,
    stat: ProcStat,
    throttles: Throttles,
}

impl Meter {
    /// Starts a soaker on each of these CPUs, or on all allowed CPUs. They are calibrated together, since CPUs share
    /// power, caches and memory. Takes about a second.
    ///
    /// # Errors
    /// Fails if a requested CPU is not allowed or is too busy.
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
        let last = Snapshot::take(&soakers)?;
        Ok(Self { soakers, left_out, last, conditions, standing, _group: group })
    }

    /// The calibration of each CPU.
    pub fn calibrations(&self) -> impl Iterator<Item = (usize, &Calibration)> {
        self.soakers.iter().map(|soaker| (soaker.cpu(), soaker.calibration()))
    }

    /// The load since the last call or the start.
    ///
    /// # Errors
    /// Fails if /proc cannot be read.
    pub fn read(&mut self) -> Result<Load, LoadError> {
        let now = self.mark()?;
        let load = self.between_snapshots(&self.last, &now.0);
        self.last = now.0;
        Ok(load)
    }

    /// Records the counters of this moment.
    ///
    /// # Errors
    /// Fails if /proc cannot be read.
    pub fn mark(&self) -> Result<Mark, LoadError> {
        Snapshot::take(&self.soakers).map(Mark)
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
        let core_percent = cpus.iter().map(|cpu| cpu.load_percent).sum::<f64>();
        let load_percent = core_percent / cpus.len().max(1) as f64;
        Load {
            seconds,
            load_percent,
            core_percent: Some(core_percent),
            cpus,
            doubts,
            conditions: self.conditions.clone(),
        }
    }

    /// The load since the last call; then stops the soakers.
    ///
    /// # Errors
    /// Fails if /proc cannot be read.
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
    fn take(soakers: &[Soaker]) -> Result<Self, LoadError> {
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
