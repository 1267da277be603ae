//! Turns a file of results into observations to fit the model to.

mod load;
mod matrix;
mod setting;
mod sweep;

use crate::commands::model::view::ModelPoint;
use serde::Deserialize;
use shunt_lab::{PathLabel, Results};
use shunt_model::{Case, Direction, Observation, Quantity};
use std::collections::BTreeSet;
use sweep::HEADERS;

/// The observations of a file.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(super) observations: Vec<Observation>,
    /// Paths in the file that the model does not know.
    pub(super) left_out: Vec<PathLabel>,
}

/// Reads results that `--keep` wrote, or what `shunt bench sweep --json` or `shunt model sweep --json` printed.
pub(super) fn read(text: &str) -> Result<Observed, String> {
    let of_known_paths = |observations| Observed { observations, left_out: Vec::new() };
    if let Ok(predicted) = serde_json::from_str::<Predicted>(text) {
        return Ok(of_known_paths(predicted.observations()));
    }
    if let Ok(printed) = serde_json::from_str::<sweep::Printed>(text) {
        return printed.observations().map(of_known_paths).ok_or_else(|| "the sweep has no steps".to_owned());
    }
    let results = Results::parse(text).map_err(|error| error.to_string())?;
    observations(&results)
}

fn observations(results: &Results) -> Result<Observed, String> {
    let (observations, left_out) = match sweep::observations(results) {
        Some(observations) => (observations, Vec::new()),
        None => matrix::observations(results),
    };
    if observations.is_empty() && !left_out.is_empty() {
        let names: Vec<&str> = left_out.iter().map(|path| path.name()).collect();
        return Err(format!(
            "the model knows the paths slow, tc and xdp; the file has {} only",
            names.join(", ")
        ));
    }
    if observations.is_empty() {
        return Err(format!(
            "the results of `{}` have neither steps of an offered rate nor cells of a matrix: use a file of `shunt bench sweep --keep` \
             or `shunt bench matrix --keep`",
            results.what
        ));
    }
    Ok(Observed { observations, left_out })
}

/// The points that `shunt model sweep --json` printed. Fitting a case to its own predictions shows what such a sweep
/// determines, before anything is measured.
#[derive(Debug, Deserialize)]
struct Predicted {
    points: Vec<ModelPoint>,
}

impl Predicted {
    fn observations(self) -> Vec<Observation> {
        let of = |point: ModelPoint| {
            [Quantity::Goodput, Quantity::Loss, Quantity::Cpu].map(|quantity| Observation {
                settings: point.settings.clone(),
                quantity,
                value: quantity.value_in(&point.prediction),
            })
        };
        self.points.into_iter().flat_map(of).collect()
    }
}

/// The parameters that say what the measured paths cost.
pub(super) fn paths(observed: &[Observation]) -> Vec<String> {
    let all: BTreeSet<&str> = observed
        .iter()
        .flat_map(|one| &one.settings)
        .filter(|(name, _)| name == "forward.path")
        .map(|(_, path)| path.as_str())
        .collect();
    if all.is_empty() {
        return vec!["forward.slow_ns".to_owned()];
    }
    all.iter().map(|path| format!("forward.{path}_ns")).collect()
}

/// A router without limits, from which the parameters of a fit begin near what was measured.
pub(super) fn ideal_router(observed: &[Observation]) -> Case {
    let mut case = Case { name: "a router".to_owned(), ..Case::default() };
    case.traffic.direction = Direction::Forward;
    let goodputs = observed.iter().filter(|one| one.quantity == Quantity::Goodput);
    let payload = |one: &Observation| {
        let value = one.settings.iter().find(|(name, _)| name == "traffic.payload");
        value.and_then(|(_, value)| value.parse::<f64>().ok()).unwrap_or(1472.0)
    };
    let most = goodputs.map(|one| (one.value, payload(one))).max_by(|a, b| a.0.total_cmp(&b.0));
    let (goodput, payload) = most.unwrap_or((1000.0, 1472.0));
    let goodput = goodput.max(0.001) * 1e6;
    case.bus.rx_rate = 1.2 * goodput * (payload + HEADERS) / payload;
    let cost = 0.8 * payload * 8.0 / goodput * 1e9;
    (case.forward.slow_ns, case.forward.tc_ns, case.forward.xdp_ns) = (cost, cost, cost);
    (case.cpu.irq_ns, case.cpu.base_load) = (0.1 * cost, 0.01);
    case.link.rate = [1e8, 1e9, 2.5e9, 1e10, 4e10, 1e11]
        .into_iter()
        .find(|rate| *rate > goodput * (payload + HEADERS + 20.0) / payload)
        .unwrap_or(4e11);
    case
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_lab::Conditions;

    #[test]
    fn other_results_are_refused_with_what_to_use() {
        let results = Results::new("throughput", Conditions::default());
        let why = observations(&results).unwrap_err();
        assert!(why.contains("`throughput`") && why.contains("shunt bench sweep --keep"), "{why}");
    }
}
