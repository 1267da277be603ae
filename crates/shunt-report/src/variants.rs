//! The table of `shunt bench rxtx`: what the LAN receives (RX) and sends (TX), with a column for each variant of the
//! router, and the CPU load below each row.

use super::{
    doubts,
    files::{self, FileReading},
    grid::{Cell, Change},
    plot::{self, Plot, colour},
    reading::{self, ReadingView, RunRow, Table, in_unit},
    section::{Figure, Line},
    summary::{Card, Value},
};
use shunt_lab::{
    Labels, Measured, Protocol, Reading,
    iperf::{Direction, FlowDirection},
};
use shunt_wire::units::quantity;
use std::collections::{BTreeMap, BTreeSet};

/// The measurement.
pub(crate) const WHAT: &str = "goodput by variant";

/// A row: the protocol, whether the LAN sends, and the quantity.
type RowKey = (Protocol, bool, Quantity);
/// A column: the file, and the variant's place and name.
type ColumnKey<'r> = (usize, usize, &'r str);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Quantity {
    Goodput,
    Loss,
    CpuLoad,
}

/// The readings by row and column.
#[derive(Default)]
pub(crate) struct Variants<'r> {
    readings: BTreeMap<(RowKey, ColumnKey<'r>), FileReading<'r>>,
}

impl<'r> Variants<'r> {
    /// The readings that belong to the table, and the others.
    pub(crate) fn of(readings: &[(&'r str, FileReading<'r>)]) -> (Self, Vec<(&'r str, FileReading<'r>)>) {
        let mut first_runs: BTreeMap<(usize, &str), &str> = BTreeMap::new();
        for (name, (file, _, reading)) in readings {
            let at = reading.runs.first().and_then(|run| run.at.as_deref()).unwrap_or_default();
            if let Some((_, variant)) = parse(name, &reading.labels) {
                let first = first_runs.entry((*file, variant)).or_insert(at);
                *first = at.min(first);
            }
        }
        // Each round measures the variants in the order of the command line.
        let place = |file: usize, variant: &str| {
            let mine = (first_runs[&(file, variant)], variant);
            let earlier = |((of, name), at): &(&(usize, &str), &&str)| *of == file && (**at, *name) < mine;
            first_runs.iter().filter(earlier).count()
        };
        let (mut table, mut others) = (Self::default(), Vec::new());
        for &(name, reading) in readings {
            let (file, _, Reading { labels, .. }) = reading;
            match (parse(name, labels), labels.quantity) {
                (Some((row, variant)), _) => {
                    table.readings.insert((row, (file, place(file, variant), variant)), reading);
                }
                // The table has the change, which a ratio repeats.
                (None, Some(Measured::GoodputRatio)) => {}
                (None, _) => others.push((name, reading)),
            }
        }
        (table, others)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.readings.is_empty()
    }

