//! Which reading of one file is compared with which of the other.

use crate::{Labels, Position, Reading, Results};
use shunt_wire::natural_order;
use std::collections::{BTreeMap, BTreeSet};

/// The readings that two files have in common, with a name for each pair, and why others are alone.
pub(super) struct Matching<'r> {
    pub(super) pairs: Vec<(String, &'r Reading, &'r Reading)>,
    pub(super) alone: Vec<String>,
}

/// What a reading is of, whatever its engine.
#[derive(PartialEq)]
struct Traffic<'r> {
    unit: &'r str,
    labels: Labels,
    /// The quantity and the place on the x axis.
    position: Option<(&'r str, &'r str, f64)>,
}

impl<'r> Matching<'r> {
    /// Readings are compared by name. Those that only one file has are compared by their traffic, if each file has one
    /// engine, and a different one.
    pub(super) fn of(a: &'r Results, b: &'r Results) -> Self {
        let (mut pairs, mut alone) = (Vec::new(), Vec::new());
        let mut left_in_b: BTreeMap<&str, &Reading> =
            b.readings.iter().map(|(name, reading)| (name.as_str(), reading)).collect();
        let by_traffic = by_traffic(a, b);
        for (name, one) in &a.readings {
            match left_in_b.remove(name.as_str()) {
                Some(other) if other.unit == one.unit => pairs.push((name.clone(), one, other)),
                Some(other) => alone.push(format!("{name}: {} in A, {} in B", one.unit, other.unit)),
                None => match by_traffic.get(name.as_str()) {
                    Some(other) => {
                        left_in_b.remove(other);
                        pairs.push((format!("{name} / {other}"), one, &b.readings[*other]));
                    }
                    None => alone.push(format!("{name}: only in A")),
                },
            }
        }
        pairs.sort_by(|(one, ..), (other, ..)| natural_order::compare(one, other));
        alone.extend(left_in_b.keys().map(|name| format!("{name}: only in B")));
        Self { pairs, alone }
    }
}

/// For readings of A, the names of those of B that are of the same traffic.
fn by_traffic<'r>(a: &'r Results, b: &'r Results) -> BTreeMap<&'r str, &'r str> {
    let (of_a, of_b) = (engines(a), engines(b));
    if of_a.len() != 1 || of_b.len() != 1 || of_a == of_b {
        return BTreeMap::new();
    }
    let (of_a, of_b) = (by_engine(a), by_engine(b));
    let only = |of: &[(&'r str, Traffic<'r>)], wanted: &Traffic| {
        let mut found = of.iter().filter(|(_, traffic)| traffic == wanted);
        found.next().map(|(name, _)| *name).filter(|_| found.next().is_none())
    };
    let pair = |(name, traffic): &(&'r str, Traffic<'r>)| {
        only(&of_a, traffic)?;
        Some((*name, only(&of_b, traffic)?))
    };
    of_a.iter().filter_map(pair).collect()
}

fn by_engine(results: &Results) -> Vec<(&str, Traffic<'_>)> {
    let of_engine = results.readings.iter().filter(|(_, reading)| engine(reading).is_some());
    of_engine.map(|(name, reading)| (name.as_str(), Traffic::of(reading))).collect()
}

impl<'r> Traffic<'r> {
    fn of(reading: &'r Reading) -> Self {
        let position = reading.position.as_ref();
        Self {
            unit: &reading.unit,
            labels: Labels { engine: None, ..reading.labels },
            position: position.map(|Position { of, along, value, .. }| (of.as_str(), along.as_str(), *value)),
        }
    }
}

/// The engines or other routers of the readings.
pub(super) fn engines(results: &Results) -> BTreeSet<String> {
    results.readings.values().filter_map(engine).map(str::to_owned).collect()
}

/// The engine by the labels, or the curve of a reading that is part of a series.
fn engine(reading: &Reading) -> Option<&str> {
    let curve = reading.position.as_ref().map(|position| position.line.as_str());
    reading.labels.engine.map(crate::PathLabel::name).or(curve)
}
