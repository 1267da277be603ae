//! How much a router forwards: searches for the load up to which it loses nothing, or no more than so much.
//!
//! A search says which trial it wants next, is told what came of it, and ends when it knows enough. It has no clock and does no
//! I/O, so that it can be tried on routers that do not exist ([`simulated`]). Loads are those of one direction, in frames/s.

mod binary;
mod goal;
mod ledger;
mod mlr;
pub mod simulated;

pub use binary::BinarySearch;
pub use goal::{Goal, Range, Wrong};
pub use mlr::MlrSearch;
use serde::{Deserialize, Serialize};

/// Traffic at the end of a trial that a generator may leave unsent: it stops by the clock, between two frames or two bursts.
const UNSENT_S: f64 = 10e-6;

/// What a trial is to be like.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Frames/s in one direction.
    pub load_pps: f64,
    /// For how long they are sent.
    pub duration_s: f64,
}

/// What came of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// How many frames should have been sent, of all directions.
    pub expected: u64,
    /// How many were.
    pub offered: u64,
    /// How many of them arrived.
    pub forwarded: u64,
    /// What the trial counts for (Trial Effective Duration): by default the time for which it sent.
    pub effective_s: f64,
}

impl Trial {
    /// Its outcome, when so many were sent and arrived in so many directions.
    pub fn outcome(&self, directions: u32, offered: u64, forwarded: u64) -> Outcome {
        let expected = self.load_pps * (self.duration_s - UNSENT_S).max(0.0) * f64::from(directions);
        Outcome { expected: expected as u64, offered, forwarded, effective_s: self.duration_s }
    }
}

impl Outcome {
    /// The share that did not arrive. What was not sent counts as lost: at a load that was not there, nothing was forwarded.
    pub fn loss_ratio(&self) -> f64 {
        match self.expected.max(self.offered) {
            0 => 0.0,
            all => all.saturating_sub(self.forwarded) as f64 / all as f64,
        }
    }

    /// Sent and not arrived.
    pub fn lost(&self) -> u64 {
        self.offered.saturating_sub(self.forwarded)
    }
}

/// What was found for one goal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GoalResult {
    /// What was searched for.
    pub goal: Goal,
    /// The highest load below `upper_pps` that meets the goal (Relevant Lower Bound), or the maximum if that does.
    pub lower_pps: Option<f64>,
    /// The lowest load that does not (Relevant Upper Bound).
    pub upper_pps: Option<f64>,
    /// What was forwarded at the lower bound (Conditional Throughput).
    pub throughput_pps: Option<f64>,
    /// Why the result is not regular, if it is not.
    pub irregular: Option<Irregular>,
}

/// Why a result is not a regular one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Irregular {
    /// Not even the minimum load meets the goal.
    MinLoadFails,
    /// The maximum load meets the goal, so the limit is beyond it.
    MaxLoadPasses,
    /// The search was ended before the bounds were near enough.
    Unfinished,
}

impl std::fmt::Display for Irregular {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::MinLoadFails => "irregular: the minimum load is an upper bound",
            Self::MaxLoadPasses => "irregular: the maximum load is a lower bound, so the limit is beyond it",
            Self::Unfinished => "irregular: the search ended before its bounds were near enough",
        })
    }
}

/// A search for one or more goals.
pub trait Search {
    /// The trial that is wanted next; none when the search is over.
    fn wanted(&mut self) -> Option<Trial>;
    /// Takes in what came of it.
    fn record(&mut self, trial: Trial, outcome: Outcome);
    /// What is known so far, in the order of the goals.
    fn results(&self) -> Vec<GoalResult>;
}

/// Searches until it is over.
///
/// # Errors
/// When a trial could not be measured. What is known until then stays in the search.
pub fn run<E>(
    search: &mut dyn Search,
    mut measure: impl FnMut(Trial) -> Result<Outcome, E>,
) -> Result<Vec<GoalResult>, E> {
    while let Some(trial) = search.wanted() {
        let outcome = measure(trial)?;
        search.record(trial, outcome);
    }
    Ok(search.results())
}

#[cfg(test)]
mod tests;
