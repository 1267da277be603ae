//! What came out, as readings that files of results hold.

use super::{Directed, Figures, Floor};
use crate::{Doubt, Limit, Reading, Run};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// By name. All have all doubts: what disturbs one direction disturbs the other.
pub(super) fn readings(
    directions: &[Directed],
    floor: Option<&Floor>,
    doubts: &[Doubt],
) -> BTreeMap<String, Reading> {
    let mut readings = BTreeMap::new();
    let mut add = |name: String, (unit, value, details): Measured, limit: Option<&Limit>| {
        if let Some(mut reading) = Reading::of_runs(unit, vec![Run { value, at: None, details }]) {
            reading.doubts = doubts.to_vec();
            reading.set_limit(limit.filter(|_| unit == "pps").cloned());
            readings.insert(name, reading);
        }
    };
    for Directed { from, to, figures, limit, .. } in directions {
        for (name, run) in of_direction(figures) {
            add(format!("{name} {from} to {to}"), run, limit.as_ref());
        }
    }
    for (name, run) in floor.into_iter().flat_map(of_floor) {
        add(format!("{name} of the generator alone"), run, None);
    }
    readings
}

type Measured = (&'static str, f64, Map<String, Value>);

fn of_direction(figures: &Figures) -> Vec<(&'static str, Measured)> {
    let percent = |packets: u64| packets as f64 / figures.sent.max(1) as f64 * 100.0;
    let sent = json!({
        "sent": figures.sent, "seconds": figures.seconds,
        "l2_bps": figures.achieved_l2_bps, "l1_bps": figures.achieved_l1_bps,
    });
    let received = json!({"received": figures.received, "flows": figures.flows});
    let mut all = vec![
        ("sent", ("pps", figures.achieved_pps, map(sent))),
        ("received", ("pps", figures.received_pps(), map(received))),
        ("loss", ("%", percent(figures.lost), map(json!({"lost": figures.lost})))),
    ];
    if let Some(duplicated) = figures.duplicated {
        all.push(("duplicates", ("%", percent(duplicated), map(json!({"duplicated": duplicated})))));
    }
    if let Some(reordered) = figures.reordered {
        let details = json!({"reordered": reordered, "displaced_max": figures.displaced_max});
        all.push(("reordering", ("%", percent(reordered), map(details))));
    }
    if let Some(offered) = figures.offered_pps {
        all.push(("offered", ("pps", offered, Map::new())));
    }
    if let Some(latency) = figures.latency_us {
        all.push(("latency p50", ("us", latency.p50, Map::new())));
        all.push(("latency p99", ("us", latency.p99, map(json!({"latency_ns": figures.latency_ns})))));
        all.push(("jitter", ("us", figures.jitter_us, map(json!({"jitter_ns": figures.jitter_ns})))));
    }
    all
}

fn of_floor(floor: &Floor) -> Vec<(&'static str, Measured)> {
    let latency = json!({"latency_us": floor.latency_us});
    vec![
        ("latency p50", ("us", floor.latency_us.p50, map(latency))),
        ("jitter", ("us", floor.jitter_us, Map::new())),
        ("most", ("pps", floor.max_pps, Map::new())),
    ]
}

fn map(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}
