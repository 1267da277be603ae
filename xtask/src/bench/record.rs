//! What is kept of the measurements.

use anyhow::Context;
use serde::Serialize;
use shunt_lab::statistics;
use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
};

/// The directory of one bench.
#[derive(Debug)]
pub struct Records {
    directory: PathBuf,
}

/// A ratio of two things that were measured in turn.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ratio {
    /// The median of the ratios of two runs side by side.
    pub median: f64,
    /// The least of them.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// How many pairs of runs there were.
    pub runs: usize,
    /// The median above the line.
    pub of: f64,
    /// The median below the line.
    pub to: f64,
    /// What both are.
    pub unit: &'static str,
    /// The bound that the project has set itself; none where it is for comparison.
    pub target: Option<Target>,
    /// Why the number may be wrong.
    pub doubts: Vec<String>,
}

/// A bound.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// No more than this.
    AtMost(f64),
    /// No less than this.
    AtLeast(f64),
}

/// `target/bench/summary.json`.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// Under which conditions.
    pub conditions: BTreeMap<&'static str, String>,
    /// By name.
    pub ratios: BTreeMap<&'static str, Ratio>,
    /// What was not measured, and why.
    pub missing: BTreeMap<&'static str, String>,
}

impl Records {
    /// An empty directory for a new bench.
    pub fn new(directory: PathBuf) -> anyhow::Result<Self> {
        let runs = directory.join("runs");
        if runs.exists() {
            fs::remove_dir_all(&runs).with_context(|| runs.display().to_string())?;
        }
        fs::create_dir_all(&runs).with_context(|| runs.display().to_string())?;
        Ok(Self { directory })
    }

    /// Keeps one run, at once.
    pub fn keep(&self, group: &str, run: usize, what: &str, record: &impl Serialize) -> anyhow::Result<()> {
        self.keep_as(&format!("{group}-{run:02}-{what}"), record)
    }

    /// Keeps runs that belong together, at once.
    pub fn keep_as(&self, name: &str, record: &impl Serialize) -> anyhow::Result<()> {
        write(&self.directory.join(format!("runs/{name}.json")), record)
    }

    /// Keeps the summary, and says where.
    pub fn summarize(&self, summary: &impl Serialize) -> anyhow::Result<PathBuf> {
        let path = self.directory.join("summary.json");
        write(&path, summary)?;
        Ok(path)
    }
}

impl Ratio {
    /// The ratio of what was measured in pairs.
    pub fn of_pairs(
        of: &[f64],
        to: &[f64],
        unit: &'static str,
        target: Option<Target>,
        doubts: Vec<String>,
    ) -> Self {
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
            doubts,
        }
    }
}

impl Target {
    /// Whether this keeps to the bound.
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
        write!(f, ", wanted {target}: {}", if target.is_met_by(*median) { "met" } else { "NOT MET" })
    }
}

/// The median; not a number where there is none.
pub fn median(values: &[f64]) -> f64 {
    statistics::median(values).unwrap_or(f64::NAN)
}

/// Writes JSON for people, too.
pub fn write(path: &Path, record: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(record)? + "\n";
    fs::write(path, text).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_nothing_is_not_a_number() {
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn the_spread_is_that_of_runs_side_by_side() {
        let mut ratio = Ratio::of_pairs(&[1.0, 2.0, 3.0], &[10.0, 10.0, 10.0], "ns", None, vec![]);
        assert_eq!((ratio.median, ratio.min, ratio.max, ratio.runs), (0.2, 0.1, 0.3, 3));
        assert_eq!(ratio.to_string(), "0.200 (0.100 to 0.300 in 3 runs; 2.0 to 10.0 ns)");
        ratio.target = Some(Target::AtMost(0.2));
        assert!(ratio.to_string().ends_with(", wanted <= 0.200: met"));
        ratio.target = Some(Target::AtLeast(0.21));
        assert!(ratio.to_string().ends_with(", wanted >= 0.210: NOT MET"));
    }
}
