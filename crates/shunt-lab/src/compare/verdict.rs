//! The conclusion from an interval, and what stands in the way of one.

use super::pairing::Pairing;
use crate::{MachineState, Spread};
use serde::Serialize;

/// The unit of shares.
pub(super) const SHARES: &str = "%";
/// Two readings are equal if they differ by less than this share.
pub const MARGIN: f64 = 0.05;
/// Two shares are equal if they differ by less than this many points.
pub const SHARES_MARGIN: f64 = 1.0;
/// Change of the time of fixed work from which on two files cannot be compared unless they were made in turn.
const WORK_CHANGED: f64 = 0.1;
/// Share of the CPUs that other programs may have without files that were not made in turn becoming incomparable.
const OTHERS_PERCENT: f64 = 5.0;

/// The conclusion from a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// B is better.
    Better,
    /// B is worse.
    Worse,
    /// B differs; the unit does not say which direction is better.
    Differs,
    /// The whole interval is within the margin: [`MARGIN`], or [`SHARES_MARGIN`] for shares.
    Equal,
    /// Neither; the obstacle says why.
    CannotTell,
}

/// Why nothing can be concluded.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Obstacle {
    /// Too few runs for an interval.
    TooFewRuns,
    /// The interval contains no difference, and differences beyond the margin.
    WideInterval,
    /// The files were not made in turn, and the difference may be a change of the machine between them.
    MayBeDrift,
    /// The files were not made in turn, and nothing recorded the state of the machine.
    MachineUnknown,
    /// The files were not made in turn, and other programs used the machine.
    MachineBusy,
    /// The files were not made in turn, and fixed work took longer in one of them.
    MachineChanged,
}

/// What the conclusion depends on besides the interval.
pub(super) struct Evidence<'u> {
    pub(super) unit: &'u str,
    pub(super) by_difference: bool,
    pub(super) medians: [f64; 2],
    pub(super) pairing: Pairing,
    pub(super) machine: Option<[MachineState; 2]>,
    pub(super) same_cpus: bool,
}

impl Evidence<'_> {
    pub(super) fn verdict(&self, spread: Spread) -> (Verdict, Option<Obstacle>) {
        let drift = match self.drift() {
            Ok(drift) => drift,
            Err(obstacle) => return (Verdict::CannotTell, Some(obstacle)),
        };
        let same = if self.by_difference { 0.0 } else { 1.0 };
        let margin = self.margin();
        let (low, high) = (spread.low - same, spread.high - same);
        let is_beyond = |by: f64| low > by || high < -by;
        if is_beyond(drift) {
            return (self.direction(low > 0.0), None);
        }
        if low >= -margin && high <= margin {
            return (Verdict::Equal, None);
        }
        let obstacle = if is_beyond(0.0) { Obstacle::MayBeDrift } else { Obstacle::WideInterval };
        (Verdict::CannotTell, Some(obstacle))
    }

    /// The difference that a change of the machine between two files may look like: none if they were made in turn, and
    /// otherwise the margin and the change of the time of fixed work together.
    fn drift(&self) -> Result<f64, Obstacle> {
        if self.pairing == Pairing::Interleaved {
            return Ok(0.0);
        }
        let [a, b] = self.machine.ok_or(Obstacle::MachineUnknown)?;
        if a.others_percent.max(b.others_percent) > OTHERS_PERCENT {
            return Err(Obstacle::MachineBusy);
        }
        if !self.same_cpus {
            return Ok(self.margin());
        }
        let changed = a.work_us.max(b.work_us) / a.work_us.min(b.work_us) - 1.0;
        if changed > WORK_CHANGED {
            return Err(Obstacle::MachineChanged);
        }
        Ok(self.margin() * (1.0 + changed / MARGIN))
    }

    fn margin(&self) -> f64 {
        match (self.by_difference, self.unit) {
            (false, _) => MARGIN,
            (true, SHARES) => SHARES_MARGIN,
            (true, _) => MARGIN * self.medians[0].max(self.medians[1]),
        }
    }

    fn direction(&self, is_more: bool) -> Verdict {
        match more_is_better(self.unit) {
            None => Verdict::Differs,
            Some(better) if better == is_more => Verdict::Better,
            Some(_) => Verdict::Worse,
        }
    }
}

/// Whether more is better, by the unit: for rates it is, for times, loads and losses it is not.
fn more_is_better(unit: &str) -> Option<bool> {
    match unit {
        "pps" | "bit/s" | "kbit/s" | "Mbit/s" | "Gbit/s" | "1/s" | "connections" => Some(true),
        "s"
        | "ms"
        | "us"
        | "ns"
        | SHARES
        | "points"
        | "ns/packet"
        | "cycles/packet"
        | "instructions/packet" => Some(false),
        _ => None,
    }
}
