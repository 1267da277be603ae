//! The known forwarding state of the kernel, and whether an event changes how packets are treated.

use crate::{Cause, Event, Link, LinkLayer, Netconf, Program, Qdisc, Scope, Sessions, Sysctl, SysctlOf};
use shunt_api::{FilterHook, PortFilter};
use shunt_wire::Mac;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
};

/// TC_H_ROOT.
const ROOT: u32 = 0xffff_ffff;
/// TC_H_MAJ_MASK: the part of the handle that a qdisc and its classes share.
const MAJOR: u32 = 0xffff_0000;

/// The XDP features of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Xdp {
    /// Native programs can run on the device and redirect from it.
    pub(crate) native: bool,
    /// Frames can be redirected to the device.
    pub(crate) target: bool,
    /// Frames in several buffers can be redirected to the device.
    pub(crate) target_frags: bool,
    /// The driver tells programs of the VLAN tags that it has taken out of frames.
    pub(crate) vlan_tags: bool,
    /// AF_XDP sockets work without a copy.
    pub(crate) zero_copy: bool,
}

/// The offloads of a NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Offloads {
    /// It merges received packets before Linux sees them, or did before an XDP program was attached.
    merges: bool,
    /// It takes VLAN tags out of received frames.
    strips_tags: bool,
}

/// How an XDP program on a device sees VLAN tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tags {
    /// Linux uses no VLANs on the device.
    Unused,
    /// In the frame: the driver leaves them there (virtio, TAP, NICs without `rx-vlan-offload`).
    InFrame,
    /// By asking the driver, which takes them out of the frame (veth, some NICs).
    Told,
    /// Not at all: the driver takes them out, and only Linux sees them.
    Hidden,
}

/// The state of the kernel that decisions depend on.
#[derive(Debug, Default)]
pub(crate) struct Network {
    pub(crate) links: BTreeMap<u32, Link>,
    pub(crate) addresses: BTreeSet<(u32, IpAddr, u8)>,
    egress_filters: BTreeSet<(u32, String)>,
    ingress_filters: BTreeSet<(u32, String)>,
    pub(crate) xdp: BTreeMap<u32, Xdp>,
    offloads: BTreeMap<u32, Offloads>,
    /// Devices whose driver refused redirected frames, with the driver's error. An entry stays until the device
    /// changes.
    pub(crate) tx_errors: BTreeMap<u32, String>,
    /// Devices whose driver refused Shunt's XDP program, with the driver's error. An entry stays until the device
    /// changes.
    pub(crate) xdp_refusals: BTreeMap<u32, String>,
    /// Devices that accept no redirected frames although an XDP program was attached. An entry stays until the device
    /// changes.
    pub(crate) no_targets: BTreeSet<u32>,
    pub(crate) sessions: Sessions,
    qdiscs: BTreeMap<(u32, u32, u32), Qdisc>,
    neighbours: BTreeMap<(u32, IpAddr), Mac>,
    /// Pairs of a device and a device on top of it.
    upper: BTreeSet<(u32, u32)>,
    /// Pairs of a bridge, bond or VRF and one of its members.
    members: BTreeSet<(u32, u32)>,
    /// Whether anything that ports depend on has changed since the last plan.
    needs_plan: bool,
}

/// The second elements of all pairs with this first element.
fn second_elements(pairs: &BTreeSet<(u32, u32)>, first: u32) -> impl Iterator<Item = u32> {
    pairs.range((first, 0)..=(first, u32::MAX)).map(|(_, second)| *second)
}

impl Network {
    /// Applies an event. Returns the cause for which actions learned before the event must not be used any more, and
    /// the flows that this concerns; `None` if all may be used.
    pub(crate) fn apply(&mut self, event: &Event) -> Option<(Cause, Scope)> {
        match event {
            Event::Neighbour { ifindex, addr, mac } => {
                let before = match mac {
                    Some(mac) => self.neighbours.insert((*ifindex, *addr), *mac),
                    None => self.neighbours.remove(&(*ifindex, *addr)),
                };
                // A change of state alone does not change the MAC. No action leads to a new neighbour yet.
                before.filter(|before| Some(*before) != *mac).map(lost_neighbour)
            }
            Event::NeighbourGone { ifindex, addr } => {
                self.neighbours.remove(&(*ifindex, *addr)).map(lost_neighbour)
            }
            Event::Route(scope, _) | Event::RouteGone(scope, _) => Some((Cause::Route, *scope)),
            Event::Finished(cause, scope) => Some((*cause, *scope)),
            event => self.apply_to_all(event).map(|cause| (cause, Scope::Everything)),
        }
    }

