//! Tables of readings that differ in the engine or only in their file: a row for each name, a column for each engine or
//! file.

use super::{
    doubts,
    engine::{self, BASELINES, EngineName},
    grid::{self, Cell, Change, FileReading},
    plot::{self, Bars, Plot, colour},
    reading::{ReadingView, RunRow, Table, distribution_plots, in_unit},
    section::{Figure, Line},
};
use shunt_lab::Spread;
use shunt_wire::natural_order;
use std::collections::{BTreeMap, BTreeSet};

/// A plot with more groups of bars is too long to read.
const MOST_GROUPS: usize = 24;

/// A row's name, and the key of a column.
type CellKey<'r, K> = (&'r str, K);
/// A column of an engine: the number of the file, the engine's place among the columns, and its name.
type EngineKey = (usize, usize, &'static str);
/// What the summary shows of one engine: its name, the reading, and its ratio to the baseline.
pub(crate) type Example<'r> = (&'static str, FileReading<'r>, Option<String>);

/// Readings by row and engine, and measured ratios to a baseline.
#[derive(Default)]
pub(crate) struct Engines<'r> {
    readings: BTreeMap<CellKey<'r, EngineKey>, FileReading<'r>>,
    ratios: BTreeMap<CellKey<'r, EngineKey>, FileReading<'r>>,
}

impl<'r> Engines<'r> {
    pub(crate) fn insert(&mut self, name: &EngineName<'r>, reading: FileReading<'r>) {
        self.readings.insert(key(name, reading), reading);
    }

    /// Keeps a ratio with the reading that it is of. Returns false if there is none.
    pub(crate) fn insert_ratio(&mut self, name: &EngineName<'r>, ratio: FileReading<'r>) -> bool {
        let key = key(name, ratio);
        let is_known = self.readings.contains_key(&key);
        if is_known {
            self.ratios.insert(key, ratio);
        }
        is_known
    }

    fn columns(&self) -> BTreeSet<EngineKey> {
        self.readings.keys().map(|(_, column)| *column).collect()
    }

    fn rows(&self) -> Vec<&'r str> {
        in_order(self.readings.keys().map(|(row, _)| *row))
    }

    /// The ratio to the baseline in the same row and file: measured, or calculated from the medians.
    fn ratio(&self, key: CellKey<'r, EngineKey>) -> Option<String> {
        let (row, (file, _, engine)) = key;
        if BASELINES.contains(&engine) {
            return None;
        }
        let baseline = |name| Some((name, self.readings.get(&(row, (file, engine::column(name), name)))?));
        let (name, (_, _, base)) = BASELINES.into_iter().find_map(baseline)?;
        match self.ratios.get(&key) {
            Some((_, _, ratio)) => grid::times(ratio.value, 1.0, name),
            None => grid::times(self.readings.get(&key)?.2.value, base.value, name),
        }
    }

    /// The row with the shortest name of each kind, with the values of its engines. The first word of a row is its
    /// kind, such as `TCP`, and further words make it more special.
    pub(crate) fn examples(&self) -> Vec<(&'r str, Vec<Example<'r>>)> {
        let mut kinds: BTreeMap<Option<&str>, &str> = BTreeMap::new();
        for row in self.rows() {
            let shortest = kinds.entry(row.split(' ').next()).or_insert(row);
            if row.len() < shortest.len() {
                *shortest = row;
            }
        }
        let columns = self.columns();
        let values = |row: &'r str| {
            let of_row = columns.iter().filter_map(|column| {
                let key = (row, *column);
                Some((column.2, *self.readings.get(&key)?, self.ratio(key)))
            });
            (row, of_row.collect())
        };
        kinds.into_values().map(values).collect()
    }

    pub(crate) fn view(
        &self,
        id: usize,
        name: String,
        unit: &'r str,
        several_files: bool,
    ) -> ReadingView<'r> {
        let (rows, columns) = (self.rows(), self.columns());
        let colours = engine::colours(columns.iter().map(|(file, _, engine)| (*file, *engine)));
        let label = |(file, _, engine): &EngineKey| {
            let of_file = self.readings.values().find(|reading| reading.0 == *file);
            let file = of_file.filter(|_| several_files).map_or("", |(_, source, _)| &source.label);
            format!("{file} {engine}").trim().to_owned()
        };
        let first_file = columns.iter().map(|(file, ..)| *file).min();
        let cell = |row: &'r str, column: EngineKey| {
            let reading = self.readings.get(&(row, column))?;
            let (file, at, engine) = column;
            let before = first_file.filter(|first| *first != file);
            let before = before.and_then(|first| self.readings.get(&(row, (first, at, engine))));
            let mut cell = Cell::new(*reading);
            cell.details.splice(..0, self.ratio((row, column)));
            cell.change = before.and_then(|before| Change::between(before, reading));
            Some(cell)
        };
        let cells = |row: &'r str| columns.iter().map(|column| cell(row, *column)).collect();
        let at =
            |(row, column): &CellKey<'r, EngineKey>| format!("{row} {}", label(column)).trim().to_owned();
        let all = self.readings.iter().chain(&self.ratios);
        ReadingView {
            id,
            unit,
            doubts: doubts::at_places(self.readings.iter().map(|(key, reading)| (at(key), *reading))),
            table: Table::Grid {
                head: String::new(),
                is_numeric: false,
                lines: (columns.iter().zip(&colours))
                    .map(|(column, nth)| Line { name: label(column), colour: colour(*nth) })
                    .collect(),
                rows: rows.iter().map(|row| ((*row).to_owned(), cells(row))).collect(),
            },
            limits: Vec::new(),
            plots: self.plot(&name, unit, &colours).into_iter().collect(),
            runs: all.flat_map(|(key, reading)| RunRow::for_runs(reading.2, &at(key))).collect(),
            name: name.into(),
        }
    }

    fn plot(&self, name: &str, unit: &str, colours: &[usize]) -> Option<Figure> {
        let (rows, columns) = (self.rows(), self.columns());
        let bar = |row: &'r str, column: EngineKey, nth: usize| {
            let (_, _, reading) = self.readings.get(&(row, column))?;
            let Spread { low, high, .. } = reading.spread;
            Some(plot::Bar { nth, label: "", value: reading.value, low, high })
        };
        let bars = |row| {
            columns.iter().zip(colours).filter_map(move |(column, nth)| bar(row, *column, *nth)).collect()
        };
        let groups: Vec<Bars> = rows.into_iter().map(|row| Bars { label: row, bars: bars(row) }).collect();
        let Plot { svg, unit } =
            (groups.len() <= MOST_GROUPS).then(|| plot::grouped_bars(&groups, unit)).flatten()?;
        Some(Figure { caption: in_unit(&format!("{name}: medians, with their spread"), &unit), svg })
    }
}

