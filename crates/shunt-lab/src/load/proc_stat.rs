//! The kernel's own account of CPU time.

use super::{LoadError, soaker};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fs, io, thread};

const CPUS: &str = "/sys/devices/system/cpu";

/// Ticks of each CPU since boot.
#[derive(Debug, Default)]
pub(super) struct ProcStat {
    cpus: BTreeMap<usize, [u64; COLUMNS]>,
}

/// user, nice, system, idle, iowait, irq, softirq, steal. Guest time is part of user and nice.
const COLUMNS: usize = 8;
const IDLE: [usize; 2] = [3, 4];
/// user, nice, steal.
const PROGRAMS: [usize; 3] = [0, 1, 7];

/// Shares of time by /proc/stat, which most kernels count in ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct StatShares {
    /// All but idle and the meter, in percent; None if the scheduler does not report how long the meter ran.
    pub busy_percent: Option<f64>,
    /// User code of processes, in percent, without niced ones such as the meter.
    pub user_percent: f64,
    /// Kernel code for processes, in percent.
    pub system_percent: f64,
    /// Interrupts, in percent; without CONFIG_IRQ_TIME_ACCOUNTING 0 unless a tick hits one.
    pub irq_percent: f64,
    /// Softirqs, in percent: most of the cost of forwarding.
    pub softirq_percent: f64,
    /// Time in which the hypervisor ran another guest, in percent.
    pub steal_percent: f64,
}

/// Number of times that each CPU was throttled.
#[derive(Debug, Default)]
pub(super) struct Throttles(BTreeMap<usize, u64>);

impl ProcStat {
    pub(super) fn read() -> Result<Self, LoadError> {
        let failed = |source| LoadError::System { what: "/proc/stat".to_owned(), source };
        Ok(Self::parse(&fs::read_to_string("/proc/stat").map_err(failed)?))
    }

    fn parse(text: &str) -> Self {
        let cpu = |line: &str| {
            let mut words = line.strip_prefix("cpu")?.split_whitespace();
            let cpu = words.next()?.parse().ok()?;
            let mut ticks = [0; COLUMNS];
            // Old kernels have fewer columns.
            ticks.iter_mut().zip(words).for_each(|(tick, word)| *tick = word.parse().unwrap_or(0));
            Some((cpu, ticks))
        };
        // The line `cpu ` is the sum of all CPUs.
        Self { cpus: text.lines().filter(|line| !line.starts_with("cpu ")).filter_map(cpu).collect() }
    }

    fn sums(&self) -> (u64, u64) {
        let all = self.cpus.values().flatten().sum();
        let programs =
            self.cpus.values().map(|ticks| PROGRAMS.map(|column| ticks[column]).iter().sum::<u64>());
        (all, programs.sum())
    }

    pub(super) fn since(&self, then: &Self, cpu: usize, soaked_percent: Option<f64>) -> StatShares {
        let (Some(now), Some(then)) = (self.cpus.get(&cpu), then.cpus.get(&cpu)) else {
            return StatShares::default();
        };
        // Columns may go back by a tick.
        let ticks: Vec<f64> =
            now.iter().zip(then).map(|(now, then)| now.saturating_sub(*then) as f64).collect();
        let all = ticks.iter().sum::<f64>().max(1.0);
        let percent = |column: usize| ticks[column] / all * 100.0;
        let used = 100.0 - percent(IDLE[0]) - percent(IDLE[1]);
        StatShares {
            busy_percent: soaked_percent.map(|soaked| (used - soaked).clamp(0.0, 100.0)),
            user_percent: percent(0),
            system_percent: percent(2),
            irq_percent: percent(5),
            softirq_percent: percent(6),
            steal_percent: percent(7),
        }
    }
}

/// The CPU time of each core until now.
#[derive(Debug)]
pub struct CpuTimes(ProcStat);

impl CpuTimes {
    /// Reads /proc/stat; `None` if it cannot be read.
    pub fn read() -> Option<Self> {
        ProcStat::read().ok().map(Self)
    }

