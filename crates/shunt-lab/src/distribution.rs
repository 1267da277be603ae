//! A histogram, as far as a result keeps it.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

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
    fn quantiles_are_those_that_the_values_are_enough_for() {
        let thousand = up_to(1000).unwrap();
        assert_eq!((thousand.count, thousand.min, thousand.max, thousand.mean), (1000, 1, 1000, 500.5));
        let told: Vec<_> = thousand.quantiles.iter().map(|q| (q.share, q.value)).collect();
        assert_eq!(told, [(0.1, 100), (0.5, 500), (0.9, 900), (0.99, 990), (0.999, 999)]);
        assert_eq!(up_to(1).unwrap().quantiles, []);
        assert_eq!(up_to(0), None);
    }
}
