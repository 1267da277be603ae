//! Predictions of `shunt model` on the page of a report, as it prints them with `--json`. They have tables and plots of
//! their own, and share no column with measurements.

use crate::{
    commands::model::view::{ModelPoint, stories::finding_rows},
    render::units::{number, quantity},
};
use serde::Deserialize;
use shunt_model::{
    Fit, Prediction, parse_number,
    stories::{Cell, Column, StoryPredictions},
};
use shunt_report::{
    Figure, Kind, OtherFile, Section, SectionTable, figure, heads, percent,
    plot::{self, Bar, Bars, Plot, Series, colour},
};
use std::collections::{BTreeMap, BTreeSet};

/// A quantity of a prediction.
type Of = fn(&Prediction) -> f64;

/// Stands below each plot.
const REMARK: &str = "model, not a measurement";
/// Bars for more rows are too small to read.
const MOST_BARS: usize = 30;

/// What `shunt model` prints.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Predictions {
    Points { points: Vec<ModelPoint> },
    Run { model: String, prediction: Box<Prediction> },
    Fit { fit: Fit },
    Stories(Vec<StoryPredictions>),
}

/// Reads a file; None if it is not one that `shunt model` printed.
pub(super) fn parse(label: &str, file: &str, text: &str) -> Option<OtherFile> {
    let predictions = serde_json::from_str(text).ok()?;
    if matches!(&predictions, Predictions::Stories(stories) if stories.is_empty()) {
        return None;
    }
    let section = Section {
        title: format!("{label}: {REMARK}"),
        about: format!(
            "{file} holds predictions of shunt model. No figure of this section was measured, unless it says “published”."
        ),
        tables: tables(&predictions),
    };
    OtherFile::new(Kind::Model, label, file, text, section).ok()
}

fn tables(predictions: &Predictions) -> Vec<SectionTable> {
    match predictions {
        Predictions::Points { points } => vec![of_points(points)],
        Predictions::Run { model, prediction } => {
            let point =
                ModelPoint { settings: Vec::new(), prediction: (**prediction).clone(), explanation: None };
            vec![SectionTable { name: model.clone(), ..of_points(&[point]) }]
        }
        Predictions::Fit { fit } => vec![of_fit(fit)],
        Predictions::Stories(stories) => stories.iter().flat_map(of_story).collect(),
    }
}

fn of_points(points: &[ModelPoint]) -> SectionTable {
    let names: BTreeSet<&str> =
        points.iter().flat_map(|point| &point.settings).map(|(name, _)| name.as_str()).collect();
    let setting = |point: &ModelPoint, name: &str| {
        point
            .settings
            .iter()
            .find(|(known, _)| known == name)
            .map_or(String::new(), |(_, value)| value.clone())
    };
    let explained = points.iter().any(|point| point.explanation.is_some());
    let mut all = heads(names.iter().copied().chain(["offered", "goodput", "loss", "CPU load"]));
    all.extend(heads(explained.then_some(["limit", "next limit"]).into_iter().flatten()));
    let row = |point: &ModelPoint| {
        let of = &point.prediction;
        let mut row: Vec<String> = names.iter().map(|name| setting(point, name)).collect();
        row.extend([
            quantity(of.offered, "bit/s"),
            quantity(of.total(), "bit/s"),
            percent(of.loss),
            percent(of.cpu),
        ]);
        if let Some(explanation) = &point.explanation {
            row.extend([explanation.bottleneck, explanation.next].map(|part| part.name().to_owned()));
        }
        row
    };
    SectionTable {
        name: "Predictions".to_owned(),
        heads: all,
        rows: points.iter().map(row).collect(),
        notes: Vec::new(),
        plots: plots_of_points(points, &names),
    }
}

/// Goodput, loss and CPU load along the first parameter that has several numbers; a line for each combination of the
/// others.
fn plots_of_points(points: &[ModelPoint], names: &BTreeSet<&str>) -> Vec<Figure> {
    let value = |point: &ModelPoint, name: &str| {
        point.settings.iter().find(|(known, _)| known == name).and_then(|(_, value)| parse_number(value))
    };
    let several = |name: &&&str| {
        let numbers: Option<Vec<f64>> = points.iter().map(|point| value(point, name)).collect();
        numbers.is_some_and(|numbers| numbers.iter().any(|number| *number != numbers[0]))
    };
    let Some(along) = names.iter().find(several) else { return Vec::new() };
    let (factor, unit) = if along.ends_with("rate") { (1e6, ", Mbit/s") } else { (1.0, "") };
    let line_of = |point: &ModelPoint| {
        let others = point.settings.iter().filter(|(name, _)| name != along);
        others.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    };
    let plot = |(name, unit_of, of): (&str, &str, Of)| {
        let mut lines: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        for point in points {
            let at = value(point, along).unwrap_or(0.0) / factor;
            lines.entry(line_of(point)).or_default().push((at, of(&point.prediction)));
        }
        let which: Vec<&str> = lines.keys().map(String::as_str).filter(|line| !line.is_empty()).collect();
        let title = if which.is_empty() { name.to_owned() } else { format!("{name} ({})", which.join("; ")) };
        let series: Vec<Series> = lines
            .into_values()
            .enumerate()
            .map(|(nth, points)| Series { nth, points, spreads: Vec::new() })
            .collect();
        figure(&title, plot::course(&series, &[], &format!("{along}{unit}"), unit_of), REMARK)
    };
    let quantities: [(&str, &str, Of); 3] = [
        ("goodput", "bit/s", Prediction::total),
        ("loss", "%", |of| 100.0 * of.loss),
        ("CPU load", "%", |of| 100.0 * of.cpu),
    ];
    quantities.into_iter().filter_map(plot).collect()
}

