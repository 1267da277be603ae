//! Statistics for a few runs with outliers and an unknown distribution.

mod binomial;
mod ranks;

use crate::spread::{Spread, SpreadKind};
pub use binomial::share_interval;
use ranks::{pairs_beyond, runs_beyond};

/// With fewer runs or pairs, the whole range covers the median with less than 95 % confidence: five values are on the
/// same side of it by chance in one of sixteen cases.
pub const RUNS_WANTED: usize = 6;

/// So many runs are enough for any number of intervals that a file has.
const RUNS_MAX: usize = 64;

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

/// The nearest rank: the smallest of these sorted values that `percent` of all do not exceed. None if there are no
/// values.
pub fn nearest_rank<T: Copy>(sorted: &[T], percent: usize) -> Option<T> {
    sorted.get((sorted.len() * percent).div_ceil(100).saturating_sub(1)).copied()
}

/// The median absolute deviation from the median. None if there are no values.
pub fn median_deviation(values: &[f64]) -> Option<f64> {
    let middle = median(values)?;
    median(&values.iter().map(|value| (value - middle).abs()).collect::<Vec<_>>())
}

/// Bounds of the median of the distribution that these values come from, whichever it is: two of the values, as far
/// apart as 95 % confidence needs. With fewer than [`RUNS_WANTED`] values, their range, which is called that. None if
/// there are no values.
pub fn median_interval(values: &[f64]) -> Option<Spread> {
    bounds(values.to_vec(), runs_beyond(values.len(), 1))
}

/// The number of runs of each of two sides from which on this many intervals hold `together` with 95 %.
pub fn runs_wanted(are_paired: bool, together: usize) -> usize {
    let beyond = |n: usize| if are_paired { runs_beyond(n, together) } else { pairs_beyond(n, n, together) };
    (RUNS_WANTED..RUNS_MAX).find(|n| beyond(*n).is_some()).unwrap_or(RUNS_MAX)
}

/// The median of the ratios of paired runs, with its [interval](median_interval). A disturbance that slows both runs of
/// a pair cancels out.
///
/// None if there are no pairs, the numbers of runs differ, or a ratio is not finite.
pub fn ratio_of_pairs(of: &[f64], to: &[f64], together: usize) -> Option<(f64, Spread)> {
    of_pairs(of, to, together, |of, to| of / to)
}

/// As [`ratio_of_pairs`], but the difference `of - to`. Used for shares, which may be 0.
pub fn difference_of_pairs(of: &[f64], to: &[f64], together: usize) -> Option<(f64, Spread)> {
    of_pairs(of, to, together, |of, to| of - to)
}

/// The ratio of two samples that are not paired: the median of the ratios of each run of one to each run of the other
/// (Hodges and Lehmann), with the interval that belongs to the test of Mann and Whitney. Otherwise as
/// [`ratio_of_pairs`].
pub fn ratio_of_samples(of: &[f64], to: &[f64], together: usize) -> Option<(f64, Spread)> {
    of_samples(of, to, together, |of, to| of / to)
}

/// The difference of two samples; otherwise as [`ratio_of_samples`].
pub fn difference_of_samples(of: &[f64], to: &[f64], together: usize) -> Option<(f64, Spread)> {
    of_samples(of, to, together, |of, to| of - to)
}

fn of_pairs(of: &[f64], to: &[f64], together: usize, against: fn(f64, f64) -> f64) -> Option<(f64, Spread)> {
    let pairs: Vec<f64> = of.iter().zip(to).map(|(of, to)| against(*of, *to)).collect();
    if of.len() != to.len() || pairs.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let beyond = runs_beyond(pairs.len(), together);
    Some((median(&pairs)?, bounds(pairs, beyond)?))
}

fn of_samples(
    of: &[f64],
    to: &[f64],
    together: usize,
    against: fn(f64, f64) -> f64,
) -> Option<(f64, Spread)> {
    let pairs: Vec<f64> = of.iter().flat_map(|of| to.iter().map(|to| against(*of, *to))).collect();
    if pairs.iter().any(|value| !value.is_finite()) {
        return None;
    }
    Some((median(&pairs)?, bounds(pairs, pairs_beyond(of.len(), to.len(), together))?))
}

/// The bounds that leave out this number of values at each end; all values if it is None, which is no interval of
/// confidence.
fn bounds(mut values: Vec<f64>, beyond: Option<usize>) -> Option<Spread> {
    values.sort_by(f64::total_cmp);
    let kind = if beyond.is_some() { SpreadKind::Confidence95 } else { SpreadKind::Range };
    let left_out = beyond.unwrap_or(0);
    let low = *values.get(left_out)?;
    let high = *values.get(values.len().checked_sub(1 + left_out)?)?;
    Some(Spread { low, high, kind })
}

#[cfg(test)]
mod tests;
