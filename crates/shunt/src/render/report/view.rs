//! What stands in the page, as its template wants it.

use super::{
    course,
    plot::{self, Bar, Plot, Series, colour},
};
use crate::{
    render::units::{number, rounded},
    report::{Report, Source},
};
use askama::Template;
use serde_json::Value;
use shunt_lab::{Distribution, Doubt, Position, Reading, Results, Run, Spread, SpreadKind};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

#[derive(Template)]
#[template(path = "report.html")]
pub(super) struct Page<'r> {
    report: &'r Report,
    files: Vec<File<'r>>,
    conditions: Vec<Condition>,
    parts: Vec<Part<'r>>,
}

struct File<'r> {
    source: &'r Source,
    colour: String,
}

/// One name, and what it is in which files.
struct Condition {
    name: String,
    /// With no label where it is the same in all files.
    values: Vec<(String, String)>,
}

/// What was measured in the same way. A model and what exists are not, and share no table.
struct Part<'r> {
    what: &'r str,
    readings: Vec<Told<'r>>,
}

/// A reading of one file or more, or a course of them.
pub(super) struct Told<'r> {
    pub(super) id: usize,
    pub(super) name: Cow<'r, str>,
    pub(super) unit: &'r str,
    /// Who speaks against which values.
    pub(super) doubts: Vec<(String, String)>,
    pub(super) table: Table,
    pub(super) limits: Vec<String>,
    pub(super) plots: Vec<Figure>,
    pub(super) runs: Vec<RunRow>,
}

pub(super) enum Table {
    /// A row for each file.
    Files(Vec<Row>),
    /// A column for each line.
    Course { along: String, lines: Vec<Line>, rows: Vec<(String, Vec<Option<Cell>>)> },
}

/// What a line is called, and its colour.
pub(super) struct Line {
    pub(super) name: String,
    pub(super) colour: String,
}

pub(super) struct Cell {
    pub(super) value: String,
    /// Its spread and its share of the line, as far as it has them.
    pub(super) beside: Vec<String>,
}

pub(super) struct Row {
    label: String,
    colour: String,
    value: String,
    spread: String,
    runs: usize,
    share: Option<String>,
}

pub(super) struct RunRow {
    label: String,
    nth: usize,
    at: String,
    value: String,
    share: Option<String>,
    details: Vec<(String, String)>,
}

pub(super) struct Figure {
    pub(super) caption: String,
    pub(super) svg: String,
}

/// A reading, and where it is from.
pub(super) type From<'r> = (usize, &'r Source, &'r Reading);

/// What speaks against a reading: its doubts, and what the file as a whole shows.
pub(super) fn against(results: &Results, reading: &Reading) -> Vec<String> {
    let mut doubts: Vec<String> = reading.doubts.iter().map(ToString::to_string).collect();
    if !results.complete {
        doubts.push("interrupted: not all of its runs are there".to_owned());
    }
    // Files of older versions do not doubt it themselves.
    let above = Doubt::AboveLine.to_string();
    if reading.is_above_limit() && !doubts.contains(&above) {
        doubts.push(above);
    }
    doubts
}

/// What stands together. Courses first, since they show most.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Group<'r> {
    Course { of: &'r str, along: &'r str, along_unit: &'r str, unit: &'r str },
    Files { name: &'r str, unit: &'r str },
}

impl<'r> Group<'r> {
    fn of(name: &'r str, reading: &'r Reading) -> Self {
        let unit = reading.unit.as_str();
        match &reading.position {
            Some(Position { of, along, unit: along_unit, .. }) => {
                Self::Course { of, along, along_unit, unit }
            }
            None => Self::Files { name, unit },
        }
    }
}

