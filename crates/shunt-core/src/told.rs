//! What the history tells of a change, and which changes follow from a link that goes up or down.
//!
//! Linux reports a link that goes down by many messages: of the link, of its port in a bridge, of the bridge, of
//! addresses, neighbours and routes. One of them is told. A change that somebody makes by hand is told in any case.

use crate::{
    BridgePort, Cause, ChangeDetails, Core, Event, Link, Netconf, Program, Qdisc, RouteDetails, Scope,
    SysctlOf, TcNews, TcTurn, Told, network::Network, turns::Turns,
};
use shunt_wire::Mac;
use std::{
    collections::BTreeSet,
    net::IpAddr,
    time::{Duration, Instant},
};

/// What devices on top of a link, below it, or bridged with it do within this time follows from it. The kernel takes up
/// to a second to report a carrier.
const MOMENT: Duration = Duration::from_secs(3);
/// Linux makes routes and link-local addresses of a link that is up within this time: it looks for duplicates first.
const ADDRESSES: Duration = Turns::KEPT;

impl Link {
    /// Whether the device is up and has a carrier.
    pub(crate) const fn runs(&self) -> bool {
        self.up && self.carrier
    }
}

impl Core {
    /// What the change was about that moved the epoch for this cause and these flows; nothing if it follows from
    /// another change that is told. Without what it was about if that is not known, or was taken.
    pub fn take_changes(&mut self, cause: Cause, scope: Scope) -> Vec<ChangeDetails> {
        self.changes.take((cause, scope))
    }

    /// Notes that the epoch had not to move for this cause, since no flow depends on what has changed.
    pub fn pass_changes(&mut self, cause: Cause, scope: Scope) {
        self.changes.pass((cause, scope));
    }

    /// The ports that have gone up or down since the last call, oldest first. To be called before the actions are
    /// performed: what follows from these changes comes after them.
    pub fn take_links(&mut self) -> Vec<Told> {
        self.changes.take_links()
    }

    /// The changes that are told on their own, oldest first, and that [`Core::take_changes`] has not told. To be called
    /// when the actions have been performed.
    pub fn take_told(&mut self) -> Vec<Told> {
        self.changes.take_told()
    }

    /// Follows a link that goes up or down.
    pub(crate) fn follow_link(&mut self, now: Instant, before: &Link, link: &Link) {
        if before.runs() == link.runs() {
            return;
        }
        self.turns.note(link.ifindex, now);
        if self.ports.contains_key(&link.ifindex) {
            self.changes.note_told(Told::Link { port: link.name.clone(), up: link.runs() });
        }
    }

    /// What an event is about; `None` if it follows from another one that is told. To be called before the event is
    /// applied, and after [`Core::follow_link`].
    pub(crate) fn told(&self, now: Instant, event: &Event) -> Option<ChangeDetails> {
        let device = self.network.device_of(event);
        let with = |object: Option<String>| Some(ChangeDetails { device: device.clone(), object });
        match event {
            Event::Link(link) => match self.network.links.get(&link.ifindex) {
                Some(before) => self.told_of_link(now, before, link),
                None => with(None),
            },
            Event::LinkGone { .. } => with(Some("removed".to_owned())),
            Event::Address { ifindex, addr, prefix } => {
                let is_made = is_link_local(*addr) && self.follows(*ifindex, now, ADDRESSES);
                if is_made { None } else { with(Some(address(*addr, *prefix, "added"))) }
            }
            Event::AddressGone { ifindex, addr, prefix } => {
                let goes_with_link = self.is_down(*ifindex);
                if is_link_local(*addr) && (goes_with_link || self.follows(*ifindex, now, MOMENT)) {
                    return None;
                }
                let why =
                    if addr.is_ipv6() && goes_with_link { "removed: the link is down" } else { "removed" };
                with(Some(address(*addr, *prefix, why)))
            }
            // A neighbour with another MAC is told on its own; an entry that ages is no news.
            Event::Neighbour { .. } | Event::NeighbourGone { .. } => None,
            Event::Fdb { ifindex, .. } | Event::FdbGone { ifindex, .. } => {
                let follows = self.is_down(*ifindex) || self.follows(*ifindex, now, MOMENT);
                if follows { None } else { with(None) }
            }
            Event::Route(scope, details) => {
                let is_made = details.by_kernel && details.default.is_none();
                let follows = |ifindex: u32| self.is_down(ifindex) || self.follows(ifindex, now, ADDRESSES);
                if is_made && details.device.is_some_and(follows) {
                    return None;
                }
                let change = details.default.as_ref().map(|route| route.change).unwrap_or_default();
                with(route(&self.network, scope, details, change.words()))
            }
            Event::RouteGone(scope, details) => {
                let goes_with_link = details.device.is_some_and(|ifindex| self.is_down(ifindex));
                if goes_with_link && details.default.is_none() {
                    return None;
                }
                let why = if goes_with_link { "removed: the link is down" } else { "removed" };
                with(route(&self.network, scope, details, why))
            }
            Event::Netconf(Netconf::OfDevice) => None,
            Event::Netconf(Netconf::Unknown) => with(None),
            Event::Netconf(Netconf::Changed(sysctl)) => {
                let name = match sysctl.of {
                    SysctlOf::Device(ifindex) => self.name_of(ifindex),
                    SysctlOf::All | SysctlOf::Default => String::new(),
                };
                with(Some(sysctl.words(&name)))
            }
            Event::BridgePort { ifindex, port, runs } => {
                let link = self.network.links.get(ifindex);
                let turns =
                    link.is_some_and(|link| link.runs() != *runs) || self.follows(*ifindex, now, MOMENT);
                let what = told_of_port(link.and_then(|link| link.bridge_port), *port, turns)?;
                with(Some(what))
            }
            Event::BridgeVlans { .. } => with(Some("VLANs of the bridge".to_owned())),
            Event::Filter { ifindex, egress, change, .. } => {
                let device = self.network.name(*ifindex);
                let words = change.as_ref()?.words(device.as_deref(), *egress);
                Some(ChangeDetails { device: None, object: Some(words) })
            }
            _ => with(None),
        }
    }

