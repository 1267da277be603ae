//! Multiple Loss Ratio Search (RFC 9971): several goals at once, which share all trials.
//!
//! The RFC defines how loads are classified and what the result is ([`trials`](super::trials)). It leaves the choice of
//! the next load to the implementation, which is this: a goal is reached in stages, each with more trials at a load and
//! narrower bounds than the stage before. A stage begins at a guess, moves away from it in doubling steps until it has
//! a lower and an upper bound, and halves the interval. The first stage's guess is the rate forwarded at the maximum
//! load, and a later stage's guess is the bound of the stage before.

use super::{
    Goal, GoalResult, Irregular, Outcome, Range, Search, Trial, Wrong,
    trials::{Bounds, Trials, widths_between},
};

/// A search for several goals.
#[derive(Debug)]
pub struct MlrSearch {
    range: Range,
    pursuits: Vec<Pursuit>,
    trials: Trials,
    warm_up_s: Option<f64>,
    /// Remaining time in seconds for trials.
    budget_s: f64,
    trial_count: usize,
}

/// The state of one goal.
#[derive(Debug)]
struct Pursuit {
    stages: [Goal; 3],
    stage: usize,
    guess_pps: f64,
    /// Upper bound of the stage before.
    ceiling_pps: f64,
    gallop: Gallop,
}

/// Doubling steps away from a bound, in widths of the stage.
#[derive(Debug, Clone, Copy)]
struct Gallop {
    from_pps: f64,
    widths: f64,
}

impl MlrSearch {
    /// A search for these goals.
    ///
    /// # Errors
    /// Fails if a goal or the range is not possible.
    pub fn new(goals: &[Goal], range: Range) -> Result<Self, Wrong> {
        goals.iter().try_for_each(Goal::check)?;
        let shortest_s = goals.iter().map(|goal| goal.initial_s).reduce(f64::min).ok_or(Wrong::NoGoal)?;
        range.check(shortest_s)?;
        let pursuits = goals.iter().map(|goal| Pursuit::new(goal, range)).collect();
        let (trials, budget_s) = (Trials::default(), f64::INFINITY);
        Ok(Self { range, pursuits, trials, warm_up_s: None, budget_s, trial_count: 0 })
    }

    /// Adds a first trial at the maximum load, whose outcome is not kept.
    #[must_use]
    pub fn with_warm_up(mut self, seconds: f64) -> Self {
        self.warm_up_s = Some(seconds);
        self
    }

    /// Sets a limit for the effective duration of all trials; results that are not found by then are irregular.
    #[must_use]
    pub fn within(mut self, seconds: f64) -> Self {
        self.budget_s = seconds;
        self
    }

    /// Number of trials without the warm-up.
    pub fn trials(&self) -> usize {
        self.trial_count
    }
}

impl Search for MlrSearch {
    fn next_trial(&mut self) -> Option<Trial> {
        let load_pps = self.range.max_pps;
        if let Some(duration_s) = self.warm_up_s {
            return Some(Trial { load_pps, duration_s });
        }
        if self.budget_s <= 0.0 {
            return None;
        }
        if self.trials.is_empty() {
            let longest = self.pursuits.iter().map(|pursuit| pursuit.goal().initial_s).reduce(f64::max);
            return longest.map(|duration_s| Trial { load_pps, duration_s });
        }
        let last = self.pursuits.first()?.stages.len() - 1;
        // Complete a stage for all goals first: coarse results of one goal are good guesses for the others.
        for stage in 0..=last {
            for pursuit in &mut self.pursuits {
                while pursuit.stage <= stage {
                    match pursuit.next_trial(&self.trials, self.range) {
                        Some(trial) => return Some(trial),
                        // Trials for other goals may reopen this goal.
                        None if pursuit.stage == last => break,
                        None => pursuit.advance(&self.trials),
                    }
                }
            }
        }
        None
    }

    fn record(&mut self, trial: Trial, outcome: Outcome) {
        if self.warm_up_s.take().is_some() {
            return;
        }
        if self.trials.is_empty() {
            let forwarded = trial.load_pps * (1.0 - outcome.loss_ratio());
            for pursuit in &mut self.pursuits {
                // If a higher load only adds loss, the router loses exactly the allowed share at this load.
                let guess = forwarded / (1.0 - pursuit.goal().loss_ratio);
                pursuit.begin_at(guess.clamp(self.range.min_pps, self.range.max_pps));
            }
        }
        self.trial_count += 1;
        self.budget_s -= outcome.effective_s;
        self.trials.add(trial, outcome);
    }

    fn results(&self) -> Vec<GoalResult> {
        self.pursuits.iter().map(|pursuit| result(&self.trials, pursuit.goal(), self.range)).collect()
    }
}

