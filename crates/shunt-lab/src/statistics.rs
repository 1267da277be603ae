//! Statistics for a few runs with outliers and an unknown distribution.

use crate::spread::{Spread, SpreadKind};

/// With this many resamples, the ends of a 95 % interval differ from those of infinitely many by about one run at most.
const RESAMPLES: usize = 10_000;

/// The median: the middle value, or the mean of the two middle values. None if there are no values.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The quantile at `share` (0 to 1), interpolated linearly between neighbouring values (type 7 of Hyndman and Fan, the
/// default of R and NumPy). None if there are no values or `share` is out of range.
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    if values.is_empty() || !(0.0..=1.0).contains(&share) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = share * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    Some(below + (above - below) * at.fract())
}

/// The median absolute deviation from the median. None if there are no values.
pub fn median_deviation(values: &[f64]) -> Option<f64> {
    let middle = median(values)?;
    median(&values.iter().map(|value| (value - middle).abs()).collect::<Vec<_>>())
}

/// The median of the ratios of paired runs, with its 95 % confidence interval by the bootstrap (percentile method,
/// pairs resampled together). A disturbance that slows both runs of a pair cancels out.
///
/// None if there are no pairs, the numbers of runs differ, or a ratio is not finite. The same seed gives the same
/// interval.
pub fn ratio_of_pairs(of: &[f64], to: &[f64], seed: u64) -> Option<(f64, Spread)> {
    of_pairs(of, to, seed, |of, to| of / to)
}

/// As [`ratio_of_pairs`], but the difference `of - to`. Used for shares, which may be 0.
pub fn difference_of_pairs(of: &[f64], to: &[f64], seed: u64) -> Option<(f64, Spread)> {
    of_pairs(of, to, seed, |of, to| of - to)
}

/// The ratio of the medians, for runs that are not paired; otherwise as [`ratio_of_pairs`].
pub fn ratio_of_medians(of: &[f64], to: &[f64], seed: u64) -> Option<(f64, Spread)> {
    of_medians(of, to, seed, |of, to| of / to)
}

/// The difference of the medians; otherwise as [`ratio_of_medians`].
pub fn difference_of_medians(of: &[f64], to: &[f64], seed: u64) -> Option<(f64, Spread)> {
    of_medians(of, to, seed, |of, to| of - to)
}

fn of_pairs(of: &[f64], to: &[f64], seed: u64, against: fn(f64, f64) -> f64) -> Option<(f64, Spread)> {
    let pairs: Vec<f64> = of.iter().zip(to).map(|(of, to)| against(*of, *to)).collect();
    if of.len() != to.len() || pairs.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let value = median(&pairs)?;
    let mut random = fastrand::Rng::with_seed(seed);
    Some((value, interval(|| median(&resampled(&pairs, &mut random)))?))
}

fn of_medians(of: &[f64], to: &[f64], seed: u64, against: fn(f64, f64) -> f64) -> Option<(f64, Spread)> {
    let value = against(median(of)?, median(to)?);
    if !value.is_finite() {
        return None;
    }
    let mut random = fastrand::Rng::with_seed(seed);
    let spread = interval(|| {
        Some(against(median(&resampled(of, &mut random))?, median(&resampled(to, &mut random))?))
    })?;
    Some((value, spread))
}

fn resampled(values: &[f64], random: &mut fastrand::Rng) -> Vec<f64> {
    values.iter().map(|_| values[random.usize(..values.len())]).collect()
}