fn of_fit(fit: &Fit) -> SectionTable {
    let rows = fit.parameters.iter().map(|one| {
        let high = one.high.map_or("unbounded".to_owned(), number);
        let sure = if one.determined { "yes" } else { "no" };
        vec![one.name.clone(), number(one.value), number(one.low), high, sure.to_owned()]
    });
    let error =
        format!("Mean error {} (percent of goodput, points of loss and load).", number(fit.mean_error));
    let alike = fit.alike.iter().map(|(a, b)| format!("The data cannot tell {a} and {b} apart."));
    SectionTable {
        name: "Parameters that explain a measurement".to_owned(),
        heads: heads(["parameter", "value", "from", "to", "determined"]),
        rows: rows.collect(),
        notes: [error].into_iter().chain(alike).collect(),
        plots: Vec::new(),
    }
}

/// Published figures are measurements, so they have a column and a colour of their own.
fn of_story(story: &StoryPredictions) -> Vec<SectionTable> {
    let view = |column: &Column| {
        let marked = |cells: &'static str, of: &[Cell]| {
            of.iter().map(|cell| (cell.clone(), cells)).collect::<Vec<_>>()
        };
        let mut cells = [marked("fitted", &column.fitted), marked("held out", &column.held_out)].concat();
        let at = |cell: &Cell| cell.label.parse::<f64>().ok();
        let along: Option<Vec<f64>> = cells.iter().map(|(cell, _)| at(cell)).collect();
        if along.is_some() {
            cells.sort_by(|a, b| at(&a.0).unwrap_or(0.0).total_cmp(&at(&b.0).unwrap_or(0.0)));
        }
        let rows = cells.iter().map(|(cell, mark)| {
            vec![cell.label.clone(), number(cell.published), number(cell.predicted), (*mark).to_owned()]
        });
        let mut heads =
            heads(["", &format!("published, {}", column.unit), &format!("model, {}", column.unit), "used"]);
        (heads[1].colour, heads[2].colour) = (colour(0), colour(1));
        let unit = if column.unit == "%" { "points" } else { "%" };
        let error =
            |mean: Option<f64>| mean.map_or("none".to_owned(), |mean| format!("{} {unit}", number(mean)));
        let (fitted, held_out) = (error(column.fitted_mean_error), error(column.held_out_mean_error));
        SectionTable {
            name: format!("{}: {}", story.name, column.name),
            rows: rows.collect(),
            heads,
            notes: vec![format!(
                "Mean error: fitted {fitted}, held out {held_out}. Source: {}.",
                story.source
            )],
            plots: figure("published and model", plot_of_cells(&cells, along, &column.unit), REMARK)
                .into_iter()
                .collect(),
        }
    };
    let findings = (!story.findings.is_empty()).then(|| {
        let mut rows = finding_rows(&story.findings).into_iter();
        let names = rows.next().unwrap_or_default();
        SectionTable {
            name: format!("{}: findings", story.name),
            heads: heads([0, 1, 2].map(|at| names[at].as_str())),
            rows: rows.collect(),
            notes: Vec::new(),
            plots: Vec::new(),
        }
    });
    findings.into_iter().chain(story.columns.iter().map(view)).collect()
}

fn plot_of_cells(cells: &[(Cell, &str)], along: Option<Vec<f64>>, unit: &str) -> Option<Plot> {
    if along.is_some() && cells.len() > 1 {
        let points = |of: fn(&Cell) -> f64| {
            cells.iter().filter_map(|(cell, _)| Some((cell.label.parse().ok()?, of(cell)))).collect()
        };
        let lines = [points(|cell| cell.published), points(|cell| cell.predicted)];
        let series: Vec<Series> = lines
            .into_iter()
            .enumerate()
            .map(|(nth, points)| Series { nth, points, spreads: Vec::new() })
            .collect();
        return plot::course(&series, &[], "", unit);
    }
    if cells.len() > MOST_BARS {
        return None;
    }
    let bar = |nth, label, value| Bar { nth, label, value, low: value, high: value, quartiles: None };
    let groups = cells.iter().map(|(cell, _)| Bars {
        label: &cell.label,
        bars: vec![bar(0, "published", cell.published), bar(1, "model", cell.predicted)],
    });
    let groups: Vec<Bars> = groups.collect();
    plot::grouped_bars(&groups, unit)
}
