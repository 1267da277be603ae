//! The load of the CPU that the model knows: the busiest one, in percent of one core. Results have the mean of all CPUs
//! as their value, and the load of each in the details of their runs; or, for a router in a namespace, the load of its
//! threads in percent of one core.

use serde_json::{Map, Value};
use shunt_lab::Reading;

/// The mean over the runs of the busiest CPU's load, or the reading's value if it does not have each CPU.
pub(super) fn busiest(reading: &Reading) -> f64 {
    let loads: Vec<f64> = reading.runs.iter().filter_map(|run| of_details(&run.details)).collect();
    match loads.len() {
        0 => reading.value,
        count => loads.iter().sum::<f64>() / count as f64,
    }
}

/// `cpus` is an object of loads in a sweep, and a list of objects in a matrix.
fn of_details(details: &Map<String, Value>) -> Option<f64> {
    let Some(cpus) = details.get("cpus") else {
        return details.get("core_percent")?.as_f64().map(|percent| percent.min(100.0));
    };
    let loads: Vec<f64> = match cpus {
        Value::Object(by_name) => by_name.values().filter_map(Value::as_f64).collect(),
        Value::Array(all) => all.iter().filter_map(|cpu| cpu.get("load_percent")?.as_f64()).collect(),
        _ => return None,
    };
    loads.into_iter().reduce(f64::max)
}
