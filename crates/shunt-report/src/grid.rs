//! The cells of tables with a column for each line.

use super::{doubt_kind, doubts, files::FileReading};
use shunt_lab::{Compared, Spread, Verdict};
use shunt_wire::units::{change_percent, number, quantity, rounded};

/// A greater change is shown as a multiple.
const MOST_PERCENT: f64 = 1000.0;

pub(crate) struct Cell {
    pub(crate) value: String,
    /// Shown when the pointer rests on the cell: the value with all its digits, and the doubts about it.
    pub(crate) tooltip: String,
    /// Whether there is a doubt that other readings of the file do not share.
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
    /// Without what the reading is compared with.
    pub(crate) short: String,
}

impl Change {
    /// The change between two readings of different files.
    pub(crate) fn between(before: &FileReading, after: &FileReading) -> Option<Self> {
        Self::against(before.1.name_for(after.1), before, after)
    }

    /// The change from a reading that the page calls `name`.
    pub(crate) fn against(
        name: &str,
        (_, before, a): &FileReading,
        (_, after, b): &FileReading,
    ) -> Option<Self> {
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
            _ if percent.is_finite() && percent > MOST_PERCENT => {
                format!("{}\u{a0}times", number(b.value / a.value))
            }
            _ if percent.is_finite() => change_percent(percent),
            _ => return None,
        };
        Some(Self {
            class,
            text: format!("{change} against {name}: {verdict}"),
            short: format!("{change}, {verdict}"),
        })
    }
}

impl Cell {
    /// The cell of a value that could not be measured.
    pub(crate) fn missing(why: &str) -> Self {
        let value = "cannot tell".to_owned();
        Self { value, tooltip: why.to_owned(), is_doubted: false, change: None, details: Vec::new() }
    }

    pub(crate) fn new((_, source, reading): FileReading) -> Self {
        let Spread { low, high, .. } = reading.spread;
        let spread = || range(&quantity(low, &reading.unit), &quantity(high, &reading.unit));
        let share = reading.share(reading.value).map(|share| format!("{} of the line", percent(share)));
        let runs = match reading.runs.len() {
            1 => "one run".to_owned(),
            several => format!("median of {several} runs"),
        };
        let mut tooltip = format!("{} {}, {runs}", reading.value, reading.unit);
        let all_doubts = doubt_kind::about(&source.results, reading);
        all_doubts.iter().for_each(|doubt| tooltip += &format!("\ndoubt: {doubt}"));
        Self {
            value: quantity(reading.value, &reading.unit),
            tooltip,
            is_doubted: !doubts::own(source, reading).is_empty(),
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
pub(crate) fn range(low: &str, high: &str) -> String {
    let unit = |quantity: &str| quantity.split_once('\u{a0}').map(|(_, unit)| unit.to_owned());
    let low = if unit(low) == unit(high) { low.split('\u{a0}').next().unwrap_or(low) } else { low };
    format!("{low} to {high}")
}

/// How much a value is of another: `2.190 × slow`. None without a finite ratio.
pub(crate) fn times(value: f64, base: f64, name: &str) -> Option<String> {
    let ratio = value / base;
    (ratio.is_finite() && ratio > 0.0).then(|| format!("{}\u{a0}×\u{a0}{name}", number(ratio)))
}