    /// Notes what differs from the former state.
    pub(crate) fn note_difference(&mut self, now: Instant, cause: Cause, before: &Network) {
        let moves = (cause, Scope::Everything);
        match cause {
            Cause::Link => {}
            // See [`Core::tell_neighbour`].
            Cause::Neighbour => return self.changes.note(moves, None, false),
            _ => return self.changes.note(moves, Some(ChangeDetails::default()), false),
        }
        for link in before.links.values() {
            let told = match self.network.links.get(&link.ifindex).cloned() {
                Some(same) if same.is_like(link) => continue,
                Some(other) => {
                    self.follow_link(now, link, &other);
                    self.told_of_link(now, link, &other)
                }
                None => {
                    let object = Some("removed".to_owned());
                    Some(ChangeDetails { device: Some(link.name.clone()), object })
                }
            };
            self.changes.note(moves, told, false);
        }
    }

    /// Tells a change of a qdisc, before it is applied. Those that the kernel makes by itself come with their devices.
    pub(crate) fn tell_qdisc(&mut self, qdisc: &Qdisc, is_gone: bool) {
        let turn = match (self.network.has_qdisc(qdisc), is_gone) {
            (true, false) => TcTurn::Changed,
            (false, false) => TcTurn::Added,
            (true, true) => TcTurn::Removed,
            (false, true) => return,
        };
        self.note_qdisc(qdisc, turn);
    }

    /// Tells the qdiscs that differ from the former ones, after messages were lost.
    pub(crate) fn tell_qdiscs_since(&mut self, before: &[Qdisc]) {
        // Those of a device that has gone went with it.
        let is_there = |qdisc: &&Qdisc| self.network.links.contains_key(&qdisc.ifindex);
        let gone = before.iter().filter(|qdisc| !self.network.has_qdisc(qdisc)).filter(is_there);
        let new = self.network.qdiscs().filter(|qdisc| !before.contains(qdisc));
        let gone = gone.map(|qdisc| (qdisc.clone(), TcTurn::Removed));
        let all: Vec<_> = gone.chain(new.map(|qdisc| (qdisc.clone(), TcTurn::Added))).collect();
        all.into_iter().for_each(|(qdisc, turn)| self.note_qdisc(&qdisc, turn));
    }

    fn note_qdisc(&mut self, qdisc: &Qdisc, turn: TcTurn) {
        if !qdisc.is_default() {
            let device = self.name_of(qdisc.ifindex);
            let words = qdisc.words(turn, &device);
            self.changes.note_told(Told::Tc(TcNews { device, kind: qdisc.kind.clone(), words }));
        }
    }

    /// Tells programs of others that have come or gone, on devices whose programs were known and are read still.
    pub(crate) fn tell_programs(&mut self, programs: &BTreeSet<Program>, known: &BTreeSet<u32>) {
        let gone = self.programs.difference(programs).map(|program| (program, TcTurn::Removed));
        let new = programs.difference(&self.programs).map(|program| (program, TcTurn::Added));
        let is_read = |ifindex: &u32| known.contains(ifindex) && self.reads_programs_of(*ifindex);
        let news = gone.chain(new).filter(|(program, _)| is_read(&program.ifindex)).map(|(program, turn)| {
            let device = self.name_of(program.ifindex);
            let words = program.words(turn, &device);
            Told::Tc(TcNews { device, kind: "tcx".to_owned(), words })
        });
        let news: Vec<Told> = news.collect();
        news.into_iter().for_each(|told| self.changes.note_told(told));
    }

    /// Tells that a neighbour has another MAC than the last time that Linux knew one.
    pub(crate) fn tell_neighbour(&mut self, ifindex: u32, addr: IpAddr, mac: Mac) {
        let Some(was) = self.known_macs.note(ifindex, addr, mac) else { return };
        let device = self.name_of(ifindex);
        self.changes.note_neighbour(Told::Neighbour { device, addr, mac, was });
    }

