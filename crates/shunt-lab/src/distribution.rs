//! The distribution of many values, as a file of results keeps it.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use shunt_traffic as traffic;

const SHARES: [f64; 7] = [0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999];

/// The distribution of values such as latencies. It is stored in the details of a [`Run`](crate::Run).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// The unit of all values, such as `ns`.
    pub unit: String,
    /// Number of values.
    pub count: u64,
    /// The least value.
    pub min: u64,
    /// The greatest value.
    pub max: u64,
    /// The mean.
    pub mean: f64,
    /// Quantiles that at least one value exceeds; with few values the upper quantiles are absent.
    pub quantiles: Vec<Quantile>,
}

/// A quantile: the value that a share of all values does not exceed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Quantile {
    /// The share of all values, 0 to 1.
    pub share: f64,
    /// The quantile, in the distribution's unit.
    pub value: u64,
}

impl Distribution {
    /// The distribution of a histogram's values; None if the histogram is empty.
    pub fn from_histogram(unit: &str, histogram: &Histogram<u64>) -> Option<Self> {
        let count = histogram.len();
        // A quantile is listed if at least one value lies above it; 0.9999 of a hundred values would only repeat the
        // greatest. Rounded, since 1 - 0.9 is slightly less than 0.1 in floating point.
        let has_values_above = |share: &&f64| ((1.0 - **share) * 1e5).round() * count as f64 >= 1e5;
        let quantile = |&share: &f64| Quantile { share, value: histogram.value_at_quantile(share) };
        (count > 0).then(|| Self {
            unit: unit.to_owned(),
            count,
            min: histogram.min(),
            max: histogram.max(),
            mean: histogram.mean(),
            quantiles: SHARES.iter().filter(has_values_above).map(quantile).collect(),
        })
    }

    /// The quantile for one of the listed shares; the greatest value if too few values lie above it.
    pub fn at(&self, share: f64) -> u64 {
        let quantile = self.quantiles.iter().find(|quantile| quantile.share == share);
        quantile.map_or(self.max, |quantile| quantile.value)
    }

    /// The distribution of times in ns that the receiver counted.
    pub(crate) fn of_received(times: &traffic::Histogram) -> Option<Self> {
        let (min, max) = times.min_ns.zip(times.max_ns)?;
        // With 3 digits the histogram is finer than the receiver's buckets, so only the buckets limit the accuracy.
        let mut histogram = Histogram::new(3).ok()?;
        for (middle, count) in &times.buckets {
            histogram.record_n((*middle).clamp(min, max), *count).ok()?;
        }
        Self::from_histogram("ns", &histogram).map(|all| Self { min, max, ..all })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn up_to(values: u64) -> Option<Distribution> {
        let mut histogram = Histogram::new(3).unwrap();
        (1..=values).for_each(|value| histogram.record(value).unwrap());
        Distribution::from_histogram("ns", &histogram)
    }

    #[test]
    fn a_received_histogram_keeps_its_extremes_and_quantiles() {
        let times = traffic::Histogram {
            min_ns: Some(1000),
            max_ns: Some(70_003),
            buckets: vec![(1007, 900), (4095, 90), (70_143, 10)],
        };
        let all = Distribution::of_received(&times).unwrap();
        assert_eq!((all.count, all.min, all.max), (1000, 1000, 70_003));
        let quantiles: Vec<_> = all.quantiles.iter().map(|q| (q.share, q.value)).collect();
        assert_eq!(quantiles[1..3], [(0.5, 1007), (0.9, 1007)]);
        // The histogram is exact to 1/1000.
        for (at, want) in [(3, 4095), (4, 70_003)] {
            assert!((quantiles[at].1 as f64 / f64::from(want) - 1.0).abs() < 2e-3, "{quantiles:?}");
        }
        assert_eq!(Distribution::of_received(&traffic::Histogram::default()), None);
    }

    #[test]
    fn quantiles_need_enough_values() {
        let thousand = up_to(1000).unwrap();
        assert_eq!((thousand.count, thousand.min, thousand.max, thousand.mean), (1000, 1, 1000, 500.5));
        let quantiles: Vec<_> = thousand.quantiles.iter().map(|q| (q.share, q.value)).collect();
        assert_eq!(quantiles, [(0.1, 100), (0.5, 500), (0.9, 900), (0.99, 990), (0.999, 999)]);
        assert_eq!(up_to(1).unwrap().quantiles, []);
        assert_eq!(up_to(0), None);
    }
}
