//! From rounds to what a packet costs on both paths, with bounds.
//!
//! The slow path of a sample is not Linux without Shunt. The kernel calls Shunt's programs, and with XDP, the driver
//! makes frames that XDP can read. Nobody can measure either, but each has a bound.

use super::round::Round;
use shunt_api::Bounds;

/// A round is left out if it is so many times further from the median than half of the others: something else had the
/// CPU, such as the host of a virtual machine.
const OUTLIER: f64 = 6.0;
/// At most one in so many rounds is left out.
const OUTLIERS: usize = 4;
/// The largest part of the slow path's time in which the kernel calls Shunt's programs, without the programs: 4.3 to
/// 7.4 % of the instructions (`docs/performance/peers.md`).
const CALLS: f64 = 0.08;
/// Quantiles of Student's t for 95 %, both sides, by degrees of freedom from 1 on.
const T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// What a packet costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Estimate {
    /// By Linux without Shunt.
    pub(super) slow_ns: f64,
    pub(super) fast_ns: f64,
    pub(super) saved: Bounds,
    /// Whether only the upper bound tells something: Linux without Shunt may forward merged packets.
    pub(super) at_most: bool,
}

/// Both paths of some rounds together.
fn means(rounds: &[Round]) -> (f64, f64) {
    let sum = |part: fn(&Round) -> f64| rounds.iter().map(part).sum::<f64>();
    let slow = sum(|round| round.slow_ns) / sum(|round| round.slow_pkts);
    (slow, sum(|round| round.fast_ns) / sum(|round| round.fast_pkts))
}

impl Estimate {
    /// The interval is that of the jackknife: how much the difference depends on single rounds. The doubt about
    /// Shunt's own programs is added as a whole, and so is what only Linux with Shunt does. `None` with fewer than
    /// three rounds.
    pub(super) fn of(rounds: &[Round], xdp: bool) -> Option<Self> {
        let rounds = without_outliers(rounds);
        if rounds.len() < 3 {
            return None;
        }
        let count = rounds.len() as f64;
        let (slow_ns, fast_ns) = means(&rounds);
        let without = |left_out: usize| {
            let mut others = rounds.clone();
            others.swap_remove(left_out);
            let (slow, fast) = means(&others);
            slow - fast
        };
        let differences: Vec<f64> = (0..rounds.len()).map(without).collect();
        let mean = differences.iter().sum::<f64>() / count;
        let squares: f64 = differences.iter().map(|difference| (difference - mean).powi(2)).sum();
        let deviation = (squares * (count - 1.0) / count).sqrt();
        let t = T[(rounds.len() - 2).min(T.len() - 1)];
        let hooks = rounds.iter().map(|round| round.hooks_ns).sum::<f64>() / count;
        let hooks_doubt = rounds.iter().map(|round| round.hooks_doubt_ns).sum::<f64>() / count;
        let half = t * deviation + hooks_doubt;
        let sampled = slow_ns - hooks - fast_ns;
        // The fast path needs the frames, too, so making one takes at most as long as the whole fast path.
        let frames = if xdp { fast_ns } else { 0.0 };
        let at_most = xdp && rounds.iter().any(|round| round.merging);
        let high = sampled + half;
        // Linux takes some time.
        let low = if at_most { -fast_ns } else { sampled - half - (slow_ns - hooks) * CALLS - frames };
        let value = (low + high) / 2.0;
        Some(Self { slow_ns: value + fast_ns, fast_ns, saved: Bounds { value, low, high }, at_most })
    }
}

fn without_outliers(rounds: &[Round]) -> Vec<Round> {
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or_default()
    };
    let middle = median(rounds.iter().map(Round::difference_ns).collect());
    let distance = |round: &Round| (round.difference_ns() - middle).abs();
    let usual = median(rounds.iter().map(distance).collect());
    let mut kept = rounds.to_vec();
    kept.sort_by(|a, b| distance(a).total_cmp(&distance(b)));
    let least = rounds.len() - rounds.len() / OUTLIERS;
    while kept.len() > least && kept.last().is_some_and(|last| distance(last) > OUTLIER * usual) {
        kept.pop();
    }
    kept
}
