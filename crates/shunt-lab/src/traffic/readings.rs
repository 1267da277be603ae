//! The figures of a run as readings for a file of results.

use super::{Directed, Figures, Floor, Recorded, Report, sender};
use crate::{Doubt, Limit, Position, Reading, Results, Run};
use serde_json::{Map, Value, json};
use shunt_gen::Schedule;
use std::collections::BTreeMap;

impl Report {
    pub(super) fn new(
        directions: Vec<Directed>,
        schedule: &Schedule,
        floor: Option<Floor>,
        recorded: Option<Recorded>,
        mut results: Results,
        interrupted: bool,
    ) -> Self {
        let mut doubts = results.conditions.doubts();
        let mut found: Vec<Doubt> = directions.iter().flat_map(|one| one.doubts.clone()).collect();
        found.extend(recorded.as_ref().and_then(Recorded::doubt));
        found.extend(interrupted.then_some(Doubt::Interrupted));
        for doubt in found {
            if !doubts.contains(&doubt) {
                doubts.push(doubt);
            }
        }
        let named = directions.iter().map(|Directed { from, to, figures, limit, .. }| {
            (format!("{from} to {to}"), figures, limit.as_ref())
        });
        results.readings = readings(named, floor.as_ref(), &doubts);
        directions.iter().for_each(|direction| set_positions(&mut results.readings, direction));
        results.complete = !interrupted;
        let figures = Figures::sum(&directions);
        let burst = schedule.burst.max(sender::batch(schedule.pps));
        Self { doubts, figures, directions, floor, recorded, burst, results }
    }
}

/// Sets the offered rate as the position of all readings of a direction.
fn set_positions(readings: &mut BTreeMap<String, Reading>, Directed { from, to, figures, .. }: &Directed) {
    let Some(pps) = figures.offered_pps else { return };
    let direction = format!("{from} to {to}");
    for (name, reading) in readings {
        let quantity = name.strip_suffix(&direction).and_then(|name| name.strip_suffix(' '));
        if let Some(quantity) = quantity {
            reading.position = Some(Position::at_offered_rate(quantity, &direction, pps));
        }
    }
}

/// The readings by name, from the figures of each direction or stream. Each reading gets all doubts: a disturbance of
/// one disturbs the others.
pub(super) fn readings<'f>(
    named: impl Iterator<Item = (String, &'f Figures, Option<&'f Limit>)>,
    floor: Option<&Floor>,
    doubts: &[Doubt],
) -> BTreeMap<String, Reading> {
    let mut readings = BTreeMap::new();
    let mut add = |name: String, (unit, value, details): Measured, limit: Option<&Limit>| {
        if let Some(mut reading) = Reading::from_runs(unit, vec![Run { value, at: None, details }]) {
            reading.doubts = doubts.to_vec();
            reading.set_limit(limit.filter(|_| unit == "pps").cloned());
            readings.insert(name, reading);
        }
    };
    for (of, figures, limit) in named {
        for (name, run) in of_direction(figures) {
            add(format!("{name} {of}"), run, limit);
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
