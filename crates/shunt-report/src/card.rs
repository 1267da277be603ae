//! Router cards: one table of all figures, with a column for each router of each file.

use super::{
    comparison::grouped_plots,
    doubts, engine,
    files::{FileReading, ResultFile},
    grid::{Cell, Change},
    plot::colour,
    reading::{ReadingView, RunRow, Table},
    section::{Figure, Line},
};
use shunt_lab::{
    Reading, Results,
    card::{WHAT, quantities, reading, routers},
};
use shunt_wire::units::rounded;

/// A router of a file.
struct Column<'r> {
    file: (usize, &'r ResultFile),
    router: &'r str,
    label: String,
    colour: usize,
}

impl<'r> Column<'r> {
    fn reading(&self, quantity: &str) -> Option<FileReading<'r>> {
        let (nth, source) = self.file;
        Some((nth, source, source.results.readings.get(&reading(quantity, self.router))?))
    }

    /// The figure, with its change from the same router of the first file.
    fn cell(&self, quantity: &str, columns: &[Self]) -> Option<Cell> {
        let Some(here) = self.reading(quantity) else {
            return self
                .file
                .1
                .results
                .missing
                .get(&reading(quantity, self.router))
                .map(|why| Cell::missing(why));
        };
        let first = columns.iter().find(|column| column.router == self.router)?;
        let before =
            first.reading(quantity).filter(|before| before.0 != here.0 && before.2.unit == here.2.unit);
        Some(Cell { change: before.and_then(|before| Change::between(&before, &here)), ..Cell::new(here) })
    }
}

/// The cards among these files.
fn cards(files: &[ResultFile]) -> impl Iterator<Item = (usize, &ResultFile)> {
    files.iter().enumerate().filter(|(_, source)| source.results.what == WHAT)
}

/// The machine of each card, and how fast and busy it was.
pub(crate) fn notes(files: &[ResultFile]) -> Vec<String> {
    let several = cards(files).count() > 1;
    let note = |(_, source): (usize, &ResultFile)| {
        let label = if several { format!("{}: ", source.label) } else { String::new() };
        format!("{label}{}", machine(&source.results))
    };
    let together = several.then(|| {
        "Verdicts hold for all figures of two cards together: equal cards differ in none of them in 95 % of the cases."
            .to_owned()
    });
    cards(files).map(note).chain(together).collect()
}

fn machine(results: &Results) -> String {
    let of = |conditions: &shunt_lab::Conditions| {
        let [model, kernel] =
            [&conditions.cpus.model, &conditions.kernel].map(|of| of.as_deref().unwrap_or("unknown"));
        format!("{} CPUs of {model}, Linux {kernel}", conditions.cpus.count)
    };
    let router =
        results.conditions.dut.as_ref().map(|dut| format!("; router: {}", of(dut))).unwrap_or_default();
    let calibration = match results.machine_state() {
        Some(state) => format!(
            "fixed work took {} ms of a CPU, other programs used {} % of all CPUs",
            rounded(state.work_us / 1e3),
            rounded(state.others_percent)
        ),
        None => "cannot tell, since nothing recorded the state of the machine".to_owned(),
    };
    format!("{}{router}. Calibration: {calibration}.", of(&results.conditions))
}

/// All figures of the cards.
pub(crate) fn view(id: usize, files: &[ResultFile]) -> ReadingView<'_> {
    let columns = columns(files);
    let mut rows: Vec<&str> = Vec::new();
    for (_, source) in cards(files) {
        for quantity in quantities(&source.results) {
            if !rows.contains(&quantity) {
                rows.push(quantity);
            }
        }
    }
    let at = |quantity: &str, column: &Column<'_>| format!("{} {quantity}", column.label);
    let all: Vec<(String, FileReading)> = rows
        .iter()
        .flat_map(|row| columns.iter().filter_map(|column| Some((at(row, column), column.reading(row)?))))
        .collect();
    let cells = |row: &str| columns.iter().map(|column| column.cell(row, &columns)).collect();
    ReadingView {
        id,
        name: "figures".into(),
        unit: "",
        doubts: doubts::at_places(all.iter().cloned()),
        table: Table::Grid {
            head: String::new(),
            is_numeric: false,
            lines: columns
                .iter()
                .map(|column| Line { name: column.label.clone(), colour: colour(column.colour) })
                .collect(),
            rows: rows.iter().map(|row| ((*row).to_owned(), cells(row))).collect(),
        },
        limits: Vec::new(),
        plots: plots(&rows, &columns),
        runs: all.iter().flat_map(|(at, reading)| RunRow::for_runs(reading.2, at)).collect(),
        is_zero: false,
    }
}

fn columns(files: &[ResultFile]) -> Vec<Column<'_>> {
    let several = cards(files).count() > 1;
    let label = |source: &ResultFile, router: &str| match several {
        true => format!("{} {router}", source.label),
        false => router.to_owned(),
    };
    let mut columns: Vec<Column> = cards(files)
        .flat_map(|file| routers(&file.1.results).into_iter().map(move |router| (file, router)))
        .map(|(file, router)| Column { file, router, label: label(file.1, router), colour: 0 })
        .collect();
    let colours = engine::colours(columns.iter().map(|column| (column.file.0, column.router)));
    columns.iter_mut().zip(colours).for_each(|(column, colour)| column.colour = colour);
    columns
}

/// A plot for each unit, apart from numbers of connections, which are bounds.
fn plots(rows: &[&str], columns: &[Column]) -> Vec<Figure> {
    let found: Vec<(usize, &str, &Reading)> = rows
        .iter()
        .flat_map(|row| {
            columns.iter().filter_map(|column| Some((column.colour, *row, column.reading(row)?.2)))
        })
        .collect();
    let mut units: Vec<&str> = Vec::new();
    for (_, _, reading) in &found {
        if reading.unit != "connections" && !units.contains(&reading.unit.as_str()) {
            units.push(&reading.unit);
        }
    }
    let of_unit = |unit: &&str| {
        let of: Vec<_> = found.iter().copied().filter(|(_, _, reading)| reading.unit == *unit).collect();
        let rows: Vec<&str> =
            rows.iter().copied().filter(|row| of.iter().any(|(_, at, _)| at == row)).collect();
        // One bar alone says less than its number.
        if of.len() > 1 { grouped_plots(kind(unit), unit, &rows, &of) } else { Vec::new() }
    };
    units.iter().flat_map(of_unit).collect()
}

fn kind(unit: &str) -> &'static str {
    match unit {
        "pps" => "throughput",
        "1/s" => "new connections",
        "us" => "latency",
        _ => "CPU time",
    }
}