    /// As [`Network::apply`], for events that concern every flow, or none.
    fn apply_to_all(&mut self, event: &Event) -> Option<Cause> {
        match event {
            Event::Link(link) => self.link(link),
            Event::LinkGone { ifindex } => self.link_gone(*ifindex),
            Event::Address { ifindex, addr, prefix } => {
                // The kernel repeats an address whenever its lifetimes change.
                let is_new = self.addresses.insert((*ifindex, *addr, *prefix));
                self.needs_plan |= is_new;
                is_new.then_some(Cause::Address)
            }
            Event::AddressGone { ifindex, addr, prefix } => {
                let was_there = self.addresses.remove(&(*ifindex, *addr, *prefix));
                self.needs_plan |= was_there;
                was_there.then_some(Cause::Address)
            }
            // The filter on the socket passes only stations of learned flows.
            Event::Fdb { .. } | Event::FdbGone { .. } => Some(Cause::Fdb),
            Event::Qdisc(qdisc) => {
                self.needs_plan = true;
                self.qdiscs.insert((qdisc.ifindex, qdisc.parent, qdisc.handle), qdisc.clone());
                None
            }
            Event::QdiscGone(qdisc) => {
                self.needs_plan = true;
                // The kernel does not report the removal of the qdiscs below.
                self.qdiscs.retain(|(on, parent, handle), _| {
                    *on != qdisc.ifindex
                        || *parent & MAJOR != qdisc.handle
                            && (*parent, *handle) != (qdisc.parent, qdisc.handle)
                });
                None
            }
            Event::Filter { ifindex, egress, kind, .. } => {
                let filters = if *egress { &mut self.egress_filters } else { &mut self.ingress_filters };
                self.needs_plan |=
                    filters.insert((*ifindex, kind.clone().unwrap_or_else(|| "filter".to_owned())));
                Some(Cause::Filter)
            }
            Event::XdpFeatures { ifindex, native, target, target_frags, vlan_tags, zero_copy } => {
                let (native, target, target_frags) = (*native, *target, *target_frags);
                let xdp = Xdp { native, target, target_frags, vlan_tags: *vlan_tags, zero_copy: *zero_copy };
                if self.xdp.insert(*ifindex, xdp) != Some(xdp) {
                    self.tx_errors.remove(ifindex);
                    self.needs_plan = true;
                }
                None
            }
            Event::Offloads { ifindex, merges, strips_tags } => {
                let known = self.offloads.get(ifindex).is_some_and(|before| before.merges);
                let merges = *merges || known && self.has_program(*ifindex);
                let offloads = Offloads { merges, strips_tags: *strips_tags };
                self.needs_plan |= self.offloads.insert(*ifindex, offloads) != Some(offloads);
                None
            }
            Event::TxError { ifindex, error } => {
                if self.links.contains_key(ifindex) {
                    self.needs_plan |= self.tx_errors.insert(*ifindex, error.clone()).as_ref() != Some(error);
                }
                None
            }
            Event::XdpRefused { ifindex, error } => {
                if self.links.contains_key(ifindex) {
                    self.needs_plan |=
                        self.xdp_refusals.insert(*ifindex, error.clone()).as_ref() != Some(error);
                }
                None
            }
            Event::Sessions(sessions) => {
                self.needs_plan |= self.sessions != *sessions;
                self.sessions.clone_from(sessions);
                None
            }
            Event::Rule => Some(Cause::Rule),
            Event::Nexthop => Some(Cause::Nexthop),
            Event::Netconf(_) | Event::BridgeVlans { .. } => Some(Cause::Netconf),
            Event::BridgePort { ifindex, port, .. } => {
                // The message of the link, which may come later, says the same once more.
                if let Some(link) = self.links.get_mut(ifindex) {
                    link.bridge_port = *port;
                }
                Some(Cause::Netconf)
            }
            Event::Ruleset => Some(Cause::Ruleset),
            Event::IpsecPolicy => Some(Cause::Ipsec),
            Event::Overrun(_) => Some(Cause::Overrun),
            Event::Flush => Some(Cause::Flush),
            Event::Off => Some(Cause::Off),
            Event::Neighbour { .. }
            | Event::NeighbourGone { .. }
            | Event::Route(..)
            | Event::RouteGone(..)
            | Event::Finished(..)
            | Event::WantLiberal(_)
            | Event::Silent(_)
            | Event::Correct(_)
            | Event::AttachFailed { .. }
            | Event::Captures(_)
            | Event::Programs(_)
            | Event::Surveyed(_)
            | Event::External(_)
            | Event::BridgeCalls(_)
            | Event::Rests(_)
            | Event::Chosen(_)
            | Event::Rules
            | Event::RulesAt(_)
            | Event::RulesetPath(_)
            | Event::RulesetRead(_)
            | Event::RulesetUnread(_)
            | Event::LegacyRead(_)
            | Event::LegacyUnread(_)
            | Event::Dump(_)
            | Event::Tick => None,
        }
    }

