//! Translates NETLINK_ROUTE messages into events.

mod digest;
mod link;
mod link_layer;
mod neighbour;
mod netconf;
mod next_hop;
mod route;
mod tc;
mod way_out;

#[cfg(test)]
mod tests;

use crate::netlink_message::{AF_INET, AF_INET6, Attrs, Message, u32_at};
use shunt_core::Event;
use std::net::IpAddr;

pub use next_hop::{SilentHop, silent_hop_to};
pub use tc::OWN_FILTER_PRIORITY;
pub(crate) use tc::{EGRESS, INGRESS, ROOT, is_own_filter, kind as filter_kind};
pub use way_out::devices_to;

pub(crate) const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
pub(crate) const RTM_GETLINK: u16 = 18;
pub(crate) const RTM_SETLINK: u16 = 19;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
pub(crate) const RTM_GETADDR: u16 = 22;
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_NEWNEIGH: u16 = 28;
const RTM_DELNEIGH: u16 = 29;
pub(crate) const RTM_GETNEIGH: u16 = 30;
const RTM_NEWRULE: u16 = 32;
const RTM_DELRULE: u16 = 33;
const RTM_NEWQDISC: u16 = 36;
pub(crate) const RTM_DELQDISC: u16 = 37;
pub(crate) const RTM_GETQDISC: u16 = 38;
const RTM_NEWTCLASS: u16 = 40;
const RTM_DELTCLASS: u16 = 41;
const RTM_NEWTFILTER: u16 = 44;
const RTM_DELTFILTER: u16 = 45;
pub(crate) const RTM_GETTFILTER: u16 = 46;
const RTM_NEWACTION: u16 = 48;
const RTM_DELACTION: u16 = 49;
const RTM_NEWNETCONF: u16 = 80;
const RTM_DELNETCONF: u16 = 81;
const RTM_NEWCHAIN: u16 = 100;
const RTM_DELCHAIN: u16 = 101;
const RTM_NEWNEXTHOP: u16 = 104;
const RTM_DELNEXTHOP: u16 = 105;
const RTM_NEWVLAN: u16 = 112;
const RTM_DELVLAN: u16 = 113;
const RTM_NEWNEXTHOPBUCKET: u16 = 116;
const RTM_DELNEXTHOPBUCKET: u16 = 117;

/// The multicast groups to subscribe to, by RTNLGRP_* number.
pub(crate) const GROUPS: [u32; 14] = [
    1,  // LINK
    3,  // NEIGH, including the forwarding databases of bridges
    4,  // TC
    5,  // IPV4_IFADDR
    7,  // IPV4_ROUTE
    8,  // IPV4_RULE
    9,  // IPV6_IFADDR
    11, // IPV6_ROUTE
    19, // IPV6_RULE
    24, // IPV4_NETCONF
    25, // IPV6_NETCONF
    32, // NEXTHOP
    33, // BRVLAN
    27, // MPLS_ROUTE: an MPLS route can push labels onto packets that IP forwarded before
];

/// The event of a message; `None` if the policy does not need the message.
pub(crate) fn event(message: &Message) -> Option<Event> {
    let payload = message.payload;
    match message.kind {
        RTM_NEWLINK => link::new(payload),
        RTM_DELLINK => link::gone(payload),
        RTM_NEWADDR => {
            address(payload).map(|(ifindex, addr, prefix)| Event::Address { ifindex, addr, prefix })
        }
        RTM_DELADDR => {
            address(payload).map(|(ifindex, addr, prefix)| Event::AddressGone { ifindex, addr, prefix })
        }
        RTM_NEWROUTE | RTM_DELROUTE if route::is_cloned(payload)? => None,
        RTM_NEWROUTE => Some(route::new(message)),
        RTM_DELROUTE => Some(route::gone(message)),
        RTM_NEWNEIGH => neighbour::new(payload),
        RTM_DELNEIGH => neighbour::gone(payload),
        RTM_NEWRULE | RTM_DELRULE => Some(Event::Rule),
        RTM_NEWQDISC => tc::qdisc(payload).map(Event::Qdisc),
        RTM_DELQDISC => tc::qdisc(payload).map(Event::QdiscGone),
        RTM_NEWTCLASS | RTM_DELTCLASS => tc::class(payload, message.kind == RTM_DELTCLASS),
        RTM_NEWTFILTER | RTM_DELTFILTER => tc::filter(message, message.kind == RTM_DELTFILTER),
        // A chain is created with its first filter and does nothing without one.
        RTM_NEWCHAIN => None,
        RTM_DELCHAIN => tc::chain(payload),
        RTM_NEWACTION | RTM_DELACTION => Some(tc::action(message.kind == RTM_DELACTION)),
        RTM_NEWNETCONF | RTM_DELNETCONF => Some(Event::Netconf(netconf::changed(payload))),
        // struct br_vlan_msg
        RTM_NEWVLAN | RTM_DELVLAN => {
            Some(Event::BridgeVlans { ifindex: u32_at(payload, 4).unwrap_or_default() })
        }
        RTM_NEWNEXTHOP | RTM_DELNEXTHOP | RTM_NEWNEXTHOPBUCKET | RTM_DELNEXTHOPBUCKET => Some(Event::Nexthop),
        other => {
            tracing::debug!(kind = other, "ignoring an rtnetlink message of an unknown kind");
            None
        }
    }
}

fn address(payload: &[u8]) -> Option<(u32, IpAddr, u8)> {
    const IFA_ADDRESS: u16 = 1;
    const IFA_LOCAL: u16 = 2;
    let [family @ (AF_INET | AF_INET6), prefix, ..] = *payload else { return None };
    let attrs = Attrs::after(payload, 8);
    // On a point-to-point link IFA_ADDRESS is the address of the peer. IPv6 sends IFA_LOCAL on such links only.
    let addr = attrs.addr(IFA_LOCAL).or_else(|| attrs.addr(IFA_ADDRESS))?;
    (addr.is_ipv4() == (family == AF_INET)).then_some(())?;
    Some((u32_at(payload, 4)?, addr, prefix))
}
