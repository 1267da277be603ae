//! The rows of a pane: which, in which order, and the text of their cells.

use super::{
    Change, PortRate, SlowReason, Top, bits, packets,
    pane::{Pane, columns},
    share,
    state::{RowId, View},
};
use crate::{
    commands::{
        conntrack::view::name, flows::view::source_and_destination, hosts::totals::HostTotal, listed::Listed,
    },
    render::units,
};
use shunt_api::SlowCause;
use std::{cmp::Reverse, net::IpAddr};

/// A row of a pane.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Item<'t> {
    Connection(&'t Listed),
    Host(&'t HostTotal),
    Port(&'t PortRate),
    Cause(&'t SlowCause),
    Reason(&'t SlowReason),
    Change(&'t Change),
}

/// The rows of a pane that meet the filter, in order.
#[derive(Debug)]
pub(crate) struct Table<'t> {
    pub(crate) rows: Vec<Item<'t>>,
    /// The number of rows without the filter.
    pub(crate) all: usize,
    /// The index of the selected row; 0 if it is gone.
    pub(crate) selected: usize,
}

/// What a row is sorted by.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Number(u64),
    Address(IpAddr, u16),
    Text(String),
}

impl<'t> Table<'t> {
    pub(crate) fn new(top: &'t Top, view: &View) -> Self {
        let mut rows = items(top, view.pane);
        let all = rows.len();
        if let Some(host) = view.host.filter(|_| view.pane == Pane::Connections) {
            rows.retain(|row| row.is_of(host));
        }
        let words: Vec<String> = view.filter.to_lowercase().split_whitespace().map(str::to_owned).collect();
        if !words.is_empty() {
            rows.retain(|row| row.has(&words));
        }
        let order = view.order();
        if order.descending {
            rows.sort_by_cached_key(|row| Reverse(row.key(order.column)));
        } else {
            rows.sort_by_cached_key(|row| row.key(order.column));
        }
        let selected = view.selected().and_then(|id| rows.iter().position(|row| row.id() == *id));
        Self { rows, all, selected: selected.unwrap_or(0) }
    }

    pub(crate) fn selected(&self) -> Option<Item<'t>> {
        self.rows.get(self.selected).copied()
    }

    /// The row that is this many rows below the selected one, or the last or first one.
    pub(crate) fn below(&self, rows: isize) -> Option<RowId> {
        let last = self.rows.len().checked_sub(1)?;
        Some(self.rows[self.selected.saturating_add_signed(rows).min(last)].id())
    }
}

fn items(top: &Top, pane: Pane) -> Vec<Item<'_>> {
    match pane {
        Pane::Connections => top.connections.iter().map(Item::Connection).collect(),
        Pane::Hosts => top.hosts.iter().map(Item::Host).collect(),
        Pane::Ports => top.ports.iter().map(Item::Port).collect(),
        Pane::Slow => {
            let reasons = top.slow_reasons.iter().map(Item::Reason);
            top.slow_causes.iter().map(Item::Cause).chain(reasons).collect()
        }
        Pane::Changes => top.changes.iter().map(Item::Change).collect(),
    }
}

impl Item<'_> {
    pub(crate) fn id(&self) -> RowId {
        match self {
            Self::Connection(connection) => {
                RowId::Connection(connection.protocol(), connection.orig(), connection.engine().is_none())
            }
            Self::Host(host) => RowId::Host(host.addr),
            Self::Port(port) => RowId::Port(port.name.clone()),
            Self::Cause(cause) => RowId::Cause(cause.what.clone()),
            Self::Reason(slow) => RowId::Reason(slow.reason.clone()),
            Self::Change(change) => RowId::Change(change.number),
        }
    }

    fn is_of(&self, host: IpAddr) -> bool {
        match self {
            Self::Connection(connection) => [connection.orig().src, connection.reply().src].contains(&host),
            _ => true,
        }
    }

    /// Whether the cells contain each of these words, which are in lower case.
    fn has(&self, words: &[String]) -> bool {
        let pane = match self {
            Self::Connection(_) => Pane::Connections,
            Self::Host(_) => Pane::Hosts,
            Self::Port(_) => Pane::Ports,
            Self::Cause(_) | Self::Reason(_) => Pane::Slow,
            Self::Change(_) => Pane::Changes,
        };
        let cells: Vec<String> = (0..columns(pane).len()).map(|column| self.cell(column)).collect();
        let text = cells.join(" ").to_lowercase();
        words.iter().all(|word| text.contains(word))
    }

    /// The text of this column of the pane.
    pub(super) fn cell(&self, column: usize) -> String {
        match (self, column) {
            (Self::Connection(c), 0) => source_and_destination(&c.orig()),
            (Self::Connection(c), 1) => name(c.protocol()).to_owned(),
            (Self::Connection(c), 2) => match (c, c.engine()) {
                (_, None) => "slow".to_owned(),
                (Listed::Mixed(_), _) => "half".to_owned(),
                (_, Some(engine)) => engine.to_string(),
            },
            (Self::Connection(c), 3) => c.count().map_or_else(unknown, |count| bits(count.rate_bps)),
            (Self::Connection(c), 4) => c.count().map_or_else(unknown, |count| packets(count.rate_pps)),
            // The engine tells that it is slow.
            (Self::Connection(c), 5) => c.why_slow().map_or_else(|| c.states(), str::to_owned),
            (Self::Connection(c), 6) => c.count().map_or_else(unknown, |count| count.bytes.to_string()),
            (Self::Connection(c), 7) => c.age_s().map_or_else(unknown, units::time),
            (Self::Host(h), 0) => h.addr.to_string(),
            (Self::Host(h), 1) => h.name.clone().unwrap_or_default(),
            (Self::Host(h), 2) => h.connections.to_string(),
            (Self::Host(h), 3) => bits(h.rate_bps()),
            (Self::Host(h), 4) => bits(h.sent_bps),
            (Self::Host(h), 5) => bits(h.received_bps),
            (Self::Host(h), 6) => packets(h.rate_pps),
            (Self::Port(p), 0) => p.name.clone(),
            (Self::Port(p), 1) if !p.up => "down".to_owned(),
            (Self::Port(p), 1) => p.engine.to_string(),
            (Self::Port(p), 2) => bits(p.rates.bps()),
            (Self::Port(p), 3) => packets(p.rates.fast_pps),
            (Self::Port(p), 4) => packets(p.rates.slow_pps),
            (Self::Port(p), 5) => packets(p.rates.dropped_pps),
            (Self::Port(p), 6) => share(p.rates.fast_share),
            (Self::Cause(_), 0) => "lasting cause".to_owned(),
            (Self::Cause(c), 3) => c.what.clone(),
            (Self::Reason(r), 0) => r.reason.clone(),
            (Self::Reason(r), 1) => packets(r.rate_pps),
            (Self::Reason(r), 2) => r.packets.to_string(),
            (Self::Reason(r), 3) => r.meaning.clone(),
            (Self::Change(c), 0) => units::time(c.ago_s),
            (Self::Change(c), 1) => c.stale_packets.to_string(),
            (Self::Change(c), 2) => share(c.lowest_share),
            (Self::Change(c), 3) => c.causes.clone(),
            _ => String::new(),
        }
    }

    fn key(&self, column: usize) -> Key {
        match (self, column) {
            (Self::Connection(c), 0) => Key::Address(c.orig().src, c.orig().sport),
            (Self::Connection(c), 3) => Key::Number(c.counts().rate_bps),
            (Self::Connection(c), 4) => Key::Number(c.counts().rate_pps),
            (Self::Connection(c), 6) => Key::Number(c.counts().bytes),
            (Self::Connection(c), 7) => Key::Number(c.age_s().unwrap_or(0)),
            (Self::Host(h), 0) => Key::Address(h.addr, 0),
            (Self::Host(h), 2) => Key::Number(h.connections),
            (Self::Host(h), 3) => Key::Number(h.rate_bps()),
            (Self::Host(h), 4) => Key::Number(h.sent_bps),
            (Self::Host(h), 5) => Key::Number(h.received_bps),
            (Self::Host(h), 6) => Key::Number(h.rate_pps),
            (Self::Port(p), 2) => Key::Number(p.rates.bps()),
            (Self::Port(p), 3) => Key::Number(p.rates.fast_pps),
            (Self::Port(p), 4) => Key::Number(p.rates.slow_pps),
            (Self::Port(p), 5) => Key::Number(p.rates.dropped_pps),
            (Self::Port(p), 6) => share_key(p.rates.fast_share),
            // Lasting causes stand above the reasons.
            (Self::Cause(_), 1 | 2) => Key::Number(u64::MAX),
            (Self::Reason(r), 1) => Key::Number(r.rate_pps),
            (Self::Reason(r), 2) => Key::Number(r.packets),
            (Self::Change(c), 0) => Key::Number(c.ago_s),
            (Self::Change(c), 1) => Key::Number(c.stale_packets),
            (Self::Change(c), 2) => share_key(c.lowest_share),
            _ => Key::Text(self.cell(column)),
        }
    }
}

/// A value that nobody knows.
fn unknown() -> String {
    "-".to_owned()
}

/// Shares in millionths; without traffic, the share counts as the lowest one.
fn share_key(share: Option<f64>) -> Key {
    Key::Number(share.map_or(0, |share| (share * 1e6) as u64 + 1))
}
