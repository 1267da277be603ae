//! The text of `shunt compare`. What speaks against a number stands above it.

use super::{
    columns::{self, align},
    units::number,
};
use shunt_lab::{Compared, Comparison, Doubt, PAIRS_WANTED, Pairing, Side, Verdict};

const SIDES: [columns::Side; 8] = [
    columns::Side::Left,
    columns::Side::Right,
    columns::Side::Right,
    columns::Side::Left,
    columns::Side::Right,
    columns::Side::Left,
    columns::Side::Left,
    columns::Side::Left,
];

pub(super) fn describe(comparison: &Comparison) -> String {
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
        text += "doubt: runs not made in turn: what changed from A to B besides looks like a difference\n";
    }
    if !readings.is_empty() {
        let mut rows =
            vec![["reading", "A", "B", "", "change", "95 %", "runs", ""].map(str::to_owned).to_vec()];
        rows.extend(readings.iter().map(fields));
        text += &align(&SIDES, &rows);
    }
    alone.iter().for_each(|what| text += &format!("not compared: {what}\n"));
    if readings.is_empty() {
        text += "nothing to compare: no reading is in both\n";
    }
    text
}

fn side(name: &str, side: &Side) -> String {
    let whole = if side.complete { "" } else { ", interrupted" };
    format!("{name}: {}, {} of {}{whole}\n", side.file, side.what, side.began)
}

fn fields(compared: &Compared) -> Vec<String> {
    let Compared { name, unit, runs, pairing, ratio, spread, verdict, .. } = compared;
    let change = |ratio: f64| format!("{:+.1} %", (ratio - 1.0) * 100.0);
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
        ratio.map_or("-".to_owned(), change),
        spread.map_or("-".to_owned(), |spread| format!("{} to {}", change(spread.low), change(spread.high))),
        runs,
        match verdict {
            Verdict::Better => "better".to_owned(),
            Verdict::Worse => "worse".to_owned(),
            Verdict::Differs => "differs".to_owned(),
            Verdict::NoDifference => "no difference".to_owned(),
            Verdict::TooFewRuns => format!("cannot tell: {PAIRS_WANTED} runs of each are needed"),
        },
    ]
}