    fn columns(&self) -> BTreeSet<ColumnKey<'r>> {
        self.readings.keys().map(|(_, column)| *column).collect()
    }

    fn rows(&self) -> Vec<RowKey> {
        let mut rows: Vec<RowKey> = self.readings.keys().map(|(row, _)| *row).collect();
        // The CPU load is the last quantity of its test.
        rows.dedup();
        rows
    }

    /// The change is that from the first variant of the file; the first variant of a further file is compared with that
    /// of the first file.
    fn cell(&self, row: RowKey, column: ColumnKey<'r>) -> Option<Cell> {
        let reading = self.readings.get(&(row, column))?;
        let columns = self.columns();
        let (file, ..) = column;
        let base = columns.iter().find(|(of, ..)| *of == file).filter(|base| **base != column);
        let first = columns.first().filter(|(of, ..)| *of != file);
        let (base, against) = match (base, first) {
            (Some(base), _) => (Some(base), base.2),
            (None, Some(first)) => (Some(first), self.labels()[&first.0]),
            (None, None) => (None, ""),
        };
        let before = base.and_then(|base| self.readings.get(&(row, *base)));
        let mut cell = Cell::new(*reading);
        cell.change = before.and_then(|before| Change::against(against, before, reading));
        Some(cell)
    }

    fn labels(&self) -> BTreeMap<usize, &'r str> {
        files::short_labels(self.readings.values().map(|(file, source, _)| (*file, *source)))
    }

    pub(crate) fn view(&self, id: usize, several_files: bool) -> ReadingView<'r> {
        let columns = self.columns();
        let label = |column: &ColumnKey<'r>| self.label(column, several_files);
        let at = |(row, column): &(RowKey, ColumnKey<'r>)| format!("{} {}", head(*row, true), label(column));
        let readings = || self.readings.iter().map(|(key, reading)| (at(key), *reading));
        let cells = |row| columns.iter().map(|column| self.cell(row, *column)).collect();
        let rows: Vec<(String, Vec<Option<Cell>>)> =
            self.rows().into_iter().map(|row| (head(row, false), cells(row))).collect();
        ReadingView {
            id,
            unit: "",
            doubts: doubts::at_places(readings()),
            table: Table::Grid {
                head: String::new(),
                is_numeric: false,
                lines: (columns.iter().enumerate())
                    .map(|(nth, column)| Line { name: label(column), colour: colour(nth) })
                    .collect(),
                rows,
            },
            limits: Vec::new(),
            is_zero: false,
            plots: [Quantity::Goodput, Quantity::Loss, Quantity::CpuLoad]
                .into_iter()
                .filter_map(|quantity| self.plot(quantity, &columns))
                .collect(),
            runs: readings().flat_map(|(at, (_, _, reading))| RunRow::for_runs(reading, &at)).collect(),
            name: "received and sent by variant".into(),
        }
    }

    /// A card for each test, with the CPU load of each variant.
    pub(crate) fn cards(&self, several_files: bool) -> Vec<Card> {
        let columns = self.columns();
        let value = |row: RowKey, nth: usize, column: ColumnKey<'r>| {
            let cell = self.cell(row, column)?;
            let load = self.readings.get(&((row.0, row.1, Quantity::CpuLoad), column));
            let load = load.map(|(_, _, load)| format!("CPU\u{a0}{}", quantity(load.value, &load.unit)));
            let change = cell.change.as_ref().map(|change| change.short.clone());
            let notes: Vec<String> = change.into_iter().chain(load).collect();
            let note = (!notes.is_empty()).then(|| notes.join("; "));
            Some(Value { name: self.label(&column, several_files), colour: colour(nth), cell, note })
        };
        let card = |row: RowKey| Card {
            title: head(row, true),
            values: (columns.iter().enumerate())
                .filter_map(|(nth, column)| value(row, nth, *column))
                .collect(),
        };
        self.rows().into_iter().filter(|row| row.2 != Quantity::CpuLoad).map(card).collect()
    }

    fn label(&self, (file, _, variant): &ColumnKey<'r>, several_files: bool) -> String {
        match several_files {
            true => format!("{} {variant}", self.labels()[file]),
            false => (*variant).to_owned(),
        }
    }

    fn plot(&self, quantity: Quantity, columns: &BTreeSet<ColumnKey<'r>>) -> Option<Figure> {
        let (name, unit) = match quantity {
            Quantity::Goodput => ("goodput", "Mbit/s"),
            Quantity::Loss => ("lost", "%"),
            Quantity::CpuLoad => ("CPU load", "%"),
        };
        let rows: Vec<RowKey> = self.rows().into_iter().filter(|row| row.2 == quantity).collect();
        let heads: Vec<String> = rows.iter().map(|(protocol, sends, _)| test(*protocol, *sends)).collect();
        let mut cells: Vec<(usize, &str, &Reading)> = Vec::new();
        for (row, head) in rows.iter().zip(&heads) {
            let readings = columns.iter().map(|column| self.readings.get(&(*row, *column)));
            let of_row =
                readings.enumerate().filter_map(|(nth, reading)| Some((nth, head.as_str(), reading?.2)));
            cells.extend(of_row);
        }
        // Bars of nothing are no picture.
        if cells.iter().all(|(_, _, reading)| reading.value == 0.0) {
            return None;
        }
        let (bars, shown) = reading::bars(&cells);
        let Plot { svg, unit } =
            plot::grouped_bars(&plot::by_label(heads.iter().map(String::as_str), bars), unit)?;
        Some(Figure { caption: in_unit(&format!("{name} by variant: {shown}"), &unit), svg })
    }
}

/// The row of a reading, and the variant; None if it does not belong to the table.
fn parse<'n>(name: &'n str, labels: &Labels) -> Option<(RowKey, &'n str)> {
    let (protocol, direction) = (labels.protocol?, labels.direction?);
    let (quantity, suffix) = match (labels.quantity?, protocol) {
        (Measured::Goodput, Protocol::Tcp) => (Quantity::Goodput, ""),
        (Measured::Loss, Protocol::Udp) => (Quantity::Loss, " loss"),
        (Measured::CpuLoad, _) => (Quantity::CpuLoad, " CPU"),
        _ => return None,
    };
    // Such as `UDP IPv4 forward gro-off loss`.
    let (_, rest) = name.split_once(&format!(" {} ", direction.name()))?;
    let variant = rest.strip_suffix(suffix).filter(|variant| !variant.is_empty())?;
    let sends = direction.ways() == [FlowDirection::Forward];
    (direction != Direction::Duplex).then_some(((protocol, sends, quantity), variant))
}

/// Such as `RX TCP`.
fn test(protocol: Protocol, sends: bool) -> String {
    format!("{} {}", if sends { "TX" } else { "RX" }, protocol.name())
}

