//! Selects and sorts the connections that `shunt flows` shows.

use crate::commands::{hosts::totals::HostTotal, listed::Listed};
use clap::ValueEnum;
use shunt_api::{Engine, FlowState, Selection};
use std::cmp::Ordering;

/// The conditions that a connection must meet; a condition that is absent is met by all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Filter {
    /// One of these; all connections if there is none.
    pub(super) selections: Vec<Selection>,
    pub(super) state: Option<FlowState>,
    pub(super) engine: Option<Engine>,
    pub(super) port: Option<String>,
}

/// The order of connections, and how many are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) key: SortKey,
    pub(super) reverse: bool,
    pub(super) limit: Option<usize>,
}

/// The quantity to sort by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum SortKey {
    Rate,
    Packets,
    Bytes,
    Age,
    Idle,
    Src,
    Dst,
}

impl Filter {
    pub(super) fn matches(&self, connection: &Listed) -> bool {
        let flows = connection.fast().map(|fast| &fast.directions[..]).unwrap_or_default();
        let has_port =
            |port: &String| flows.iter().any(|flow| flow.in_port == *port || flow.out_port == *port);
        let is_of = |selection: &Selection| {
            selection.proto.is_none_or(|proto| connection.proto() == Some(proto))
                && [connection.orig(), connection.reply()].iter().any(|tuple| selection.has_ends(tuple))
        };
        (self.selections.is_empty() || self.selections.iter().any(is_of))
            && self.state.is_none_or(|state| connection.has_state(state))
            && self.engine.is_none_or(|engine| connection.engine() == Some(engine))
            && self.port.as_ref().is_none_or(has_port)
    }

    /// Whether a connection on the fast path can match.
    pub(super) fn allows_fast(&self) -> bool {
        self.state != Some(FlowState::Slow)
    }

    /// Whether a slow connection can match.
    pub(super) fn allows_slow(&self) -> bool {
        self.engine.is_none()
            && self.port.is_none()
            && self.state.is_none_or(|state| state == FlowState::Slow)
    }
}

impl Order {
    /// Sorts, and drops the connections beyond the limit. Connections with equal keys are sorted by address, so that
    /// two calls give the same order.
    pub(super) fn apply(self, connections: &mut Vec<Listed>) {
        let by_key = |a: &Listed, b: &Listed| match self.key {
            SortKey::Rate => descending(a, b, |c| (c.counts().rate_bps, c.counts().rate_pps)),
            SortKey::Packets => descending(a, b, |c| c.counts().packets),
            SortKey::Bytes => descending(a, b, |c| c.counts().bytes),
            SortKey::Age => descending(a, b, Listed::age_s),
            SortKey::Idle => ascending(a, b, |c| c.idle_s().unwrap_or(u64::MAX)),
            SortKey::Src => ascending(a, b, |c| (c.orig().src, c.orig().sport)),
            SortKey::Dst => ascending(a, b, |c| (c.orig().dst, c.orig().dport)),
        };
        connections.sort_by(|a, b| by_key(a, b).then_with(|| ascending(a, b, |c| (c.protocol(), c.orig()))));
        if self.reverse {
            connections.reverse();
        }
        connections.truncate(self.limit.unwrap_or(usize::MAX));
    }

    /// As [`Order::apply`], for the totals of hosts.
    pub(super) fn apply_to_hosts(self, hosts: &mut Vec<HostTotal>) {
        let by_key = |a: &HostTotal, b: &HostTotal| match self.key {
            SortKey::Rate => descending(a, b, |host| (host.rate_bps(), host.rate_pps)),
            SortKey::Packets => descending(a, b, |host| host.packets),
            SortKey::Bytes => descending(a, b, HostTotal::bytes),
            SortKey::Age => descending(a, b, |host| host.age_s),
            SortKey::Idle => ascending(a, b, |host| host.idle_s.unwrap_or(u64::MAX)),
            SortKey::Src | SortKey::Dst => Ordering::Equal,
        };
        hosts.sort_by(|a, b| by_key(a, b).then_with(|| a.addr.cmp(&b.addr)));
        if self.reverse {
            hosts.reverse();
        }
        hosts.truncate(self.limit.unwrap_or(usize::MAX));
    }
}

fn ascending<T, K: Ord>(a: &T, b: &T, key: impl Fn(&T) -> K) -> Ordering {
    key(a).cmp(&key(b))
}

fn descending<T, K: Ord>(a: &T, b: &T, key: impl Fn(&T) -> K) -> Ordering {
    ascending(b, a, key)
}
