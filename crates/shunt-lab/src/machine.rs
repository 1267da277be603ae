//! The state of this machine while runs are made: what other programs took of its CPUs, and the time that fixed work
//! takes.

use crate::{
    load::{FixedWork, cpu_ticks},
    statistics::median,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, process,
    time::SystemTime,
};

/// The state of the machine during a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MachineSample {
    /// The time when the run was recorded, in UTC by RFC 3339.
    pub at: String,
    /// Share of the time of all CPUs since the sample before that programs took which the measurement did not start,
    /// with the time that the hypervisor took. Kernel code is not included: it may belong to the measurement.
    pub others_percent: f64,
    /// Time of a fixed piece of work, after the run, with waiting for the CPU: the mean of all CPUs.
    pub work_us: f64,
}

/// The state of the machine during several runs: medians.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MachineState {
    /// As [`MachineSample::others_percent`].
    pub others_percent: f64,
    /// As [`MachineSample::work_us`].
    pub work_us: f64,
}

/// Takes a sample after each run.
#[derive(Debug)]
pub(crate) struct MachineMeter {
    work: FixedWork,
    before: Option<CpuTime>,
}

/// CPU time since boot, in ticks.
#[derive(Debug, Clone, Copy)]
struct CpuTime {
    all: u64,
    /// Time of programs, and of the hypervisor.
    programs: u64,
    /// Time of this program and those that it started.
    own: u64,
}

impl MachineMeter {
    pub(crate) fn start() -> Self {
        Self { work: FixedWork::new(), before: CpuTime::read() }
    }

    /// The state since the sample before; None if the kernel does not say.
    pub(crate) fn sample(&mut self) -> Option<MachineSample> {
        let now = CpuTime::read()?;
        let others_percent = now.others_percent_since(self.before?)?;
        let work_us = self.work.time_us()?;
        // The work itself is in no sample.
        self.before = CpuTime::read();
        Some(MachineSample { at: rfc3339_now(), others_percent, work_us })
    }
}

impl MachineState {
    /// The state during runs that were recorded at these times; None if there is a run without a sample.
    pub(crate) fn during<'t>(
        samples: &[MachineSample],
        times: impl Iterator<Item = Option<&'t str>>,
    ) -> Option<Self> {
        // RFC 3339 times in UTC sort as text. A sample is taken just before the values of its run are added.
        let of_run = |at: Option<&str>| {
            let at = at?;
            samples.iter().rev().find(|sample| sample.at.as_str() <= at)
        };
        let of_runs: Vec<&MachineSample> = times.map(of_run).collect::<Option<_>>()?;
        let middle = |of: fn(&MachineSample) -> f64| median(&of_runs.iter().map(|s| of(s)).collect::<Vec<_>>());
        Some(Self { others_percent: middle(|s| s.others_percent)?, work_us: middle(|s| s.work_us)? })
    }
}

impl CpuTime {
    fn read() -> Option<Self> {
        let (all, programs) = cpu_ticks()?;
        Some(Self { all, programs, own: ticks_of_descendants(&processes()?, process::id()) })
    }

    fn others_percent_since(self, before: Self) -> Option<f64> {
        let all = self.all.checked_sub(before.all).filter(|ticks| *ticks > 0)?;
        let own = self.own.saturating_sub(before.own);
        let others = self.programs.saturating_sub(before.programs).saturating_sub(own);
        Some(others as f64 / all as f64 * 100.0)
    }
}

/// A process: its parent, and the ticks of user code of it and of its children that have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    parent: u32,
    ticks: u64,
}

fn processes() -> Option<BTreeMap<u32, Process>> {
    let entries = fs::read_dir("/proc").ok()?.flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    // A process may end meanwhile.
    Some(pids.filter_map(|pid| Some((pid, process(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?))).collect())
}

/// Parses /proc/PID/stat (proc_pid_stat(5)), whose second field is a name in parentheses.
fn process(stat: &str) -> Option<Process> {
    let after_name: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |number: usize| after_name.get(number - 3)?.parse::<u64>().ok();
    Some(Process { parent: u32::try_from(field(4)?).ok()?, ticks: field(14)? + field(16)? })
}

fn ticks_of_descendants(processes: &BTreeMap<u32, Process>, root: u32) -> u64 {
    let mut own = BTreeSet::from([root]);
    let mut ticks = 0;
    let mut left = vec![root];
    while let Some(pid) = left.pop() {
        ticks += processes.get(&pid).map_or(0, |process| process.ticks);
        let children = processes.iter().filter(|(_, process)| process.parent == pid);
        left.extend(children.map(|(child, _)| *child).filter(|child| own.insert(*child)));
    }
    ticks
}

pub(crate) fn rfc3339_now() -> String {
    humantime::format_rfc3339_millis(SystemTime::now()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: u32, others_percent: f64, work_us: f64) -> MachineSample {
        MachineSample { at: format!("2026-01-01T00:00:{at:02}.000Z"), others_percent, work_us }
    }

    #[test]
    fn the_state_during_runs_is_that_of_their_samples() {
        let samples = [sample(10, 1.0, 100.0), sample(20, 3.0, 110.0), sample(30, 90.0, 400.0)];
        let during = |times: &[&str]| {
            let at: Vec<String> = times.iter().map(|s| format!("2026-01-01T00:00:{s}.000Z")).collect();
            MachineState::during(&samples, at.iter().map(|at| Some(at.as_str())))
        };
        let state = |others_percent, work_us| Some(MachineState { others_percent, work_us });
        assert_eq!(during(&["10", "21"]), state(2.0, 105.0));
        assert_eq!(during(&["31"]), state(90.0, 400.0));
        assert_eq!((during(&["09", "31"]), during(&[])), (None, None));
        assert_eq!(MachineState::during(&samples, [None].into_iter()), None);
    }

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let stat = "7 (a) (b c) S 5 7 7 0 -1 4194304 1 2 3 4 100 20 30 4 20 0 1 0 99 1 1";
        assert_eq!(process(stat), Some(Process { parent: 5, ticks: 130 }));
        assert_eq!((process("7 (a"), process("7 (a) S 5")), (None, None));
    }

    #[test]
    fn time_of_descendants_is_own_time() {
        let of = |parent, ticks| Process { parent, ticks };
        let processes = BTreeMap::from([(1, of(0, 1)), (2, of(1, 10)), (3, of(2, 100)), (4, of(1, 1000)), (9, of(3, 5))]);
        assert_eq!([2, 1, 7].map(|root| ticks_of_descendants(&processes, root)), [115, 1116, 0]);
        let before = CpuTime { all: 1000, programs: 500, own: 100 };
        let now = CpuTime { all: 1200, programs: 600, own: 150 };
        assert_eq!((now.others_percent_since(before), before.others_percent_since(now)), (Some(25.0), None));
    }

    #[test]
    fn this_machine_has_a_state() {
        let mut meter = MachineMeter::start();
        // At least one tick must pass.
        std::thread::sleep(std::time::Duration::from_millis(30));
        let sample = meter.sample().unwrap();
        assert!((0.0..=100.0).contains(&sample.others_percent) && sample.work_us > 10.0, "{sample:?}");
    }
}
