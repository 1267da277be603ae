//! A measured number and the runs it comes from.

use crate::{
    Doubt, Labels,
    spread::{Spread, SpreadKind},
    statistics,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use shunt_gen::Sizes;
use shunt_wire::line::LinkSpeed;

/// Tolerance when a rate is compared with a line's limit: the line's clock (IEEE 802.3) and this machine's clock may
/// differ by as much.
const CLOCKS_APART: f64 = 2e-4;

/// A measured number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// The unit of all values, such as `pps` or `Mbit/s`.
    pub unit: String,
    /// The median of the runs.
    pub value: f64,
    /// Bounds of the value.
    pub spread: Spread,
    /// Reasons why the value may be wrong beyond the spread. Reports print them first.
    pub doubts: Vec<Doubt>,
    /// The most that the line can carry; absent if the link is virtual or its speed is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// The reading's position in a series; absent if the reading is not part of a series.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<Position>,
    /// What the reading is of; empty for readings that nothing compares by their kind.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// The runs, in the order in which they were made.
    pub runs: Vec<Run>,
}

/// The most that a line can carry, given its speed and the frame size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// The limit, in the reading's unit and for the same layer.
    pub value: f64,
    /// The line and the frames, such as `1Gbit/s, frames of 64 bytes`.
    pub of: String,
}

impl Limit {
    /// The limit in frames/s of this number of lines together.
    pub fn for_line(speed: LinkSpeed, sizes: &Sizes, lines: u32) -> Self {
        let value = speed.frames_per_second(sizes.mean_bytes()) * f64::from(lines);
        let line = format!("{speed}bit/s, frames of {sizes} bytes");
        Self { value, of: if lines == 1 { line } else { format!("{lines} x {line}") } }
    }

    /// `value` as a share of the limit; None if the limit is not above 0.
    pub fn share(&self, value: f64) -> Option<f64> {
        (self.value > 0.0).then(|| value / self.value)
    }

    /// Whether `value` exceeds the limit by more than clocks differ: then the value or the limit is wrong.
    pub fn is_below(&self, value: f64) -> bool {
        self.share(value).is_some_and(|share| share > 1.0 + CLOCKS_APART)
    }
}

/// A reading's position in a series, such as one frame size of many.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Position {
    /// The quantity that the series shows: `forwarded`, `lost`.
    pub of: String,
    /// The curve within the series, such as an engine or a direction.
    pub line: String,
    /// The quantity on the x axis, such as `frame size`.
    pub along: String,
    /// The unit of the x axis.
    pub unit: String,
    /// The position on the x axis, in `unit`.
    pub value: f64,
}

impl Position {
    /// The position of a quantity that was measured at one offered rate, such as `latency p99`. The line is the run,
    /// such as a direction; without one, the quantity. Percentiles of a quantity are lines of one series.
    pub fn at_offered_rate(quantity: &str, run: &str, pps: f64) -> Self {
        let is_percentile = |word: &str| word.strip_prefix('p').is_some_and(|n| n.parse::<f64>().is_ok());
        let (of, line) = match quantity.rsplit_once(' ').filter(|(_, last)| is_percentile(last)) {
            Some((of, percentile)) => (of, format!("{percentile} {run}").trim_end().to_owned()),
            None if run.is_empty() => (quantity, quantity.to_owned()),
            None => (quantity, run.to_owned()),
        };
        let [of, along, unit] = [of, Self::OFFERED_RATE, "pps"].map(str::to_owned);
        Self { of, line, along, unit, value: pps }
    }

    /// The quantity on the x axis of series by offered rate, whose unit is bit/s in a sweep and pps elsewhere.
    pub const OFFERED_RATE: &str = "offered rate";

    /// Whether this is the position of a quantity that was measured at one offered rate.
    pub fn is_at_offered_rate(&self) -> bool {
        self.along == Self::OFFERED_RATE && self.unit == "pps"
    }
}

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The value, in the reading's unit.
    pub value: f64,
    /// The time when the run was recorded, in UTC by RFC 3339. `compare` uses the times to see whether runs of two
    /// files were made in turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Further figures of the run, by name.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub details: Map<String, Value>,
}

impl Reading {
    /// A reading of these runs; None if there is no run or a value is not finite.
    pub fn from_runs(unit: &str, runs: Vec<Run>) -> Option<Self> {
        let values: Vec<f64> = runs.iter().map(|run| run.value).collect();
        if values.iter().any(|value| !value.is_finite()) {
            return None;
        }
        let value = statistics::median(&values)?;
        let low = statistics::quantile(&values, 0.0)?;
        let high = statistics::quantile(&values, 1.0)?;
        let spread = Spread { low, high, kind: SpreadKind::Range };
        Some(Self {
            unit: unit.to_owned(),
            value,
            spread,
            doubts: Vec::new(),
            limit: None,
            position: None,
            labels: Labels::default(),
            runs,
        })
    }

    /// The values of the runs.
    pub fn values(&self) -> Vec<f64> {
        self.runs.iter().map(|run| run.value).collect()
    }