    /// The causes for which actions learned in the state `before` must not be used any more: those that
    /// [`Network::apply`] would have returned for the events in between. No action leads to a new neighbour yet.
    pub(crate) fn difference(&self, before: &Self) -> BTreeSet<Cause> {
        let is_as_before = |link: &Link| self.links.get(&link.ifindex).is_some_and(|now| now.is_like(link));
        let has = |(at, mac): (&(u32, IpAddr), &Mac)| self.neighbours.get(at) == Some(mac);
        let differ = [
            (Cause::Link, !before.links.values().all(is_as_before)),
            (Cause::Address, self.addresses != before.addresses),
            (Cause::Neighbour, !before.neighbours.iter().all(has)),
        ];
        differ.into_iter().filter_map(|(cause, differs)| differs.then_some(cause)).collect()
    }

    /// The name of the device that an event is about; `None` if it is about no device, or about one that is not known.
    /// Hosts can cause events of neighbours and stations, so their addresses are not part of it.
    pub(crate) fn device_of(&self, event: &Event) -> Option<String> {
        let ifindex = match event {
            Event::Link(link) => return Some(link.name.clone()),
            Event::Route(_, details) | Event::RouteGone(_, details) => details.device?,
            Event::Netconf(Netconf::Changed(Sysctl { of: SysctlOf::Device(ifindex), .. })) => *ifindex,
            Event::LinkGone { ifindex }
            | Event::BridgePort { ifindex, .. }
            | Event::BridgeVlans { ifindex }
            | Event::Address { ifindex, .. }
            | Event::AddressGone { ifindex, .. }
            | Event::Neighbour { ifindex, .. }
            | Event::NeighbourGone { ifindex, .. }
            | Event::Fdb { ifindex, .. }
            | Event::FdbGone { ifindex, .. }
            | Event::Filter { ifindex, .. } => *ifindex,
            _ => return None,
        };
        self.name(ifindex)
    }

    /// The name of a device.
    pub(crate) fn name(&self, ifindex: u32) -> Option<String> {
        self.links.get(&ifindex).map(|link| link.name.clone())
    }

    /// Whether ports must be planned again. The next call returns false.
    pub(crate) fn take_needs_plan(&mut self) -> bool {
        std::mem::take(&mut self.needs_plan)
    }

    fn link(&mut self, link: &Link) -> Option<Cause> {
        let before = self.links.insert(link.ifindex, link.clone());
        self.needs_plan |= before.as_ref() != Some(link);
        if let Some(before) = &before {
            self.unrelate(before);
        }
        // Packets of a tunnel are no packets of the device that carries it.
        let lower = link.lower.filter(|_| link.layer == LinkLayer::Ethernet && !link.hides_lower());
        self.upper.extend(lower.map(|lower| (lower, link.ifindex)));
        self.members.extend(link.master.map(|master| (master, link.ifindex)));
        // No action leads to a new device yet.
        before.filter(|before| !link.is_like(before)).map(|_| {
            self.forget_faults(link.ifindex);
            Cause::Link
        })
    }

    fn unrelate(&mut self, link: &Link) {
        if let Some(lower) = link.lower {
            self.upper.remove(&(lower, link.ifindex));
        }
        if let Some(master) = link.master {
            self.members.remove(&(master, link.ifindex));
        }
    }