impl Pursuit {
    fn new(goal: &Goal, range: Range) -> Self {
        let (stages, guess_pps) = (goal.stages(), range.max_pps);
        let gallop = Gallop { from_pps: guess_pps, widths: 1.0 };
        Self { stages, stage: 0, guess_pps, ceiling_pps: f64::INFINITY, gallop }
    }

    fn goal(&self) -> &Goal {
        &self.stages[self.stages.len() - 1]
    }

    /// None if the bounds of this stage are close enough or at the end of the range.
    fn next_trial(&mut self, trials: &Trials, range: Range) -> Option<Trial> {
        let stage = self.stages[self.stage];
        let bounds = trials.bounds(&stage);
        let load_pps = match (bounds.lower.map(|load| load.pps), bounds.upper.map(|load| load.pps)) {
            (Some(lower), _) if lower >= range.max_pps => None,
            (_, Some(upper)) if upper <= range.min_pps => None,
            (Some(_), Some(_)) if bounds.near_enough(&stage) => None,
            (None, None) => Some(self.guess_pps),
            (lower, upper) => Some(self.between(&stage, range, lower, upper)),
        }?;
        Some(Trial { load_pps, duration_s: stage.final_s })
    }

    /// The next load if at least one bound is known.
    fn between(&mut self, stage: &Goal, range: Range, lower: Option<f64>, upper: Option<f64>) -> f64 {
        let (bottom, top) = (lower.unwrap_or(range.min_pps), upper.unwrap_or(range.max_pps));
        // A load within one width of a bound or of the range's end becomes that bound or end.
        let beyond = |from: f64, to: f64| from < to && widths_between(from, to, stage) >= 1.0;
        let clear_below = lower.map_or(self.guess_pps >= bottom, |lower| beyond(lower, self.guess_pps));
        let clear_above = upper.map_or(self.guess_pps <= top, |upper| beyond(self.guess_pps, upper));
        if clear_below && clear_above {
            return self.guess_pps;
        }
        let up = lower.is_some_and(|_| clear_above || upper.is_none());
        let from_pps = if up { bottom } else { top };
        self.gallop.advance(from_pps);
        let apart = widths_between(bottom, top, stage);
        let both = lower.is_some() && upper.is_some();
        if both && 2.0 * self.gallop.widths >= apart {
            return halved(bottom, top, apart, stage);
        }
        let step = (1.0 - stage.width).powf(self.gallop.widths);
        if up {
            let ceiling = if self.ceiling_pps > bottom { self.ceiling_pps } else { range.max_pps };
            let load = (bottom / step).min(ceiling);
            if beyond(load, range.max_pps) { load } else { range.max_pps.min(top) }
        } else {
            let load = top * step;
            if beyond(range.min_pps, load) { load } else { range.min_pps.max(bottom) }
        }
    }

    fn advance(&mut self, trials: &Trials) {
        let Bounds { lower, upper } = trials.bounds(&self.stages[self.stage]);
        self.ceiling_pps = upper.map_or(f64::INFINITY, |load| load.pps);
        self.stage += 1;
        self.begin_at(lower.or(upper).map_or(self.guess_pps, |load| load.pps));
    }

    fn begin_at(&mut self, guess_pps: f64) {
        self.guess_pps = guess_pps;
        self.gallop = Gallop { from_pps: guess_pps, widths: 1.0 };
    }
}

impl Gallop {
    /// If the bound has moved since the last step, the step was too short.
    fn advance(&mut self, from_pps: f64) {
        if self.from_pps != from_pps {
            self.widths *= 2.0;
            self.from_pps = from_pps;
        }
    }
}

/// The middle of the interval, rounded to a whole number of widths from the lower bound, so that no remainder costs
/// another trial.
fn halved(bottom: f64, top: f64, apart: f64, stage: &Goal) -> f64 {
    if apart <= 2.0 {
        return (bottom * top).sqrt();
    }
    bottom / (1.0 - stage.width).powf((apart.ceil() / 2.0).floor())
}

fn result(trials: &Trials, goal: &Goal, range: Range) -> GoalResult {
    let bounds = trials.bounds(goal);
    let irregular = match (&bounds.lower, &bounds.upper) {
        (_, Some(upper)) if upper.fails_by_sender(goal) => Some(Irregular::SenderLate),
        (_, Some(upper)) if upper.pps <= range.min_pps => Some(Irregular::MinLoadFails),
        (Some(lower), None) if lower.pps >= range.max_pps => Some(Irregular::MaxLoadPasses),
        _ if bounds.near_enough(goal) => None,
        _ => Some(Irregular::Unfinished),
    };
    GoalResult {
        goal: *goal,
        lower_pps: bounds.lower.map(|load| load.pps),
        upper_pps: bounds.upper.map(|load| load.pps),
        throughput_pps: bounds
            .lower
            .filter(|_| irregular != Some(Irregular::SenderLate))
            .map(|load| load.conditional_throughput(goal)),
        irregular,
    }
}
