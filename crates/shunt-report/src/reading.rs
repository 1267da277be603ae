//! What the page shows about one reading: its doubts, a table, plots, and each run.

use super::{
    doubts,
    files::FileReading,
    grid::{Cell, percent, range},
    plot::{self, Bar, Plot, Series, colour},
    section::{Figure, Line},
};
use serde_json::Value;
use shunt_lab::{Distribution, Reading, Run, Spread, SpreadKind, statistics::quantile};
use shunt_wire::units::{number, quantity};
use std::{borrow::Cow, collections::BTreeMap};

/// A table with more rows than this is folded if a plot shows the same.
const LONG: usize = 20;

/// A reading that one or more files have, or a course of readings, as the page shows it.
pub(crate) struct ReadingView<'r> {
    pub(crate) id: usize,
    pub(crate) name: Cow<'r, str>,
    pub(crate) unit: &'r str,
    /// Where a doubt applies, and the doubt; without the doubts that all readings of a file share.
    pub(crate) doubts: Vec<(String, String)>,
    pub(crate) table: Table,
    pub(crate) limits: Vec<String>,
    pub(crate) plots: Vec<Figure>,
    pub(crate) runs: Vec<RunRow>,
    /// Whether all values of the table are 0, such as the loss of a series without loss.
    pub(crate) is_zero: bool,
}

pub(crate) enum Table {
    /// One row for each file.
    Files(Vec<Row>),
    /// One column for each line, such as an engine, and one row for each position of a course or each name.
    Grid {
        /// The head of the first column.
        head: String,
        /// Whether the first column has numbers.
        is_numeric: bool,
        lines: Vec<Line>,
        rows: Vec<(String, Vec<Option<Cell>>)>,
    },
}

pub(crate) struct Row {
    pub(crate) label: String,
    pub(crate) colour: String,
    pub(crate) value: String,
    pub(crate) spread: String,
    pub(crate) runs: usize,
    pub(crate) share: Option<String>,
}

pub(crate) struct RunRow {
    pub(crate) label: String,
    pub(crate) nth: usize,
    pub(crate) at: String,
    pub(crate) value: String,
    pub(crate) share: Option<String>,
    pub(crate) details: Vec<(String, String)>,
}

impl<'r> ReadingView<'r> {
    pub(crate) fn new(id: usize, name: &'r str, unit: &'r str, readings: &[FileReading]) -> Self {
        let mut found: Vec<(String, String)> = Vec::new();
        for (_, source, reading) in readings {
            for doubt in doubts::own(source, reading) {
                match found.iter_mut().find(|(_, known)| *known == doubt) {
                    Some((labels, _)) => labels.push_str(&format!(", {}", source.label)),
                    None => found.push((source.label.clone(), doubt)),
                }
            }
        }
        Self {
            id,
            name: name.into(),
            unit,
            doubts: found,
            table: Table::Files(readings.iter().map(Row::new).collect()),
            plots: plots(name, unit, readings),
            runs: readings
                .iter()
                .flat_map(|(_, source, reading)| RunRow::for_runs(reading, &source.label))
                .collect(),
            limits: limits(unit, readings),
            is_zero: false,
        }
    }

    /// No unit in use is this long, but a file may have any unit, and the page must fit on a phone.
    pub(crate) fn has_long_unit(&self) -> bool {
        self.unit.chars().count() > 12
    }

    /// Whether the table is folded: it says nothing but 0, or it is long, and a plot shows the same.
    pub(crate) fn is_folded(&self) -> bool {
        let is_long = matches!(&self.table, Table::Grid { rows, .. } if rows.len() > LONG);
        self.is_zero || is_long && !self.plots.is_empty()
    }

    pub(crate) fn has_shares(&self) -> bool {
        self.runs.iter().any(|run| run.share.is_some())
    }

    /// Whether this is one reading, not a table of many: its doubts are shown unfolded.
    pub(crate) fn is_alone(&self) -> bool {
        matches!(self.table, Table::Files(_))
    }

    pub(crate) fn has_details(&self) -> bool {
        self.runs.iter().any(|run| !run.details.is_empty())
    }
}

