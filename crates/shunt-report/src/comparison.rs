//! Tables of readings that differ in the engine or only in their file: a row for each name, a column for each engine or
//! file.

use super::{
    doubts,
    engine::{self, BASELINES, EngineName},
    files::{self, FileReading},
    grid::{self, Cell, Change},
    plot::{self, Plot, colour},
    reading::{self, ReadingView, RunRow, Table, distribution_plots, in_unit},
    section::{Figure, Line},
};
use shunt_lab::Reading;
use shunt_wire::{natural_order, units::quantity};
use std::{
    collections::{BTreeMap, BTreeSet},
    iter,
};

/// A plot with more groups of bars is too long to read, and divided.
const MOST_GROUPS: usize = 24;

/// The head of a row with the CPU load of the test above.
const CPU_LOAD: &str = "CPU load";

/// Begins the name of the rate that a run offered; the direction follows.
const OFFERED: &str = "offered";

/// A row's name, and the key of a column.
type CellKey<'r, K> = (&'r str, K);
/// A column of an engine: the number of the file, the engine's place among the columns, and its name.
type EngineKey = (usize, usize, &'static str);
/// What the summary shows of one engine: its name, the reading, its ratio to the baseline and the CPU load.
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
    pub(crate) fn examples(&self, cpu: Option<&Self>) -> Vec<(&'r str, Vec<Example<'r>>)> {
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
                let load = cpu.and_then(|cpu| cpu.load_of(key));
                let notes: Vec<String> = self.ratio(key).into_iter().chain(load).collect();
                Some((column.2, *self.readings.get(&key)?, (!notes.is_empty()).then(|| notes.join(", "))))
            });
            (row, of_row.collect())
        };
        kinds.into_values().map(values).collect()
    }

    /// The table of these readings, with a row of the CPU load below each where it was measured; their plots are side
    /// by side.
    pub(crate) fn view(
        &self,
        id: usize,
        (what, unit): (&str, &'r str),
        cpu: Option<&Self>,
        several_files: bool,
    ) -> ReadingView<'r> {
        let tables = || iter::once(self).chain(cpu);
        let columns: BTreeSet<EngineKey> = tables().flat_map(Self::columns).collect();
        let rows = self.rows_with(cpu);
        let colours = engine::colours(columns.iter().map(|(file, _, engine)| (*file, *engine)));
        let all = tables().flat_map(|table| table.readings.values()).filter(|_| several_files);
        let files = files::short_labels(all.map(|(file, source, _)| (*file, *source)));
        let label = |(file, _, engine): &EngineKey| {
            format!("{} {engine}", files.get(file).unwrap_or(&"")).trim().to_owned()
        };
        let cells = |of: &Self, row: &'r str| columns.iter().map(|column| of.cell((row, *column))).collect();
        let at =
            |(row, column): &CellKey<'r, EngineKey>| format!("{row} {}", label(column)).trim().to_owned();
        let at_cpu = |key: &CellKey<'r, EngineKey>| format!("{} CPU", at(key));
        let of_cpu =
            || cpu.into_iter().flat_map(|cpu| &cpu.readings).map(|(key, reading)| (at_cpu(key), *reading));
        let main = |readings: &BTreeMap<CellKey<'r, EngineKey>, FileReading<'r>>| {
            readings.iter().map(|(key, reading)| (at(key), *reading)).collect::<Vec<_>>()
        };
        let doubted = main(&self.readings).into_iter().chain(of_cpu());
        let runs = main(&self.readings).into_iter().chain(main(&self.ratios)).chain(of_cpu());
        let and_cpu = if cpu.is_some() { " and CPU load" } else { "" };
        let cpu_plots = cpu.map(|cpu| cpu.plots(CPU_LOAD, "%", (&columns, &colours)));
        ReadingView {
            id,
            unit,
            doubts: doubts::at_places(doubted),
            table: Table::Grid {
                head: String::new(),
                is_numeric: false,
                lines: (columns.iter().zip(&colours))
                    .map(|(column, nth)| Line { name: label(column), colour: colour(*nth) })
                    .collect(),
                rows: rows.into_iter().map(|(of, head, row)| (head, cells(of, row))).collect(),
            },
            limits: Vec::new(),
            is_zero: false,
            plots: self
                .plots(what, unit, (&columns, &colours))
                .into_iter()
                .chain(cpu_plots.into_iter().flatten())
                .collect(),
            runs: runs.flat_map(|(at, reading)| RunRow::for_runs(reading.2, &at)).collect(),
            name: format!("{what}{and_cpu} by engine").into(),
        }
    }

    /// The CPU load of a test, as text: that of both ways, if the row is one of them.
    fn load_of(&self, (row, column): CellKey<'r, EngineKey>) -> Option<String> {
        let mut of_column = self.readings.iter().filter(|((_, of), _)| *of == column);
        let (_, (_, _, load)) = of_column.find(|((test, _), _)| is_part(test, row))?;
        Some(format!("CPU\u{a0}{}", quantity(load.value, &load.unit)))
    }

    /// The reading of one row and engine, with its change from the first file.
    fn cell(&self, key: CellKey<'r, EngineKey>) -> Option<Cell> {
        let reading = self.readings.get(&key)?;
        let (row, (_, _, engine)) = key;
        let same = self.readings.iter().filter(|((of, (.., other)), _)| *of == row && *other == engine);
        let before = files::earlier(reading, same.map(|(_, reading)| *reading));
        let mut cell = Cell::new(*reading);
        cell.details.splice(..0, self.ratio(key));
        cell.change = before.and_then(|before| Change::between(&before, reading));
        Some(cell)
    }

    /// The rows of the table: whose readings they show, the head, and the row's name there. The CPU load of both ways
    /// of a test follows the last of them.
    fn rows_with<'e>(&'e self, cpu: Option<&'e Self>) -> Vec<(&'e Self, String, &'r str)> {
        let Some(cpu) = cpu else {
            return self.rows().into_iter().map(|row| (self, row.to_owned(), row)).collect();
        };
        let (main, mut left) = (self.rows(), cpu.rows());
        let mut rows = Vec::new();
        for (nth, row) in main.iter().copied().enumerate() {
            rows.push((self, row.to_owned(), row));
            let later = &main[nth + 1..];
            let ends_here = |load: &&str| is_part(load, row) && !later.iter().any(|row| is_part(load, row));
            rows.extend(
                left.extract_if(.., |load| ends_here(&&**load)).map(|load| (cpu, CPU_LOAD.to_owned(), load)),
            );
        }
        rows.extend(left.into_iter().map(|load| (cpu, format!("{load} {CPU_LOAD}"), load)));
        rows
    }

    /// Plots with the same axis, each of as many rows as are easy to read.
    fn plots(
        &self,
        what: &str,
        unit: &str,
        (columns, colours): (&BTreeSet<EngineKey>, &[usize]),
    ) -> Vec<Figure> {
        let rows = self.rows();
        let cells = rows.iter().flat_map(|row| {
            let of_row = columns.iter().zip(colours);
            of_row.filter_map(|(column, nth)| Some((*nth, *row, self.readings.get(&(*row, *column))?.2)))
        });
        grouped_plots(&format!("{what} by engine"), unit, &rows, &cells.collect::<Vec<_>>())
    }
}

