//! Decides what may be learned from traffic between two ports of a bridge.

use crate::{Bridge, BridgeCalls, Event, Link, network::Network};
use std::{collections::BTreeSet, time::Duration};

/// The shortest ageing time of a bridge whose traffic is learned. With a shorter one the bridge would have to see
/// nearly every packet.
const AGEING_MIN: Duration = Duration::from_secs(1);

/// The causes for which conntrack tracks bridged connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tracking {
    /// Whether rules of a bridge table use conntrack.
    pub(crate) rules: bool,
    /// The sysctls of br_netfilter; `None` if br_netfilter is not loaded.
    pub(crate) calls: Option<BridgeCalls>,
}

/// The bridged traffic on ingress of a port that may be learned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bridged {
    /// Whether bridged traffic may be learned.
    pub learned: bool,
    /// Whether conntrack sees no bridged IPv4 traffic.
    pub untracked4: bool,
    /// Whether conntrack sees no bridged IPv6 traffic.
    pub untracked6: bool,
}

/// Whether a dump of the kernel's state has a bridge with at least two ports.
pub fn has_bridge_with_two_ports(state: &[Event]) -> bool {
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
    /// The bridges that a device, or a device on top of it, belongs to.
    fn bridges_of(&self, ifindex: u32) -> Vec<(&Link, &Bridge)> {
        let links = self.stack(ifindex).into_iter().filter_map(|at| self.links.get(&at));
        links.filter_map(|link| Some((link, link.bridge.as_ref()?))).collect()
    }

    /// Whether there is any bridge.
    pub(crate) fn has_bridges(&self) -> bool {
        self.links.values().any(|link| link.bridge.is_some())
    }

    /// Whether Linux bridges to and from a device: whether the device belongs to a bridge that has another port.
    pub(crate) fn bridges(&self, ifindex: u32) -> bool {
        self.bridges_of(ifindex).iter().any(|(link, _)| self.members(link.ifindex).nth(1).is_some())
    }

    /// Whether a device belongs to a bridge with VLAN filtering.
    pub(crate) fn filters_vlans(&self, ifindex: u32) -> bool {
        self.bridges_of(ifindex).iter().any(|(_, bridge)| bridge.vlan_filtering)
    }

    /// The shortest ageing time among the bridges of these devices, without bridges whose traffic is not learned;
    /// `None` without bridges.
    pub(crate) fn ageing(&self, ports: impl Iterator<Item = u32>) -> Option<Duration> {
        let bridges = ports.flat_map(|port| self.bridges_of(port));
        bridges.map(|(_, bridge)| bridge.ageing).filter(|ageing| *ageing >= AGEING_MIN).min()
    }

    /// Decides which bridged traffic that arrives on a port may be learned. `seen` are all ports and the devices on
    /// top of them.
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

    /// Whether a bridge that a device belongs to has members that are neither ports nor on top of ports. It floods
    /// routed packets for unknown stations to them, too. `seen` are all ports and the devices on top of them.
    pub(crate) fn floods_unseen(&self, ifindex: u32, seen: &BTreeSet<u32>) -> bool {
        self.bridges_of(ifindex).iter().any(|(bridge, _)| self.has_unseen_members(bridge, seen))
    }

    fn has_unseen_members(&self, bridge: &Link, seen: &BTreeSet<u32>) -> bool {
        self.members(bridge.ifindex).any(|member| !seen.contains(&member.ifindex))
    }

    /// Whether Shunt's ports see everything that happens to a bridged packet. A bridge floods packets to unknown
    /// stations to all of its ports, and also receives them itself if a device on top of it may want them.
    fn shows_all(&self, link: &Link, bridge: &Bridge, seen: &BTreeSet<u32>) -> bool {
        let listens = |upper: &Link| matches!(upper.kind.as_deref(), Some("macvlan" | "macvtap"));
        let remembers = bridge.ageing.is_zero() || bridge.ageing >= AGEING_MIN;
        remembers
            && !bridge.promiscuous
            && !self.stacked_on(link.ifindex).any(listens)
            && !self.has_unseen_members(link, seen)
    }
}

#[cfg(test)]
mod tests;
