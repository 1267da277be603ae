//! A number, with the runs that it is of.

use crate::{Doubt, statistics};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use shunt_gen::Sizes;
use shunt_wire::line::LinkSpeed;

/// The clocks of a line may be so far off (IEEE 802.3), and that of this machine as well.
const CLOCKS_APART: f64 = 2e-4;

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// Such as `pps` or `Mbit/s`.
    pub unit: String,
    /// The median of the runs.
    pub value: f64,
    /// How far it may be off.
    pub spread: Spread,
    /// Why it may be wrong beyond that: read these first.
    pub doubts: Vec<Doubt>,
    /// The most that the line could have carried, where there is a line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Where it stands, if it is one of a course of readings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<Position>,
    /// In the order in which they were made.
    pub runs: Vec<Run>,
}

/// What a line can carry by its speed and the size of frames alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// In the reading's unit, of the same layer.
    pub value: f64,
    /// Of which line and which frames, such as `1 Gbit/s, 64-byte frames`.
    pub of: String,
}

impl Limit {
    /// In frames/s, over so many lines at once.
    pub fn of_line(speed: LinkSpeed, sizes: &Sizes, lines: u32) -> Self {
        let value = speed.frames_per_second(sizes.mean_bytes()) * f64::from(lines);
        let line = format!("{speed}bit/s, frames of {sizes} bytes");
        Self { value, of: if lines == 1 { line } else { format!("{lines} x {line}") } }
    }

    /// Which part of it this is. None of a limit that is not above 0.
    pub fn share(&self, value: f64) -> Option<f64> {
        (self.value > 0.0).then(|| value / self.value)
    }

    /// It cannot be: it is wrong, or the limit is.
    pub fn is_below(&self, value: f64) -> bool {
        self.share(value).is_some_and(|share| share > 1.0 + CLOCKS_APART)
    }
}

/// Where a reading stands on a course of them, such as one frame size of many.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Position {
    /// What each of the course says: `forwarded`, `lost`.
    pub of: String,
    /// Which line of the course, such as an engine or a direction.
    pub line: String,
    /// What differs along the course, such as `frame size`.
    pub along: String,
    /// The unit of that.
    pub unit: String,
    /// How much of it here.
    pub value: f64,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// In the reading's unit.
    pub value: f64,
    /// When it was put down, in UTC by RFC 3339; so it shows which runs of two files were made in turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// What else it showed, by names of its own.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub details: Map<String, Value>,
}

/// Two bounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The lower one.
    pub low: f64,
    /// The upper one.
    pub high: f64,
    /// What they bound.
    pub kind: SpreadKind,
}

/// What a spread bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpreadKind {
    /// All runs.
    Range,
    /// The true value, with a confidence of 95 %.
    #[serde(rename = "confidence-95")]
    Confidence95,
}