fn interval(mut resample: impl FnMut() -> Option<f64>) -> Option<Spread> {
    let resamples: Vec<f64> = (0..RESAMPLES).map(|_| resample()).collect::<Option<_>>()?;
    let (low, high) = (quantile(&resamples, 0.025)?, quantile(&resamples, 0.975)?);
    Some(Spread { low, high, kind: SpreadKind::Confidence95 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_r() {
        // quantile(c(15, 20, 35, 40, 50), c(0, .05, .25, .3, .4, .5, .95, 1))
        let values = [50.0, 15.0, 40.0, 20.0, 35.0];
        for (share, want) in [
            (0.0, 15.0),
            (0.05, 16.0),
            (0.25, 20.0),
            (0.3, 23.0),
            (0.4, 29.0),
            (0.5, 35.0),
            (0.95, 48.0),
            (1.0, 50.0),
        ] {
            let got = quantile(&values, share).unwrap();
            assert!((got - want).abs() < 1e-9, "{share}: {got}");
        }
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!((median(&[]), quantile(&values, 1.1), quantile(&values, f64::NAN)), (None, None, None));
    }

    #[test]
    fn one_outlier_does_not_move_the_deviation() {
        // mad(c(1, 1, 2, 2, 4, 6, 9), constant = 1)
        assert_eq!(median_deviation(&[1.0, 1.0, 2.0, 2.0, 4.0, 6.0, 9.0]), Some(1.0));
        assert_eq!(median_deviation(&[1.0, 1.0, 2.0, 2.0, 4.0, 6.0, 9e9]), Some(1.0));
        assert_eq!(median_deviation(&[]), None);
    }

    #[test]
    fn the_interval_of_nine_pairs_ends_at_the_second_and_the_eighth() {
        // The median of a resample is at most the k-th value if at least five of nine draws are among the first k:
        // binomial probability 0.0014 for the first value and 0.034 for the second; 0.025 lies between.
        let of = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0];
        for seed in 0..5 {
            let (value, spread) = ratio_of_pairs(&of, &[10.0; 9], seed).unwrap();
            assert_eq!((value, spread.low, spread.high), (0.5, 0.2, 0.8));
        }
        // With three pairs, a quarter of all resamples have either end as their median.
        let (_, spread) = ratio_of_pairs(&[3.0, 1.0, 2.0], &[1.0; 3], 7).unwrap();
        assert_eq!((spread.low, spread.high), (1.0, 3.0));
    }

    #[test]
    fn a_disturbance_of_both_runs_of_a_pair_cancels_out() {
        let to = [100.0, 900.0, 300.0, 10.0];
        let of = to.map(|value| value * 0.5);
        let (value, spread) = ratio_of_pairs(&of, &to, 1).unwrap();
        assert_eq!((value, spread.low, spread.high), (0.5, 0.5, 0.5));
        for (of, to) in [(&[1.0][..], &[0.0][..]), (&[], &[]), (&[1.0, 2.0], &[1.0])] {
            assert_eq!(ratio_of_pairs(of, to, 1), None);
        }
    }

    #[test]
    fn shares_of_0_have_a_difference() {
        let (value, spread) = difference_of_pairs(&[14.0, 15.0, 16.0], &[0.0; 3], 1).unwrap();
        assert_eq!((value, spread.low, spread.high), (15.0, 14.0, 16.0));
        let (value, spread) = difference_of_medians(&[0.0; 4], &[0.0; 9], 1).unwrap();
        assert_eq!((value, spread.low, spread.high), (0.0, 0.0, 0.0));
        assert_eq!(difference_of_pairs(&[1.0], &[], 1), None);
    }

    #[test]
    fn unpaired_runs_are_resampled_independently() {
        let (value, spread) = ratio_of_medians(&[10.0, 11.0, 12.0], &[5.0; 7], 1).unwrap();
        // With three runs, the lowest is the median of a resample in 7 of 27 cases.
        assert_eq!((value, spread.low, spread.high), (2.2, 2.0, 2.4));
        // Taken as pairs, (1, 2) and (2, 1) are inconclusive; the medians are equal.
        let (value, spread) = ratio_of_medians(&[1.0, 2.0], &[2.0, 1.0], 1).unwrap();
        assert!(value == 1.0 && spread.low == 0.5 && spread.high == 2.0, "{spread:?}");
        assert_eq!((ratio_of_medians(&[], &[1.0], 1), ratio_of_medians(&[1.0], &[0.0], 1)), (None, None));
    }
}
