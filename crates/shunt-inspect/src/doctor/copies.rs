//! How fast memory is copied, by size and alignment.

use serde::{Deserialize, Serialize};
use std::{
    hint::black_box,
    time::{Duration, Instant},
};

/// The copy rate of one size and alignment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CopyRate {
    /// Bytes per copy.
    pub bytes: usize,
    /// Distance of the source from an address divisible by 64.
    pub source_offset: usize,
    /// Distance of the destination from an address divisible by 64.
    pub target_offset: usize,
    /// 10^6 bytes per second: the fastest of the rounds. In the others, something else had the CPU for a while.
    pub mbytes_per_second: f64,
}

/// A small frame, the segment of Kyu's table, a full frame, a jumbo frame, and more than most caches.
const SIZES: [usize; 5] = [64, 500, 1514, 9014, 8 << 20];
/// Both aligned; the source as a frame lies in a buffer whose IP header is aligned; and both odd.
const OFFSETS: [(usize, usize); 3] = [(0, 0), (2, 0), (1, 3)];
const LINE: usize = 64;
const ROUNDS: usize = 5;
const ROUND_TIME: Duration = Duration::from_millis(4);

/// Measures copies of normal, cached memory, in about half a second.
pub fn measure_copies() -> Vec<CopyRate> {
    let most = SIZES.iter().max().copied().unwrap_or(0) + 2 * LINE;
    let (source, mut target) = (vec![0x5au8; most], vec![0u8; most]);
    let mut all = Vec::new();
    for bytes in SIZES {
        for (from, to) in OFFSETS {
            let rates = (0..ROUNDS).map(|_| round(&source, &mut target, bytes, (from, to)));
            let mbytes_per_second = rates.fold(0.0, f64::max);
            all.push(CopyRate { bytes, source_offset: from, target_offset: to, mbytes_per_second });
        }
    }
    all
}

fn round(source: &[u8], target: &mut [u8], bytes: usize, (from, to): (usize, usize)) -> f64 {
    let aligned = |memory: &[u8]| memory.as_ptr().align_offset(LINE).min(LINE);
    let (from, to) = (aligned(source) + from, aligned(target) + to);
    let (mut copied, began) = (0usize, Instant::now());
    loop {
        target[to..to + bytes].copy_from_slice(black_box(&source[from..from + bytes]));
        black_box(&mut *target);
        copied += bytes;
        let elapsed = began.elapsed();
        if elapsed >= ROUND_TIME {
            return copied as f64 / elapsed.as_secs_f64() / 1e6;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_and_alignment_has_a_rate() {
        let all = measure_copies();
        assert_eq!(all.len(), SIZES.len() * OFFSETS.len());
        assert!(
            all.iter().all(|rate| rate.mbytes_per_second > 0.0 && rate.mbytes_per_second.is_finite()),
            "{all:?}"
        );
    }
}