impl Row {
    fn new(&(nth, source, reading): &FileReading) -> Self {
        let Spread { low, high, kind } = reading.spread;
        let kind = match kind {
            SpreadKind::Range => "all runs",
            SpreadKind::Confidence95 => "95 % confidence",
        };
        Self {
            label: source.label.clone(),
            colour: colour(nth),
            value: quantity(reading.value, &reading.unit),
            spread: match reading.runs.len() {
                1 => "one run".to_owned(),
                _ => {
                    let ends = range(&quantity(low, &reading.unit), &quantity(high, &reading.unit));
                    format!("{ends}, {kind}")
                }
            },
            runs: reading.runs.len(),
            share: reading.share(reading.value).map(percent),
        }
    }
}

impl RunRow {
    pub(crate) fn for_runs(reading: &Reading, label: &str) -> Vec<Self> {
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

fn limits(unit: &str, readings: &[FileReading]) -> Vec<String> {
    let mut limits: Vec<String> = Vec::new();
    for limit in readings.iter().filter_map(|(_, _, reading)| reading.limit.as_ref()) {
        let text = format!("{} ({})", quantity(limit.value, unit), limit.of);
        if !limits.contains(&text) {
            limits.push(text);
        }
    }
    limits
}

/// The name with its unit; ratios and numbers without a unit have the name only.
pub(crate) fn in_unit(what: &str, unit: &str) -> String {
    match unit {
        "" | "1" => what.to_owned(),
        _ => format!("{what}, {unit}"),
    }
}

fn detail(value: &Value) -> String {
    match (distribution(value), value) {
        (Some(Distribution { unit, count, min, max, mean, quantiles }), _) => {
            let quantiles =
                quantiles.iter().map(|q| format!("{} % {} {unit}, ", (q.share * 1e5).round() / 1e3, q.value));
            format!(
                "{}min {min} {unit}, mean {mean:.1} {unit}, max {max} {unit}, of {count}",
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

/// Quartiles of fewer runs say no more than the runs themselves.
const RUNS_OF_BOX: usize = 10;
/// A distribution of fewer runs has too large steps.
const RUNS_OF_DISTRIBUTION: usize = 20;

/// The bars of readings, each with its colour and label, and what they show. They are boxes if each has enough runs.
pub(crate) fn bars<'r>(readings: &[(usize, &'r str, &Reading)]) -> (Vec<Bar<'r>>, &'static str) {
    let are_boxes = readings.iter().all(|(_, _, reading)| reading.runs.len() >= RUNS_OF_BOX);
    let bar = |(nth, label, reading): &(usize, &'r str, &Reading)| {
        let Spread { low, high, .. } = reading.spread;
        let bar = Bar { nth: *nth, label, value: reading.value, low, high, quartiles: None };
        let values: Vec<f64> = reading.runs.iter().map(|run| run.value).collect();
        let quantile = |share| quantile(&values, share).filter(|_| are_boxes);
        let (Some(least), Some(first), Some(median), Some(third), Some(most)) =
            (quantile(0.0), quantile(0.25), quantile(0.5), quantile(0.75), quantile(1.0))
        else {
            return bar;
        };
        Bar { value: median, low: least, high: most, quartiles: Some((first, third)), ..bar }
    };
    let shown = match are_boxes {
        true => "half of the runs as a box, with their median and range",
        false => "medians, with their spread",
    };
    (readings.iter().map(bar).collect(), shown)
}

fn plots(name: &str, unit: &str, readings: &[FileReading]) -> Vec<Figure> {
    let of_files: Vec<_> =
        readings.iter().map(|&(nth, source, reading)| (nth, source.label.as_str(), reading)).collect();
    let (bars, shown) = bars(&of_files);
    let limits: Vec<f64> =
        readings.iter().filter_map(|(_, _, reading)| Some(reading.limit.as_ref()?.value)).collect();
    // Draw a limit only if all files have the same one.
    let limit = limits.first().copied().filter(|first| limits.iter().all(|limit| limit == first));
    let line = if limit.is_some() { ", and the line's limit" } else { "" };
    let mut plots = Vec::new();
    let mut add = |caption: &str, plot: Option<Plot>| {
        plots.extend(plot.map(|Plot { svg, unit }| Figure {
            caption: in_unit(&format!("{name}: {caption}"), &unit),
            svg,
        }));
    };
    add(&format!("{shown}{line}"), plot::bars(&bars, limit, unit));
    if readings.iter().any(|(_, _, reading)| reading.runs.len() > 1) {
        let series = runs_in_order(readings);
        add("each run", plot::runs(&series, unit));
        let are_many = series.iter().all(|line| line.points.len() >= RUNS_OF_DISTRIBUTION);
        add("share of the runs not above each value", plot::cumulative(&series, unit).filter(|_| are_many));
    }
    plots.extend(distribution_plots(name, readings));
    plots
}

fn runs_in_order(readings: &[FileReading]) -> Vec<Series> {
    let series = |&(nth, _, reading): &FileReading| {
        let values = reading.runs.iter().map(|run| run.value);
        Series { nth, points: (1..).map(f64::from).zip(values).collect(), spreads: Vec::new() }
    };
    readings.iter().map(series).collect()
}

/// Fewer runs are repetitions, whose spread says enough.
const RUNS_OF_COURSE: usize = 10;
/// Fewer rates are no series.
const FEWEST_RATES: usize = 3;

/// A plot of the runs of a reading that a table shows by its median: by the rates that were offered, if `offered` says
/// that each run had another rate; otherwise in their order, if they are many and differ. None without a course.
pub(crate) fn course_of_runs(
    name: &str,
    readings: &[FileReading],
    offered: impl Fn(&FileReading) -> Option<Vec<f64>>,
) -> Option<Figure> {
    let (_, _, first) = readings.first()?;
    let figure = |of: &str, Plot { svg, unit }: Plot| Figure {
        caption: in_unit(&format!("{name}: {of}"), &unit),
        svg,
    };
    let by_rate = |reading: &FileReading| -> Option<Series> {
        let values = reading.2.values();
        let rates = offered(reading).filter(|rates| rates.len() == values.len())?;
        let mut points: Vec<(f64, f64)> = rates.iter().map(|rate| rate / 1e3).zip(values).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        let are_apart = points.windows(2).all(|two| two[0].0 < two[1].0);
        let is_series = are_apart && points.len() >= FEWEST_RATES;
        is_series.then(|| Series { nth: reading.0, points, spreads: Vec::new() })
    };
    let of_rates: Option<Vec<Series>> = readings.iter().map(by_rate).collect();
    if let Some(series) = of_rates {
        let plot = plot::course(&series, &[], "offered rate, kpps", &first.unit)?;
        return Some(figure("each run, by offered rate", plot));
    }
    let is_course = |(_, _, reading): &FileReading| {
        reading.runs.len() >= RUNS_OF_COURSE && reading.runs.iter().any(|run| run.value != reading.value)
    };
    readings.iter().any(is_course).then_some(())?;
    Some(figure("each run", plot::runs(&runs_in_order(readings), &first.unit)?))
}

/// A plot for each kind of distribution among the details of the runs.
pub(crate) fn distribution_plots(name: &str, readings: &[FileReading]) -> Vec<Figure> {
    let figure = |((detail, unit), series): ((String, String), Vec<Series>)| {
        let Plot { svg, unit } = plot::tail(&series, &unit)?;
        Some(Figure { caption: in_unit(&format!("{name}: {detail} of each run"), &unit), svg })
    };
    distributions(readings).into_iter().filter_map(figure).collect()
}

/// The distributions among the details of the runs, by name and unit.
fn distributions(readings: &[FileReading]) -> BTreeMap<(String, String), Vec<Series>> {
    let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for &(nth, _, reading) in readings {
        for (name, value) in reading.runs.iter().flat_map(|run| &run.details) {
            let Some(found) = distribution(value) else { continue };
            let points: Vec<_> = found.quantiles.iter().map(|q| (q.share, q.value as f64)).collect();
            let known: &mut Vec<Series> = all.entry((name.clone(), found.unit)).or_default();
            let series = Series { nth, points, spreads: Vec::new() };
            // Several readings of a run may have the same details.
            if series.points.len() > 1 && !known.contains(&series) {
                known.push(series);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_runs(count: u32) -> Reading {
        Reading::from_runs("us", (1..=count).rev().map(|value| Run::from(f64::from(value))).collect())
            .unwrap()
    }

    #[test]
    fn readings_are_boxes_if_each_has_enough_runs() {
        let (many, few) = (of_runs(11), of_runs(9));
        let (boxes, shown) = bars(&[(0, "A", &many)]);
        let of = |bar: &Bar| (bar.low, bar.quartiles, bar.value, bar.high);
        assert_eq!(of(&boxes[0]), (1.0, Some((3.5, 8.5)), 6.0, 11.0));
        assert!(shown.contains("box"));
        let (bars, shown) = bars(&[(0, "A", &many), (1, "B", &few)]);
        assert!(bars.iter().all(|bar| bar.quartiles.is_none()) && !shown.contains("box"), "{bars:?}");
    }
}