    fn link_gone(&mut self, ifindex: u32) -> Option<Cause> {
        self.addresses.retain(|(on, ..)| *on != ifindex);
        self.neighbours.retain(|(on, _), _| *on != ifindex);
        self.qdiscs.retain(|(on, ..), _| *on != ifindex);
        self.egress_filters.retain(|(on, _)| *on != ifindex);
        self.ingress_filters.retain(|(on, _)| *on != ifindex);
        self.xdp.remove(&ifindex);
        self.offloads.remove(&ifindex);
        self.forget_faults(ifindex);
        let link = self.links.remove(&ifindex)?;
        self.unrelate(&link);
        self.needs_plan = true;
        Some(Cause::Link)
    }

    /// Forgets what was wrong with the XDP of a device that has changed.
    fn forget_faults(&mut self, ifindex: u32) {
        self.tx_errors.remove(&ifindex);
        self.xdp_refusals.remove(&ifindex);
        self.no_targets.remove(&ifindex);
    }

    /// Takes over what a new dump does not show: what was wrong with the XDP of devices that have not changed since an
    /// earlier state, and which NICs would merge packets without an XDP program.
    pub(crate) fn keep_findings(&mut self, before: Self) {
        let merged = before.offloads.iter().filter(|(_, offloads)| offloads.merges);
        for ifindex in merged.map(|(ifindex, _)| *ifindex) {
            let has_program = self.has_program(ifindex);
            self.offloads.entry(ifindex).and_modify(|offloads| offloads.merges |= has_program);
        }
        let is_like = |ifindex: &u32| {
            let links = before.links.get(ifindex).zip(self.links.get(ifindex));
            links.is_some_and(|(then, now)| now.is_like(then))
        };
        let is_kept = |ifindex: &u32| is_like(ifindex) && before.xdp.get(ifindex) == self.xdp.get(ifindex);
        let kept = |faults: &BTreeMap<u32, String>, is_kept: &dyn Fn(&u32) -> bool| {
            faults.iter().filter(|(on, _)| is_kept(on)).map(|(on, e)| (*on, e.clone())).collect()
        };
        self.tx_errors = kept(&before.tx_errors, &is_kept);
        self.xdp_refusals = kept(&before.xdp_refusals, &is_like);
        self.no_targets = before.no_targets.iter().copied().filter(is_like).collect();
        self.sessions = before.sessions;
    }

    /// All qdiscs.
    pub(crate) fn qdiscs(&self) -> impl Iterator<Item = &Qdisc> {
        self.qdiscs.values()
    }

    /// Whether a device has a qdisc of this kind with this handle in this place.
    pub(crate) fn has_qdisc(&self, qdisc: &Qdisc) -> bool {
        self.qdiscs
            .get(&(qdisc.ifindex, qdisc.parent, qdisc.handle))
            .is_some_and(|have| have.kind == qdisc.kind)
    }

    /// The kind of the root qdisc of a device, or of the qdisc of one of its transmit queues, if it does more than pass
    /// packets on in order. `None` if there is no such qdisc.
    pub(crate) fn shaper(&self, ifindex: u32) -> Option<&str> {
        // Qdiscs with handle 0 are defaults that the kernel created.
        let all = self.qdiscs.range((ifindex, 0, 0)..=(ifindex, u32::MAX, u32::MAX));
        let configured = all.map(|(_, qdisc)| qdisc).filter(|qdisc| qdisc.handle != 0);
        let root = configured.clone().find(|qdisc| qdisc.parent == ROOT)?;
        let mut relevant = configured
            .filter(|qdisc| qdisc.parent == ROOT || root.kind == "mq" && qdisc.parent & MAJOR == root.handle);
        relevant.find(|qdisc| !is_fifo(&qdisc.kind)).map(|qdisc| qdisc.kind.as_str())
    }

    /// Whether a qdisc of a device treats packets by the socket that they belong to. The kernel may have created it by
    /// default.
    pub(crate) fn is_paced(&self, ifindex: u32) -> bool {
        let mut all = self.qdiscs.range((ifindex, 0, 0)..=(ifindex, u32::MAX, u32::MAX));
        all.any(|(_, qdisc)| matches!(qdisc.kind.as_str(), "fq" | "etf" | "taprio"))
    }

    /// All neighbours with a MAC: device, address, MAC.
    pub(crate) fn neighbours(&self) -> impl Iterator<Item = (u32, IpAddr, Mac)> {
        self.neighbours.iter().map(|((on, addr), mac)| (*on, *addr, *mac))
    }

    /// The addresses of the neighbours that have this MAC.
    pub(crate) fn addresses_of(&self, mac: Mac) -> impl Iterator<Item = IpAddr> {
        self.neighbours.iter().filter(move |(_, has)| **has == mac).map(|((_, addr), _)| *addr)
    }

