//! The names of a card's readings: the quantity, then the router.

use crate::Results;
use serde_json::Value;

/// The name of this measurement in files of results.
pub const WHAT: &str = "router card";
/// The first words of the quantities, in the order of a card.
const ORDER: [&str; 9] = [
    "ndr 64",
    "pdr 64",
    "ndr",
    "pdr",
    "connection establishment",
    "connection capacity",
    "latency p50",
    "latency p99",
    "CPU",
];

/// The name of the reading of a quantity and a router.
pub fn reading(quantity: &str, router: &str) -> String {
    format!("{quantity} {router}")
}

/// The routers of a card, in the order in which they are measured; none if the results are not those of a card.
pub fn routers(results: &Results) -> Vec<&str> {
    let routers = results.conditions.setup.get("routers").filter(|_| results.what == WHAT);
    routers.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The quantities of a card that were measured or are missing, in their order.
pub fn quantities(results: &Results) -> Vec<&str> {
    let routers = routers(results);
    let of_router = |name| routers.iter().find_map(|router| quantity(name, router));
    let names = results.readings.keys().chain(results.missing.keys());
    let mut all: Vec<&str> = names.filter_map(|name| of_router(name)).collect();
    let place = |name: &str| ORDER.iter().position(|first| name.starts_with(first)).unwrap_or(ORDER.len());
    all.sort_by_key(|name| (place(name), *name));
    all.dedup();
    all
}

fn quantity<'n>(name: &'n str, router: &str) -> Option<&'n str> {
    name.strip_suffix(router)?.strip_suffix(' ')
}
