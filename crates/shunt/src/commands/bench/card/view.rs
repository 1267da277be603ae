//! The text of `shunt bench card`. Doubts stand above the numbers.

use crate::render::{
    Answer, Format,
    columns::align,
    units::{quantity, rounded},
};
use shunt_lab::{
    Doubt, Reading, Results, SpreadKind,
    card::{quantities, reading, routers},
    statistics::{RUNS_WANTED, median_interval},
};
use std::path::PathBuf;

/// A card, and the files that it was written to.
#[derive(Debug)]
pub(crate) struct Card {
    pub(super) results: Results,
    /// Number of rounds that were asked for.
    pub(super) rounds: u32,
    /// The results and the page; none if there are no files.
    pub(super) files: Option<(PathBuf, PathBuf)>,
}

impl Answer for Card {
    fn text(&self, _: Format) -> String {
        describe(self)
    }

    fn json(&self) -> serde_json::Result<String> {
        self.results.to_json()
    }
}

fn describe(card: &Card) -> String {
    let results = &card.results;
    let mut text = doubts(card);
    text += &machine(results);
    for router in routers(results) {
        text += &table(card, router);
    }
    if let Some((results, page)) = &card.files {
        text += &format!("Written: {}, {}\n", results.display(), page.display());
    }
    text
}

/// The figures of a router, and why some are missing.
fn table(card: &Card, router: &str) -> String {
    let Results { readings, missing, .. } = &card.results;
    let mut rows = vec![[router, "median", "95 %", "rounds"].map(str::to_owned).to_vec()];
    let mut reasons = Vec::new();
    for name in quantities(&card.results) {
        let full = reading(name, router);
        let (found, why) = (readings.get(&full), missing.get(&full));
        if found.is_some() || why.is_some() {
            rows.push(fields(name, found, card.rounds));
            reasons.extend(why.map(|why| (name, why)));
        }
    }
    let reasons = by_reason(reasons).into_iter();
    let lines = reasons.map(|(why, names)| format!("{}: {why}\n", names.join(", ")));
    align("<>", &rows) + &lines.collect::<String>()
}

fn fields(name: &str, found: Option<&Reading>, rounds: u32) -> Vec<String> {
    let (median, interval, runs) = match found {
        Some(reading) => (quantity(reading.value, &reading.unit), interval(reading), reading.runs.len()),
        None => ("cannot tell".to_owned(), "-".to_owned(), 0),
    };
    // A file to which a card is added has more runs than rounds were asked for.
    let all = runs.max(rounds as usize);
    [name, &median, &interval, &format!("{runs} of {all}")].map(|cell| cell.replace('\u{a0}', " ")).to_vec()
}

/// The interval of the median, with the unit only if its ends have different ones; `-` if there are too few runs.
fn interval(reading: &Reading) -> String {
    let found = median_interval(&reading.values()).filter(|spread| spread.kind == SpreadKind::Confidence95);
    let Some(spread) = found else { return "-".to_owned() };
    let [low, high] = [spread.low, spread.high].map(|value| quantity(value, &reading.unit));
    match (low.split_once('\u{a0}'), high.split_once('\u{a0}')) {
        (Some((low, unit)), Some((high, other))) if unit == other => format!("{low} - {high}"),
        _ => format!("{low} - {high}"),
    }
}

/// The reasons once each, with what they are of.
fn by_reason<'r>(reasons: Vec<(&'r str, &'r String)>) -> Vec<(&'r str, Vec<&'r str>)> {
    let mut all: Vec<(&str, Vec<&str>)> = Vec::new();
    for (name, why) in reasons {
        match all.iter_mut().find(|(known, _)| known == why) {
            Some((_, names)) => names.push(name),
            None => all.push((why, vec![name])),
        }
    }
    all
}

/// The doubts, each once, with the first reading that has it and the number of others.
fn doubts(card: &Card) -> String {
    let Results { readings, complete, .. } = &card.results;
    let mut all: Vec<(&Doubt, &str, usize)> = Vec::new();
    for (name, reading) in readings {
        for doubt in &reading.doubts {
            match all.iter_mut().find(|(known, ..)| *known == doubt) {
                Some((.., count)) => *count += 1,
                None => all.push((doubt, name, 1)),
            }
        }
    }
    let line = |(doubt, name, count): &(&Doubt, &str, usize)| match *count {
        all if all == readings.len() => format!("doubt: {doubt}\n"),
        1 => format!("doubt: {name}: {doubt}\n"),
        several => format!("doubt: {name} and {} more: {doubt}\n", several - 1),
    };
    let mut text: String = all.iter().map(line).collect();
    if !complete {
        text += "doubt: interrupted: only the rounds until then are shown\n";
    }
    let most = readings.values().map(|reading| reading.runs.len()).max().unwrap_or_default();
    if *complete && most < card.rounds as usize {
        text += &format!(
            "doubt: time for {most} of {} rounds; --rounds {} takes as long as they need\n",
            card.rounds, card.rounds
        );
    }
    if most < RUNS_WANTED {
        text += &format!(
            "doubt: fewer than {RUNS_WANTED} rounds have no interval and no verdict of `shunt compare`\n"
        );
    }
    text
}

/// The machine, and how fast and busy it was.
fn machine(results: &Results) -> String {
    let conditions = &results.conditions;
    let model = conditions.cpus.model.as_deref().unwrap_or("unknown CPU");
    let kernel = conditions.kernel.as_deref().unwrap_or("of unknown version");
    let mut text = format!(
        "Router card of {}, by {} CPUs of {model}, Linux {kernel}\n",
        results.began, conditions.cpus.count
    );
    if let Some(dut) = &conditions.dut {
        let [model, kernel] = [&dut.cpus.model, &dut.kernel].map(|of| of.as_deref().unwrap_or("unknown"));
        text += &format!("Router: {} CPUs of {model}, Linux {kernel}\n", dut.cpus.count);
    }
    text += &match results.machine_state() {
        Some(state) => format!(
            "Calibration: fixed work took {} ms of a CPU; other programs used {} % of all CPUs\n",
            rounded(state.work_us / 1e3),
            rounded(state.others_percent)
        ),
        None => "Calibration: cannot tell: nothing recorded the state of the machine\n".to_owned(),
    };
    text
}
