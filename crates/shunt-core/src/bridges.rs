//! What may be learned of traffic between two ports of a bridge.

use crate::{Event, Link, network::Network};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, time::Duration};

/// With entries that live shorter than this, a bridge would have to see nearly every packet.
const AGEING_MIN: Duration = Duration::from_secs(1);

/// What only bridges have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bridge {
    /// How long it knows a station that is silent; 0 where it learns none.
    pub ageing: Duration,
    /// Whether it tells VLANs apart.
    pub vlan_filtering: bool,
    /// EtherType of its VLAN tags.
    pub vlan_protocol: u16,
    /// Its other choices, as the kernel counts them.
    pub options: u32,
    /// Whether br_netfilter hands its IPv4 and IPv6 to iptables, whatever the sysctls say.
    pub calls: BridgeCalls,
    /// Whether it takes in itself what it only forwards.
    pub promiscuous: bool,
}

/// Of which families br_netfilter hands bridged packets to the hooks of IP, and so to conntrack.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BridgeCalls {
    /// IPv4.
    pub v4: bool,
    /// IPv6.
    pub v6: bool,
}

/// Who tracks connections that are bridged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tracking {
    /// Rules of a bridge.
    pub(crate) rules: bool,
    /// br_netfilter, by its sysctls; none where it is not there.
    pub(crate) calls: Option<BridgeCalls>,
}

/// What may be learned of bridged traffic that comes in by a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bridged {
    /// Whether anything.
    pub learned: bool,
    /// Whether conntrack sees no IPv4 of it.
    pub untracked4: bool,
    /// Whether conntrack sees no IPv6 of it.
    pub untracked6: bool,
}

/// Whether there is a bridge with two ports or more.
pub fn bridges(state: &[Event]) -> bool {
    let masters = state.iter().filter_map(|event| match event {
        Event::Link(link) => link.master,
        _ => None,
    });
    let mut seen = BTreeSet::new();
    let shared: BTreeSet<u32> = masters.filter(|master| !seen.insert(*master)).collect();
    state.iter().any(
        |event| matches!(event, Event::Link(link) if link.bridge.is_some() && shared.contains(&link.ifindex)),
    )
}

impl Network {
    /// The bridges that a device belongs to, by itself or by what is on top of it.
    fn bridges_of(&self, ifindex: u32) -> Vec<(&Link, &Bridge)> {
        let links = self.stack(ifindex).into_iter().filter_map(|at| self.links.get(&at));
        links.filter_map(|link| Some((link, link.bridge.as_ref()?))).collect()
    }

    fn ports_of(&self, bridge: u32) -> impl Iterator<Item = &Link> {
        self.links.values().filter(move |link| link.master == Some(bridge))
    }

    /// Whether there is a bridge at all.
    pub(crate) fn has_bridges(&self) -> bool {
        self.links.values().any(|link| link.bridge.is_some())
    }

    /// Whether Linux bridges to and from a device: it belongs to a bridge that has another port.
    pub(crate) fn bridges(&self, ifindex: u32) -> bool {
        self.bridges_of(ifindex).iter().any(|(link, _)| self.ports_of(link.ifindex).nth(1).is_some())
    }

    /// Whether a device belongs to a bridge that tells VLANs apart.
    pub(crate) fn filters_vlans(&self, ifindex: u32) -> bool {
        self.bridges_of(ifindex).iter().any(|(_, bridge)| bridge.vlan_filtering)
    }

    /// The shortest time for which a bridge of these devices knows a silent station that it lets us learn of.
    pub(crate) fn ageing(&self, ports: impl Iterator<Item = u32>) -> Option<Duration> {
        let bridges = ports.flat_map(|port| self.bridges_of(port));
        bridges.map(|(_, bridge)| bridge.ageing).filter(|ageing| *ageing >= AGEING_MIN).min()
    }

    /// What may be learned of bridged traffic that comes in by a port. `seen` are all ports and what is on top of them.
    pub(crate) fn bridged(&self, ifindex: u32, seen: &BTreeSet<u32>, tracking: Tracking) -> Bridged {
        let bridges = self.bridges_of(ifindex);
        if bridges.is_empty() || !bridges.iter().all(|(link, bridge)| self.shows_all(link, bridge, seen)) {
            return Bridged::default();
        }
        let called = |by: fn(&BridgeCalls) -> bool| {
            tracking.calls.is_some_and(|all| by(&all) || bridges.iter().any(|(_, bridge)| by(&bridge.calls)))
        };
        Bridged {
            learned: true,
            untracked4: !tracking.rules && !called(|calls| calls.v4),
            untracked6: !tracking.rules && !called(|calls| calls.v6),
        }
    }

    /// Whether all that becomes of a packet is seen at the ports: where the bridge does not know a station, it sends to all of
    /// its own ports, and takes in what may be for a device on top of it.
    fn shows_all(&self, link: &Link, bridge: &Bridge, seen: &BTreeSet<u32>) -> bool {
        let listens = |above: &Link| {
            above.lower == Some(link.ifindex) && matches!(above.kind.as_deref(), Some("macvlan" | "macvtap"))
        };
        let remembers = bridge.ageing.is_zero() || bridge.ageing >= AGEING_MIN;
        remembers
            && !bridge.promiscuous
            && !self.links.values().any(listens)
            && self.ports_of(link.ifindex).all(|member| seen.contains(&member.ifindex))
    }
}

#[cfg(test)]
mod tests;
