//! Rules that find the causes of a slow port.
//!
//! A [`System`] is recorded once and can be saved to a file; the rules are functions of it. [`diagnose`] applies all of
//! them.

mod copies;
mod hardware;
mod kernel_files;
mod limit;
mod pressure;
mod rules;
mod system;

pub use copies::{CopyRate, measure_copies};
pub use hardware::{Hardware, Pcie};
pub use limit::{FullestLine, Limit, limit};
pub use pressure::{CpuLoad, Pressure, QueueLoad};
pub use rules::{RULES, Rule};
pub use system::{IdleState, Load, LoadStep, OtherPort, System};

use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};

/// A problem that a rule found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Name of the rule, such as `small-ring`.
    pub rule: String,
    /// The problem, in one line.
    pub title: String,
    /// The observed values that show the problem.
    pub evidence: String,
    /// The effect of the problem on traffic.
    pub cost: String,
    /// The remedy, with the command to type if there is one.
    pub fix: String,
    /// The document or measurement that the rule is based on.
    pub source: String,
    /// How certain it is that the evidence means the problem.
    pub certainty: Certainty,
}

/// Degrees of certainty that evidence means a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Certainty {
    /// The evidence is the problem, or always leads to it.
    Certain,
    /// The evidence usually leads to the problem.
    Likely,
    /// The evidence leads to the problem with some traffic only.
    Possible,
}

impl Display for Certainty {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Certain => "certain",
            Self::Likely => "likely",
            Self::Possible => "possible",
        })
    }
}

/// All findings, the most certain first.
pub fn diagnose(system: &System) -> Vec<Finding> {
    let mut all: Vec<Finding> = RULES.iter().filter_map(|rule| rule.apply(system)).collect();
    all.sort_by_key(|finding| finding.certainty);
    all
}

#[cfg(test)]
mod tests;
