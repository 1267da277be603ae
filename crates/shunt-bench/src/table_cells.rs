//! Cells of the tables of documents.

use crate::summary::Target;
use anyhow::Context;
use shunt_lab::{Reading, Results};

/// The reading of this name.
pub fn reading<'r>(results: &'r Results, name: &str) -> anyhow::Result<&'r Reading> {
    results.readings.get(name).with_context(|| format!("`{name}` is missing"))
}

/// The median and the range of the runs, after multiplication by `scale`.
pub fn with_range(results: &Results, name: &str, scale: f64, digits: usize) -> anyhow::Result<String> {
    let reading = reading(results, name)?;
    let values = || reading.runs.iter().map(|run| run.value * scale);
    let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
    Ok(format!("{:.digits$} ({low:.digits$} to {high:.digits$})", reading.value * scale))
}

/// Four significant digits, or all digits before the point.
pub fn four_digits(value: f64) -> String {
    if value >= 1000.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

/// A bound with at most three decimals, and whether a median misses it.
pub fn bound(target: Target, median: f64) -> String {
    let missed = if target.is_met_by(median) { "" } else { ", **missed**" };
    let (sign, value) = match target {
        Target::AtMost(value) => ("≤", value),
        Target::AtLeast(value) => ("≥", value),
    };
    let value = format!("{value:.3}");
    format!("{sign} {}{missed}", value.trim_end_matches('0').trim_end_matches('.'))
}