    /// Whether a device has tc filters on egress.
    pub(crate) fn has_egress_filters(&self, ifindex: u32) -> bool {
        self.egress_filters.iter().any(|(on, _)| *on == ifindex)
    }

    /// The devices directly on top of this one.
    pub(crate) fn stacked_on(&self, ifindex: u32) -> impl Iterator<Item = &Link> {
        second_elements(&self.upper, ifindex).filter_map(|upper| self.links.get(&upper))
    }

    /// The devices directly on top of a device, below it, and in it, and the bridge, bond or VRF that it is in.
    pub(crate) fn related(&self, ifindex: u32) -> Vec<u32> {
        let link = self.links.get(&ifindex);
        let below = link.into_iter().flat_map(|link| link.lower.into_iter().chain(link.master));
        let above = second_elements(&self.upper, ifindex).chain(second_elements(&self.members, ifindex));
        below.chain(above).collect()
    }

    /// The members of a bridge, bond or VRF.
    pub(crate) fn members(&self, master: u32) -> impl Iterator<Item = &Link> {
        second_elements(&self.members, master).filter_map(|member| self.links.get(&member))
    }

    /// Whether there is a ppp device.
    pub(crate) fn has_ppp(&self) -> bool {
        self.links.values().any(|link| link.kind.as_deref() == Some("ppp"))
    }

    /// Whether a device, or one on top of it, carries a session of PPPoE.
    pub(crate) fn carries_session(&self, ifindex: u32) -> bool {
        let carries = |link: &Link| self.sessions.devices.contains(&link.name);
        !self.sessions.devices.is_empty()
            && self.stack(ifindex).iter().filter_map(|on| self.links.get(on)).any(carries)
    }

    /// Whether a VLAN device is on top of a device, or of a bond or bridge that the device belongs to.
    pub(crate) fn has_vlans(&self, ifindex: u32) -> bool {
        self.stack(ifindex)
            .into_iter()
            .any(|on| self.stacked_on(on).any(|link| link.kind.as_deref() == Some("vlan")))
    }

    /// How an XDP program on a device sees VLAN tags. Where it does not see them, it would confuse the packets of
    /// different VLANs.
    pub(crate) fn tags(&self, link: &Link) -> Tags {
        let told = self.xdp.get(&link.ifindex).is_some_and(|xdp| xdp.vlan_tags);
        // A veth passes on what its peer has put into the metadata of the frame, whatever its own offloads are.
        let strips = link.bus.is_none()
            || self.offloads.get(&link.ifindex).is_none_or(|offloads| offloads.strips_tags);
        if !self.has_vlans(link.ifindex) && !self.filters_vlans(link.ifindex) {
            Tags::Unused
        } else if !strips || link.bus.as_deref() == Some("virtio") || link.kind.as_deref() == Some("tun") {
            Tags::InFrame
        } else if told {
            Tags::Told
        } else {
            Tags::Hidden
        }
    }

    /// Whether a NIC merges received packets before Linux sees them; `None` if that is not known.
    pub(crate) fn merges(&self, ifindex: u32) -> Option<bool> {
        self.offloads.get(&ifindex).map(|offloads| offloads.merges)
    }

    fn has_program(&self, ifindex: u32) -> bool {
        self.links.get(&ifindex).is_some_and(|link| link.xdp_prog.is_some())
    }

    /// Whether Linux forwards to and from a device: whether the device, or one on top of it, has an address that is
    /// neither loopback nor link-local.
    pub(crate) fn forwards(&self, ifindex: u32) -> bool {
        self.stack(ifindex).into_iter().any(|on| self.has_address(on))
    }

