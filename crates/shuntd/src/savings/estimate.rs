//! From rounds to what a packet costs on both paths, with bounds.
//!
//! The slow path of a sample is not Linux without Shunt. The kernel calls Shunt's programs, and with XDP, the driver
//! makes frames that XDP can read. Nobody can measure either, but each has a bound.

use super::{outliers, round::Round};
use shunt_api::Bounds;

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
    /// Half of the confidence interval, and the rounds that it is from.
    spread_ns: f64,
    rounds: usize,
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
        let rounds = outliers::without(rounds, Round::difference_ns);
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
        let spread_ns = t * deviation;
        let half = spread_ns + hooks_doubt;
        let sampled = slow_ns - hooks - fast_ns;
        // The fast path needs the frames, too, so making one takes at most as long as the whole fast path.
        let frames = if xdp { fast_ns } else { 0.0 };
        let at_most = xdp && rounds.iter().any(|round| round.merging);
        let high = sampled + half;
        // Linux takes some time.
        let low = if at_most { -fast_ns } else { sampled - half - (slow_ns - hooks) * CALLS - frames };
        let value = (low + high) / 2.0;
        let saved = Bounds { value, low, high };
        Some(Self { slow_ns: value + fast_ns, fast_ns, saved, at_most, spread_ns, rounds: rounds.len() })
    }

    /// How many rounds, if they differ as much as these, leave less doubt than the value; `None` if no number does.
    pub(super) fn rounds_for_certainty(&self) -> Option<usize> {
        // The spread falls with the root of the number, and the rest of the doubt stays.
        let room = self.saved.low + self.spread_ns;
        (room > 0.0).then(|| (self.rounds as f64 * (self.spread_ns / room).powi(2)).ceil() as usize)
    }
}
