//! The throughput of RFC 2544, section 26.1: the highest load without loss, found by binary search.

use super::{Goal, GoalResult, Irregular, Outcome, Range, Search, Trial, Wrong};

/// A binary search with one trial at each load.
#[derive(Debug)]
pub struct BinarySearch {
    goal: Goal,
    range: Range,
    /// The highest load that passed, and the rate it forwarded.
    passed: Option<(f64, f64)>,
    /// The lowest load that failed, and whether it may have failed because the sender was held up.
    failed: Option<(f64, bool)>,
}

impl BinarySearch {
    /// For trials of 60 s and a resolution of 0.5 %, use [`Goal::RFC2544`]. Only the goal's loss ratio, width and final
    /// trial duration are used.
    ///
    /// # Errors
    /// Fails if the goal or the range is not possible.
    pub fn new(goal: Goal, range: Range) -> Result<Self, Wrong> {
        goal.check()?;
        range.check(goal.final_s)?;
        Ok(Self { goal, range, passed: None, failed: None })
    }

    fn near_enough(&self) -> bool {
        self.passed
            .zip(self.failed)
            .is_some_and(|((passed, _), (failed, _))| 1.0 - passed / failed <= self.goal.width)
    }
}

impl Search for BinarySearch {
    fn next_trial(&mut self) -> Option<Trial> {
        let Range { min_pps, max_pps } = self.range;
        let load_pps = match (self.passed, self.failed.map(|(load, _)| load)) {
            (None, None) => Some(max_pps),
            (Some((passed, _)), Some(failed)) => (!self.near_enough()).then_some((passed + failed) / 2.0),
            (Some(_), None) => None,
            (None, Some(failed)) if failed <= min_pps => None,
            // The last load before giving up is the minimum.
            (None, Some(failed)) if 1.0 - min_pps / failed <= self.goal.width => Some(min_pps),
            (None, Some(failed)) => Some((min_pps + failed) / 2.0),
        }?;
        Some(Trial { load_pps, duration_s: self.goal.final_s })
    }

    fn record(&mut self, trial: Trial, outcome: Outcome) {
        let loss_ratio = outcome.loss_ratio();
        if loss_ratio <= self.goal.loss_ratio {
            self.passed = Some((trial.load_pps, trial.load_pps * (1.0 - loss_ratio)));
        } else {
            self.failed = Some((trial.load_pps, outcome.sender_late));
        }
    }

    fn results(&self) -> Vec<GoalResult> {
        let irregular = match (self.passed, self.failed) {
            (Some(_), None) => Some(Irregular::MaxLoadPasses),
            (_, Some((_, true))) => Some(Irregular::SenderLate),
            (None, Some((failed, _))) if failed <= self.range.min_pps => Some(Irregular::MinLoadFails),
            _ if self.near_enough() => None,
            _ => Some(Irregular::Unfinished),
        };
        vec![GoalResult {
            goal: self.goal,
            lower_pps: self.passed.map(|(load, _)| load),
            upper_pps: self.failed.map(|(load, _)| load),
            throughput_pps: self
                .passed
                .filter(|_| irregular != Some(Irregular::SenderLate))
                .map(|(_, pps)| pps),
            irregular,
        }]
    }
}
