//! Route messages.

use crate::netlink_message::{AF_INET, AF_INET6, Attrs, Message, u16_at, u32_at};
use shunt_core::{DefaultRoute, Event, NextHop, RouteChange, RouteDetails, Scope};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The size of struct rtmsg.
pub(super) const FIXED_BYTES: usize = 12;

const RTM_F_CLONED: u32 = 0x200;
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_CREATE: u16 = 0x400;

const RTPROT_KERNEL: u8 = 2;
const RT_TABLE_MAIN: u32 = 254;

const RTA_DST: u16 = 1;
pub(super) const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
pub(super) const RTA_MULTIPATH: u16 = 9;
const RTA_TABLE: u16 = 15;
const RTA_VIA: u16 = 18;

/// The size of struct rtnexthop, which begins with its length and has the device at 4.
const NEXT_HOP_BYTES: usize = 8;

/// A cloned route is the cache of a lookup and changes nothing.
pub(super) fn is_cloned(payload: &[u8]) -> Option<bool> {
    Some(u32_at(payload, 8)? & RTM_F_CLONED != 0)
}

pub(super) fn new(message: &Message) -> Event {
    Event::Route(destination(message.payload), details(message))
}

pub(super) fn gone(message: &Message) -> Event {
    Event::RouteGone(destination(message.payload), details(message))
}

/// What a route concerns: the addresses of its destination; everything if it is not a route of IPv4 or IPv6.
fn destination(payload: &[u8]) -> Scope {
    let addr = match *payload {
        // Without a destination, it is the default route.
        [AF_INET, 0, ..] => Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        [AF_INET6, 0, ..] => Some(IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
        [family @ (AF_INET | AF_INET6), ..] => Attrs::after(payload, FIXED_BYTES)
            .addr(RTA_DST)
            .filter(|addr| addr.is_ipv4() == (family == AF_INET)),
        _ => None,
    };
    match (addr, payload.get(1)) {
        (Some(addr), Some(len)) => Scope::Prefix { addr, len: *len },
        _ => Scope::Everything,
    }
}

fn details(message: &Message) -> RouteDetails {
    let payload = message.payload;
    let is_default = matches!(*payload, [AF_INET | AF_INET6, 0, ..]);
    RouteDetails {
        device: Attrs::after(payload, FIXED_BYTES).u32(RTA_OIF),
        by_kernel: payload.get(5) == Some(&RTPROT_KERNEL),
        default: is_default.then(|| Box::new(default_route(message))),
    }
}

fn default_route(message: &Message) -> DefaultRoute {
    let payload = message.payload;
    let attrs = Attrs::after(payload, FIXED_BYTES);
    let table = attrs.u32(RTA_TABLE).or_else(|| payload.get(4).map(|table| u32::from(*table)));
    let change = match (message.flags & NLM_F_REPLACE != 0, message.flags & NLM_F_CREATE != 0) {
        (true, _) => RouteChange::Replaced,
        (false, true) => RouteChange::Added,
        (false, false) => RouteChange::Either,
    };
    DefaultRoute {
        kind: payload.get(7).and_then(|kind| kind_of(*kind)),
        hops: hops(attrs),
        metric: attrs.u32(RTA_PRIORITY).unwrap_or_default(),
        table: table.filter(|table| *table != RT_TABLE_MAIN),
        change,
    }
}

/// The type of a route that leads to no next hop, as `ip route` has it.
const fn kind_of(kind: u8) -> Option<&'static str> {
    match kind {
        6 => Some("blackhole"),
        7 => Some("unreachable"),
        8 => Some("prohibit"),
        9 => Some("throw"),
        _ => None,
    }
}

/// The next hops of a route.
pub(super) fn hops(attrs: Attrs) -> Vec<NextHop> {
    let mut found: Vec<NextHop> = Some(hop(attrs, attrs.u32(RTA_OIF))).into_iter().collect();
    found.retain(|hop| *hop != NextHop::default());
    let mut hops = attrs.get(RTA_MULTIPATH).unwrap_or_default();
    while let (Some(len), Some(device)) = (u16_at(hops, 0), u32_at(hops, 4)) {
        let len = usize::from(len).max(NEXT_HOP_BYTES);
        let own = hops.get(..len.min(hops.len())).unwrap_or_default();
        found.push(hop(Attrs::after(own, NEXT_HOP_BYTES), Some(device)));
        let Some(rest) = hops.get(len.next_multiple_of(4)..) else { break };
        hops = rest;
    }
    found
}

fn hop(attrs: Attrs, device: Option<u32>) -> NextHop {
    // struct rtvia: the family, then the address: a gateway of another family than the route.
    let via = || {
        let bytes = attrs.get(RTA_VIA)?.get(2..)?;
        let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
        v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
    };
    NextHop { gateway: attrs.addr(RTA_GATEWAY).or_else(via), device }
}
