//! Which connections are shown, and in which order.

use clap::ValueEnum;
use shunt_api::{Connection, Engine, FlowState, Proto, Tuple};
use std::{cmp::Reverse, net::IpAddr, str::FromStr};

/// What a connection must be. What is not given does not matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) src: Option<Network>,
    pub(crate) dst: Option<Network>,
    pub(crate) sport: Option<u16>,
    pub(crate) dport: Option<u16>,
    pub(crate) proto: Option<Proto>,
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

/// The addresses that share their first bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Network {
    addr: IpAddr,
    len: u8,
}

impl Filter {
    pub(crate) fn matches(&self, connection: &Connection) -> bool {
        wanted(&self.proto, &connection.proto)
            && wanted(&self.state, &connection.state)
            && wanted(&self.engine, &connection.engine)
            && (self.matches_tuple(&connection.orig) || self.matches_tuple(&connection.reply))
            && self.port.as_ref().is_none_or(|port| {
                connection.directions.iter().any(|flow| flow.in_port == *port || flow.out_port == *port)
            })
    }

    fn matches_tuple(&self, tuple: &Tuple) -> bool {
        self.src.is_none_or(|network| network.has(tuple.src))
            && self.dst.is_none_or(|network| network.has(tuple.dst))
            && wanted(&self.sport, &tuple.sport)
            && wanted(&self.dport, &tuple.dport)
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

impl Network {
    fn has(self, addr: IpAddr) -> bool {
        let (a, b, width) = match (self.addr, addr) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits().into(), b.to_bits().into(), 32),
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits(), b.to_bits(), 128),
            _ => return false,
        };
        // A shift by the whole width is undefined; a prefix of no bits has every address.
        (a ^ b).checked_shr(width - u32::from(self.len)).unwrap_or(0) == 0
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (addr, len) = match text.split_once('/') {
            Some((addr, len)) => (addr, Some(len)),
            None => (text, None),
        };
        let addr: IpAddr = addr.parse().map_err(|_| format!("`{addr}` is not an address"))?;
        let width = if addr.is_ipv4() { 32 } else { 128 };
        let len = match len {
            Some(len) => len.parse().ok().filter(|len| *len <= width),
            None => Some(width),
        };
        len.map(|len| Self { addr, len }).ok_or_else(|| format!("a prefix length is 0 to {width}"))
    }
}

#[cfg(test)]
mod tests;
