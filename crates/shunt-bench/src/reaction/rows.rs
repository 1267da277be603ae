//! The rows of the measurement: a file of results, JSON, and a table in Markdown.

use crate::reaction::{change::Change, probe_stream::ReactionTimes};
use clap::ValueEnum;
use serde::Serialize;
use serde_json::Value;
use shunt_lab::{Conditions, Doubt, Reading, Results, ResultsFile, Run, statistics::nearest_rank};
use std::{fmt, fmt::Write, io, path::PathBuf};

/// The measurement's name in files of results.
const WHAT: &str = "reaction";

/// `linux` is Linux without Shunt.
pub const ENGINES: [&str; 3] = ["linux", "tc", "xdp"];
/// Numbers of flows that are measured.
pub const FLOWS: [u32; 2] = [1, 100_000];

/// The rows so far, and the file that holds them.
pub struct Rows {
    file: ResultsFile,
    rows: Vec<Row>,
    missing: usize,
    total: usize,
}

/// A row: one change with one engine and one number of flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    pub change: Change,
    /// One of [`ENGINES`].
    pub engine: &'static str,
    pub flows: u32,
}

/// The figures of a row.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    change: Change,
    flows: u32,
    engine: &'static str,
    runs: usize,
    p50_us: f64,
    p99_us: f64,
    max_us: f64,
    /// How much longer the reaction may have been in 99 of 100 runs: the time until the stream's next packet.
    resolution_us: f64,
    /// The most packets of a run that were handled the old way.
    old_packets: u64,
    /// Runs that were repeated because the stream had paused.
    unclear: usize,
    #[serde(skip)]
    seen: Vec<ReactionTimes>,
}

impl Rows {
    /// Begins a file for this number of rows.
    pub fn begin(path: PathBuf, total: usize) -> io::Result<Self> {
        let mut conditions = Conditions::of_this_machine();
        let stream = "one UDP packet of 50 bytes every 50 us";
        conditions.setup.insert("stream".to_owned(), Value::from(stream));
        let file = ResultsFile::begin(path, Results::new(WHAT, conditions))?;
        Ok(Self { file, rows: Vec::new(), missing: 0, total })
    }

    /// Adds a run, before which this number of runs of the row were repeated, and writes the file.
    pub fn add(&mut self, key: &Key, seen: &ReactionTimes, unclear: usize) -> anyhow::Result<()> {
        let row = match self.rows.iter_mut().position(|row| row.key() == *key) {
            Some(at) => &mut self.rows[at],
            None => {
                self.rows.push(Row::new(key));
                self.rows.last_mut().ok_or_else(|| anyhow::anyhow!("no row"))?
            }
        };
        row.add(*seen, unclear);
        self.file.set_extra("rows", serde_json::to_value(&self.rows)?);
        let details = serde_json::to_value(seen)?.as_object().cloned().unwrap_or_default();
        let run = Run { value: seen.reaction_ns as f64 / 1e3, at: None, details };
        self.file.add(&key.to_string(), "us", run)?;
        self.file.add_doubt(&key.to_string(), Doubt::VirtualLinks);
        Ok(self.file.save()?)
    }

    /// Notes and prints why a row could not be measured.
    pub fn add_missing(&mut self, key: &Key, why: &str) {
        eprintln!("{key}: {why}");
        self.file.add_missing(&key.to_string(), why.to_owned());
        self.missing += 1;
    }

    /// A row, if it has a run.
    pub fn row(&self, key: &Key) -> Option<&Row> {
        self.rows.iter().find(|row| row.key() == *key)
    }

    /// The number of the next row, from 1.
    pub fn next(&self) -> usize {
        self.rows.len() + self.missing + 1
    }

    /// The number of rows to measure.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Writes the file, and returns the number of rows that could not be measured.
    pub fn finish(self, complete: bool) -> io::Result<usize> {
        if complete && self.missing == 0 {
            self.file.finish()?;
        } else {
            self.file.save_incomplete()?;
        }
        Ok(self.missing)
    }

    /// The rows as JSON.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(&self.rows)
    }

    /// The results so far.
    pub fn results(&self) -> &Results {
        self.file.results()
    }
}

