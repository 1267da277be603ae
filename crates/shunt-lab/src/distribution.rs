//! A histogram, as far as a result keeps it.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use shunt_bpf::traffic;

const SHARES: [f64; 7] = [0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999];

/// How values are spread, such as latencies. It serializes into a [`Run`](crate::Run)'s details.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// Such as `ns`.
    pub unit: String,
    /// How many values there are.
    pub count: u64,
    /// The least.
    pub min: u64,
    /// The greatest.
    pub max: u64,
    /// Their mean.
    pub mean: f64,
    /// Those that there are values enough for: above each, some value lies.
    pub quantiles: Vec<Quantile>,
}

/// A value that so many do not exceed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Quantile {
    /// Of all values.
    pub share: f64,
    /// In the distribution's unit.
    pub value: u64,
}

impl Distribution {
    /// Of a histogram that is not empty.
    pub fn of(unit: &str, histogram: &Histogram<u64>) -> Option<Self> {
        let count = histogram.len();
        // 0.9999 of a hundred values are all of them, and would only repeat the greatest.
        // Rounded: 1 - 0.9 is a little less than 0.1.
        let told = |share: &&f64| ((1.0 - **share) * 1e5).round() * count as f64 >= 1e5;
        let quantile = |&share: &f64| Quantile { share, value: histogram.value_at_quantile(share) };
        (count > 0).then(|| Self {
            unit: unit.to_owned(),
            count,
            min: histogram.min(),
            max: histogram.max(),
            mean: histogram.mean(),
            quantiles: SHARES.iter().filter(told).map(quantile).collect(),
        })
    }

    /// Of what the receiver counted, in ns.
    pub(crate) fn of_received(times: &traffic::Histogram) -> Option<Self> {
        let (min, max) = times.min_ns.zip(times.max_ns)?;
        // Of 3 digits the histogram is finer than the buckets, so that these alone make the error.
        let mut histogram = Histogram::new(3).ok()?;
        for (middle, count) in &times.buckets {
            histogram.record_n((*middle).clamp(min, max), *count).ok()?;
        }
        Self::of("ns", &histogram).map(|all| Self { min, max, ..all })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn up_to(values: u64) -> Option<Distribution> {
        let mut histogram = Histogram::new(3).unwrap();
        (1..=values).for_each(|value| histogram.record(value).unwrap());
        Distribution::of("ns", &histogram)
    }

    #[test]
    fn what_was_received_keeps_its_ends_and_its_shares() {
        let times = traffic::Histogram {
            min_ns: Some(1000),
            max_ns: Some(70_003),
            buckets: vec![(1007, 900), (4095, 90), (70_143, 10)],
        };
        let all = Distribution::of_received(&times).unwrap();
        assert_eq!((all.count, all.min, all.max), (1000, 1000, 70_003));
        let told: Vec<_> = all.quantiles.iter().map(|q| (q.share, q.value)).collect();
        assert_eq!(told[1..3], [(0.5, 1007), (0.9, 1007)]);
        // To within the 1/1000 of the histogram.
        for (at, want) in [(3, 4095), (4, 70_003)] {
            assert!((told[at].1 as f64 / f64::from(want) - 1.0).abs() < 2e-3, "{told:?}");
        }
        assert_eq!(Distribution::of_received(&traffic::Histogram::default()), None);
    }

    #[test]
    fn quantiles_are_those_that_the_values_are_enough_for() {
        let thousand = up_to(1000).unwrap();
        assert_eq!((thousand.count, thousand.min, thousand.max, thousand.mean), (1000, 1, 1000, 500.5));
        let told: Vec<_> = thousand.quantiles.iter().map(|q| (q.share, q.value)).collect();
        assert_eq!(told, [(0.1, 100), (0.5, 500), (0.9, 900), (0.99, 990), (0.999, 999)]);
        assert_eq!(up_to(1).unwrap().quantiles, []);
        assert_eq!(up_to(0), None);
    }
}