/// The names once each, with the numbers in them in their order.
fn in_order<'r>(names: impl Iterator<Item = &'r str>) -> Vec<&'r str> {
    let mut names: Vec<&str> = names.collect();
    names.sort_by(|a, b| natural_order::compare(a, b));
    names.dedup();
    names
}

fn key<'r>(name: &EngineName<'r>, reading: FileReading) -> CellKey<'r, EngineKey> {
    (name.row, (reading.0, engine::column(name.engine), name.engine))
}

/// One table of readings of all units, by name and file.
pub(crate) fn by_name<'r>(
    id: usize,
    name: String,
    readings: &[(&'r str, FileReading<'r>)],
) -> ReadingView<'r> {
    let readings: BTreeMap<CellKey<'r, usize>, FileReading<'r>> =
        readings.iter().map(|(name, reading)| ((*name, reading.0), *reading)).collect();
    let rows = in_order(readings.keys().map(|(row, _)| *row));
    let columns: BTreeMap<usize, &str> =
        readings.values().map(|(file, source, _)| (*file, source.label.as_str())).collect();
    let first_file = columns.keys().next().copied();
    let cell = |row: &'r str, file: usize| {
        let reading = readings.get(&(row, file))?;
        let before = first_file.filter(|first| *first != file).and_then(|first| readings.get(&(row, first)));
        let mut cell = Cell::new(*reading);
        cell.change = before.and_then(|before| Change::between(before, reading));
        Some(cell)
    };
    let cells = |row: &'r str| columns.keys().map(|file| cell(row, *file)).collect();
    let at = |(row, file): &CellKey<'r, usize>| match columns.len() {
        1 => (*row).to_owned(),
        _ => format!("{} {row}", columns[file]),
    };
    ReadingView {
        id,
        unit: "",
        doubts: doubts::at_places(readings.iter().map(|(key, reading)| (at(key), *reading))),
        table: Table::Grid {
            head: String::new(),
            is_numeric: false,
            lines: (columns.iter())
                .map(|(file, label)| Line { name: (*label).to_owned(), colour: colour(*file) })
                .collect(),
            rows: rows.iter().map(|row| ((*row).to_owned(), cells(row))).collect(),
        },
        limits: Vec::new(),
        plots: distribution_plots(&name, &readings.values().copied().collect::<Vec<_>>()),
        runs: readings.iter().flat_map(|(key, reading)| RunRow::for_runs(reading.2, &at(key))).collect(),
        name: name.into(),
    }
}