impl<'r> Page<'r> {
    pub(super) fn of(report: &'r Report) -> Self {
        let mut groups: BTreeMap<&str, BTreeMap<Group, Vec<From>>> = BTreeMap::new();
        for (nth, source) in report.files.iter().enumerate() {
            for (name, reading) in &source.results.readings {
                let part = groups.entry(&source.results.what).or_default();
                part.entry(Group::of(name, reading)).or_default().push((nth, source, reading));
            }
        }
        let mut ids = 0..;
        let several = report.files.len() > 1;
        let told = |(id, (group, of)): (usize, (Group<'r>, Vec<From<'r>>))| match group {
            Group::Course { of: what, along, along_unit, unit } => {
                course::told(id, format!("{what} by {along}"), (along, along_unit), unit, &of, several)
            }
            Group::Files { name, unit } => Told::of(id, name, unit, &of),
        };
        let parts = groups.into_iter().map(|(what, readings)| {
            let readings = (&mut ids).zip(readings).map(told).collect();
            Part { what, readings }
        });
        let parts = parts.collect();
        let files = report.files.iter().enumerate();
        let files = files.map(|(nth, source)| File { source, colour: colour(nth) }).collect();
        Self { report, files, conditions: conditions(&report.files), parts }
    }
}

fn conditions(files: &[Source]) -> Vec<Condition> {
    let of_each: Vec<_> = files.iter().map(|source| source.results.conditions.by_name()).collect();
    let names: BTreeSet<&String> = of_each.iter().flat_map(BTreeMap::keys).collect();
    let condition = |name: &String| {
        let mut values: Vec<(String, String)> = Vec::new();
        for (source, known) in files.iter().zip(&of_each) {
            let value = known.get(name).map_or("unknown", String::as_str);
            match values.iter_mut().find(|(_, of)| of == value) {
                Some((labels, _)) => labels.push_str(&format!(", {}", source.label)),
                None => values.push((source.label.clone(), value.to_owned())),
            }
        }
        if let [(labels, _)] = &mut values[..] {
            labels.clear();
        }
        Condition { name: name.clone(), values }
    };
    names.into_iter().map(condition).collect()
}

impl<'r> Told<'r> {
    fn of(id: usize, name: &'r str, unit: &'r str, of: &[From]) -> Self {
        let mut doubts: Vec<(String, String)> = Vec::new();
        for (_, source, reading) in of {
            for doubt in against(&source.results, reading) {
                match doubts.iter_mut().find(|(_, known)| *known == doubt) {
                    Some((labels, _)) => labels.push_str(&format!(", {}", source.label)),
                    None => doubts.push((source.label.clone(), doubt)),
                }
            }
        }
        Self {
            id,
            name: name.into(),
            unit,
            doubts,
            table: Table::Files(of.iter().map(Row::of).collect()),
            plots: plots(name, unit, of),
            runs: of.iter().flat_map(|from| RunRow::of_all(from.2, &from.1.label)).collect(),
            limits: limits(unit, of),
        }
    }

    /// No unit that is in use, but what a file says has to fit on a phone.
    fn has_long_unit(&self) -> bool {
        self.unit.chars().count() > 12
    }

    fn has_shares(&self) -> bool {
        self.runs.iter().any(|run| run.share.is_some())
    }

    /// Few enough to be read at once.
    fn has_few_runs(&self) -> bool {
        matches!(self.table, Table::Files(_))
    }

    fn has_details(&self) -> bool {
        self.runs.iter().any(|run| !run.details.is_empty())
    }
}

impl Row {
    fn of(&(nth, source, reading): &From) -> Self {
        let Spread { low, high, kind } = reading.spread;
        let of = match kind {
            SpreadKind::Range => "all runs",
            SpreadKind::Confidence95 => "95 % confidence",
        };
        Self {
            label: source.label.clone(),
            colour: colour(nth),
            value: quantity(reading.value, &reading.unit),
            spread: match reading.runs.len() {
                1 => "one run".to_owned(),
                _ => format!("{} to {}, {of}", number(low), quantity(high, &reading.unit)),
            },
            runs: reading.runs.len(),
            share: reading.share(reading.value).map(percent),
        }
    }
}

impl RunRow {
    pub(super) fn of_all(reading: &Reading, label: &str) -> Vec<Self> {
        let row = |(nth, run): (usize, &Run)| Self {
            label: label.to_owned(),
            nth,
            at: run.at.clone().unwrap_or_default(),
            value: quantity(run.value, &reading.unit),
            share: reading.share(run.value).map(percent),
            details: run.details.iter().map(|(name, value)| (name.clone(), detail(value))).collect(),
        };
        (1..).zip(&reading.runs).map(row).collect()
    }
}

