//! Finds parameters from what was measured, and says how well the measurements determine them.

mod describe;

use crate::{
    case::{Case, CaseError, Protocol},
    optimum::{least_squares, minimum},
    prediction::Prediction,
    world,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, ops::ControlFlow};

/// What was measured at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// Payload that arrived, in Mbit/s, all directions together.
    Goodput,
    /// Payload of the first direction that arrived, in Mbit/s.
    Up,
    /// Payload of the second direction that arrived, in Mbit/s.
    Down,
    /// Lost packets, in percent.
    Loss,
    /// CPU load, in percent of one core.
    Cpu,
}

/// One number that was measured, and the settings of the run.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// What differs from the case, as for [`Case::set`].
    pub settings: Vec<(String, String)>,
    /// What was measured.
    pub quantity: Quantity,
    /// The number, in the unit of the quantity.
    pub value: f64,
}

/// A parameter that was fitted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fitted {
    /// Its name, as for [`Case::set`].
    pub name: String,
    /// The best value.
    pub value: f64,
    /// Two standard errors below; 0 if the data gives no bound.
    pub low: f64,
    /// Two standard errors above; absent if the data gives no bound.
    pub high: Option<f64>,
    /// Whether the data determines it.
    pub determined: bool,
}

/// The result of a fit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// The parameters, in the order in which they were asked for.
    pub parameters: Vec<Fitted>,
    /// Pairs of parameters that this data cannot tell apart: a change of one makes up for a change of the other.
    pub alike: Vec<(String, String)>,
    /// Mean error of the goodput in percent, and of loss and CPU load in points.
    pub mean_error: f64,
    /// Number of simulations.
    pub runs: u64,
    /// Whether the search was stopped: the parameters are the best so far, and what determines them is not known.
    #[serde(default)]
    pub stopped: bool,
}

/// How far a search is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FitProgress {
    /// Simulations so far.
    pub runs: u64,
    /// Simulations that the search makes at most, about.
    pub most: u64,
    /// Mean error of the best parameters so far, as in [`Fit::mean_error`].
    pub mean_error: f64,
}

/// Errors of this size count alike: 3 % of goodput, 2 points of loss or CPU load.
const GOODPUT_SCALE: f64 = 0.03;
const POINTS_SCALE: f64 = 2.0;
/// Mean square of the residuals that needs no second search.
const GOOD: f64 = 0.1;
impl Quantity {
    /// Whether it is payload that arrived.
    pub(crate) fn is_goodput(self) -> bool {
        matches!(self, Self::Goodput | Self::Up | Self::Down)
    }

    /// The quantity of a prediction, in this quantity's unit.
    pub fn value_in(self, prediction: &Prediction) -> f64 {
        match self {
            Self::Goodput => prediction.total() / 1e6,
            Self::Up => prediction.goodput.first().map_or(0.0, |bits| bits / 1e6),
            Self::Down => prediction.goodput.get(1).map_or(0.0, |bits| bits / 1e6),
            Self::Loss => prediction.loss * 100.0,
            Self::Cpu => prediction.cpu * 100.0,
        }
    }

    /// Difference of a prediction from a value, in percent for goodput, else in points.
    pub fn error(self, predicted: f64, value: f64) -> f64 {
        match self {
            Self::Goodput | Self::Up | Self::Down => 100.0 * (predicted - value) / value.abs().max(1e-9),
            Self::Loss | Self::Cpu => predicted - value,
        }
    }

    /// The same, in units that may be added up.
    pub(crate) fn residual(self, predicted: f64, value: f64) -> f64 {
        match self {
            // A goodput that is off by a factor counts alike in both directions.
            Self::Goodput | Self::Up | Self::Down => {
                let (predicted, value) = (predicted.max(0.1), value.max(0.1));
                libm::log(predicted / value).clamp(-2.0, 2.0) / GOODPUT_SCALE
            }
            Self::Loss | Self::Cpu => (predicted - value) / POINTS_SCALE,
        }
    }
}

