//! `target/bench/summary.json`: the ratios of the results, with the bounds that the project has set itself.

use serde::Serialize;
use shunt_lab::{Doubt, Reading, statistics};
use std::{collections::BTreeMap, fmt};

/// The content of `summary.json`.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// Machine and settings, by name.
    pub conditions: BTreeMap<&'static str, String>,
    /// Ratios by name.
    pub ratios: BTreeMap<&'static str, Ratio>,
    /// Reason for each ratio or group that was not measured.
    pub missing: BTreeMap<&'static str, String>,
}

/// The ratio of two readings whose runs were made in turn.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ratio {
    /// The median of the ratios of paired runs.
    pub median: f64,
    /// The least of these ratios.
    pub min: f64,
    /// The greatest of these ratios.
    pub max: f64,
    /// Number of pairs.
    pub runs: usize,
    /// The median of the numerator's runs.
    pub of: f64,
    /// The median of the denominator's runs.
    pub to: f64,
    /// Unit of `of` and `to`.
    pub unit: &'static str,
    /// The project's bound for the median; absent for ratios that are measured for comparison only.
    pub target: Option<Target>,
    /// Reasons why the ratio may be wrong.
    pub doubts: Vec<String>,
}

/// A bound for a ratio.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// The ratio must not exceed this.
    AtMost(f64),
    /// The ratio must not be below this.
    AtLeast(f64),
}

impl Ratio {
    /// The ratio of two readings with the doubts of both; `of` and `to` are readings with their labels.
    pub fn new(
        of: (&str, &Reading),
        to: (&str, &Reading),
        unit: &'static str,
        target: Option<Target>,
    ) -> Self {
        let values = |reading: &Reading| reading.runs.iter().map(|run| run.value).collect::<Vec<_>>();
        let mut ratio = Self::of_pairs(&values(of.1), &values(to.1), unit, target);
        for (label, reading) in [of, to] {
            ratio.doubts.extend(reading.doubts.iter().map(|doubt: &Doubt| format!("{label}: {doubt}")));
        }
        ratio
    }

    /// The ratio of values that were measured in pairs.
    pub fn of_pairs(of: &[f64], to: &[f64], unit: &'static str, target: Option<Target>) -> Self {
        let pairs: Vec<f64> = of.iter().zip(to).map(|(a, b)| a / b).collect();
        Self {
            median: median(&pairs),
            min: pairs.iter().copied().fold(f64::INFINITY, f64::min),
            max: pairs.iter().copied().fold(0.0, f64::max),
            runs: pairs.len(),
            of: median(of),
            to: median(to),
            unit,
            target,
            doubts: Vec::new(),
        }
    }
}

impl Target {
    /// Whether this median keeps to the bound.
    pub fn is_met_by(self, median: f64) -> bool {
        match self {
            Self::AtMost(bound) => median <= bound,
            Self::AtLeast(bound) => median >= bound,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(bound) => write!(f, "<= {bound:.3}"),
            Self::AtLeast(bound) => write!(f, ">= {bound:.3}"),
        }
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { median, min, max, runs, of, to, unit, .. } = self;
        write!(f, "{median:.3} ({min:.3} to {max:.3} in {runs} runs; {of:.1} to {to:.1} {unit})")?;
        let Some(target) = self.target else { return Ok(()) };
        write!(f, ", target {target}: {}", if target.is_met_by(*median) { "met" } else { "NOT MET" })
    }
}

/// The median; NaN if there are no values.
fn median(values: &[f64]) -> f64 {
    statistics::median(values).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_is_that_of_paired_runs() {
        let mut ratio = Ratio::of_pairs(&[1.0, 2.0, 3.0], &[10.0, 10.0, 10.0], "ns", None);
        assert_eq!((ratio.median, ratio.min, ratio.max, ratio.runs), (0.2, 0.1, 0.3, 3));
        assert_eq!(ratio.to_string(), "0.200 (0.100 to 0.300 in 3 runs; 2.0 to 10.0 ns)");
        ratio.target = Some(Target::AtMost(0.2));
        assert!(ratio.to_string().ends_with(", target <= 0.200: met"));
        ratio.target = Some(Target::AtLeast(0.21));
        assert!(ratio.to_string().ends_with(", target >= 0.210: NOT MET"));
    }

    #[test]
    fn doubts_carry_the_label_of_their_reading() {
        let runs = |value: f64| vec![shunt_lab::Run::from(value)];
        let mut tc = Reading::from_runs("ns/packet", runs(5.0)).unwrap();
        tc.add_doubt(Doubt::Lost { percent: 1.5 });
        let slow = Reading::from_runs("ns/packet", runs(10.0)).unwrap();
        let ratio = Ratio::new(("tc", &tc), ("slow", &slow), "ns", None);
        assert_eq!(
            (ratio.median, &ratio.doubts[..]),
            (0.5, &["tc: 1.5 % of the packets were lost".to_owned()][..])
        );
    }
}