/// Plots of readings in groups, one for each row; each reading is given with its colour and its row.
pub(crate) fn grouped_plots(
    what: &str,
    unit: &str,
    rows: &[&str],
    readings: &[(usize, &str, &Reading)],
) -> Vec<Figure> {
    let (bars, shown) = reading::bars(readings);
    let groups = plot::by_label(rows.iter().copied(), bars);
    let plots = plot::grouped_bars_in_parts(&groups, MOST_GROUPS, unit);
    let figure = |Plot { svg, unit }| Figure { caption: in_unit(&format!("{what}: {shown}"), &unit), svg };
    plots.into_iter().map(figure).collect()
}

/// Whether the name of a test begins with these words.
fn is_part(words: &str, test: &str) -> bool {
    test.strip_prefix(words).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
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
    let columns = files::short_labels(readings.values().map(|(file, source, _)| (*file, *source)));
    let cell = |row: &'r str, file: usize| {
        let reading = readings.get(&(row, file))?;
        let same = readings.iter().filter(|((of, _), _)| *of == row);
        let before = files::earlier(reading, same.map(|(_, reading)| *reading));
        let mut cell = Cell::new(*reading);
        cell.change = before.and_then(|before| Change::between(&before, reading));
        Some(cell)
    };
    let of_row = |row: &str| -> Vec<FileReading<'r>> {
        readings.iter().filter(|((of, _), _)| *of == row).map(|(_, reading)| *reading).collect()
    };
    // Such as `offered g0 to g1`, for `received g0 to g1`.
    let offered = |row: &str, file: usize| {
        let mut rates = readings.iter().filter(|((of, nth), _)| *nth == file && of.starts_with(OFFERED));
        let (_, (_, _, rates)) = rates.find(|((of, _), _)| row.ends_with(of.trim_start_matches(OFFERED)))?;
        (rates.unit == "pps").then(|| rates.values())
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
        is_zero: false,
        plots: rows
            .iter()
            .filter(|row| !row.starts_with(OFFERED))
            .filter_map(|row| reading::course_of_runs(row, &of_row(row), |of| offered(row, of.0)))
            .chain(distribution_plots(&name, &readings.values().copied().collect::<Vec<_>>()))
            .collect(),
        runs: readings.iter().flat_map(|(key, reading)| RunRow::for_runs(reading.2, &at(key))).collect(),
        name: name.into(),
    }
}
