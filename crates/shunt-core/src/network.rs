//! What is known of the kernel's forwarding state, and whether an event changes what a packet would meet.

use crate::{Cause, Event, Link, Qdisc};
use shunt_wire::Mac;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

/// TC_H_ROOT.
const ROOT: u32 = 0xffff_ffff;

/// The kernel's state, as far as decisions depend on it.
#[derive(Debug, Default)]
pub(crate) struct Network {
    pub(crate) links: BTreeMap<u32, Link>,
    pub(crate) addresses: BTreeSet<(u32, IpAddr, u8)>,
    pub(crate) egress_filters: BTreeSet<u32>,
    /// Native XDP, and whether frames can be redirected to the device.
    pub(crate) xdp: BTreeMap<u32, (bool, bool)>,
    qdiscs: BTreeMap<(u32, u32, u32), Qdisc>,
    neighbours: BTreeMap<(u32, IpAddr), Mac>,
    stations: BTreeMap<(Mac, u16), u32>,
}

impl Network {
    /// Takes an event in. Says why actions from before it must not be used any more, if so.
    pub(crate) fn learn(&mut self, event: &Event) -> Option<Cause> {
        match event {
            Event::Link(link) => self.link(link),
            Event::LinkGone { ifindex } => self.link_gone(*ifindex),
            Event::Address { ifindex, addr, prefix } => {
                // The kernel repeats an address whenever its lifetimes change.
                self.addresses.insert((*ifindex, *addr, *prefix)).then_some(Cause::Address)
            }
            Event::AddressGone { ifindex, addr, prefix } => {
                self.addresses.remove(&(*ifindex, *addr, *prefix)).then_some(Cause::Address)
            }
            Event::Neighbour { ifindex, addr, mac } => {
                let before = match mac {
                    Some(mac) => self.neighbours.insert((*ifindex, *addr), *mac),
                    None => self.neighbours.remove(&(*ifindex, *addr)),
                };
                // A change of mere state leaves the MAC as it is; a new neighbour has no actions yet.
                (before.is_some() && before != *mac).then_some(Cause::Neighbour)
            }
            Event::NeighbourGone { ifindex, addr } => {
                self.neighbours.remove(&(*ifindex, *addr)).map(|_| Cause::Neighbour)
            }
            Event::Fdb { ifindex, vlan, mac } => {
                let before = self.stations.insert((*mac, *vlan), *ifindex);
                before.is_some_and(|port| port != *ifindex).then_some(Cause::Fdb)
            }
            Event::FdbGone { ifindex, vlan, mac } => {
                // After a move the old port's entry may be reported as gone; the new one stands.
                if self.stations.get(&(*mac, *vlan)) != Some(ifindex) {
                    return None;
                }
                self.stations.remove(&(*mac, *vlan)).map(|_| Cause::Fdb)
            }
            Event::Qdisc(qdisc) => {
                self.qdiscs.insert((qdisc.ifindex, qdisc.parent, qdisc.handle), qdisc.clone());
                None
            }
            Event::QdiscGone(qdisc) => {
                self.qdiscs.remove(&(qdisc.ifindex, qdisc.parent, qdisc.handle));
                None
            }
            Event::Filter { ifindex, egress } => {
                if *egress {
                    self.egress_filters.insert(*ifindex);
                }
                Some(Cause::Filter)
            }
            Event::XdpFeatures { ifindex, native, target } => {
                self.xdp.insert(*ifindex, (*native, *target));
                None
            }
            Event::Route => Some(Cause::Route),
            Event::Rule => Some(Cause::Rule),
            Event::Nexthop => Some(Cause::Nexthop),
            Event::Netconf => Some(Cause::Netconf),
            Event::Ruleset => Some(Cause::Ruleset),
            Event::IpsecPolicy => Some(Cause::Ipsec),
            Event::Overrun(_) => Some(Cause::Overrun),
            Event::Flush => Some(Cause::Flush),
            Event::WantLiberal(_) | Event::AttachFailed { .. } | Event::Dump(_) | Event::Tick => None,
        }
    }

    fn link(&mut self, link: &Link) -> Option<Cause> {
        let Some(before) = self.links.insert(link.ifindex, link.clone()) else {
            return None; // no action can lead there yet
        };
        // A name is only a name, and XDP programs come and go with the engines.
        let same = Link { name: before.name.clone(), xdp_prog: before.xdp_prog, ..link.clone() } == before;
        (!same).then_some(Cause::Link)
    }

    fn link_gone(&mut self, ifindex: u32) -> Option<Cause> {
        self.addresses.retain(|(on, ..)| *on != ifindex);
        self.neighbours.retain(|(on, _), _| *on != ifindex);
        self.stations.retain(|_, port| *port != ifindex);
        self.qdiscs.retain(|(on, ..), _| *on != ifindex);
        self.egress_filters.remove(&ifindex);
        self.xdp.remove(&ifindex);
        self.links.remove(&ifindex).map(|_| Cause::Link)
    }

    /// The root qdisc of a device, if it does more than to pass packets on in order.
    pub(crate) fn shaper(&self, ifindex: u32) -> Option<&str> {
        self.qdiscs
            .range((ifindex, 0, 0)..=(ifindex, u32::MAX, u32::MAX))
            .map(|(_, qdisc)| qdisc)
            // Those with handle 0 are the kernel's own defaults; nobody asked for them.
            .find(|q| q.parent == ROOT && q.handle != 0 && !is_plain(&q.kind))
            .map(|q| q.kind.as_str())
    }

    /// Whether VLAN devices are on top of a device. Most drivers keep a received tag beside the frame, where XDP does not
    /// see it, and would take one VLAN's packets for another's.
    pub(crate) fn has_vlans(&self, ifindex: u32) -> bool {
        self.links.values().any(|link| link.lower == Some(ifindex) && link.kind.as_deref() == Some("vlan"))
    }

    /// Whether Linux forwards to and from a device: it has an address that is good for that, or a device on top of it
    /// has.
    pub(crate) fn forwards(&self, ifindex: u32) -> bool {
        let mut seen = BTreeSet::new();
        let mut next = vec![ifindex];
        while let Some(at) = next.pop() {
            if !seen.insert(at) {
                continue;
            }
            if self.addresses.iter().any(|(on, addr, _)| *on == at && is_routable(*addr)) {
                return true;
            }
            next.extend(self.links.get(&at).and_then(|l| l.master));
            next.extend(self.links.values().filter(|l| l.lower == Some(at)).map(|l| l.ifindex));
        }
        false
    }
}

fn is_plain(kind: &str) -> bool {
    matches!(kind, "noqueue" | "pfifo" | "bfifo" | "pfifo_fast" | "mq" | "clsact" | "ingress")
}

fn is_routable(addr: IpAddr) -> bool {
    match addr {
        IpAddr::V4(addr) => !addr.is_loopback(),
        IpAddr::V6(addr) => !addr.is_loopback() && !addr.is_unicast_link_local(),
    }
}
