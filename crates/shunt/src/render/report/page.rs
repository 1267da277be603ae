//! The page of a report: the values for its template.

use super::{
    course,
    files::{Report, Source},
    plot::colour,
    reading::{FileReading, ReadingView, Table, in_unit},
};
use askama::Template;
use shunt_lab::{Position, Reading};
use std::collections::{BTreeMap, BTreeSet};

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

/// A condition of the measurements, and its value in each file.
struct Condition {
    name: String,
    /// The labels of the files, and the value that they share; no label if all files have the same value.
    values: Vec<(String, String)>,
}

/// Readings of the same kind of measurement. Simulated and real routers are different kinds, and share no table.
struct Part<'r> {
    what: &'r str,
    readings: Vec<ReadingView<'r>>,
}

/// Readings that are shown together. Courses sort first, since they show most.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Group<'r> {
    Course { of: &'r str, along: &'r str, along_unit: &'r str, unit: &'r str },
    Files { name: &'r str, unit: &'r str },
}

impl<'r> Group<'r> {
    fn new(name: &'r str, reading: &'r Reading) -> Self {
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
    pub(super) fn new(report: &'r Report) -> Self {
        let mut groups: BTreeMap<&str, BTreeMap<Group, Vec<FileReading>>> = BTreeMap::new();
        for (nth, source) in report.files.iter().enumerate() {
            for (name, reading) in &source.results.readings {
                let part = groups.entry(&source.results.what).or_default();
                part.entry(Group::new(name, reading)).or_default().push((nth, source, reading));
            }
        }
        let mut ids = 0..;
        let several = report.files.len() > 1;
        let view = |(id, (group, of_group)): (usize, (Group<'r>, Vec<FileReading<'r>>))| match group {
            Group::Course { of: what, along, along_unit, unit } => {
                course::view(id, format!("{what} by {along}"), (along, along_unit), unit, &of_group, several)
            }
            Group::Files { name, unit } => ReadingView::new(id, name, unit, &of_group),
        };
        let parts = groups.into_iter().map(|(what, readings)| {
            let readings = (&mut ids).zip(readings).map(view).collect();
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
