//! Tests of the policy without a kernel, and the router that they begin with.

mod captures;
mod changes;
mod engines;
mod ports;
mod programs;
mod qdiscs;
mod sessions;

use super::*;
use crate::{
    Bridged, Connection, EventSource, Link, LinkLayer, Netconf, PortSetting, Program, Qdisc, RouteDetails,
    SurveyCounts,
};
use shunt_api::{Config, Engine, EngineChoice, FilterHook, PortFilter};
use shunt_wire::Mac;
use std::net::IpAddr;

pub(crate) fn link(ifindex: u32, name: &str) -> Link {
    Link {
        ifindex,
        name: name.to_owned(),
        kind: None,
        bus: Some("pci".to_owned()),
        layer: LinkLayer::Ethernet,
        up: true,
        carrier: true,
        mtu: 1500,
        mac: Mac([2, 0, 0, 0, 0, ifindex as u8]),
        master: None,
        lower: None,
        xdp_prog: None,
        bridge: None,
        bridge_port: None,
        digest: 0,
    }
}

pub(crate) fn address(ifindex: u32, addr: &str) -> Event {
    Event::Address { ifindex, addr: addr.parse().unwrap(), prefix: 24 }
}

pub(crate) fn native(ifindex: u32) -> Event {
    Event::XdpFeatures {
        ifindex,
        native: true,
        target: true,
        target_frags: true,
        vlan_tags: false,
        zero_copy: false,
    }
}

fn qdisc(ifindex: u32, kind: &str, handle: u32) -> Qdisc {
    Qdisc { ifindex, kind: kind.to_owned(), handle, parent: 0xffff_ffff }
}

/// A router with two ports that have addresses and native XDP.
pub(crate) fn router() -> Vec<Event> {
    let links = [link(1, "r0"), link(2, "r1")].map(Event::Link);
    links
        .into_iter()
        .chain([address(1, "192.168.1.1"), address(2, "198.18.0.1"), native(1), native(2)])
        .collect()
}

pub(crate) fn started(choice: Choice, state: Vec<Event>) -> (Core, Instant) {
    let mut core = Core::new(choice, [77]);
    let now = fixed_time();
    core.handle(now, Event::Dump(state));
    core.handle(now, Event::LegacyRead(Vec::new()));
    (core, now)
}

#[expect(clippy::disallowed_methods, reason = "any instant will do, and std has no other constructor")]
fn fixed_time() -> Instant {
    Instant::now()
}

/// The actions of an event, without those that read what belongs to a link that has changed.
fn changes(core: &mut Core, now: Instant, event: Event) -> Vec<Action> {
    let mut actions = core.handle(now, event);
    actions.retain(|action| !matches!(action, Action::FindCaptures | Action::FindOffloads(_)));
    actions
}

fn engines(core: &Core) -> Vec<(String, Engine)> {
    core.ports().map(|(link, view)| (link.name.clone(), view.setting.engine)).collect()
}
