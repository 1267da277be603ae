//! The work of a soaker: a loop in registers and a walk through memory, each of some microseconds.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

/// Duration of a piece: short enough that most pieces end before the next interrupt even at 100,000 interrupts/s, and
/// long compared with reading the clock.
const PIECE: Duration = Duration::from_micros(5);
const LINE_BYTES: usize = 64;
const WORDS_PER_LINE: usize = LINE_BYTES / size_of::<u64>();
/// Cache lines of the walk: on most machines more than a core's own cache.
const LINES: usize = 1 << 16;
/// Stride of the walk: odd, so that it visits all lines, and large, so that no prefetcher predicts it.
const STRIDE_LINES: usize = 9973;
const TRIALS: u32 = 20;

#[derive(Debug)]
pub(super) struct Kernels {
    state: u64,
    buffer: Vec<u64>,
    line: usize,
    register_steps: u32,
    memory_steps: u32,
}

impl Kernels {
    /// Work whose pieces take equally long on the current CPU.
    pub(super) fn new() -> Self {
        let mut kernels = Self::with_steps(1, 1);
        kernels.register_steps = steps_per_piece(|steps| kernels.run_registers(steps));
        kernels.memory_steps = steps_per_piece(|steps| kernels.run_memory(steps));
        kernels
    }

    /// Work whose pieces have these numbers of steps.
    pub(super) fn with_steps(register_steps: u32, memory_steps: u32) -> Self {
        Self {
            state: 0x9e37_79b9_7f4a_7c15,
            // Not zeros: untouched zero pages are all the same page.
            buffer: vec![1; LINES * WORDS_PER_LINE],
            line: 0,
            register_steps,
            memory_steps,
        }
    }

    pub(super) fn registers(&mut self) {
        self.run_registers(self.register_steps);
    }

    pub(super) fn memory(&mut self) {
        self.run_memory(self.memory_steps);
    }

    /// Bytes of memory that a piece reads and writes.
    pub(super) fn memory_bytes(&self) -> u64 {
        2 * u64::from(self.memory_steps) * LINE_BYTES as u64
    }

    // xorshift: each step needs the previous one, and an optimiser knows no closed form.
    fn run_registers(&mut self, steps: u32) {
        let mut x = black_box(self.state);
        for _ in 0..steps {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
        }
        self.state = black_box(x);
    }

    fn run_memory(&mut self, steps: u32) {
        for _ in 0..steps {
            self.line = (self.line + STRIDE_LINES) % LINES;
            let word = &mut self.buffer[self.line * WORDS_PER_LINE];
            *word = word.wrapping_add(1);
        }
        black_box(&mut self.buffer);
    }
}

// Takes the fastest of several trials, since the others were interrupted.
fn steps_per_piece(mut run: impl FnMut(u32)) -> u32 {
    let mut quickest = |steps| {
        let trial = |_| {
            let start = Instant::now();
            run(steps);
            start.elapsed()
        };
        (0..TRIALS).map(trial).min().unwrap_or_default()
    };
    let mut steps = 16;
    loop {
        let took = quickest(steps);
        if took >= PIECE {
            let scaled = f64::from(steps) * PIECE.as_secs_f64() / took.as_secs_f64();
            return (scaled as u32).max(1);
        }
        steps *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_optimiser_keeps_the_work() {
        let mut kernels = Kernels::new();
        // 5 us are at least a few hundred steps on any machine; more than a million would mean that the work was
        // optimised away.
        assert!(
            (10..1_000_000).contains(&kernels.register_steps),
            "{kernels:?}",
            kernels = kernels.register_steps
        );
        assert!((10..1_000_000).contains(&kernels.memory_steps), "{}", kernels.memory_steps);
        let before = kernels.state;
        kernels.registers();
        assert_ne!(kernels.state, before);
    }

    #[test]
    fn the_walk_visits_every_line_once_before_any_twice() {
        let mut kernels = Kernels::new();
        kernels.buffer.fill(0);
        kernels.run_memory(LINES as u32);
        assert!(kernels.buffer.chunks(WORDS_PER_LINE).all(|line| line[0] == 1 && line[1..] == [0; 7]));
    }
}
