//! Positions for files of `shunt gen` of versions whose readings named their offered rate only.

use crate::reading::{Position, Reading};
use std::collections::BTreeMap;

/// Sets the positions of readings whose run has an offered rate: `received g0 to g1` next to `offered g0 to g1`, or
/// `received at 450 kpps` next to `offered at 450 kpps`.
pub(super) fn set_positions(readings: &mut BTreeMap<String, Reading>) {
    let offered = readings.iter().filter(|(_, reading)| reading.unit == "pps");
    let runs: Vec<(String, f64)> = offered
        .filter_map(|(name, reading)| Some((name.strip_prefix("offered ")?.to_owned(), reading.value)))
        .collect();
    for (name, reading) in readings {
        let of_run = |(run, pps): &(String, f64)| {
            let quantity = name.strip_suffix(run.as_str())?.strip_suffix(' ')?;
            // A run that is named for its rate is no line of its own.
            let line = if run.starts_with("at ") { "" } else { run };
            Some(Position::at_offered_rate(quantity, line, *pps))
        };
        reading.position = runs.iter().find_map(of_run);
    }
}
