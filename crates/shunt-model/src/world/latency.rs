//! Distribution of times, in buckets whose width is 3 % of their value.

use crate::{prediction::Times, time::Ps};

/// Buckets for each power of two; below this many nanoseconds, one for each nanosecond.
const STEPS: u64 = 32;

/// Times that were taken.
#[derive(Debug, Default)]
pub(super) struct Latency {
    buckets: Vec<u64>,
    count: u64,
    sum: f64,
    max: Ps,
}

fn bucket(ns: u64) -> usize {
    let shift = (ns / STEPS).checked_ilog2().unwrap_or(0);
    (u64::from(shift) * STEPS + (ns >> shift)) as usize
}

/// The first time in nanoseconds that is beyond a bucket.
fn end_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let shift = (bucket / STEPS).saturating_sub(1);
    (bucket - shift * STEPS + 1) << shift
}

impl Latency {
    pub(super) fn record(&mut self, took: Ps) {
        let bucket = bucket(took / 1000);
        if bucket >= self.buckets.len() {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.count += 1;
        self.sum += took as f64;
        self.max = self.max.max(took);
    }

    /// The time that 99 % of all do not exceed.
    fn p99_us(&self) -> f64 {
        let mut above = self.count / 100;
        for (bucket, count) in self.buckets.iter().enumerate().rev() {
            if *count > above {
                return (end_of(bucket) as f64 / 1e3).min(self.max as f64 / 1e6);
            }
            above -= count;
        }
        0.0
    }

    /// The figures; None if no time was taken.
    pub(super) fn times(&self) -> Option<Times> {
        let mean_us = self.sum / self.count.max(1) as f64 / 1e6;
        let (count, p99_us, max_us) = (self.count, self.p99_us(), self.max as f64 / 1e6);
        (count > 0).then_some(Times { count, mean_us, p99_us, max_us })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_and_hold_what_they_say() {
        let mut last = 0;
        for ns in 0..100_000 {
            let at = bucket(ns);
            assert!(at == last || at == last + 1, "{ns}");
            last = at;
            let end = end_of(at);
            assert!(ns < end && end as f64 <= 1.04 * ns as f64 + 1.0, "{ns} {end}");
        }
    }

    #[test]
    fn one_time_in_a_hundred_exceeds_the_99th_percentile() {
        let mut latency = Latency::default();
        assert!(latency.times().is_none());
        (1..=1000).for_each(|us| latency.record(us * 1_000_000));
        let times = latency.times().unwrap();
        assert_eq!((times.count, times.mean_us, times.max_us), (1000, 500.5, 1000.0));
        assert!((989.0..1000.0).contains(&times.p99_us), "{times:?}");
    }
}
