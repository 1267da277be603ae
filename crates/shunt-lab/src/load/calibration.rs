//! Calibration: the time that undisturbed work takes on a CPU.

use super::kernels::Kernels;
use crate::statistics::{median, median_deviation};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Pieces in registers per round. Few pieces use memory: their time depends on the other CPUs, and the meter should not
/// displace much of the caches.
const REGISTER_PIECES: usize = 4;
/// Rounds per batch: shorter than the time between two ticks, with enough pieces for a quartile.
pub(super) const ROUNDS_PER_BATCH: usize = 32;
/// Undisturbed pieces in registers differ by less than this fraction (1/20) of their time.
const ALIKE: u64 = 20;
/// Upper limit for the time of a short interrupt, or of a piece whose memory is in no cache. Longer interruptions are
/// other threads.
const SHORT_NS: u64 = 100_000;
const WINDOWS: usize = 12;
const BATCHES_PER_WINDOW: usize = 60;
/// After this time a busy CPU is calibrated with fewer windows.
const PATIENCE: Duration = Duration::from_secs(15);
const LEAST_WINDOWS: usize = 3;

/// The undisturbed times of one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Time of a round in ns: the median of the windows.
    pub round_ns: f64,
    /// Median deviation of the windows, as a share of `round_ns`.
    pub spread: f64,
    /// Number of windows.
    pub windows: usize,
    /// Time of a piece in registers, in ns.
    pub register_ns: f64,
    /// Time of a piece in memory, in ns.
    pub memory_ns: f64,
}

/// The times of a batch of rounds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batch {
    /// CPU time in ns, without interrupts and without other threads.
    pub(super) own_ns: u64,
    /// Lower quartile of the pieces in registers: the time of an undisturbed piece, since few are interrupted.
    pub(super) register_ns: u64,
    pub(super) memory_ns: u64,
}

/// A worker that does rounds.
#[derive(Debug)]
pub(super) struct Worker {
    kernels: Kernels,
    register_ns: Vec<u64>,
    memory_ns: Vec<u64>,
    last: Instant,
}

impl Worker {
    pub(super) fn new() -> Self {
        Self { kernels: Kernels::new(), register_ns: Vec::new(), memory_ns: Vec::new(), last: Instant::now() }
    }

    /// Bytes of memory that a round reads and writes.
    pub(super) fn bytes_per_round(&self) -> u64 {
        self.kernels.memory_bytes()
    }

    /// Does a batch, and calls `round_done` after each round.
    pub(super) fn batch(&mut self, mut round_done: impl FnMut()) -> Batch {
        self.register_ns.clear();
        self.memory_ns.clear();
        for _ in 0..ROUNDS_PER_BATCH {
            for _ in 0..REGISTER_PIECES {
                self.kernels.registers();
                let ns = self.lap();
                self.register_ns.push(ns);
            }
            self.kernels.memory();
            let ns = self.lap();
            self.memory_ns.push(ns);
            round_done();
        }
        Batch::of_pieces(&mut self.register_ns, &mut self.memory_ns)
    }

    fn lap(&mut self) -> u64 {
        let now = Instant::now();
        let ns = now.duration_since(self.last).as_nanos() as u64;
        self.last = now;
        ns
    }

    /// Calibrates the CPU; None if other work leaves no time for it.
    pub(super) fn calibrate(&mut self, stopped: impl Fn() -> bool) -> Option<Calibration> {
        let begin = Instant::now();
        // Skip the first window: caches are cold, and the CPU has not yet reached its clock.
        let mut windows = Vec::new();
        while windows.len() <= WINDOWS {
            let mut batches = Vec::with_capacity(BATCHES_PER_WINDOW);
            while batches.len() < BATCHES_PER_WINDOW && begin.elapsed() < PATIENCE && !stopped() {
                batches.push(self.batch(|| {}));
            }
            if batches.len() < BATCHES_PER_WINDOW {
                break;
            }
            windows.push(window(&batches));
        }
        if windows.len() > LEAST_WINDOWS { Calibration::of_windows(&windows[1..]) } else { None }
    }
}

