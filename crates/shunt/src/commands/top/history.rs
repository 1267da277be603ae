//! From samples to what is shown: rates, the fast share over time, and changes with their costs.

use super::{
    super::hosts::totals,
    sample::{self, Sample, Span},
};
use crate::commands::top::view::{Change, Top};
use shunt_api::{HistoryTable, HostNames, Status};
use std::{
    cmp::Reverse,
    collections::VecDeque,
    iter,
    time::{Duration, Instant},
};

/// The most shares that are kept. A terminal has fewer columns.
const SHARES_MAX: usize = 600;
/// The most changes that are kept.
const CHANGES_MAX: usize = 100;
/// How long a change is charged with what happens after it.
const COST_TIME: Duration = Duration::from_secs(10);
/// The reason of packets whose action is out of date after a change.
const STALE: &str = "stale";

/// The last sample, and what earlier ones have shown.
#[derive(Debug, Default)]
pub(super) struct History {
    last: Option<Sample>,
    shares: VecDeque<Option<f64>>,
    /// The latest change first, with the time when it was seen.
    changes: VecDeque<(Instant, Change)>,
    changes_seen: u64,
}

impl History {
    /// Begins the fast share over time with what the daemon has counted before.
    pub(super) fn begin_with(&mut self, table: &HistoryTable, interval: Duration) {
        let samples = |seconds: f64| (seconds / interval.as_secs_f64()).round() as usize;
        let mut end = None;
        for row in &table.rows {
            let gap = end.map_or(0.0, |end| row.at as f64 - end);
            let shares = iter::repeat_n(None, samples(gap).min(SHARES_MAX))
                .chain(iter::repeat_n(row.fast_share, samples(row.seconds).min(SHARES_MAX)));
            self.shares.extend(shares);
            end = Some(row.at as f64 + row.seconds);
        }
        self.shares.drain(..self.shares.len().saturating_sub(SHARES_MAX));
    }

    /// The time of the daemon's history that the chart has room for.
    pub(super) fn chart_time(interval: Duration) -> Duration {
        let all = interval.saturating_mul(SHARES_MAX as u32);
        all.clamp(Duration::from_secs(60), Duration::from_secs(HistoryTable::KEPT_S))
    }

    /// Adds a sample. Returns the state between the last sample and this one; none if there is no last one, or if it
    /// was of another process.
    pub(super) fn add(&mut self, sample: Sample, names: &HostNames) -> Option<Top> {
        let last = self.last.take();
        let top = match last {
            None => None,
            Some(last) if last.status.pid != sample.status.pid => {
                self.shares.push_back(None);
                self.note(sample.at, "the daemon was started again".to_owned());
                None
            }
            Some(last) => Some(self.compare(&last, &sample, names)),
        };
        self.last = Some(sample);
        top
    }

    fn compare(&mut self, last: &Sample, now: &Sample, names: &HostNames) -> Top {
        let span = Span::between(last, now);
        let rates = sample::total(&last.status, &now.status, span);
        self.shares.push_back(rates.fast_share);
        if self.shares.len() > SHARES_MAX {
            self.shares.pop_front();
        }
        self.add_changes(&last.status, now, rates.fast_share);
        let connections = sample::all_connections(last, now);
        let mut hosts = totals(&connections, names);
        hosts.sort_by_key(|host| Reverse((host.rate_bps(), host.rate_pps)));
        let Status { instance, uptime_s, epoch, flows, slow_causes, epoch_moves, costs, savings, .. } =
            now.status.clone();
        Top {
            instance,
            uptime_s,
            epoch,
            over_s: span.seconds(),
            flows,
            costs,
            savings,
            rates,
            connections,
            counted: now.slow.counted,
            hosts,
            ports: sample::ports(&last.status, &now.status, span),
            slow_causes,
            slow_reasons: sample::slow_reasons(&last.status, &now.status, span),
            changes: self.changes.iter().map(|(at, change)| aged(change, now.at, *at)).collect(),
            epoch_moves,
            stale_packets: sample::count(&now.status, STALE),
            shares: self.shares.iter().copied().collect(),
        }
    }

    /// Notes the moves of the epoch, and adds the cost to the latest change.
    fn add_changes(&mut self, last: &Status, now: &Sample, share: Option<f64>) {
        let moves = now.status.epoch_moves.iter().filter_map(|(cause, count)| {
            match count.saturating_sub(last.epoch_moves.get(cause).copied().unwrap_or(0)) {
                0 => None,
                1 => Some(cause.clone()),
                more => Some(format!("{cause} {more}")),
            }
        });
        let causes: Vec<String> = moves.collect();
        if !causes.is_empty() {
            self.note(now.at, causes.join(", "));
        }
        let recent = |at: Instant| now.at.saturating_duration_since(at) <= COST_TIME;
        if let Some((_, latest)) = self.changes.front_mut().filter(|(at, _)| recent(*at)) {
            latest.stale_packets +=
                sample::count(&now.status, STALE).saturating_sub(sample::count(last, STALE));
            latest.lowest_share = [latest.lowest_share, share].into_iter().flatten().reduce(f64::min);
        }
    }

    fn note(&mut self, at: Instant, causes: String) {
        self.changes_seen += 1;
        let change =
            Change { number: self.changes_seen, ago_s: 0, causes, stale_packets: 0, lowest_share: None };
        self.changes.push_front((at, change));
        self.changes.truncate(CHANGES_MAX);
    }
}

fn aged(change: &Change, now: Instant, at: Instant) -> Change {
    Change { ago_s: now.saturating_duration_since(at).as_secs(), ..change.clone() }
}
