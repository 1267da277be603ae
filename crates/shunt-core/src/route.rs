//! What a message says of a route besides its destination. People read it; the policy does not.

use std::net::IpAddr;

/// The rest of a message about a route.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RouteDetails {
    /// Its device; `None` if it has several, or none.
    pub device: Option<u32>,
    /// Linux made it, for an address or a device that came up.
    pub by_kernel: bool,
    /// The rest, if it is a default route.
    pub default: Option<Box<DefaultRoute>>,
}

/// A default route.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DefaultRoute {
    /// `unreachable`, `blackhole`, ...; `None` for one that leads to a next hop.
    pub kind: Option<&'static str>,
    /// Where it leads to.
    pub hops: Vec<NextHop>,
    /// Its metric; 0 if it has none.
    pub metric: u32,
    /// Its table, unless that is the main one.
    pub table: Option<u32>,
    /// What became of it, unless it was removed.
    pub change: RouteChange,
}

/// A next hop of a route.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NextHop {
    /// The router that is asked to forward; `None` if the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// The ifindex of the device.
    pub device: Option<u32>,
}

/// What became of a route.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RouteChange {
    /// It is new.
    Added,
    /// It took the place of another one.
    Replaced,
    /// The message does not say which.
    #[default]
    Either,
}

impl From<Option<u32>> for RouteDetails {
    fn from(device: Option<u32>) -> Self {
        Self { device, ..Self::default() }
    }
}

impl DefaultRoute {
    /// The route in words of `ip route`. `name` gives the name of a device.
    pub(crate) fn words(&self, v6: bool, name: impl Fn(u32) -> Option<String>) -> String {
        let Self { kind, hops, metric, table, .. } = self;
        let mut words: Vec<String> = kind.iter().map(|kind| (*kind).to_owned()).collect();
        // `ip -6 route` does not say so either, but here the two families stand side by side.
        let says_family = hops.iter().any(|hop| hop.gateway.is_some());
        words.push(if v6 && !says_family { "IPv6 default" } else { "default" }.to_owned());
        for hop in hops {
            words.extend((hops.len() > 1).then(|| "nexthop".to_owned()));
            words.extend(hop.gateway.map(|gateway| format!("via {gateway}")));
            let device = hop.device.map(|device| name(device).unwrap_or_else(|| format!("if{device}")));
            words.extend(device.map(|device| format!("dev {device}")));
        }
        words.extend(table.map(|table| format!("table {table}")));
        words.extend((*metric != 0).then(|| format!("metric {metric}")));
        words.join(" ")
    }
}

impl RouteChange {
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Replaced => "changed",
            Self::Either => "added or changed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_route_has_the_words_of_ip_route() {
        let name = |device| Some(format!("wan{device}"));
        let hop = |gateway: &str, device| NextHop { gateway: gateway.parse().ok(), device: Some(device) };
        let route = DefaultRoute { hops: vec![hop("192.0.2.1", 0)], ..DefaultRoute::default() };
        assert_eq!(route.words(false, name), "default via 192.0.2.1 dev wan0");
        let route = DefaultRoute { metric: 100, table: Some(7), ..route };
        assert_eq!(route.words(false, name), "default via 192.0.2.1 dev wan0 table 7 metric 100");
        let two = vec![hop("fe80::1", 0), hop("fe80::2", 1)];
        let route = DefaultRoute { hops: two, ..DefaultRoute::default() };
        let words = "default nexthop via fe80::1 dev wan0 nexthop via fe80::2 dev wan1";
        assert_eq!(route.words(true, name), words);
        let route = DefaultRoute { hops: vec![hop("", 3)], ..DefaultRoute::default() };
        assert_eq!(route.words(true, |_| None), "IPv6 default dev if3");
        assert_eq!(route.words(false, name), "default dev wan3");
        let route = DefaultRoute { kind: Some("unreachable"), ..DefaultRoute::default() };
        assert_eq!(route.words(false, name), "unreachable default");
    }
}
