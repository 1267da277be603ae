//! What tables with a column for each line have in common: cells, and doubts about many readings.

use super::files::ResultFile;
use shunt_lab::{Compared, Doubt, Reading, Results, Spread, Verdict};
use shunt_wire::units::{change_percent, number, quantity, rounded};
use std::collections::BTreeSet;

/// The number of a file, the file, and a reading in it.
pub(crate) type FileReading<'r> = (usize, &'r ResultFile, &'r Reading);

/// The doubts about a reading, as text: its own, and those that follow from the file as a whole.
pub(crate) fn doubts_about(results: &Results, reading: &Reading) -> Vec<String> {
    let mut doubts: Vec<String> = reading.doubts.iter().map(ToString::to_string).collect();
    if !results.complete {
        doubts.push("interrupted: some of its runs are missing".to_owned());
    }
    // Files of older versions do not have this doubt.
    let above = Doubt::AboveLine.to_string();
    if reading.is_above_limit() && !doubts.contains(&above) {
        doubts.push(above);
    }
    doubts
}

/// The doubts that all readings of a file have; none if the file has one reading only.
pub(crate) fn shared_doubts(results: &Results) -> Vec<String> {
    let mut each = results.readings.values().map(|reading| doubts_about(results, reading));
    let first = each.next().filter(|_| results.readings.len() > 1).unwrap_or_default();
    each.fold(first, |shared, of| shared.into_iter().filter(|doubt| of.contains(doubt)).collect())
}

/// The doubts about a reading that other readings of its file do not share.
pub(crate) fn own_doubts(source: &ResultFile, reading: &Reading) -> Vec<String> {
    let mut doubts = doubts_about(&source.results, reading);
    doubts.retain(|doubt| !source.shared_doubts.contains(doubt));
    doubts
}

pub(crate) struct Cell {
    pub(crate) value: String,
    /// Shown when the pointer rests on the cell: the value with all its digits, and the doubts about it.
    pub(crate) tooltip: String,
    pub(crate) is_doubted: bool,
    /// The change from the same reading of the first file.
    pub(crate) change: Option<Change>,
    /// Such as the spread and the share of the line.
    pub(crate) details: Vec<String>,
}

/// A change with its verdict.
pub(crate) struct Change {
    /// The class of the page's style sheet: the verdict.
    pub(crate) class: &'static str,
    pub(crate) text: String,
}

impl Change {
    /// The change between two readings of different files.
    pub(crate) fn between((_, before, a): &FileReading, (_, after, b): &FileReading) -> Option<Self> {
        let compared = Compared::between("", (a, &before.results), (b, &after.results));
        let (class, verdict) = match compared.verdict {
            Verdict::Better => ("better", "better"),
            Verdict::Worse => ("worse", "worse"),
            Verdict::Differs => ("differs", "differs"),
            Verdict::Equal => ("equal", "equal"),
            Verdict::CannotTell => ("unclear", "cannot tell"),
        };
        let percent = (b.value / a.value - 1.0) * 100.0;
        let change = match compared.difference {
            Some(difference) if b.unit == "%" => format!("{difference:+.2} points"),
            _ if percent.is_finite() => change_percent(percent),
            _ => return None,
        };
        Some(Self { class, text: format!("{change} against {}: {verdict}", before.label) })
    }
}

impl Cell {
    pub(crate) fn new((_, source, reading): FileReading) -> Self {
        let Spread { low, high, .. } = reading.spread;
        let spread = || range(&quantity(low, &reading.unit), &quantity(high, &reading.unit));
        let share = reading.share(reading.value).map(|share| format!("{} of the line", percent(share)));
        let doubts = own_doubts(source, reading);
        let runs = match reading.runs.len() {
            1 => "one run".to_owned(),
            several => format!("median of {several} runs"),
        };
        let mut tooltip = format!("{} {}, {runs}", reading.value, reading.unit);
        doubts.iter().for_each(|doubt| tooltip += &format!("\ndoubt: {doubt}"));
        Self {
            value: quantity(reading.value, &reading.unit),
            tooltip,
            is_doubted: !doubts.is_empty(),
            change: None,
            details: (reading.runs.len() > 1).then(spread).into_iter().chain(share).collect(),
        }
    }
}

/// A share from 0 to 1, as the page shows it: the blank does not break.
pub fn percent(share: f64) -> String {
    format!("{}\u{a0}%", rounded(share * 100.0))
}

/// Two quantities, with their unit once if they have the same.
fn range(low: &str, high: &str) -> String {
    let unit = |quantity: &str| quantity.split_once('\u{a0}').map(|(_, unit)| unit.to_owned());
    let low = if unit(low) == unit(high) { low.split('\u{a0}').next().unwrap_or(low) } else { low };
    format!("{low} to {high}")
}

/// How much a value is of another: `2.190 × slow`. None without a finite ratio.
pub(crate) fn times(value: f64, base: f64, name: &str) -> Option<String> {
    let ratio = value / base;
    (ratio.is_finite() && ratio > 0.0).then(|| format!("{}\u{a0}×\u{a0}{name}", number(ratio)))
}

/// The doubts that readings do not share with all of their file, each with its place. Doubts that differ in their numbers only are shown once, with the
/// place of the first and the number of the others.
pub(crate) fn doubts<'r>(readings: impl Iterator<Item = (String, FileReading<'r>)>) -> Vec<(String, String)> {
    let mut kinds: Vec<(String, String, String, usize)> = Vec::new();
    let mut all = 0;
    for (at, (_, source, reading)) in readings {
        all += 1;
        let mut of_this_reading = BTreeSet::new();
        for doubt in own_doubts(source, reading) {
            let kind = doubt.replace(|c: char| c.is_ascii_digit() || c == '.', "");
            if !of_this_reading.insert(kind.clone()) {
                continue;
            }
            match kinds.iter_mut().find(|(known, ..)| *known == kind) {
                Some((.., times)) => *times += 1,
                None => kinds.push((kind, at.clone(), doubt, 1)),
            }
        }
    }
    let text = |(_, at, doubt, times): (String, String, String, usize)| match times {
        1 => (at, doubt),
        times => (format!("{at}, and {} more of {all}", times - 1), doubt),
    };
    kinds.into_iter().map(text).collect()
}
