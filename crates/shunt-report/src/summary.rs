//! The summary of a report: cards with a few values side by side.

use super::{
    comparison::{Engines, Example},
    course::Course,
    engine,
    grid::{Cell, FileReading, times},
    plot::colour,
};
use std::collections::BTreeMap;

/// Units of which more is better, and which tell how fast something is.
const RATES: [&str; 3] = ["pps", "bit/s", "Mbit/s"];

pub(crate) struct Card {
    pub(crate) title: String,
    pub(crate) values: Vec<Value>,
}

/// The value of an engine, or of a line of a course.
pub(crate) struct Value {
    pub(crate) name: String,
    pub(crate) colour: String,
    pub(crate) cell: Cell,
    /// Such as the ratio to the baseline.
    pub(crate) note: Option<String>,
}

/// A longer unit is shown in the title, since a card is narrow.
const LONGEST_UNIT: usize = 8;

impl Card {
    fn move_long_unit(&mut self) {
        let unit = |value: &Value| Some(value.cell.value.split_once('\u{a0}')?.1.to_owned());
        let Some(unit) = self.values.first().and_then(unit) else { return };
        if unit.chars().count() <= LONGEST_UNIT {
            return;
        }
        for value in &mut self.values {
            value.cell.value = value.cell.value.replace(&format!("\u{a0}{unit}"), "");
        }
        self.title = format!("{}, {unit}", self.title);
    }
}

/// A card for each file: engines at the first position, or the greatest value of each other line. None for losses and
/// times, nor for courses over time, whose first position says nothing.
pub(crate) fn of_course(course: Course, readings: &[FileReading], several_files: bool) -> Vec<Card> {
    if !RATES.contains(&course.unit) || course.along_unit == "s" {
        return Vec::new();
    }
    let mut files: BTreeMap<usize, BTreeMap<(usize, &str), Vec<FileReading>>> = BTreeMap::new();
    for reading in readings {
        if let Some(position) = &reading.2.position {
            let lines = files.entry(reading.0).or_default();
            lines.entry((engine::column(&position.line), &position.line)).or_default().push(*reading);
        }
    }
    let card = |lines: BTreeMap<(usize, &str), Vec<FileReading>>| {
        let (_, source, _) = lines.values().flatten().next()?;
        let colours = engine::colours(lines.keys().map(|(_, line)| (0, *line)));
        let are_engines = lines.keys().all(|(_, line)| engine::is_engine(line));
        let first = lines.values().flatten().map(position).min_by(f64::total_cmp)?;
        let base = lines.iter().find(|((_, line), _)| engine::BASELINES.contains(line));
        let base = base.and_then(|((_, line), readings)| Some((*line, at(readings, first)?.2.value)));
        let value = |(((_, line), readings), nth): ((&(usize, &str), &Vec<FileReading>), &usize)| {
            let (reading, note) = if are_engines {
                let reading = at(readings, first)?;
                let base = base.filter(|(name, _)| name != line);
                (reading, base.and_then(|(name, base)| times(reading.2.value, base, name)))
            } else {
                let most = readings.iter().max_by(|a, b| a.2.value.total_cmp(&b.2.value))?;
                (*most, Some(format!("at {}", course.show(position(most)))))
            };
            Some(Value { name: (*line).to_owned(), colour: colour(*nth), cell: Cell::new(reading), note })
        };
        let title = match are_engines {
            true => format!("{}, {} {}", course.of, course.along, course.show(first)),
            false => format!("most {}", course.of),
        };
        let title = if several_files { format!("{}: {title}", source.label) } else { title };
        Some(Card { title, values: lines.iter().zip(&colours).filter_map(value).collect() })
    };
    files.into_values().filter_map(card).collect()
}

fn position((_, _, reading): &FileReading) -> f64 {
    reading.position.as_ref().map_or(0.0, |position| position.value)
}

fn at<'r>(readings: &[FileReading<'r>], value: f64) -> Option<FileReading<'r>> {
    readings.iter().find(|reading| position(reading) == value).copied()
}

/// A card for each kind of traffic in a table of engines. None for secondary metrics.
pub(crate) fn of_engines(what: &str, metric: &str, engines: &Engines, several_files: bool) -> Vec<Card> {
    if !metric.is_empty() {
        return Vec::new();
    }
    let card = |(row, examples): (&str, Vec<Example>)| {
        let colours = engine::colours(examples.iter().map(|(engine, reading, _)| (reading.0, *engine)));
        let value = |((engine, reading, note), nth): (Example, &usize)| Value {
            name: if several_files { format!("{} {engine}", reading.1.label) } else { engine.to_owned() },
            colour: colour(*nth),
            cell: Cell::new(reading),
            note,
        };
        let title = if row.is_empty() { what.to_owned() } else { row.to_owned() };
        let mut card = Card { title, values: examples.into_iter().zip(&colours).map(value).collect() };
        card.move_long_unit();
        card
    };
    engines.examples().into_iter().map(card).collect()
}