    /// The shares of each core since an earlier reading, whose busy share is all but idle. Cores without time in
    /// between are left out.
    pub fn shares_since(&self, then: &Self) -> BTreeMap<usize, StatShares> {
        let has_run = |cpu: &&usize| then.0.cpus.get(cpu).is_some_and(|ticks| *ticks != self.0.cpus[*cpu]);
        let cpus = self.0.cpus.keys().filter(has_run);
        cpus.map(|cpu| (*cpu, self.0.since(&then.0, *cpu, Some(0.0)))).collect()
    }
}

/// Ticks of all CPUs since boot: all, and those of programs and of the hypervisor. None if they cannot be read.
pub(crate) fn cpu_ticks() -> Option<(u64, u64)> {
    Some(ProcStat::read().ok()?.sums())
}

impl Throttles {
    pub(super) fn read(cpus: impl Iterator<Item = usize>) -> Self {
        let count = |cpu| {
            let text =
                fs::read_to_string(format!("{CPUS}/cpu{cpu}/thermal_throttle/core_throttle_count")).ok()?;
            Some((cpu, text.trim().parse().ok()?))
        };
        Self(cpus.filter_map(count).collect())
    }

    pub(super) fn grew_since(&self, then: &Self, cpu: usize) -> bool {
        self.0.get(&cpu) > then.0.get(&cpu)
    }
}

/// The CPUs that a thread of this process may be pinned to, and the online CPUs that it may not be pinned to.
pub(super) fn allowed_cpus() -> Result<(Vec<usize>, Vec<usize>), LoadError> {
    let path = format!("{CPUS}/online");
    let failed = |source| LoadError::System { what: path.clone(), source };
    let online = fs::read_to_string(&path).map_err(failed)?;
    let online = cpu_list(online.trim())
        .ok_or_else(|| failed(io::Error::new(io::ErrorKind::InvalidData, online.trim().to_owned())))?;
    // Try each CPU on a new thread: a taskset mask can be widened, a cpuset cannot.
    let tried = thread::spawn(move || online.into_iter().partition(|cpu| soaker::pin(*cpu).is_ok()));
    tried.join().map_err(|_| failed(io::Error::other("the thread that checks allowed CPUs panicked")))
}

/// Parses a list such as `0-3,8`.
fn cpu_list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cpus.extend(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_ticks_between_two_readings() {
        let then = ProcStat::parse("cpu  9 9 9 9\ncpu0 100 0 100 1000 0 0 0 0 0 0\ncpu1 1 1 1 1\nintr 5\n");
        let now = ProcStat::parse("cpu  9 9 9 9\ncpu0 110 40 105 1020 5 1 15 4 0 0\ncpu1 1 1 1 1\n");
        let shares = now.since(&then, 0, Some(40.0));
        assert_eq!((shares.user_percent, shares.system_percent, shares.irq_percent), (10.0, 5.0, 1.0));
        assert_eq!((shares.softirq_percent, shares.steal_percent), (15.0, 4.0));
        assert_eq!(shares.busy_percent, Some(35.0));
        assert_eq!(now.since(&then, 0, None).busy_percent, None);
        assert_eq!(now.since(&then, 7, None), StatShares::default());
        assert_eq!(now.sums(), (1304, 110 + 40 + 4 + 1 + 1));
    }

    #[test]
    fn cpu_lists_are_parsed() {
        assert_eq!(cpu_list("0-3,8,10-11").unwrap(), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!((cpu_list("0").unwrap(), cpu_list(""), cpu_list("a-b")), (vec![0], None, None));
    }

    #[test]
    fn some_cpu_of_this_machine_is_allowed() {
        let (allowed, forbidden) = allowed_cpus().unwrap();
        assert!(!allowed.is_empty() && allowed.iter().all(|cpu| !forbidden.contains(cpu)));
    }

    #[test]
    fn a_grown_count_is_throttling() {
        let (then, now) =
            (Throttles(BTreeMap::from([(0, 3), (1, 3)])), Throttles(BTreeMap::from([(0, 3), (1, 4)])));
        assert_eq!([0, 1, 2].map(|cpu| now.grew_since(&then, cpu)), [false, true, false]);
    }
}
