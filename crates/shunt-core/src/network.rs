//! What is known of the kernel's forwarding state, and whether an event changes what a packet would meet.

use crate::{Cause, Event, Link, Program, Qdisc};
use shunt_api::{FilterHook, PortFilter};
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
    ingress_filters: BTreeSet<(u32, String)>,
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
            Event::Filter { ifindex, egress, kind } => {
                if *egress {
                    self.egress_filters.insert(*ifindex);
                } else {
                    let kind = kind.clone().unwrap_or_else(|| "filter".to_owned());
                    self.ingress_filters.insert((*ifindex, kind));
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
            Event::WantLiberal(_)
            | Event::Silent(_)
            | Event::AttachFailed { .. }
            | Event::Captures(_)
            | Event::Programs(_)
            | Event::Rules
            | Event::RulesetRead(_)
            | Event::RulesetUnread(_)
            | Event::LegacyRead(_)
            | Event::LegacyUnread(_)
            | Event::Dump(_)
            | Event::Tick => None,
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
        self.ingress_filters.retain(|(on, _)| *on != ifindex);
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
        let stack = self.stack(ifindex);
        self.addresses.iter().any(|(on, addr, _)| stack.contains(on) && is_routable(*addr))
    }

    /// Whether what a device forwards is seen by one of these captures: on it, on a device on top of it, or on all.
    pub(crate) fn is_captured(&self, ifindex: u32, captures: &BTreeSet<u32>) -> bool {
        !captures.is_empty() && (captures.contains(&0) || !self.stack(ifindex).is_disjoint(captures))
    }

    /// What somebody else has put in the way of a port's packets, on it or on a device on top of it: tc filters on
    /// ingress, and TCX programs.
    pub(crate) fn filters(&self, ifindex: u32, programs: &BTreeSet<Program>) -> Vec<PortFilter> {
        if self.ingress_filters.is_empty() && programs.is_empty() {
            return Vec::new();
        }
        let stack = self.stack(ifindex);
        let device = |on| self.links.get(on).map(|link| link.name.clone()).unwrap_or_default();
        let filters = self.ingress_filters.iter().map(|(on, kind)| {
            (
                on,
                PortFilter {
                    device: device(on),
                    hook: FilterHook::Ingress,
                    kind: kind.clone(),
                    program: None,
                },
            )
        });
        let programs = programs.iter().map(|Program { ifindex: on, egress, name }| {
            let hook = if *egress { FilterHook::Egress } else { FilterHook::Ingress };
            (on, PortFilter { device: device(on), hook, kind: "tcx".to_owned(), program: Some(name.clone()) })
        });
        filters.chain(programs).filter(|(on, _)| stack.contains(on)).map(|(_, filter)| filter).collect()
    }

    /// A device and all that are on top of it: bridges, bonds, VLAN devices.
    fn stack(&self, ifindex: u32) -> BTreeSet<u32> {
        self.stacks([ifindex])
    }

    /// The same for several.
    pub(crate) fn stacks(&self, devices: impl IntoIterator<Item = u32>) -> BTreeSet<u32> {
        let mut seen: BTreeSet<u32> = devices.into_iter().collect();
        loop {
            let known = seen.len();
            for link in self.links.values() {
                if seen.contains(&link.ifindex) {
                    seen.extend(link.master);
                } else if link.lower.is_some_and(|lower| seen.contains(&lower)) {
                    seen.insert(link.ifindex);
                }
            }
            if seen.len() == known {
                return seen;
            }
        }
    }

    /// Whether a device, or one on top of it, has this name. It may end in `*`.
    pub(crate) fn is_called(&self, ifindex: u32, name: &str) -> bool {
        let matches = |link: &Link| match name.strip_suffix('*') {
            Some(prefix) => link.name.starts_with(prefix),
            None => link.name == name,
        };
        self.stack(ifindex).iter().filter_map(|at| self.links.get(at)).any(matches)
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
