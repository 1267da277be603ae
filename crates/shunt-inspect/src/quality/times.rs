//! Times that were counted in buckets, and their quantiles.

use super::abi;
use serde::{Deserialize, Serialize};
use shunt_lab::statistics::share_interval;

/// Milliseconds of a unit of the programs.
const UNIT_MS: f64 = 1024.0 / 1_000_000.0;
/// Buckets of a doubling, as a shift.
const STEP_BITS: usize = abi::QUALITY_STEPS.trailing_zeros() as usize;
/// Buckets of a doubling.
const STEPS: usize = 1 << STEP_BITS;
/// The half and the 95 % that [`Times`] has.
const HALF: f64 = 0.5;
const MOST: f64 = 0.95;

/// Times by bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Histogram(Vec<u64>);

impl Default for Histogram {
    fn default() -> Self {
        Self(vec![0; abi::QUALITY_BUCKETS as usize])
    }
}

impl From<&abi::QualityTimes> for Histogram {
    fn from(times: &abi::QualityTimes) -> Self {
        Self(times.count.iter().map(|count| u64::from(*count)).collect())
    }
}

impl Histogram {
    pub(super) fn add(&mut self, times: &abi::QualityTimes) {
        for (mine, theirs) in self.0.iter_mut().zip(times.count) {
            *mine += u64::from(theirs);
        }
    }

    /// The times of both.
    pub(super) fn plus(mut self, other: &Self) -> Self {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine += theirs;
        }
        self
    }

    /// Where a bucket starts, in milliseconds.
    #[cfg(test)]
    pub(super) fn bucket_ms(bucket: usize) -> f64 {
        start(bucket) * UNIT_MS
    }

    /// The number of times.
    pub(super) fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The number of times from this one on, in units of the programs. The bucket that it is in counts if it starts
    /// there or later.
    pub(super) fn at_least(&self, units: u32) -> u64 {
        let late = self.0.iter().enumerate().filter(|(bucket, _)| start(*bucket) >= f64::from(units));
        late.map(|(_, count)| count).sum()
    }

    /// The quantiles; `None` without times.
    pub(super) fn times(&self) -> Option<Times> {
        let first = self.0.iter().position(|count| *count > 0)?;
        Some(Times {
            samples: self.total(),
            shortest_ms: (start(first) + width(first) / 2.0) * UNIT_MS,
            p50: self.quantile(HALF),
            p95: self.quantile(MOST),
        })
    }

    /// A quantile with its exact interval, whatever the distribution; `None` if the times are too few for an upper
    /// bound.
    fn quantile(&self, share: f64) -> Option<Quantile> {
        let total = self.total();
        let below: Vec<u64> = self
            .0
            .iter()
            .scan(0, |sum, count| {
                *sum += count;
                Some(*sum)
            })
            .collect();
        let interval = |hits: u64| share_interval(hits, total);
        // The share of times up to a bucket, and so both of its bounds, only rise.
        let low = below.partition_point(|hits| interval(*hits).is_some_and(|bounds| bounds.high < share));
        let high = below.partition_point(|hits| interval(*hits).is_some_and(|bounds| bounds.low <= share));
        let wanted = share * total as f64;
        let at = below.partition_point(|hits| (*hits as f64) < wanted);
        let count = *self.0.get(at)? as f64;
        let before = below[at] as f64 - count;
        let value = start(at) + width(at) * ((wanted - before) / count.max(1.0));
        (high < self.0.len()).then(|| Quantile {
            ms: value * UNIT_MS,
            low_ms: start(low) * UNIT_MS,
            high_ms: (start(high) + width(high)) * UNIT_MS,
        })
    }
}

/// Where a bucket starts, in units. The twin of `quality_bucket()`.
fn start(bucket: usize) -> f64 {
    let doubling = bucket >> STEP_BITS;
    match doubling {
        0 => bucket as f64,
        _ => ((STEPS + (bucket & (STEPS - 1))) as f64) * width(bucket),
    }
}

/// How wide a bucket is, in units.
fn width(bucket: usize) -> f64 {
    let doubling = (bucket >> STEP_BITS).saturating_sub(1);
    f64::powi(2.0, i32::try_from(doubling).unwrap_or(i32::MAX))
}

/// Quantiles of times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Number of times.
    pub samples: u64,
    /// The shortest one, in milliseconds.
    pub shortest_ms: f64,
    /// The median; absent with fewer than six times.
    pub p50: Option<Quantile>,
    /// What 95 % do not exceed; absent with fewer than about 75 times.
    pub p95: Option<Quantile>,
}

/// A quantile with its 95 % interval, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Quantile {
    /// The time that this share of the samples does not exceed.
    pub ms: f64,
    /// Lower end of the interval.
    pub low_ms: f64,
    /// Upper end of the interval.
    pub high_ms: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts a time as the programs do.
    fn count(histogram: &mut Histogram, units: f64, times: u64) {
        let bucket = (0..histogram.0.len()).rfind(|bucket| start(*bucket) <= units).unwrap();
        histogram.0[bucket] += times;
    }

    #[test]
    fn buckets_follow_each_other_without_gap_and_reach_half_a_minute() {
        for bucket in 1..abi::QUALITY_BUCKETS as usize {
            assert_eq!(start(bucket - 1) + width(bucket - 1), start(bucket), "{bucket}");
            assert!(width(bucket) <= (start(bucket) / 16.0).max(1.0), "{bucket}");
        }
        assert!(start(abi::QUALITY_BUCKETS as usize - 1) * UNIT_MS > 30_000.0);
    }

    #[test]
    fn quantiles_are_within_a_few_percent_and_their_intervals_hold_them() {
        let mut histogram = Histogram::default();
        for n in 1..=1000 {
            count(&mut histogram, f64::from(n) * 100.0, 1);
        }
        let times = histogram.times().unwrap();
        let (p50, p95) = (times.p50.unwrap(), times.p95.unwrap());
        for (quantile, units) in [(p50, 50_000.0), (p95, 95_000.0)] {
            let truth = units * UNIT_MS;
            assert!((quantile.ms / truth - 1.0).abs() < 0.03, "{quantile:?}, {truth}");
            assert!(quantile.low_ms < truth && truth < quantile.high_ms, "{quantile:?}, {truth}");
        }
        assert_eq!(times.samples, 1000);
        assert!(histogram.at_least(90_000) >= 90 && histogram.at_least(90_000) <= 101);
    }

    #[test]
    fn too_few_times_have_no_quantile() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.times(), None);
        count(&mut histogram, 1000.0, 5);
        let times = histogram.times().unwrap();
        assert_eq!((times.samples, times.p50, times.p95), (5, None, None));
        count(&mut histogram, 1000.0, 40);
        let times = histogram.times().unwrap();
        assert!(times.p50.is_some() && times.p95.is_none(), "{times:?}");
        count(&mut histogram, 1000.0, 40);
        assert!(histogram.times().unwrap().p95.is_some());
    }
}
