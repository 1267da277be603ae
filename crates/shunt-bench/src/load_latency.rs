//! The time of a load whose address depends on the load before: memory as a packet meets it that waits for its flow.

use anyhow::{Context, ensure};
use nix::time::{ClockId, clock_gettime};
use shunt_lab::statistics::{median, quantile};
use shunt_model::LatencyCurve;
use std::{fs, hint::black_box, ops::RangeInclusive, time::Duration};

/// The smallest and the largest working set, as powers of two of bytes: a thousand flows and a million are between.
const SIZES: RangeInclusive<u32> = 15..=28;
/// Bytes of a cache line.
const LINE: usize = 64;
/// Words of a cache line.
const WORDS: usize = LINE / size_of::<u64>();
/// Loads of a slice, and slices of a size. As in the bench, the 10th percentile of the slices counts: other work of the
/// machine only makes slices slower.
const LOADS: usize = 100_000;
const SLICES: usize = 20;
/// Passes over all sizes; the median counts.
const PASSES: usize = 5;
/// Loads of each line before the first slice, on average, which fill the caches.
const WARM: usize = 3;
/// Pages of this size are what the kernel maps the flow table with.
const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Measures the curve on this CPU, from memory in small pages, as the kernel maps the flow table.
pub fn measure() -> anyhow::Result<LatencyCurve> {
    let huge = fs::read_to_string(HUGE_PAGES).unwrap_or_default();
    ensure!(!huge.contains("[always]"), "huge pages hide what page tables cost: echo madvise > {HUGE_PAGES}");
    let sizes: Vec<usize> = SIZES.map(|power| 1 << power).collect();
    let mut passes = vec![Vec::new(); sizes.len()];
    for _ in 0..PASSES {
        for (bytes, passes) in sizes.iter().zip(&mut passes) {
            passes.push(loads(*bytes)?);
        }
    }
    let points = sizes.iter().zip(passes).map(|(bytes, passes)| Some((*bytes as u64, median(&passes)?)));
    points.collect::<Option<_>>().and_then(LatencyCurve::new).context("nothing was measured")
}

/// Nanoseconds per load from `bytes` of memory.
fn loads(bytes: usize) -> anyhow::Result<f64> {
    // Ones, since pages that were never written would all be the same page of zeros.
    let words = black_box(vec![1_u64; bytes / size_of::<u64>()]);
    let lines = words.len() / WORDS;
    let (mut random, mut at) = (1_u64, 0);
    let mut load = |times: usize| {
        for _ in 0..times {
            // The generator of the bench (bpf/lab/traffic.h): so do the bench's packets choose their flows.
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let line = ((random >> 32) * lines as u64) >> 32;
            // The word is 1, which the compiler does not know: the next address depends on it.
            at = line as usize * WORDS + words[at] as usize - 1;
        }
        black_box(at);
    };
    load(WARM * lines);
    let mut slices = [0.0; SLICES];
    for slice in &mut slices {
        let begun = cpu_time()?;
        load(LOADS);
        *slice = (cpu_time()? - begun).as_nanos() as f64 / LOADS as f64;
    }
    quantile(&slices, 0.1).context("nothing was measured")
}

fn cpu_time() -> anyhow::Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_from_memory_take_longer_than_loads_from_a_cache() {
        let [cached, memory] = [1 << 14, 1 << 26].map(|bytes| loads(bytes).unwrap());
        assert!(memory > 1.5 * cached, "{memory} ns from 64 MiB, {cached} ns from 16 KiB");
    }
}
