//! Rules that find what slows a port.
//!
//! A [`System`] is recorded once, and can be written to a file; the rules are functions of it. [`diagnose`] applies all of them.

mod copies;
mod rules;
mod system;

pub use copies::{CopyRate, measure_copies};
pub use rules::{RULES, Rule};
pub use system::{IdleState, Load, LoadStep, OtherPort, System};

use serde::{Deserialize, Serialize};

/// What a rule found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Name of the rule, such as `small-ring`.
    pub rule: String,
    /// What is wrong, in one line.
    pub title: String,
    /// What was seen.
    pub evidence: String,
    /// What it costs.
    pub cost: String,
    /// What to do, or to type.
    pub fix: String,
    /// Where the rule comes from.
    pub source: String,
    /// How certain it is.
    pub certainty: Certainty,
}

/// How certain a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Certainty {
    /// What was seen is the problem itself, or leads to it in any case.
    Certain,
    /// What was seen usually leads to the problem.
    Likely,
    /// What was seen leads to the problem with some traffic.
    Possible,
}

/// All findings, the most certain first.
pub fn diagnose(system: &System) -> Vec<Finding> {
    let mut all: Vec<Finding> = RULES.iter().filter_map(|rule| rule.apply(system)).collect();
    all.sort_by_key(|finding| finding.certainty);
    all
}

#[cfg(test)]
mod tests;