/// A search simulates this much of each run: enough for UDP, and for a few time-outs of TCP.
const SEARCH_SECONDS: f64 = 0.1;
const SEARCH_SECONDS_TCP: f64 = 0.5;
/// The last steps of a search simulate this many times as much.
const LONGER: f64 = 5.0;

/// The best parameters so far.
struct Best {
    logs: Vec<f64>,
    cost: f64,
    mean_error: f64,
}

struct Problem<'a> {
    case: &'a Case,
    names: &'a [&'a str],
    observations: &'a [Observation],
    /// Gets the progress; a break stops the search.
    watch: &'a mut dyn FnMut(FitProgress) -> ControlFlow<()>,
    /// Duration of the runs, unless a case is shorter.
    seconds: Option<f64>,
    /// Factor of that duration.
    longer: f64,
    runs: u64,
    best: Best,
    stopped: bool,
}

impl Problem<'_> {
    /// Predicts all observations. Equal settings run once.
    fn predict(&mut self, logs: &[f64]) -> Option<Vec<f64>> {
        let mut case = self.case.clone();
        for (name, log) in self.names.iter().zip(logs) {
            case.set_number(name, libm::exp(*log)).ok()?;
        }
        let mut last: Option<(&[(String, String)], Prediction)> = None;
        let mut predicted = Vec::with_capacity(self.observations.len());
        for observation in self.observations {
            if last.as_ref().is_none_or(|(settings, _)| *settings != &observation.settings[..]) {
                let mut at = case.clone();
                for (name, value) in &observation.settings {
                    at.set(name, value).ok()?;
                }
                if let Some(seconds) = self.seconds {
                    let least =
                        if at.traffic.protocol == Protocol::Tcp { SEARCH_SECONDS_TCP } else { seconds };
                    at.traffic.seconds = at.traffic.seconds.min(least * self.longer);
                }
                self.runs += 1;
                last = Some((&observation.settings, world::run(&at).ok()?));
            }
            let (_, prediction) = last.as_ref()?;
            predicted.push(observation.quantity.value_in(prediction));
        }
        Some(predicted)
    }

    /// Mean error of predictions of all observations.
    fn mean_error(&self, predicted: &[f64]) -> f64 {
        let errors = self.observations.iter().zip(predicted);
        let total: f64 = errors.map(|(seen, at)| seen.quantity.error(*at, seen.value).abs()).sum();
        total / predicted.len().max(1) as f64
    }

    /// Simulations that the search and the description of its result make at most, about.
    fn most_runs(&self) -> u64 {
        let settings: BTreeSet<_> = self.observations.iter().map(|one| &one.settings).collect();
        let names = self.names.len() as u64;
        let (search, describe) = (10 * names + 32 * (2 * names + 4), names * (8 * names + 20));
        settings.len() as u64 * (search + describe)
    }

    fn residuals(&mut self, logs: &[f64]) -> Option<Vec<f64>> {
        if self.stopped {
            return None;
        }
        let predicted = self.predict(logs)?;
        let pairs = self.observations.iter().zip(&predicted);
        let residuals: Vec<f64> =
            pairs.map(|(seen, predicted)| seen.quantity.residual(*predicted, seen.value)).collect();
        let cost = residuals.iter().map(|one| one * one).sum();
        if cost < self.best.cost {
            let mean_error = self.mean_error(&predicted);
            self.best = Best { logs: logs.to_vec(), cost, mean_error };
        }
        let most = self.most_runs().max(self.runs);
        let progress = FitProgress { runs: self.runs, most, mean_error: self.best.mean_error };
        self.stopped = (self.watch)(progress).is_break();
        Some(residuals)
    }

    fn cost(&mut self, logs: &[f64]) -> f64 {
        self.residuals(logs).map_or(f64::INFINITY, |all| all.iter().map(|one| one * one).sum())
    }
}

/// Fits parameters of a case to observations. The parameters start at the case's values and stay above 0.
///
/// # Errors
/// Fails if a name is unknown or not a number, or if the case or a setting cannot be.
pub fn fit(case: &Case, names: &[&str], observations: &[Observation]) -> Result<Fit, CaseError> {
    fit_watched(case, names, observations, &mut |_| ControlFlow::Continue(()))
}

