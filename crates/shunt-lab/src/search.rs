//! Search for a router's throughput: the highest load at which it loses nothing, or no more than a given share.
//!
//! A search names its next trial, records the outcome, and ends when the bounds are close enough. It has no clock and
//! does no I/O, so that it can be tested on simulated routers ([`simulated`]). Loads are in frames/s of one direction.

mod binary;
mod goal;
mod mlr;
pub mod simulated;
mod trials;

pub use binary::BinarySearch;
pub use goal::{Goal, Range, Wrong};
pub use mlr::MlrSearch;
use serde::{Deserialize, Serialize};

/// Share of a trial's frames that may stay unsent, for delays of the sender. The result is off by no more than this
/// share, which is less than the width of any goal.
pub(crate) const UNSENT: f64 = 0.001;
/// Time at the end of a trial whose frames may stay unsent: the generator stops by the clock, between two frames or
/// bursts.
const UNSENT_S: f64 = 10e-6;

/// The parameters of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Load in frames/s of one direction.
    pub load_pps: f64,
    /// Duration of sending in seconds.
    pub duration_s: f64,
}

/// The outcome of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Number of frames due in all directions.
    pub expected: u64,
    /// Number of frames sent.
    pub offered: u64,
    /// Number of frames received.
    pub forwarded: u64,
    /// Trial Effective Duration of the RFC: by default, the time of sending.
    pub effective_s: f64,
    /// Whether the sender was held up, so that the load was not offered.
    pub sender_late: bool,
}

impl Trial {
    /// The outcome of a trial with this number of directions, sent and received frames.
    pub fn outcome(&self, directions: u32, offered: u64, forwarded: u64) -> Outcome {
        let unsent_s = UNSENT_S.max(self.duration_s * UNSENT);
        let expected = self.load_pps * (self.duration_s - unsent_s).max(0.0) * f64::from(directions);
        let (expected, effective_s) = (expected as u64, self.duration_s);
        Outcome { expected, offered, forwarded, effective_s, sender_late: false }
    }
}

impl Outcome {
    /// Share of the due frames that were not received. A frame that was not sent counts as lost: the router has not
    /// shown that it forwards this load.
    pub fn loss_ratio(&self) -> f64 {
        match self.expected.max(self.offered) {
            0 => 0.0,
            all => all.saturating_sub(self.forwarded) as f64 / all as f64,
        }
    }

    /// Number of frames that were due and not sent.
    pub fn unsent(&self) -> u64 {
        self.expected.saturating_sub(self.offered)
    }

    /// Number of frames that were sent and not received.
    pub fn lost(&self) -> u64 {
        self.offered.saturating_sub(self.forwarded)
    }
}

/// The result for a goal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GoalResult {
    /// The goal.
    pub goal: Goal,
    /// Relevant Lower Bound: the highest load below `upper_pps` that meets the goal, or the maximum load if that meets
    /// it.
    pub lower_pps: Option<f64>,
    /// Relevant Upper Bound: the lowest load that does not meet the goal.
    pub upper_pps: Option<f64>,
    /// Conditional Throughput: the rate forwarded at the lower bound. None if there is no lower bound, or if the sender
    /// was held up at the upper bound: the throughput may be higher.
    pub throughput_pps: Option<f64>,
    /// The kind of irregularity; None if the result is regular.
    pub irregular: Option<Irregular>,
}

/// The reason for an irregular result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Irregular {
    /// The minimum load does not meet the goal.
    MinLoadFails,
    /// The maximum load meets the goal, so the throughput is higher.
    MaxLoadPasses,
    /// The search was ended before the bounds were close enough.
    Unfinished,
    /// The upper bound is only that of a sender that was held up at it.
    SenderLate,
}

impl std::fmt::Display for Irregular {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::MinLoadFails => "irregular: the minimum load is an upper bound",
            Self::MaxLoadPasses => "irregular: the maximum load is a lower bound; the throughput is higher",
            Self::Unfinished => "irregular: the search ended before its bounds were close enough",
            Self::SenderLate => {
                "cannot tell: the sender was held up at the loads above; repeat it on an idle machine"
            }
        })
    }
}

/// A search for one or more goals.
pub trait Search {
    /// The next trial; None when the search is over.
    fn next_trial(&mut self) -> Option<Trial>;
    /// Records the outcome of a trial.
    fn record(&mut self, trial: Trial, outcome: Outcome);
    /// The results so far, in the order of the goals.
    fn results(&self) -> Vec<GoalResult>;
}

/// A search ends after this many trials whose sender was held up: the machine is too busy.
const LATE_MAX: usize = 12;

/// Runs a search to its end, or until too many trials have failed because of their sender.
///
/// # Errors
/// Returns the error of a trial; the results until then stay in the search.
pub fn run<E>(
    search: &mut dyn Search,
    mut measure: impl FnMut(Trial) -> Result<Outcome, E>,
) -> Result<Vec<GoalResult>, E> {
    let mut late = 0;
    while let Some(trial) = search.next_trial() {
        let outcome = measure(trial)?;
        search.record(trial, outcome);
        late += usize::from(outcome.sender_late);
        if late == LATE_MAX {
            let given_up = |result: GoalResult| match result.irregular {
                Some(Irregular::Unfinished) => {
                    GoalResult { throughput_pps: None, irregular: Some(Irregular::SenderLate), ..result }
                }
                _ => result,
            };
            return Ok(search.results().into_iter().map(given_up).collect());
        }
    }
    Ok(search.results())
}

#[cfg(test)]
mod tests;
