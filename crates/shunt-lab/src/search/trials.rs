//! The trials of a search, and the classification of loads (RFC 9971, section 6 and appendices A and B).

use super::{Goal, Outcome, Trial};

/// The class of a load with respect to a goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Lower,
    Upper,
    Undecided,
}

/// All trials at one load.
#[derive(Debug)]
pub(super) struct Load {
    pub(super) pps: f64,
    trials: Vec<Measured>,
}

#[derive(Debug)]
struct Measured {
    duration_s: f64,
    effective_s: f64,
    loss_ratio: f64,
    sender_late: bool,
}

/// The relevant bounds of a goal.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds<'l> {
    pub(super) lower: Option<&'l Load>,
    pub(super) upper: Option<&'l Load>,
}

/// All trials, by rising load.
#[derive(Debug, Default)]
pub(super) struct Trials {
    loads: Vec<Load>,
}

impl Trials {
    pub(super) fn is_empty(&self) -> bool {
        self.loads.is_empty()
    }

    pub(super) fn add(&mut self, trial: Trial, outcome: Outcome) {
        let at = match self.loads.binary_search_by(|load| load.pps.total_cmp(&trial.load_pps)) {
            Ok(at) => at,
            Err(at) => {
                self.loads.insert(at, Load { pps: trial.load_pps, trials: Vec::new() });
                at
            }
        };
        self.loads[at].trials.push(Measured {
            duration_s: trial.duration_s,
            effective_s: outcome.effective_s,
            loss_ratio: outcome.loss_ratio(),
            sender_late: outcome.sender_late,
        });
    }

    /// The lowest upper bound, and the highest lower bound below it. If a router loses at a load and not at a higher
    /// one, the lower load counts.
    pub(super) fn bounds(&self, goal: &Goal) -> Bounds<'_> {
        let mut bounds = Bounds { lower: None, upper: None };
        for load in &self.loads {
            match load.class(goal) {
                Class::Lower => bounds.lower = Some(load),
                Class::Upper => {
                    bounds.upper = Some(load);
                    break;
                }
                Class::Undecided => {}
            }
        }
        bounds
    }
}

impl Load {
    pub(super) fn class(&self, goal: &Goal) -> Class {
        self.class_of(goal, |_| true)
    }

    /// Whether this load is an upper bound only because the sender was held up in some of its trials.
    pub(super) fn fails_by_sender(&self, goal: &Goal) -> bool {
        self.class(goal) == Class::Upper && self.class_of(goal, |trial| !trial.sender_late) != Class::Upper
    }

    /// The class by the trials that `is_used` accepts.
    fn class_of(&self, goal: &Goal, is_used: impl Fn(&Measured) -> bool) -> Class {
        let sum = |full: bool, high: bool| -> f64 {
            let counts = |t: &&Measured| {
                (t.duration_s >= goal.final_s) == full && (t.loss_ratio > goal.loss_ratio) == high
            };
            self.trials.iter().filter(|trial| is_used(trial)).filter(counts).map(|t| t.effective_s).sum()
        };
        // Short trials count only against a load, and only as far as short low-loss trials do not make up for them.
        let made_up = sum(false, false) * goal.exceed_ratio / (1.0 - goal.exceed_ratio);
        let high = sum(true, true) + (sum(false, true) - made_up).max(0.0);
        let low = sum(true, false);
        let whole = (high + low).max(goal.sum_s);
        // The trials that are still missing may all be good or all be bad.
        let (at_best, at_worst) = (high, whole - low);
        match whole * goal.exceed_ratio {
            allowed if at_best > allowed => Class::Upper,
            allowed if at_worst <= allowed => Class::Lower,
            _ => Class::Undecided,
        }
    }

    /// The rate forwarded at this load in as many trials as the goal requires to be good, if missing trials lose
    /// everything.
    pub(super) fn conditional_throughput(&self, goal: &Goal) -> f64 {
        let mut full: Vec<_> = self.trials.iter().filter(|t| t.duration_s >= goal.final_s).collect();
        full.sort_by(|a, b| a.loss_ratio.total_cmp(&b.loss_ratio));
        let whole = full.iter().map(|t| t.effective_s).sum::<f64>().max(goal.sum_s);
        let mut remaining = whole * (1.0 - goal.exceed_ratio);
        for trial in full {
            remaining -= trial.effective_s;
            if remaining <= 0.0 {
                return self.pps * (1.0 - trial.loss_ratio);
            }
        }
        0.0
    }
}

impl Bounds<'_> {
    /// The distance of the bounds in widths of the goal; None if a bound is missing.
    pub(super) fn widths(&self, goal: &Goal) -> Option<f64> {
        Some(widths_between(self.lower?.pps, self.upper?.pps, goal))
    }

    pub(super) fn near_enough(&self, goal: &Goal) -> bool {
        self.widths(goal).is_some_and(|widths| widths <= 1.0)
    }
}

/// The distance of two loads in widths of the goal. A distance of one width must not become more by a rounding error.
pub(super) fn widths_between(lower_pps: f64, upper_pps: f64, goal: &Goal) -> f64 {
    let widths = (lower_pps / upper_pps).ln() / (1.0 - goal.width).ln();
    if (widths - widths.round()).abs() < 1e-6 { widths.round() } else { widths }
}

#[cfg(test)]
mod tests;