/// The same with a watcher, which gets the progress after each set of simulations. If it breaks, the result is the best
/// so far.
///
/// # Errors
/// As those of [`fit`].
pub fn fit_watched(
    case: &Case,
    names: &[&str],
    observations: &[Observation],
    watch: &mut dyn FnMut(FitProgress) -> ControlFlow<()>,
) -> Result<Fit, CaseError> {
    let mut start = Vec::new();
    for name in names {
        let number = case.number(name).ok_or_else(|| CaseError::Name {
            name: (*name).to_owned(),
            hint: " that is a number".to_owned(),
        })?;
        // Of an unknown cost without a range, nothing is known but that it is about a microsecond.
        let number = match case.unknown.get(*name) {
            Some(Some((low, high))) => (low * high).sqrt(),
            Some(None) => 1e3,
            None => number,
        };
        start.push(libm::log(number.max(1e-3)));
    }
    for observation in observations {
        let mut at = case.clone();
        for (name, value) in &observation.settings {
            at.set(name, value)?;
        }
        at.check()?;
    }
    let best = Best { logs: start.clone(), cost: f64::INFINITY, mean_error: f64::INFINITY };
    let seconds = Some(SEARCH_SECONDS);
    let mut problem =
        Problem { case, names, observations, watch, seconds, longer: 1.0, runs: 0, best, stopped: false };
    let rough = search(&mut problem, &start);
    let best = polish(&mut problem, &rough);
    let best = if problem.stopped { problem.best.logs.clone() } else { best };
    let described = if problem.stopped { None } else { Some(describe::describe(&mut problem, &best)) };
    match described {
        Some(fit) if !problem.stopped => Ok(fit),
        _ => Ok(undetermined(&problem)),
    }
}

/// Improves what short runs found by longer ones: what is under way at the end of a run counts less in them.
fn polish(problem: &mut Problem<'_>, rough: &[f64]) -> Vec<f64> {
    if problem.stopped {
        return rough.to_vec();
    }
    problem.longer = LONGER;
    problem.best.cost = f64::INFINITY;
    let (best, _) = least_squares(rough, 0.05, 2, |at| problem.residuals(at));
    problem.longer = 1.0;
    best
}

/// The best parameters of a search that was stopped.
fn undetermined(problem: &Problem<'_>) -> Fit {
    let one = |(name, log): (&&str, &f64)| Fitted {
        name: (*name).to_owned(),
        value: libm::exp(*log),
        low: 0.0,
        high: None,
        determined: false,
    };
    Fit {
        parameters: problem.names.iter().zip(&problem.best.logs).map(one).collect(),
        alike: Vec::new(),
        mean_error: problem.best.mean_error,
        runs: problem.runs,
        stopped: true,
    }
}

/// Searches along one axis at a time to come into the right region, since the cost has flat regions; then by least
/// squares, from there and from the start.
fn search(problem: &mut Problem<'_>, start: &[f64]) -> Vec<f64> {
    let mut rough = (start.to_vec(), problem.cost(start));
    let good = GOOD * problem.observations.len() as f64;
    let axes = if rough.1 < good { 0..0 } else { 0..start.len() };
    for axis in axes {
        let centre = rough.0.clone();
        for shift in [-3.0, -2.0, -1.2, -0.7, -0.35, 0.35, 0.7, 1.2, 2.0, 3.0] {
            let mut at = centre.clone();
            at[axis] += shift;
            let cost = problem.cost(&at);
            if cost < rough.1 {
                rough = (at, cost);
            }
        }
    }
    let mut best = rough.clone();
    for from in [&rough.0[..], start] {
        let coarse = least_squares(from, 0.2, 10, |at| problem.residuals(at));
        let found = least_squares(&coarse.0, 0.05, 6, |at| problem.residuals(at));
        if found.1 < best.1 {
            best = found;
        }
        if best.1 < good {
            return best.0;
        }
    }
    let found = minimum(&best.0, 0.05, 8 * (1 + start.len()), |at| problem.cost(at));
    if found.1 < best.1 { found.0 } else { best.0 }
}