pub(super) fn limits(unit: &str, of: &[From]) -> Vec<String> {
    let mut limits: Vec<String> = Vec::new();
    for limit in of.iter().filter_map(|(_, _, reading)| reading.limit.as_ref()) {
        let text = format!("{} ({})", quantity(limit.value, unit), limit.of);
        if !limits.contains(&text) {
            limits.push(text);
        }
    }
    limits
}

fn quantity(value: f64, unit: &str) -> String {
    match unit {
        // A ratio.
        "1" => number(value),
        _ => format!("{}\u{a0}{unit}", number(value)),
    }
}

/// Says of what is in no unit only what it is.
pub(super) fn in_unit(what: &str, unit: &str) -> String {
    match unit {
        "" | "1" => what.to_owned(),
        _ => format!("{what}, {unit}"),
    }
}

pub(super) fn percent(share: f64) -> String {
    format!("{}\u{a0}%", rounded(share * 100.0))
}

fn detail(value: &Value) -> String {
    match (distribution(value), value) {
        (Some(Distribution { unit, count, min, max, mean, quantiles }), _) => {
            let quantiles =
                quantiles.iter().map(|q| format!("{} % {} {unit}, ", (q.share * 1e5).round() / 1e3, q.value));
            format!(
                "{}least {min} {unit}, mean {mean:.1} {unit}, most {max} {unit}, of {count}",
                quantiles.collect::<String>()
            )
        }
        (None, Value::Null) => "none".to_owned(),
        (None, Value::String(text)) => text.clone(),
        (None, Value::Number(value)) if value.is_f64() => {
            value.as_f64().map_or_else(|| value.to_string(), number)
        }
        (None, other) => other.to_string(),
    }
}

fn distribution(value: &Value) -> Option<Distribution> {
    value.is_object().then(|| serde_json::from_value(value.clone()).ok()).flatten()
}

fn plots(name: &str, unit: &str, of: &[From]) -> Vec<Figure> {
    let bars: Vec<_> = of
        .iter()
        .map(|&(nth, source, reading)| {
            let Spread { low, high, .. } = reading.spread;
            Bar { nth, label: &source.label, value: reading.value, low, high }
        })
        .collect();
    let limits: Vec<f64> = of.iter().filter_map(|from| Some(from.2.limit.as_ref()?.value)).collect();
    // Different lines have no one limit to draw.
    let limit = limits.first().copied().filter(|first| limits.iter().all(|limit| limit == first));
    let line = if limit.is_some() { ", and the line's limit" } else { "" };
    let mut plots = Vec::new();
    let mut add = |caption: &str, plot: Option<Plot>| {
        plots.extend(plot.map(|Plot { svg, unit }| Figure {
            caption: in_unit(&format!("{name}: {caption}"), &unit),
            svg,
        }));
    };
    add(&format!("median of each file, with its spread{line}"), plot::bars(&bars, limit, unit));
    if of.iter().any(|(_, _, reading)| reading.runs.len() > 1) {
        let series: Vec<_> = of
            .iter()
            .map(|&(nth, _, reading)| {
                let values = reading.runs.iter().map(|run| run.value);
                Series { nth, points: (1..).map(f64::from).zip(values).collect() }
            })
            .collect();
        add("each run", plot::runs(&series, unit));
    }
    for ((detail, unit), series) in distributions(of) {
        add(&format!("{detail} of each run"), plot::tail(&series, &unit));
    }
    plots
}

/// By the name of the detail and its unit.
fn distributions(of: &[From]) -> BTreeMap<(String, String), Vec<Series>> {
    let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for &(nth, _, reading) in of {
        for (name, value) in reading.runs.iter().flat_map(|run| &run.details) {
            let Some(found) = distribution(value) else { continue };
            let points: Vec<_> = found.quantiles.iter().map(|q| (q.share, q.value as f64)).collect();
            if points.len() > 1 {
                all.entry((name.clone(), found.unit)).or_default().push(Series { nth, points });
            }
        }
    }
    all
}