impl Batch {
    /// Undisturbed pieces in registers take equally long, so a longer piece was interrupted. Pieces in memory vary, and
    /// short interrupts cannot be seen in them: they are assumed to have the same share as in the pieces in registers.
    fn of_pieces(register_ns: &mut [u64], memory_ns: &mut [u64]) -> Self {
        let [register, memory] = [lower_quartile(register_ns), lower_quartile(memory_ns)];
        let own = mean_until(register_ns, register + register / ALIKE);
        let left = own / mean_until(register_ns, register + SHORT_NS);
        let own_ns = own * register_ns.len() as f64
            + left * mean_until(memory_ns, memory + SHORT_NS) * memory_ns.len() as f64;
        Self { own_ns: own_ns as u64, register_ns: register, memory_ns: memory }
    }
}

/// The mean of the values up to `most`, of which there is at least one.
fn mean_until(values: &[u64], most: u64) -> f64 {
    let (sum, count) =
        values.iter().filter(|value| **value <= most).fold((0, 0_u32), |(s, n), v| (s + v, n + 1));
    sum as f64 / f64::from(count)
}

/// The times of a round, a piece in registers and a piece in memory.
fn window(batches: &[Batch]) -> [f64; 3] {
    let middle = |of: fn(&Batch) -> u64| {
        let values: Vec<f64> = batches.iter().map(|batch| of(batch) as f64).collect();
        median(&values).unwrap_or_default()
    };
    let round_ns = middle(|batch| batch.own_ns) / ROUNDS_PER_BATCH as f64;
    [round_ns, middle(|batch| batch.register_ns), middle(|batch| batch.memory_ns)]
}

impl Calibration {
    fn of_windows(windows: &[[f64; 3]]) -> Option<Self> {
        let column = |n: usize| windows.iter().map(|window| window[n]).collect::<Vec<_>>();
        let rounds = column(0);
        let round_ns = median(&rounds)?;
        Some(Self {
            round_ns,
            spread: median_deviation(&rounds)? / round_ns,
            windows: windows.len(),
            register_ns: median(&column(1))?,
            memory_ns: median(&column(2))?,
        })
    }
}

fn lower_quartile(values: &mut [u64]) -> u64 {
    let at = values.len() / 4;
    *values.select_nth_unstable(at).1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_summed_up_without_their_outliers() {
        let mut windows = vec![[1000.0, 200.0, 200.0]; 9];
        windows.push([9000.0, 900.0, 900.0]);
        windows.push([1010.0, 202.0, 202.0]);
        let calibration = Calibration::of_windows(&windows).unwrap();
        assert_eq!((calibration.round_ns, calibration.spread, calibration.windows), (1000.0, 0.0, 11));
        assert_eq!((calibration.register_ns, calibration.memory_ns), (200.0, 200.0));
        let varied =
            Calibration::of_windows(&[[90.0, 1.0, 1.0], [100.0, 1.0, 1.0], [110.0, 1.0, 1.0]]).unwrap();
        assert!((varied.spread - 0.1).abs() < 1e-9);
    }

    /// The own time of a batch with 16 pieces in registers of about 5 us and 4 pieces in memory.
    fn own_us(register_us: [u64; 16], memory_us: [u64; 4]) -> f64 {
        Batch::of_pieces(&mut register_us.map(|us| us * 1000), &mut memory_us.map(|us| us * 1000)).own_ns
            as f64
            / 1e3
    }

    #[test]
    fn time_of_other_threads_is_not_own_time() {
        let mut register = [5; 16];
        assert_eq!(own_us(register, [3, 4, 6, 7]), 100.0);
        register[3] = 5005;
        assert_eq!(own_us(register, [3, 4, 6, 7]), 100.0);
        // An interrupted piece in memory counts as the mean of the others.
        assert_eq!(own_us(register, [3, 4, 5, 5005]), 96.0);
    }

    #[test]
    fn short_interrupts_have_the_same_share_of_both_kinds_of_pieces() {
        let mut register = [5; 16];
        register[..8].fill(7);
        assert_eq!(own_us(register, [6; 4]), 80.0 + 24.0 * 5.0 / 6.0);
    }

    #[test]
    fn interrupted_pieces_do_not_move_the_quartile() {
        let mut pieces = vec![5000; 40];
        pieces.extend([90_000; 24]);
        assert_eq!(lower_quartile(&mut pieces), 5000);
    }
}