    /// The ratio of two readings whose runs were made in turn, with its interval and the doubts of both.
    pub fn ratio(of: &Self, to: &Self) -> Option<Self> {
        let (value, spread) = statistics::ratio_of_pairs(&of.values(), &to.values(), 1)?;
        let pairs = of.runs.iter().zip(&to.runs);
        let runs =
            pairs.map(|(of, to)| Run { at: of.at.clone(), ..Run::from(of.value / to.value) }).collect();
        let doubts = of.doubts.clone();
        let mut ratio = Self {
            unit: "1".to_owned(),
            value,
            spread,
            doubts,
            limit: None,
            position: None,
            labels: Labels::default(),
            runs,
        };
        to.doubts.iter().for_each(|doubt| ratio.add_doubt(doubt.clone()));
        Some(ratio)
    }

    /// Calculates an interval again from the runs: earlier versions called that of any number of runs one of 95 %.
    pub(crate) fn correct_interval(&mut self) {
        if self.spread.kind == SpreadKind::Confidence95 {
            self.spread = statistics::median_interval(&self.values()).unwrap_or(self.spread);
        }
    }

    /// `value` as a share of this reading's limit; None if there is no limit or the limit is not above 0.
    pub fn share(&self, value: f64) -> Option<f64> {
        self.limit.as_ref()?.share(value)
    }

    /// Sets the limit, and adds a doubt if the value or a run exceeds it.
    pub fn set_limit(&mut self, limit: Option<Limit>) {
        self.limit = limit;
        if self.is_above_limit() {
            self.add_doubt(Doubt::AboveLine);
        }
    }

    /// Whether the value or one of the runs exceeds the limit.
    pub fn is_above_limit(&self) -> bool {
        let values = self.runs.iter().map(|run| run.value).chain([self.value]);
        self.limit.as_ref().is_some_and(|limit| values.into_iter().any(|value| limit.is_below(value)))
    }

    /// Adds a doubt. Of those that differ by a figure only, the one with the worst figure is kept.
    pub fn add_doubt(&mut self, doubt: Doubt) {
        doubt.add_to(&mut self.doubts);
    }
}

impl From<f64> for Run {
    fn from(value: f64) -> Self {
        Self { value, at: None, details: Map::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_values(values: &[f64]) -> Option<Reading> {
        Reading::from_runs("pps", values.iter().copied().map(Run::from).collect())
    }

    #[test]
    fn a_reading_is_the_median_of_its_runs_within_their_range() {
        let reading = from_values(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!((reading.value, reading.spread.low, reading.spread.high), (2.0, 1.0, 3.0));
        assert_eq!(reading.runs[0].value, 3.0);
        assert!(
            from_values(&[]).is_none()
                && from_values(&[1.0, f64::NAN]).is_none()
                && from_values(&[f64::INFINITY]).is_none()
        );
    }

    #[test]
    fn a_share_needs_a_positive_limit() {
        let mut reading = from_values(&[3.0]).unwrap();
        assert_eq!(reading.share(3.0), None);
        for (value, share) in [(12.0, Some(0.25)), (0.0, None), (f64::NAN, None)] {
            reading.limit = Some(Limit { value, of: "1 Gbit/s".to_owned() });
            assert_eq!(reading.share(3.0), share);
        }
    }

    #[test]
    fn a_rate_above_the_limit_of_the_line_is_doubted() {
        let sizes = Sizes::fixed(64).unwrap();
        let gigabit: LinkSpeed = "1G".parse().unwrap();
        let limit = Limit::for_line(gigabit, &sizes, 1);
        assert_eq!((limit.value.round(), limit.of.as_str()), (1_488_095.0, "1Gbit/s, frames of 64 bytes"));
        let both = Limit::for_line(gigabit, &sizes, 2);
        assert_eq!((both.value, both.of.as_str()), (2.0 * limit.value, "2 x 1Gbit/s, frames of 64 bytes"));
        let imix = Limit::for_line(gigabit, &"imix".parse().unwrap(), 1);
        let mean_bytes = (7.0 * 64.0 + 4.0 * 570.0 + 1518.0) / 12.0;
        assert!((imix.value * 8.0 * (mean_bytes + 20.0) / 1e9 - 1.0).abs() < 1e-9, "{imix:?}");
        // Clocks may differ by 200 ppm; a rate above that is wrong.
        for (pps, above) in [(1_488_095.0, false), (1_488_200.0, false), (1_490_000.0, true)] {
            let mut reading = from_values(&[1e6, pps, 1e6]).unwrap();
            reading.set_limit(Some(limit.clone()));
            assert_eq!(reading.doubts.contains(&Doubt::AboveLine), above, "{pps}");
        }
    }

    #[test]
    fn a_ratio_has_the_doubts_of_both_once() {
        let (mut a, mut b) = (from_values(&[2.0, 4.0]).unwrap(), from_values(&[1.0, 2.0]).unwrap());
        a.add_doubt(Doubt::VirtualLinks);
        b.add_doubt(Doubt::VirtualLinks);
        b.add_doubt(Doubt::OneCore);
        a.runs[1].at = Some("2026-01-01T00:00:00.000Z".to_owned());
        let ratio = Reading::ratio(&a, &b).unwrap();
        assert_eq!(ratio.runs[1].at, a.runs[1].at);
        assert_eq!((ratio.value, ratio.spread.low, ratio.spread.high), (2.0, 2.0, 2.0));
        assert_eq!(ratio.doubts, [Doubt::VirtualLinks, Doubt::OneCore]);
        assert_eq!(Reading::ratio(&a, &from_values(&[1.0]).unwrap()), None);
    }
}