impl Reading {
    /// Of one run or more. None when there is none, or one that is not a number.
    pub fn of_runs(unit: &str, runs: Vec<Run>) -> Option<Self> {
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
            runs,
        })
    }

    /// A against B, whose runs were made in turn: their ratio, with its confidence interval and the doubts of both.
    pub fn ratio(of: &Self, to: &Self, seed: u64) -> Option<Self> {
        let values = |reading: &Self| reading.runs.iter().map(|run| run.value).collect::<Vec<_>>();
        let (of_runs, to_runs) = (values(of), values(to));
        let (value, spread) = statistics::ratio_of_pairs(&of_runs, &to_runs, seed)?;
        let pairs = of.runs.iter().zip(&to.runs);
        let runs =
            pairs.map(|(of, to)| Run { at: of.at.clone(), ..Run::from(of.value / to.value) }).collect();
        let doubts = of.doubts.clone();
        let mut ratio =
            Self { unit: "1".to_owned(), value, spread, doubts, limit: None, position: None, runs };
        to.doubts.iter().for_each(|doubt| ratio.add_doubt(doubt.clone()));
        Some(ratio)
    }

    /// Which part of its limit it is, or this run's value is. None without a limit, or with one that is not above 0.
    pub fn share(&self, value: f64) -> Option<f64> {
        self.limit.as_ref()?.share(value)
    }

    /// Says what the line could have carried at most, and doubts what is above.
    pub fn set_limit(&mut self, limit: Option<Limit>) {
        self.limit = limit;
        if self.is_above_limit() {
            self.add_doubt(Doubt::AboveLine);
        }
    }

    /// It or one of its runs is more than the line can carry.
    pub fn is_above_limit(&self) -> bool {
        let values = self.runs.iter().map(|run| run.value).chain([self.value]);
        self.limit.as_ref().is_some_and(|limit| values.into_iter().any(|value| limit.is_below(value)))
    }

    /// Once each.
    pub fn add_doubt(&mut self, doubt: Doubt) {
        if !self.doubts.contains(&doubt) {
            self.doubts.push(doubt);
        }
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

    fn of(values: &[f64]) -> Option<Reading> {
        Reading::of_runs("pps", values.iter().copied().map(Run::from).collect())
    }

    #[test]
    fn a_reading_is_the_median_of_its_runs_within_their_range() {
        let reading = of(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!((reading.value, reading.spread.low, reading.spread.high), (2.0, 1.0, 3.0));
        assert_eq!(reading.runs[0].value, 3.0);
        assert!(of(&[]).is_none() && of(&[1.0, f64::NAN]).is_none() && of(&[f64::INFINITY]).is_none());
    }

    #[test]
    fn a_share_is_of_a_limit_that_there_is() {
        let mut reading = of(&[3.0]).unwrap();
        assert_eq!(reading.share(3.0), None);
        for (value, share) in [(12.0, Some(0.25)), (0.0, None), (f64::NAN, None)] {
            reading.limit = Some(Limit { value, of: "1 Gbit/s".to_owned() });
            assert_eq!(reading.share(3.0), share);
        }
    }

    #[test]
    fn the_limit_is_that_of_the_line_and_what_is_above_is_doubted() {
        let sizes = Sizes::fixed(64).unwrap();
        let gigabit: LinkSpeed = "1G".parse().unwrap();
        let limit = Limit::of_line(gigabit, &sizes, 1);
        assert_eq!((limit.value.round(), limit.of.as_str()), (1_488_095.0, "1Gbit/s, frames of 64 bytes"));
        let both = Limit::of_line(gigabit, &sizes, 2);
        assert_eq!((both.value, both.of.as_str()), (2.0 * limit.value, "2 x 1Gbit/s, frames of 64 bytes"));
        let imix = Limit::of_line(gigabit, &"imix".parse().unwrap(), 1);
        let mean_bytes = (7.0 * 64.0 + 4.0 * 570.0 + 1518.0) / 12.0;
        assert!((imix.value * 8.0 * (mean_bytes + 20.0) / 1e9 - 1.0).abs() < 1e-9, "{imix:?}");
        // Clocks differ, packets do not overtake the light.
        for (pps, above) in [(1_488_095.0, false), (1_488_200.0, false), (1_490_000.0, true)] {
            let mut reading = of(&[1e6, pps, 1e6]).unwrap();
            reading.set_limit(Some(limit.clone()));
            assert_eq!(reading.doubts.contains(&Doubt::AboveLine), above, "{pps}");
        }
    }

    #[test]
    fn a_ratio_has_the_doubts_of_both_once() {
        let (mut a, mut b) = (of(&[2.0, 4.0]).unwrap(), of(&[1.0, 2.0]).unwrap());
        a.add_doubt(Doubt::VirtualLinks);
        b.add_doubt(Doubt::VirtualLinks);
        b.add_doubt(Doubt::OneCore);
        a.runs[1].at = Some("2026-01-01T00:00:00.000Z".to_owned());
        let ratio = Reading::ratio(&a, &b, 1).unwrap();
        assert_eq!(ratio.runs[1].at, a.runs[1].at);
        assert_eq!((ratio.value, ratio.spread.low, ratio.spread.high), (2.0, 2.0, 2.0));
        assert_eq!(ratio.doubts, [Doubt::VirtualLinks, Doubt::OneCore]);
        assert_eq!(Reading::ratio(&a, &of(&[1.0]).unwrap(), 1), None);
    }
}