    /// Whether a device itself has an address that is neither loopback nor link-local.
    pub(crate) fn has_address(&self, ifindex: u32) -> bool {
        let first = (ifindex, IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        self.addresses
            .range(first..)
            .take_while(|(at, ..)| *at == ifindex)
            .any(|(_, addr, _)| is_routable(*addr))
    }

    /// Whether one of these captures sees the packets that a device forwards: on the device, on a device on top of it,
    /// or on all devices.
    pub(crate) fn is_captured(&self, ifindex: u32, captures: &BTreeSet<u32>) -> bool {
        !captures.is_empty() && (captures.contains(&0) || !self.stack(ifindex).is_disjoint(captures))
    }

    /// The filters of others that a port's packets pass: tc filters on ingress and TCX programs, on the port or on a
    /// device on top of it; qdiscs and tc filters on egress of a device on top of it. (The engine respects qdiscs and
    /// egress filters of the port itself.)
    pub(crate) fn filters(&self, ifindex: u32, programs: &BTreeSet<Program>) -> Vec<PortFilter> {
        let device = |on| self.links.get(on).map(|link| link.name.clone()).unwrap_or_default();
        let filter = |on, hook, kind: &str, program: Option<&String>| {
            let filter =
                PortFilter { device: device(on), hook, kind: kind.to_owned(), program: program.cloned() };
            (*on, filter)
        };
        let stack = self.stack(ifindex);
        let above = |on: &u32| *on != ifindex;
        let ingress =
            self.ingress_filters.iter().map(|(on, kind)| filter(on, FilterHook::Ingress, kind, None));
        let egress = self.egress_filters.iter().filter(|(on, _)| above(on));
        let egress = egress.map(|(on, kind)| filter(on, FilterHook::Egress, kind, None));
        let qdiscs = stack.iter().filter(|on| above(on));
        let qdiscs = qdiscs.filter_map(|on| Some(filter(on, FilterHook::Qdisc, self.shaper(*on)?, None)));
        let programs = programs.iter().map(|Program { ifindex: on, egress, name }| {
            let hook = if *egress { FilterHook::Egress } else { FilterHook::Ingress };
            filter(on, hook, "tcx", Some(name))
        });
        // With offload, the port carries MACsec packets in the clear, with metadata for the driver that fast packets
        // lack.
        let is_macsec =
            |on: &&u32| self.links.get(on).is_some_and(|link| link.kind.as_deref() == Some("macsec"));
        let macsec = stack.iter().filter(is_macsec);
        let macsec = macsec.flat_map(|on| {
            [FilterHook::Ingress, FilterHook::Egress].map(|hook| filter(on, hook, "macsec", None))
        });
        let all = ingress.chain(egress).chain(qdiscs).chain(programs).chain(macsec);
        all.filter(|(on, _)| stack.contains(on)).map(|(_, filter)| filter).collect()
    }

    /// A device and all devices on top of it: bridges, bonds, VLAN devices.
    pub(crate) fn stack(&self, ifindex: u32) -> BTreeSet<u32> {
        self.stacks([ifindex])
    }

    /// The given devices and all devices on top of them.
    pub(crate) fn stacks(&self, devices: impl IntoIterator<Item = u32>) -> BTreeSet<u32> {
        let mut seen = BTreeSet::new();
        let mut next: Vec<u32> = devices.into_iter().collect();
        while let Some(ifindex) = next.pop() {
            if seen.insert(ifindex) {
                next.extend(self.links.get(&ifindex).and_then(|link| link.master));
                next.extend(second_elements(&self.upper, ifindex));
            }
        }
        seen
    }

    /// The devices on top of ports, each with the ports below it.
    pub(crate) fn uppers(&self, ports: impl IntoIterator<Item = u32>) -> BTreeMap<u32, BTreeSet<u32>> {
        let mut uppers: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for port in ports {
            for upper in self.stack(port).into_iter().filter(|upper| *upper != port) {
                uppers.entry(upper).or_default().insert(port);
            }
        }
        uppers
    }

    /// Whether a device, or one on top of it, has this name. The name may end in `*`, which matches any ending.
    pub(crate) fn has_name(&self, ifindex: u32, name: &str) -> bool {
        let matches = |link: &Link| match name.strip_suffix('*') {
            Some(prefix) => link.name.starts_with(prefix),
            None => link.name == name,
        };
        self.stack(ifindex).iter().filter_map(|at| self.links.get(at)).any(matches)
    }
}

/// The flows that lead to a neighbour have been learned with its former MAC.
fn lost_neighbour(before: Mac) -> (Cause, Scope) {
    (Cause::Neighbour, Scope::Station(before))
}

/// Whether a kind of qdisc passes packets on in order, and no more.
fn is_fifo(kind: &str) -> bool {
    matches!(kind, "noqueue" | "pfifo" | "bfifo" | "pfifo_fast" | "mq" | "clsact" | "ingress")
}

fn is_routable(addr: IpAddr) -> bool {
    match addr {
        IpAddr::V4(addr) => !addr.is_loopback(),
        IpAddr::V6(addr) => !addr.is_loopback() && !addr.is_unicast_link_local(),
    }
}
