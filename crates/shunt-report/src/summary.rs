//! The summary of a report: cards with a few values side by side.

use super::{
    comparison::{Engines, Example},
    course::{self, Course, LineKey, Point, RATES},
    engine, files,
    grid::{Cell, times},
    plot::colour,
};
use std::collections::BTreeMap;

pub(crate) struct Card {
    pub(crate) title: String,
    pub(crate) values: Vec<Value>,
}

/// The value of an engine, or of a line of a course.
pub(crate) struct Value {
    pub(crate) name: String,
    pub(crate) colour: String,
    pub(crate) cell: Cell,
    /// Such as the ratio to the baseline, and the CPU load.
    pub(crate) note: Option<String>,
}

/// The points of each line, by its place among the engines and its name.
type Lines<'p, 'r> = BTreeMap<(usize, &'r str), Vec<&'p Point<'r>>>;

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

/// A card for each file or campaign: engines at the first position, or the greatest value of each other line. None for
/// losses and times, for courses over time, whose first position says nothing, nor for what the generator sent.
pub(crate) fn of_course(course: Course, points: &[Point], several_files: bool) -> Vec<Card> {
    if !RATES.contains(&course.unit) || course.along_unit == "s" || course.of == "sent" {
        return Vec::new();
    }
    let names = course::line_names(points, several_files);
    // The lines of a file or campaign share a card, at the place of its first file.
    let mut cards: BTreeMap<(usize, &str), Lines> = BTreeMap::new();
    for point in points {
        let (_, line) = point.line;
        let of_card = names.keys().filter(|key| prefix(&names, key) == prefix(&names, &point.line));
        let first = of_card.map(|(file, _)| *file).min().unwrap_or_default();
        let of_card = cards.entry((first, prefix(&names, &point.line))).or_default();
        of_card.entry((engine::column(line), line)).or_default().push(point);
    }
    let card = |((_, prefix), lines): ((usize, &str), Lines)| {
        let colours = engine::colours(lines.keys().map(|(_, line)| (0, *line)));
        let are_engines = lines.keys().all(|(_, line)| engine::is_engine(line));
        let first = lines.values().flatten().map(|point| point.value).min_by(f64::total_cmp)?;
        let base = lines.iter().find(|((_, line), _)| engine::BASELINES.contains(line));
        let base = base.and_then(|((_, line), points)| Some((*line, at(points, first)?.reading().value)));
        let value = |(((_, line), points), nth): ((&(usize, &str), &Vec<&Point>), &usize)| {
            let (point, note) = if are_engines {
                let point = at(points, first)?;
                let base = base.filter(|(name, _)| name != line);
                (point, base.and_then(|(name, base)| times(point.reading().value, base, name)))
            } else {
                let most =
                    points.iter().copied().max_by(|a, b| a.reading().value.total_cmp(&b.reading().value))?;
                (most, Some(format!("at {}", course.show(most.value))))
            };
            let cell = Cell::new(point.file_reading);
            Some(Value { name: (*line).to_owned(), colour: colour(*nth), cell, note })
        };
        let title = match are_engines {
            true => format!("{}, {} {}", course.of, course.along, course.show(first)),
            false => format!("most {}", course.of),
        };
        let title = if prefix.is_empty() { title } else { format!("{prefix}: {title}") };
        Some(Card { title, values: lines.iter().zip(&colours).filter_map(value).collect() })
    };
    cards.into_iter().filter_map(card).collect()
}

/// What stands before a line's own name: a file or campaign.
fn prefix<'n>(names: &'n BTreeMap<LineKey<'n>, String>, key: &LineKey<'n>) -> &'n str {
    names.get(key).and_then(|name| name.strip_suffix(key.1)).unwrap_or_default().trim_end()
}

fn at<'p, 'r>(points: &[&'p Point<'r>], value: f64) -> Option<&'p Point<'r>> {
    points.iter().copied().find(|point| point.value == value)
}

/// A card for each kind of traffic in a table of engines, with the CPU load if it is known.
pub(crate) fn of_engines(
    what: &str,
    engines: &Engines,
    cpu: Option<&Engines>,
    several_files: bool,
) -> Vec<Card> {
    let card = |(row, examples): (&str, Vec<Example>)| {
        let files = files::short_labels(examples.iter().map(|(_, (nth, source, _), _)| (*nth, *source)));
        let colours = engine::colours(examples.iter().map(|(engine, reading, _)| (reading.0, *engine)));
        let value = |((engine, reading, note), nth): (Example, &usize)| Value {
            name: if several_files { format!("{} {engine}", files[&reading.0]) } else { engine.to_owned() },
            colour: colour(*nth),
            cell: Cell::new(reading),
            note,
        };
        let title = if row.is_empty() { what.to_owned() } else { row.to_owned() };
        let mut card = Card { title, values: examples.into_iter().zip(&colours).map(value).collect() };
        card.move_long_unit();
        card
    };
    engines.examples(cpu).into_iter().map(card).collect()
}