/// The head of a row; that of the CPU load names its test only if it does not stand below it.
fn head((protocol, sends, quantity): RowKey, alone: bool) -> String {
    let test = test(protocol, sends);
    match (quantity, alone) {
        (Quantity::Goodput, _) => test,
        (Quantity::Loss, _) => format!("{test} lost"),
        (Quantity::CpuLoad, true) => format!("{test} CPU load"),
        (Quantity::CpuLoad, false) => "CPU load".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{
        files::{Report, ResultFile},
        page::Page,
    };
    use askama::Template;
    use serde_json::{Map, Value, json};

    /// A file of `shunt bench rxtx` of an AVR32 board, whose variants were measured in turn, with seven runs of each.
    fn file(nth: usize, variants: &[(&str, [f64; 4])]) -> ResultFile {
        let mut file: Value = serde_json::from_str(include_str!("sample/tc.json")).unwrap();
        let mut readings = Map::new();
        for (place, (variant, values)) in variants.iter().enumerate() {
            let tests = [("tcp", "forward"), ("tcp", "reverse"), ("udp", "forward"), ("udp", "reverse")];
            for ((protocol, direction), value) in tests.into_iter().zip(values) {
                let (quantity, unit, suffix) = match protocol {
                    "tcp" => ("goodput", "Mbit/s", ""),
                    _ => ("loss", "%", " loss"),
                };
                let mut add = |quantity: &str, unit: &str, suffix: &str, value: f64| {
                    let at = |run: usize| format!("2026-01-02T03:{run:02}:{place:02}.000Z");
                    let runs: Vec<Value> = (0..7)
                        .map(|run| json!({"value": value * (1.0 + run as f64 / 1e3), "at": at(run)}))
                        .collect();
                    let spread = json!({"low": value, "high": value * 1.006, "kind": "range"});
                    let labels = json!({"quantity": quantity, "protocol": protocol, "direction": direction});
                    let name = format!("{} IPv4 {direction} {variant}{suffix}", protocol.to_uppercase());
                    let reading = json!({"unit": unit, "value": value, "spread": spread, "runs": runs, "doubts": [],
                        "labels": labels});
                    readings.insert(name, reading);
                };
                add(quantity, unit, suffix, *value);
                add("cpu-load", "%", " CPU", 25.0);
                add("goodput-ratio", "1", " to before", 1.0);
                add("proc-stat", "%", " /proc/stat", 25.0);
            }
        }
        file["readings"] = Value::Object(readings);
        file["what"] = json!(super::WHAT);
        ResultFile::parse(ResultFile::letter(nth), "rxtx.json".to_owned(), file.to_string()).unwrap()
    }

    const BOARD: [(&str, [f64; 4]); 2] =
        [("before", [69.1, 54.6, 0.0, 14.0]), ("a forward copy", [65.5, 66.1, 0.0, 0.039])];

    fn page(files: Vec<ResultFile>) -> String {
        Page::new(&Report::new(files, Vec::new())).render().unwrap().replace('\u{a0}', " ")
    }

    /// The text of each row of the first table.
    fn rows(page: &str) -> Vec<&str> {
        let table = page.split_once("<table class=\"grid\">").unwrap().1.split_once("</table>").unwrap().0;
        table.split("<tr><th>").skip(1).collect()
    }

    #[test]
    fn variants_stand_side_by_side_and_what_is_worse_is_marked() {
        let page = page(vec![file(0, &BOARD)]);
        let rows = rows(&page);
        let heads: Vec<&str> = rows[1..].iter().map(|row| row.split_once('<').unwrap().0).collect();
        let tests = ["RX TCP", "TX TCP", "RX UDP lost", "TX UDP lost"];
        assert_eq!(heads, tests.map(|test| [test, "CPU load"]).concat());
        // In the order of measuring, not of the names.
        assert!(rows[0].contains("before</th>") && rows[0].find("before") < rows[0].find("a forward copy"));
        assert!(
            rows[1].contains("<small class=\"better\">+21.1 % against before: better</small>"),
            "{}",
            rows[1]
        );
        assert!(
            rows[3].contains("<small class=\"worse\">-5.2 % against before: worse</small>"),
            "{}",
            rows[3]
        );
        assert!(rows[5].contains("-14.00 points against before: better"), "{}", rows[5]);
        assert!(rows[2].contains("<b>25.0 %</b>") && rows[2].contains("0.00 points against before: equal"));
        let summary = page.split_once("id=\"summary\"").unwrap().1;
        assert!(summary.contains("-5.2 %, worse; CPU 25.0 %"), "{summary}");
        // The ratios repeat the changes; the load by /proc/stat is among the other readings.
        let drawn = page.split_once("<script").unwrap().0;
        assert!(!drawn.contains("to before") && drawn.contains("<h3>Other readings</h3>"), "{drawn}");
    }

    #[test]
    fn the_first_variants_of_two_routers_are_compared() {
        let page = page(vec![file(0, &BOARD[..1]), file(1, &[("before", [138.2, 54.6, 0.0, 14.0])])]);
        let sent = rows(&page)[3];
        assert!(sent.starts_with("TX TCP") && sent.contains("+100.0 % against A:"), "{sent}");
    }
}
