//! Answers: a range of the history, merged into rows.

use super::minute::{DeviceCounts, Minute};
use serde::Deserialize;
use shunt_api::{HistoryEvent, HistoryRow, HistoryTable, PortRates};
use shunt_bpf::abi::REASONS;
use std::{collections::BTreeMap, sync::Arc};

/// The part of the history that a client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Range {
    /// The last seconds.
    pub for_s: u64,
    /// The most rows; `None` for a row for each minute.
    pub rows: Option<u64>,
}

/// What an answer is made of.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(super) range: Range,
    pub(super) now: u64,
    pub(super) minutes: Vec<(u64, Arc<Minute>)>,
    pub(super) events: Vec<HistoryEvent>,
    pub(super) left_out: u64,
    pub(super) memory_bytes: u64,
}

/// The sum of some minutes.
#[derive(Debug, Default)]
struct Sum<'m> {
    at: u64,
    /// When the last of its minutes ends.
    end: u64,
    seconds: f64,
    fast: u64,
    slow: u64,
    dropped: u64,
    /// Core seconds, and the seconds in which they were saved.
    saved: (f64, f64),
    all: DeviceCounts,
    ports: BTreeMap<&'m str, DeviceCounts>,
    reasons: BTreeMap<u8, u64>,
}

impl Answer {
    /// Merges the minutes. Takes a few milliseconds.
    pub(crate) fn table(mut self) -> HistoryTable {
        let from = self.now.saturating_sub(self.range.for_s);
        // A clock that was set may have left them in another order.
        self.minutes.sort_by_key(|(at, _)| *at);
        self.events.sort_by_key(|event| event.at);
        let minutes: Vec<_> = self.minutes.iter().filter(|(at, _)| *at >= from).collect();
        let row_s = self.range.rows.map(|rows| row_seconds(self.range.for_s, rows));
        let mut sums: Vec<Sum<'_>> = Vec::new();
        for (at, minute) in minutes {
            let starts = match (sums.last(), row_s) {
                (Some(last), Some(row_s)) => {
                    let is_next = (at - from) / row_s != (last.at - from) / row_s;
                    is_next || *at > last.end + HistoryTable::GAP_S
                }
                _ => true,
            };
            if starts {
                sums.push(Sum { at: *at, ..Sum::default() });
            }
            if let Some(sum) = sums.last_mut() {
                sum.add(minute);
                sum.end = sum.end.max(at + minute.seconds.round() as u64);
            }
        }
        HistoryTable {
            now: self.now,
            rows: sums.into_iter().map(Sum::row).collect(),
            events: self.events.into_iter().filter(|event| event.last_at >= from).map(with_text).collect(),
            left_out: self.left_out,
            memory_bytes: self.memory_bytes,
        }
    }
}

fn with_text(event: HistoryEvent) -> HistoryEvent {
    HistoryEvent { text: event.what.to_string(), ..event }
}

/// The length of a row: whole minutes.
fn row_seconds(for_s: u64, rows: u64) -> u64 {
    for_s.div_ceil(rows.max(1)).next_multiple_of(60).max(60)
}

impl<'m> Sum<'m> {
    fn add(&mut self, minute: &'m Minute) {
        self.seconds += minute.seconds;
        self.fast += minute.fast;
        self.slow += minute.slow;
        self.dropped += minute.dropped;
        if let Some(saved) = minute.saved_core_s {
            self.saved = (self.saved.0 + saved, self.saved.1 + minute.seconds);
        }
        self.all = self.all.plus(minute.all);
        for (name, counts) in &minute.ports {
            let port = self.ports.entry(name).or_default();
            *port = port.plus(*counts);
        }
        for (reason, packets) in &minute.reasons {
            *self.reasons.entry(*reason).or_default() += packets;
        }
    }

    fn row(self) -> HistoryRow {
        let packets = self.fast + self.slow + self.dropped;
        let all = rates(self.all, self.seconds);
        let name = |number: u8| REASONS.iter().find(|reason| reason.number == usize::from(number));
        HistoryRow {
            at: self.at,
            seconds: self.seconds,
            fast: self.fast,
            slow: self.slow,
            dropped: self.dropped,
            fast_share: (packets > 0).then(|| self.fast as f64 / packets as f64),
            saved_cores: (self.saved.1 > 0.0).then(|| self.saved.0 / self.saved.1),
            in_bps: all.in_bps,
            in_pps: all.in_pps,
            out_bps: all.out_bps,
            out_pps: all.out_pps,
            ports: self
                .ports
                .into_iter()
                .map(|(name, counts)| (name.to_owned(), rates(counts, self.seconds)))
                .collect(),
            reasons: self
                .reasons
                .into_iter()
                .filter_map(|(number, packets)| Some((name(number)?.name.to_owned(), packets)))
                .collect(),
        }
    }
}

fn rates(counts: DeviceCounts, seconds: f64) -> PortRates {
    let rate = |count: u64| if seconds > 0.0 { (count as f64 / seconds).round() as u64 } else { 0 };
    PortRates {
        in_bps: rate(counts.in_bytes.saturating_mul(8)),
        in_pps: rate(counts.in_pkts),
        out_bps: rate(counts.out_bytes.saturating_mul(8)),
        out_pps: rate(counts.out_pkts),
    }
}
