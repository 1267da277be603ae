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
/// TC_H_MAJ_MASK: what a qdisc's handle and its classes have in common.
const MAJOR: u32 = 0xffff_0000;

/// The kernel's state, as far as decisions depend on it.
#[derive(Debug, Default)]
pub(crate) struct Network {
    pub(crate) links: BTreeMap<u32, Link>,
    pub(crate) addresses: BTreeSet<(u32, IpAddr, u8)>,
    egress_filters: BTreeSet<(u32, String)>,
    ingress_filters: BTreeSet<(u32, String)>,
    /// Native XDP, and whether frames can be redirected to the device.
    pub(crate) xdp: BTreeMap<u32, (bool, bool)>,
    qdiscs: BTreeMap<(u32, u32, u32), Qdisc>,
    neighbours: BTreeMap<(u32, IpAddr), Mac>,
    /// By bridge, MAC and VLAN.
    stations: BTreeMap<(u32, Mac, u16), u32>,
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
                // What is for a station that was not known went to all ports, which may have been one.
                let before = self.stations.insert(self.station(*ifindex, *mac, *vlan), *ifindex);
                (before != Some(*ifindex)).then_some(Cause::Fdb)
            }
            Event::FdbGone { ifindex, vlan, mac } => {
                // After a move the old port's entry may be reported as gone; the new one stands.
                let station = self.station(*ifindex, *mac, *vlan);
                if self.stations.get(&station) != Some(ifindex) {
                    return None;
                }
                self.stations.remove(&station).map(|_| Cause::Fdb)
            }
            Event::Qdisc(qdisc) => {
                self.qdiscs.insert((qdisc.ifindex, qdisc.parent, qdisc.handle), qdisc.clone());
                None
            }
            Event::QdiscGone(qdisc) => {
                // Of those below it nothing is told.
                self.qdiscs.retain(|(on, parent, handle), _| {
                    *on != qdisc.ifindex
                        || *parent & MAJOR != qdisc.handle
                            && (*parent, *handle) != (qdisc.parent, qdisc.handle)
                });
                None
            }
            Event::Filter { ifindex, egress, kind } => {
                let filters = if *egress { &mut self.egress_filters } else { &mut self.ingress_filters };
                filters.insert((*ifindex, kind.clone().unwrap_or_else(|| "filter".to_owned())));
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
            | Event::BridgeCalls(_)
            | Event::Rules
            | Event::RulesetRead(_)
            | Event::RulesetUnread(_)
            | Event::LegacyRead(_)
            | Event::LegacyUnread(_)
            | Event::Dump(_)
            | Event::Tick => None,
        }
    }

    /// Behind a port: a MAC may be known to several bridges.
    fn station(&self, ifindex: u32, mac: Mac, vlan: u16) -> (u32, Mac, u16) {
        let bridge = self.links.get(&ifindex).and_then(|port| port.master);
        (bridge.unwrap_or(ifindex), mac, vlan)
    }

    fn link(&mut self, link: &Link) -> Option<Cause> {
        let Some(before) = self.links.insert(link.ifindex, link.clone()) else {
            return None; // no action can lead there yet
        };
        // XDP programs come and go with the engines. Names count: rules match them.
        let same = Link { xdp_prog: before.xdp_prog, ..link.clone() } == before;
        (!same).then_some(Cause::Link)
    }

    fn link_gone(&mut self, ifindex: u32) -> Option<Cause> {
        self.addresses.retain(|(on, ..)| *on != ifindex);
        self.neighbours.retain(|(on, _), _| *on != ifindex);
        self.stations.retain(|_, port| *port != ifindex);
        self.qdiscs.retain(|(on, ..), _| *on != ifindex);
        self.egress_filters.retain(|(on, _)| *on != ifindex);
        self.ingress_filters.retain(|(on, _)| *on != ifindex);
        self.xdp.remove(&ifindex);
        self.links.remove(&ifindex).map(|_| Cause::Link)
    }

    /// The root qdisc of a device, or one that a transmit queue has by itself, if it does more than to pass packets on in order.
    pub(crate) fn shaper(&self, ifindex: u32) -> Option<&str> {
        // Those with handle 0 are the kernel's own defaults; nobody asked for them.
        let all = self.qdiscs.range((ifindex, 0, 0)..=(ifindex, u32::MAX, u32::MAX));
        let asked_for = all.map(|(_, qdisc)| qdisc).filter(|qdisc| qdisc.handle != 0);
        let root = asked_for.clone().find(|qdisc| qdisc.parent == ROOT)?;
        let mut in_the_way = asked_for
            .filter(|qdisc| qdisc.parent == ROOT || root.kind == "mq" && qdisc.parent & MAJOR == root.handle);
        in_the_way.find(|qdisc| !is_plain(&qdisc.kind)).map(|qdisc| qdisc.kind.as_str())
    }

    /// Whether a device has tc filters on egress.
    pub(crate) fn has_egress_filters(&self, ifindex: u32) -> bool {
        self.egress_filters.iter().any(|(on, _)| *on == ifindex)
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

    /// What somebody else has put in the way of a port's packets: tc filters on ingress and TCX programs, on it or on a device
    /// on top of it; qdiscs and tc filters on egress of a device on top of it. Those of the port itself are its engine's matter.
    pub(crate) fn filters(&self, ifindex: u32, programs: &BTreeSet<Program>) -> Vec<PortFilter> {
        let device = |on| self.links.get(on).map(|link| link.name.clone()).unwrap_or_default();
        let filter = |on, hook, kind: &str, program: Option<&String>| {
            let filter =
                PortFilter { device: device(on), hook, kind: kind.to_owned(), program: program.cloned() };
            (*on, filter)
        };
        let above = |on: &u32| *on != ifindex;
        let ingress =
            self.ingress_filters.iter().map(|(on, kind)| filter(on, FilterHook::Ingress, kind, None));
        let egress = self.egress_filters.iter().filter(|(on, _)| above(on));
        let egress = egress.map(|(on, kind)| filter(on, FilterHook::Egress, kind, None));
        let qdiscs = self.links.keys().filter(|on| above(on));
        let qdiscs = qdiscs.filter_map(|on| Some(filter(on, FilterHook::Qdisc, self.shaper(*on)?, None)));
        let programs = programs.iter().map(|Program { ifindex: on, egress, name }| {
            let hook = if *egress { FilterHook::Egress } else { FilterHook::Ingress };
            filter(on, hook, "tcx", Some(name))
        });
        let mut all = ingress.chain(egress).chain(qdiscs).chain(programs).peekable();
        if all.peek().is_none() {
            return Vec::new();
        }
        let stack = self.stack(ifindex);
        all.filter(|(on, _)| stack.contains(on)).map(|(_, filter)| filter).collect()
    }

    /// A device and all that are on top of it: bridges, bonds, VLAN devices.
    pub(crate) fn stack(&self, ifindex: u32) -> BTreeSet<u32> {
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
