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
    /// The processes that ran before the measurement.
    earlier: BTreeSet<u32>,
}

/// CPU time since boot, in ticks.
#[derive(Debug, Clone)]
struct CpuTime {
    all: u64,
    /// Time of programs, and of the hypervisor.
    programs: u64,
    /// Time of this program and those that it started.
    own: u64,
    /// Time of each daemon of a router, and of its engine.
    daemons: BTreeMap<u32, u64>,
}

impl MachineMeter {
    pub(crate) fn start() -> Self {
        let earlier = processes().unwrap_or_default().into_keys().collect();
        Self { work: FixedWork::new(), before: CpuTime::read(&earlier), earlier }
    }

    /// The state since the sample before; None if the kernel does not say.
    pub(crate) fn sample(&mut self) -> Option<MachineSample> {
        let now = CpuTime::read(&self.earlier)?;
        let others_percent = now.others_percent_since(self.before.as_ref()?)?;
        let work_us = self.work.time_us()?;
        // The work itself is in no sample.
        self.before = CpuTime::read(&self.earlier);
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
        Self::of_samples(times.map(of_run).collect::<Option<Vec<_>>>()?.into_iter())
    }

    /// The medians of these samples; None if there are none.
    pub(crate) fn of_samples<'s>(samples: impl Iterator<Item = &'s MachineSample>) -> Option<Self> {
        let of_runs: Vec<&MachineSample> = samples.collect();
        let middle =
            |of: fn(&MachineSample) -> f64| median(&of_runs.iter().map(|s| of(s)).collect::<Vec<_>>());
        Some(Self { others_percent: middle(|s| s.others_percent)?, work_us: middle(|s| s.work_us)? })
    }
}

impl CpuTime {
    fn read(earlier: &BTreeSet<u32>) -> Option<Self> {
        let (all, programs) = cpu_ticks()?;
        let processes = processes()?;
        let ticks = |pids: BTreeSet<u32>| -> BTreeMap<u32, u64> {
            pids.into_iter().filter_map(|pid| Some((pid, processes.get(&pid)?.ticks))).collect()
        };
        // A daemon that started since belongs to a router of the measurement, though it is nobody's child.
        let is_new_daemon = |(pid, process): &(&u32, &Process)| process.is_daemon && !earlier.contains(pid);
        let daemons = processes.iter().filter(is_new_daemon).map(|(pid, _)| *pid);
        let mut daemons = with_descendants(&processes, daemons);
        let own = with_descendants(&processes, [process::id()]);
        daemons.retain(|pid| !own.contains(pid));
        Some(Self { all, programs, own: ticks(own).into_values().sum(), daemons: ticks(daemons) })
    }

    fn others_percent_since(&self, before: &Self) -> Option<f64> {
        let all = self.all.checked_sub(before.all).filter(|ticks| *ticks > 0)?;
        let since = |(pid, ticks): (&u32, &u64)| {
            ticks.saturating_sub(before.daemons.get(pid).copied().unwrap_or_default())
        };
        let own = self.own.saturating_sub(before.own) + self.daemons.iter().map(since).sum::<u64>();
        let others = self.programs.saturating_sub(before.programs).saturating_sub(own);
        Some(others as f64 / all as f64 * 100.0)
    }
}

/// A process: its parent, the ticks of user code of it and of its children that have ended, and whether it is shuntd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    parent: u32,
    ticks: u64,
    is_daemon: bool,
}

fn processes() -> Option<BTreeMap<u32, Process>> {
    let entries = fs::read_dir("/proc").ok()?.flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    // A process may end meanwhile.
    let read = |pid: u32| Some((pid, process(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?));
    Some(pids.filter_map(read).collect())
}

/// Parses /proc/PID/stat (proc_pid_stat(5)), whose second field is a name in parentheses.
fn process(stat: &str) -> Option<Process> {
    let (name, rest) = stat.rsplit_once(')')?;
    let after_name: Vec<&str> = rest.split_whitespace().collect();
    let field = |number: usize| after_name.get(number - 3)?.parse::<u64>().ok();
    let is_daemon = name.ends_with("(shuntd");
    Some(Process { parent: u32::try_from(field(4)?).ok()?, ticks: field(14)? + field(16)?, is_daemon })
}

/// These processes with their children, and theirs.
fn with_descendants(
    processes: &BTreeMap<u32, Process>,
    roots: impl IntoIterator<Item = u32>,
) -> BTreeSet<u32> {
    let mut left: Vec<u32> = roots.into_iter().collect();
    let mut all: BTreeSet<u32> = left.iter().copied().collect();
    while let Some(pid) = left.pop() {
        let children = processes.iter().filter(|(_, process)| process.parent == pid);
        left.extend(children.map(|(child, _)| *child).filter(|child| all.insert(*child)));
    }
    all
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
        let stat = |name| format!("7 ({name}) S 5 7 7 0 -1 4194304 1 2 3 4 100 20 30 4 20 0 1 0 99 1 1");
        let of = |is_daemon| Some(Process { parent: 5, ticks: 130, is_daemon });
        assert_eq!([stat("a) (b c"), stat("shuntd")].map(|stat| process(&stat)), [of(false), of(true)]);
        assert_eq!((process("7 (a"), process("7 (a) S 5")), (None, None));
    }

    #[test]
    fn time_of_descendants_and_daemons_is_own_time() {
        let processes: BTreeMap<u32, Process> = [(1, 0), (2, 1), (3, 2), (4, 1), (9, 3)]
            .map(|(pid, parent)| (pid, Process { parent, ticks: 1, is_daemon: false }))
            .into();
        assert_eq!(with_descendants(&processes, [2]), BTreeSet::from([2, 3, 9]));
        assert_eq!(with_descendants(&processes, [3, 4]), BTreeSet::from([3, 4, 9]));
        let time = |all, programs, own, daemons: &[(u32, u64)]| CpuTime {
            all,
            programs,
            own,
            daemons: daemons.iter().copied().collect(),
        };
        let (before, now) = (time(1000, 500, 100, &[(7, 10)]), time(1200, 600, 130, &[(7, 20), (8, 10)]));
        assert_eq!(
            (now.others_percent_since(&before), before.others_percent_since(&now)),
            (Some(25.0), None)
        );
        // A daemon that has ended is not negative time.
        assert_eq!(time(1200, 600, 130, &[]).others_percent_since(&before), Some(35.0));
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