/// The table of docs/performance/reaction.md: a line for each change, a column for each engine and number of flows.
pub fn markdown(results: &Results) -> String {
    let mut text = "| change |".to_owned();
    let columns = FLOWS.iter().flat_map(|flows| ENGINES.map(|engine| (engine, *flows)));
    let has = |(engine, flows): &(&'static str, u32)| {
        results.readings.keys().any(|name| name.ends_with(&format!("; {engine}; {flows} flows")))
    };
    let columns: Vec<_> = columns.filter(has).collect();
    for (engine, flows) in &columns {
        let _ = write!(text, " {engine}, {flows} |");
    }
    text.push_str("\n| --- |");
    columns.iter().for_each(|_| text.push_str(" --- |"));
    for &change in Change::value_variants() {
        let cell = |&(engine, flows): &(&'static str, u32)| {
            results.readings.get(&Key { change, engine, flows }.to_string()).map(cell)
        };
        let cells: Vec<Option<String>> = columns.iter().map(cell).collect();
        if cells.iter().any(Option::is_some) {
            let _ = write!(text, "\n| {change} |");
            cells.iter().for_each(|cell| {
                let _ = write!(text, " {} |", cell.as_deref().unwrap_or("-"));
            });
        }
    }
    text + "\n"
}

/// p50, p99 and maximum in milliseconds.
fn cell(reading: &Reading) -> String {
    let nanoseconds = |run: &Run| (run.value * 1e3).round() as u64;
    let values: Vec<u64> = reading.runs.iter().map(nanoseconds).collect();
    let [p50, p99, max] = [50, 99, 100].map(|share| percentile(values.clone(), share) as f64 / 1e6);
    format!("{p50:.2} / {p99:.2} / {max:.2}")
}

impl Key {
    /// The change's name as an option.
    fn slug(&self) -> String {
        self.change.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

impl Row {
    fn new(key: &Key) -> Self {
        Self {
            change: key.change,
            flows: key.flows,
            engine: key.engine,
            runs: 0,
            p50_us: 0.0,
            p99_us: 0.0,
            max_us: 0.0,
            resolution_us: 0.0,
            old_packets: 0,
            unclear: 0,
            seen: Vec::new(),
        }
    }

    fn key(&self) -> Key {
        Key { change: self.change, engine: self.engine, flows: self.flows }
    }

    fn add(&mut self, seen: ReactionTimes, unclear: usize) {
        self.seen.push(seen);
        let us = |values: Vec<u64>, share| percentile(values, share) as f64 / 1e3;
        let reactions = || self.seen.iter().map(|seen| seen.reaction_ns).collect();
        self.runs = self.seen.len();
        self.p50_us = us(reactions(), 50);
        self.p99_us = us(reactions(), 99);
        self.max_us = us(reactions(), 100);
        self.resolution_us = us(self.seen.iter().map(|seen| seen.resolution_ns).collect(), 99);
        self.old_packets = self.old_packets.max(seen.old_packets);
        self.unclear = unclear;
    }
}

/// The row's name in the file of results: `route; tc; 100000 flows`.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}; {} flows", self.slug(), self.engine, self.flows)
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:20} {:5} {:6} flows, {:3} runs: p50 {:7.0} us, p99 {:7.0} us, max {:7.0} us (+ {:.0} us); \
             {} repeated",
            self.change.to_string(),
            self.engine,
            self.flows,
            self.runs,
            self.p50_us,
            self.p99_us,
            self.max_us,
            self.resolution_us,
            self.unclear
        )
    }
}

fn percentile(mut values: Vec<u64>, percent: usize) -> u64 {
    values.sort_unstable();
    nearest_rank(&values, percent).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_is_on_disk_with_the_rows_so_far() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("summary.json");
        let mut rows = Rows::begin(path.clone(), 2).unwrap();
        let key = Key { change: Change::Route, engine: "tc", flows: 1 };
        let seen = |reaction_ns| ReactionTimes {
            reaction_ns,
            resolution_ns: 5,
            old_packets: 1,
            before: 9,
            change_ns: 7,
        };
        for ns in [3000, 1000, 2000] {
            rows.add(&key, &seen(ns), 0).unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let results = Results::parse(&text).unwrap();
        assert_eq!((results.complete, results.readings["route; tc; 1 flows"].value), (false, 2.0));
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&value["rows"][0]["p50_us"], &value["rows"][0]["max_us"]), (&2.0.into(), &3.0.into()));
        assert_eq!(value["conditions"]["stream"], "one UDP packet of 50 bytes every 50 us");
        rows.add_missing(&Key { engine: "xdp", ..key }, "the stream is not steady");
        assert_eq!(rows.finish(true).unwrap(), 1);
        assert!(!Results::read(&path).unwrap().complete);
    }
}
