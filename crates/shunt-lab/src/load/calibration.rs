//! How long undisturbed work takes on one CPU.

use super::kernels::Kernels;
use crate::statistics::{median, median_deviation, quantile};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Mostly in registers: what memory takes depends on the other CPUs, and the meter should not displace much.
const REGISTER_PIECES: usize = 4;
/// So that a batch is shorter than the time between two ticks, and has enough pieces for a quartile.
pub(super) const ROUNDS_PER_BATCH: usize = 32;
const WINDOWS: usize = 12;
const BATCHES_PER_WINDOW: usize = 60;
/// Beyond this a busy CPU has to do with fewer windows.
const PATIENCE: Duration = Duration::from_secs(15);
const LEAST_WINDOWS: usize = 3;

/// The undisturbed times of one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// A round: the median of the windows.
    pub round_ns: f64,
    /// Their median deviation, as a share of it.
    pub spread: f64,
    /// How many windows there were.
    pub windows: usize,
    /// A piece of work in registers.
    pub register_ns: f64,
    /// A piece of work in memory.
    pub memory_ns: f64,
}

/// Some rounds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batch {
    pub(super) ns: f64,
    /// The lower quartile of its pieces: as few are interrupted, that of undisturbed ones.
    pub(super) register_ns: u64,
    pub(super) memory_ns: u64,
}

/// Does rounds.
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

    /// Read and written in memory by one round.
    pub(super) fn bytes_per_round(&self) -> u64 {
        self.kernels.memory_bytes()
    }

    /// Does a batch, and tells of each round. The time of a batch begins where that of the last one ended.
    pub(super) fn batch(&mut self, mut round_done: impl FnMut()) -> Batch {
        self.register_ns.clear();
        self.memory_ns.clear();
        let begin = self.last;
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
        Batch {
            ns: self.last.duration_since(begin).as_nanos() as f64,
            register_ns: lower_quartile(&mut self.register_ns),
            memory_ns: lower_quartile(&mut self.memory_ns),
        }
    }

    fn lap(&mut self) -> u64 {
        let now = Instant::now();
        let ns = now.duration_since(self.last).as_nanos() as u64;
        self.last = now;
        ns
    }

    /// None when others leave no time for it.
    pub(super) fn calibrate(&mut self, stopped: impl Fn() -> bool) -> Option<Calibration> {
        let begin = Instant::now();
        // The first one finds cold caches and a CPU that is not yet at its clock.
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

/// What a round, a piece in registers and a piece in memory took.
fn window(batches: &[Batch]) -> [f64; 3] {
    let lower = |of: fn(&Batch) -> f64| {
        let values: Vec<f64> = batches.iter().map(of).collect();
        quantile(&values, 0.25).unwrap_or_default()
    };
    // A quarter of the batches fits between two ticks at any rate of ticks.
    let round_ns = lower(|batch| batch.ns) / ROUNDS_PER_BATCH as f64;
    [round_ns, lower(|batch| batch.register_ns as f64), lower(|batch| batch.memory_ns as f64)]
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

    /// What a round takes where pieces take so long.
    pub(super) fn round_at(&self, register_ns: f64, memory_ns: f64) -> f64 {
        let pieces = |register: f64, memory: f64| REGISTER_PIECES as f64 * register + memory;
        self.round_ns * pieces(register_ns, memory_ns) / pieces(self.register_ns, self.memory_ns)
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

    #[test]
    fn a_round_is_longer_as_its_pieces_are() {
        let calibration =
            Calibration { round_ns: 1000.0, spread: 0.0, windows: 12, register_ns: 200.0, memory_ns: 200.0 };
        assert_eq!(calibration.round_at(200.0, 200.0), 1000.0);
        assert_eq!(calibration.round_at(400.0, 400.0), 2000.0);
        assert_eq!(calibration.round_at(200.0, 400.0), 1200.0);
    }

    #[test]
    fn interrupted_pieces_do_not_move_the_quartile() {
        let mut pieces = vec![5000; 40];
        pieces.extend([90_000; 24]);
        assert_eq!(lower_quartile(&mut pieces), 5000);
    }
}