    /// What a change of a link is about, apart from a port that goes up or down.
    pub(crate) fn told_of_link(&self, now: Instant, before: &Link, link: &Link) -> Option<ChangeDetails> {
        let mut what = Vec::new();
        if link.name != before.name {
            what.push(format!("its name was {}", before.name));
        }
        if link.mtu != before.mtu {
            what.push(format!("MTU {} instead of {}", link.mtu, before.mtu));
        }
        if link.mac != before.mac {
            what.push(format!("MAC address {} instead of {}", link.mac, before.mac));
        }
        match (before.master, link.master) {
            (was, Some(is)) if was != Some(is) => what.push(format!("now in {}", self.name_of(is))),
            (Some(was), None) => what.push(format!("no longer in {}", self.name_of(was))),
            _ => {}
        }
        let follows = self.follows(link.ifindex, now, MOMENT);
        what.extend(told_of_port(before.bridge_port, link.bridge_port, follows));
        let is_stack = matches!(link.kind.as_deref(), Some("bridge" | "bond" | "team" | "vrf"));
        // Nothing but somebody sets a bridge up or down. A VLAN device goes down with the device that carries it.
        let is_set = is_stack && link.up != before.up;
        let is_port = self.ports.contains_key(&link.ifindex);
        if link.runs() != before.runs() && !is_port && (is_set || !self.follows_another(link.ifindex, now)) {
            what.push(if link.runs() { "link up" } else { "link down" }.to_owned());
        }
        let is_promiscuous = |link: &Link| link.bridge.as_ref().map(|bridge| bridge.promiscuous);
        match (is_promiscuous(before), is_promiscuous(link)) {
            (Some(false), Some(true)) => what.push("promiscuous".to_owned()),
            (Some(true), Some(false)) => what.push("no longer promiscuous".to_owned()),
            _ => {}
        }
        // What a bridge or a bond finds out, when its members go up or down.
        let explains_digest = is_stack && self.follows_another(link.ifindex, now);
        if what.is_empty() && has_other_settings(before, link) && !explains_digest {
            what.push("a setting".to_owned());
        }
        let object = Some(what.join(", ")).filter(|object| !object.is_empty())?;
        Some(ChangeDetails { device: Some(link.name.clone()), object: Some(object) })
    }

    /// Whether a device, or one on top of it, below it, or bridged with it, went up or down a moment ago.
    fn follows(&self, ifindex: u32, now: Instant, within: Duration) -> bool {
        self.turns.has(ifindex, now, within) || self.follows_another(ifindex, now)
    }

    fn follows_another(&self, ifindex: u32, now: Instant) -> bool {
        self.network.related(ifindex).into_iter().any(|other| self.turns.has(other, now, MOMENT))
    }

    fn is_down(&self, ifindex: u32) -> bool {
        self.network.links.get(&ifindex).is_some_and(|link| !link.runs())
    }

    pub(crate) fn names(&self, devices: &[u32]) -> Vec<String> {
        devices.iter().filter_map(|ifindex| self.network.name(*ifindex)).collect()
    }

    fn name_of(&self, ifindex: u32) -> String {
        self.network.name(ifindex).unwrap_or_else(|| format!("if{ifindex}"))
    }
}

/// What has changed in a port of a bridge; `None` if it follows from its link, which `turns`, or from a message about
/// the device's bridge.
fn told_of_port(before: Option<BridgePort>, now: Option<BridgePort>, turns: bool) -> Option<String> {
    let (before, now) = before.zip(now)?;
    let mut named = now.settings_since(before);
    if !turns {
        named.extend((before.state != now.state).then(|| format!("state {}", now.state_name())));
        named.extend((before.cost != now.cost).then(|| format!("cost {}", now.cost)));
    }
    if !named.is_empty() {
        return Some(format!("{} in its bridge", named.join(", ")));
    }
    if before.settings != now.settings {
        return Some("a setting of its port in the bridge".to_owned());
    }
    (before.derived != now.derived && !turns).then(|| "spanning tree of its bridge".to_owned())
}

/// Whether anything differs that has no words of its own.
fn has_other_settings(before: &Link, link: &Link) -> bool {
    let settings =
        |link: &Link| (link.digest, link.layer, link.lower, link.kind.clone(), link.bridge.clone());
    settings(before) != settings(link)
}

fn is_link_local(addr: IpAddr) -> bool {
    matches!(addr, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// A router of the network can invent prefixes, so addresses of IPv6 are not named: they would hide other events.
fn address(addr: IpAddr, prefix: u8, change: &str) -> String {
    match addr {
        IpAddr::V4(v4) => format!("address {v4}/{prefix} {change}"),
        IpAddr::V6(_) => format!("an address of IPv6 {change}"),
    }
}

fn route(network: &Network, scope: &Scope, details: &RouteDetails, change: &str) -> Option<String> {
    let Scope::Prefix { addr, len } = scope else { return None };
    Some(match &details.default {
        Some(route) => {
            format!("{} {change}", route.words(addr.is_ipv6(), |ifindex| network.name(ifindex)))
        }
        None if *len == 0 => {
            let family = if addr.is_ipv4() { "IPv4" } else { "IPv6" };
            format!("default route of {family} {change}")
        }
        None => format!("route {addr}/{len} {change}"),
    })
}

#[cfg(test)]
mod tests;
