//! The text of `shunt compare`. Doubts stand above the numbers.

use crate::render::{
    Format, Text,
    columns::align,
    style,
    units::{change_percent, number, unsigned_zero},
};
use shunt_lab::{Compared, Comparison, Doubt, PAIRS_WANTED, Pairing, Side, Spread, Verdict};

impl Text for Comparison {
    fn text(&self, _: Format) -> String {
        describe(self)
    }
}

fn describe(comparison: &Comparison) -> String {
    let Comparison { a, b, conditions, readings, alone } = comparison;
    let mut text = side("A", a) + &side("B", b);
    for differing in conditions {
        text += &format!("differs: {}: A {}, B {}\n", differing.name, differing.a, differing.b);
    }
    let mut doubts: Vec<&Doubt> = Vec::new();
    for doubt in readings.iter().flat_map(|reading| &reading.doubts) {
        if !doubts.contains(&doubt) {
            doubts.push(doubt);
        }
    }
    doubts.iter().for_each(|doubt| text += &format!("doubt: {doubt}\n"));
    if readings.iter().any(|reading| reading.pairing == Pairing::InSequence) {
        text += "doubt: runs were not made in turn: anything else that changed between A and B looks like a difference\n";
    }
    if !readings.is_empty() {
        let mut rows =
            vec![["reading", "A", "B", "", "change", "95 %", "runs", ""].map(str::to_owned).to_vec()];
        rows.extend(readings.iter().map(fields));
        text += &align("<>><><", &rows);
    }
    alone.iter().for_each(|what| text += &format!("not compared: {what}\n"));
    if readings.is_empty() {
        text += "nothing to compare: the files have no reading in common\n";
    }
    text
}

fn side(name: &str, side: &Side) -> String {
    let note = if side.complete { "" } else { ", interrupted" };
    format!("{name}: {}, {}, started {}{note}\n", side.file, side.what, side.began)
}

fn fields(compared: &Compared) -> Vec<String> {
    let Compared { name, unit, runs, pairing, spread, verdict, .. } = compared;
    let runs = match pairing {
        Pairing::Interleaved => format!("{} pairs in turn", runs.0),
        Pairing::InSequence => format!("{} pairs", runs.0),
        Pairing::Unpaired => format!("{} and {}", runs.0, runs.1),
    };
    vec![
        name.clone(),
        number(compared.a),
        number(compared.b),
        unit.clone(),
        change(compared),
        spread.map_or("-".to_owned(), |spread| interval(compared, spread)),
        runs,
        match verdict {
            Verdict::TooFewRuns => format!("cannot tell: at least {PAIRS_WANTED} runs of each are needed"),
            Verdict::Better => style::good(word(*verdict)),
            Verdict::Worse => style::bad(word(*verdict)),
            verdict => word(*verdict).to_owned(),
        },
    ]
}

/// The change from A to B: in percent of A, in percentage points for shares, or in the unit if A may be 0.
pub(crate) fn change(compared: &Compared) -> String {
    let value = compared.difference.or(compared.ratio);
    value.map_or("-".to_owned(), |value| amount(compared, value))
}

/// The confidence interval of the change.
pub(crate) fn interval(compared: &Compared, spread: Spread) -> String {
    format!("{} to {}", amount(compared, spread.low), amount(compared, spread.high))
}

pub(crate) const fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::Differs => "differs",
        Verdict::NoDifference => "no difference",
        Verdict::TooFewRuns => "cannot tell",
    }
}

fn amount(compared: &Compared, value: f64) -> String {
    match compared.difference {
        Some(_) => {
            let unit = if compared.unit == "%" { "points" } else { &compared.unit };
            format!("{} {unit}", unsigned_zero(format!("{value:+.2}")))
        }
        None => change_percent((value - 1.0) * 100.0),
    }
}
