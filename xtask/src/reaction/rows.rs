//! What came out, in rows.

use crate::reaction::{change::Change, stream::Seen};
use clap::ValueEnum;
use serde::Serialize;
use std::{collections::BTreeMap, fmt, fmt::Write, fs};

/// All rows, and under which conditions they were measured.
#[derive(Debug, Serialize)]
pub struct Rows {
    conditions: BTreeMap<&'static str, String>,
    rows: Vec<Row>,
}

/// One change with one engine and so many flows.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    change: Change,
    flows: u32,
    /// `linux` without Shunt.
    engine: &'static str,
    runs: usize,
    p50_us: f64,
    p99_us: f64,
    max_us: f64,
    /// How much longer it may have been, 99 times of 100: the time to the stream's next packet.
    resolution_us: f64,
    /// The most packets of a run that were handled the old way.
    old_packets: u64,
    /// Runs that were made again because the stream had paused.
    unclear: usize,
}

impl Rows {
    /// None yet.
    pub fn new() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let conditions = BTreeMap::from([
            ("kernel", read("/proc/sys/kernel/osrelease")),
            ("load_at_start", read("/proc/loadavg")),
            ("stream", "one UDP packet of 50 bytes every 50 us".to_owned()),
        ]);
        Self { conditions, rows: Vec::new() }
    }

    /// One more.
    pub fn push(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// For programs.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(&self.rows)
    }

    /// For docs/performance.md: a line for each change, and a column for each engine and number of flows.
    pub fn markdown(&self) -> String {
        let mut columns: Vec<(u32, &str)> = self.rows.iter().map(|row| (row.flows, row.engine)).collect();
        columns.dedup();
        let mut text = "| change |".to_owned();
        for (flows, engine) in &columns {
            let _ = write!(text, " {engine}, {flows} |");
        }
        text.push_str("\n| --- |");
        columns.iter().for_each(|_| text.push_str(" --- |"));
        for change in Change::value_variants() {
            let cell = |column: &(u32, &str)| {
                let is_it = |row: &&Row| row.change == *change && (row.flows, row.engine) == *column;
                self.rows.iter().find(is_it).map(|row| row.cell())
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
}

impl Row {
    /// From what was seen in all runs of it.
    pub fn of(change: Change, engine: &'static str, flows: u32, unclear: usize, seen: &[Seen]) -> Self {
        let us = |values: Vec<u64>, share| percentile(values, share) as f64 / 1e3;
        let reactions = || seen.iter().map(|one| one.reaction_ns).collect();
        Self {
            change,
            flows,
            engine,
            runs: seen.len(),
            p50_us: us(reactions(), 50),
            p99_us: us(reactions(), 99),
            max_us: us(reactions(), 100),
            resolution_us: us(seen.iter().map(|one| one.resolution_ns).collect(), 99),
            old_packets: seen.iter().map(|one| one.old_packets).max().unwrap_or_default(),
            unclear,
        }
    }

    /// Its change, as an option names it.
    pub fn slug(&self) -> String {
        self.change.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn cell(&self) -> String {
        format!("{:.2} / {:.2} / {:.2}", self.p50_us / 1e3, self.p99_us / 1e3, self.max_us / 1e3)
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:20} {:5} {:6} flows, {:3} runs: p50 {:7.0} us, p99 {:7.0} us, max {:7.0} us (+ {:.0} us); \
             {} unclear",
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

/// The least value that so many in a hundred do not pass.
fn percentile(mut values: Vec<u64>, share: usize) -> u64 {
    values.sort_unstable();
    let at = (values.len() * share).div_ceil(100);
    values.get(at.saturating_sub(1)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_seen() {
        let values: Vec<u64> = (1..=200).rev().collect();
        assert_eq!([50, 99, 100].map(|share| percentile(values.clone(), share)), [100, 198, 200]);
        assert_eq!(percentile(vec![7], 99), 7);
    }
}
