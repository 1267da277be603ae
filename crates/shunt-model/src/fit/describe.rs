//! How well a measurement determines the parameters that were found.

use super::{Fit, Fitted, Problem};
use crate::optimum::{inverse, least_squares};

/// A parameter is determined if two standard errors are less than a factor of two.
const DETERMINED: f64 = std::f64::consts::LN_2;
/// Two parameters cannot be told apart if the figures answer to both in the same proportions: if the cosine between the
/// answers is above this.
const ALIKE: f64 = 0.995;

/// The parameters with which the observations are explained as well if this one costs and limits nothing. None if they
/// are not.
fn explained_without(problem: &mut Problem<'_>, best: &[f64], axis: usize, cost: f64) -> Option<Vec<f64>> {
    const NONE: f64 = 4.0;
    let name = problem.names[axis];
    let is_limit = [".rx", ".tx", "rate", "bytes", "buffer", "packets", "window", "clock", "frames"]
        .iter()
        .any(|end| name.ends_with(end));
    let ideal = best[axis] + if is_limit { NONE } else { -NONE };
    let others: Vec<f64> =
        best.iter().enumerate().filter(|(at, _)| *at != axis).map(|(_, log)| *log).collect();
    let whole = |others: &[f64]| {
        let mut at = others.to_vec();
        at.insert(axis, ideal);
        at
    };
    let (others, without) = least_squares(&others, 0.1, 3, |others| problem.residuals(&whole(others)));
    (without <= cost).then(|| whole(&others))
}

/// The result of a search: how well the data determines each parameter, and which it cannot tell apart.
pub(super) fn describe(problem: &mut Problem<'_>, best: &[f64]) -> Fit {
    const STEP: f64 = 0.1;
    let residuals = problem.residuals(best).unwrap_or_default();
    let slopes: Vec<Vec<f64>> = (0..best.len())
        .map(|axis| {
            let mut side = |sign: f64| {
                let mut at = best.to_vec();
                at[axis] += sign * STEP;
                problem.residuals(&at).unwrap_or_else(|| residuals.clone())
            };
            let (above, below) = (side(1.0), side(-1.0));
            above.iter().zip(&below).map(|(above, below)| (above - below) / (2.0 * STEP)).collect()
        })
        .collect();
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let information: Vec<Vec<f64>> =
        slopes.iter().map(|a| slopes.iter().map(|b| dot(a, b)).collect()).collect();
    let freedom = residuals.len().saturating_sub(best.len()).max(1) as f64;
    // The scales of the residuals are a floor: an exact fit of few points is not an exact parameter.
    let variance = (dot(&residuals, &residuals) / freedom).max(0.04);
    let covariance = inverse(information.clone());
    let error = |axis: usize| (covariance[axis][axis].abs() * variance).sqrt();
    // As well means: within what the variance explains, and 0.3 % of goodput.
    let slack = dot(&residuals, &residuals) + 4.0 * variance + 0.01 * residuals.len() as f64;
    let without: Vec<Option<Vec<f64>>> =
        (0..best.len()).map(|axis| explained_without(problem, best, axis, slack)).collect();
    // Whether one parameter makes up for the absence of another.
    let makes_up = |absent: usize, other: usize| {
        without[absent].as_ref().is_some_and(|at| (at[other] - best[other]).abs() > STEP)
    };
    let mut alike = Vec::new();
    let mut lost: Vec<bool> = without.iter().map(Option::is_some).collect();
    for a in 0..best.len() {
        for b in a + 1..best.len() {
            let lengths = (information[a][a] * information[b][b]).sqrt();
            let same_answers = lengths > 1e-6 && information[a][b].abs() / lengths > ALIKE;
            if same_answers || makes_up(a, b) && makes_up(b, a) {
                alike.push((problem.names[a].to_owned(), problem.names[b].to_owned()));
                (lost[a], lost[b]) = (true, true);
            }
        }
    }
    let parameters = (0..best.len()).map(|axis| {
        let wide = if lost[axis] { f64::INFINITY } else { 2.0 * error(axis) };
        let (value, determined) = (libm::exp(best[axis]), wide < DETERMINED);
        Fitted {
            name: problem.names[axis].to_owned(),
            value,
            low: if wide < 5.0 { value * libm::exp(-wide) } else { 0.0 },
            high: (wide < 5.0).then(|| value * libm::exp(wide)),
            determined,
        }
    });
    let parameters = parameters.collect();
    problem.seconds = None;
    let predicted = problem.predict(best).unwrap_or_default();
    let mean_error = problem.mean_error(&predicted);
    Fit { parameters, alike, mean_error, runs: problem.runs, stopped: false }
}
