//! Memory that CPU and DMA share: what DMA takes of its bandwidth, the CPU waits for.

use crate::{
    case::Case,
    time::{Ps, from_ps, of_bytes},
};

/// DMA of the last 50 us slows down the CPU.
const WINDOW: Ps = 50_000_000;
/// The CPU keeps at least this part of the bandwidth.
const LEAST: f64 = 0.1;

/// How busy DMA keeps the memory.
#[derive(Debug)]
pub(super) struct Memory {
    rate: f64,
    /// Part of the CPU's time that waits for memory.
    share: f64,
    /// Number of the window, and the time that DMA took of the memory in it and in the one before.
    window: u64,
    taken: Ps,
    taken_before: Ps,
}

impl Memory {
    pub(super) fn new(case: &Case) -> Self {
        Self { rate: case.memory.rate, share: case.memory_part(), window: 0, taken: 0, taken_before: 0 }
    }

    fn turn(&mut self, now: Ps) {
        let window = now / WINDOW;
        if window != self.window {
            self.taken_before = if window == self.window + 1 { self.taken } else { 0 };
            (self.window, self.taken) = (window, 0);
        }
    }

    /// DMA moves some bytes.
    pub(super) fn moved(&mut self, bytes: u32, now: Ps) {
        self.turn(now);
        self.taken += of_bytes(bytes, self.rate);
    }

    /// The time that a job of the CPU takes while DMA uses the bus.
    pub(super) fn stretched(&mut self, took: Ps, now: Ps) -> Ps {
        self.turn(now);
        let left = (1.0 - self.taken_before as f64 / WINDOW as f64).max(LEAST);
        took + from_ps(took as f64 * self.share * (1.0 / left - 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_bandwidth_doubles_the_time_that_waits_for_memory() {
        let mut case = Case::default();
        (case.memory.rate, case.cpu.memory_share) = (8e9, 0.5);
        let mut memory = Memory::new(&case);
        assert_eq!(memory.stretched(1000, 0), 1000);
        // 25,000 bytes in 50 us are 4 Gbit/s.
        memory.moved(25_000, 10);
        assert_eq!(memory.stretched(1000, WINDOW), 1500);
        assert_eq!(memory.stretched(1000, 3 * WINDOW), 1000, "DMA has stopped");
    }
}
