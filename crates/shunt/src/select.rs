//! Which connections are shown, and in which order.

use clap::ValueEnum;
use shunt_api::{Connection, Engine, FlowState, Selection};
use std::cmp::Reverse;

/// What a connection must be. What is not given does not matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) ends: Selection,
    pub(crate) state: Option<FlowState>,
    pub(crate) engine: Option<Engine>,
    pub(crate) port: Option<String>,
}

/// What comes first, and how much of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) key: SortKey,
    pub(crate) reverse: bool,
    pub(crate) limit: Option<usize>,
}

/// A quantity to sort by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SortKey {
    Rate,
    Packets,
    Bytes,
    Age,
    Idle,
    Src,
    Dst,
}

impl Filter {
    pub(crate) fn matches(&self, connection: &Connection) -> bool {
        self.ends.has(connection.proto, &[connection.orig, connection.reply])
            && wanted(&self.state, &connection.state)
            && wanted(&self.engine, &connection.engine)
            && self.port.as_ref().is_none_or(|port| {
                connection.directions.iter().any(|flow| flow.in_port == *port || flow.out_port == *port)
            })
    }
}

fn wanted<T: PartialEq>(filter: &Option<T>, value: &T) -> bool {
    filter.as_ref().is_none_or(|want| want == value)
}

impl Order {
    /// Sorts, and drops what is beyond the limit. Equal ones are in the order of their addresses, so that two calls agree.
    pub(crate) fn apply(self, connections: &mut Vec<Connection>) {
        connections.sort_by_key(|c| (c.proto, c.orig));
        match self.key {
            SortKey::Rate => connections.sort_by_key(|c| Reverse((c.rate_bps, c.rate_pps))),
            SortKey::Packets => connections.sort_by_key(|c| Reverse(c.packets)),
            SortKey::Bytes => connections.sort_by_key(|c| Reverse(c.bytes)),
            SortKey::Age => connections.sort_by_key(|c| Reverse(c.age_s)),
            SortKey::Idle => connections.sort_by_key(|c| c.idle_s),
            SortKey::Src => connections.sort_by_key(|c| (c.orig.src, c.orig.sport)),
            SortKey::Dst => connections.sort_by_key(|c| (c.orig.dst, c.orig.dport)),
        }
        if self.reverse {
            connections.reverse();
        }
        connections.truncate(self.limit.unwrap_or(usize::MAX));
    }
}

#[cfg(test)]
mod tests;
