//! Fixed work, timed: equal machines in equal states need equal time for it.

use super::{kernels::Kernels, proc_stat, soaker};
use std::{thread, time::Instant};

/// Steps in registers and in memory: some milliseconds together, about a turn of the scheduler.
const STEPS: [u32; 2] = [1_000_000, 500_000];
/// More CPUs would need much memory, and say little more.
const MOST_CPUS: usize = 8;

/// The work, for each CPU that this process may use.
#[derive(Debug)]
pub(crate) struct FixedWork {
    cpus: Vec<usize>,
}

impl FixedWork {
    pub(crate) fn new() -> Self {
        let mut cpus = proc_stat::allowed_cpus().map(|(allowed, _)| allowed).unwrap_or_default();
        cpus.truncate(MOST_CPUS);
        Self { cpus }
    }

    /// Does the work on all CPUs at once, and returns the mean of the times in us, waiting for the CPU included. None
    /// if no CPU may be used.
    pub(crate) fn time_us(&self) -> Option<f64> {
        let workers: Vec<_> = self.cpus.iter().map(|&cpu| thread::spawn(move || worked_us(cpu))).collect();
        let times: Vec<f64> = workers.into_iter().map(|worker| worker.join().ok()?).collect::<Option<_>>()?;
        (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64)
    }
}

fn worked_us(cpu: usize) -> Option<f64> {
    soaker::pin(cpu).ok()?;
    let [registers, memory] = STEPS;
    let mut kernels = Kernels::with_steps(registers, memory);
    let begin = Instant::now();
    kernels.registers();
    kernels.memory();
    Some(begin.elapsed().as_secs_f64() * 1e6)
}
