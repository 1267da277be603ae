//! Which devices are ports, and by which engine packets leave by them.

use crate::{Bridged, Link, PortSetting, Program, network::Network};
use shunt_api::{CaptureChoice, Engine, EngineChoice, FilterHook, PortFilter};
use std::collections::{BTreeMap, BTreeSet};

/// What the operator chose.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// The ports by name; empty for those that forwarding uses.
    pub ports: Vec<String>,
    /// The engine.
    pub engine: EngineChoice,
    /// What captures do to the ports that they are on.
    pub captures: CaptureChoice,
}

/// A port as the policy wants it, with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortView {
    /// What it does.
    pub setting: PortSetting,
    /// Why this engine, in one sentence.
    pub reason: String,
    /// What others have that its packets go through and fast ones would not.
    pub filters: Vec<PortFilter>,
}

/// Kinds of device that have a wire of their own, or the likeness of one.
fn is_leaf(link: &Link) -> bool {
    link.ethernet && matches!(link.kind.as_deref(), None | Some("veth" | "tun"))
}

/// Kinds of device that have no wire of their own, but those of the devices below them.
fn upper(link: &Link) -> Option<&'static str> {
    Some(match link.kind.as_deref()? {
        "bridge" => "a bridge",
        "bond" => "a bond",
        "team" => "a team",
        "vrf" => "a VRF",
        "vlan" => "a VLAN device",
        "macvlan" => "a macvlan",
        "macvtap" => "a macvtap",
        "ipvlan" => "an ipvlan",
        "ipvtap" => "an ipvtap",
        _ => return None,
    })
}

/// Why a device can be no port, and what to name instead; none of one that can.
pub(crate) fn unfit(network: &Network, link: &Link) -> Option<String> {
    if !link.ethernet {
        return Some("not an Ethernet device".to_owned());
    }
    let kind = upper(link)?;
    let is_below = |other: &&Link| other.master == Some(link.ifindex) || link.lower == Some(other.ifindex);
    let below: Vec<_> =
        network.links.values().filter(is_below).map(|other| format!("--port {}", other.name)).collect();
    let instead = if below.is_empty() { "the devices below it".to_owned() } else { below.join(" ") };
    Some(format!("{kind} is not a port; name what carries its packets: {instead}"))
}

/// Whether frames may come in whose L4 checksum nobody has computed, because they never were on a wire.
fn may_be_partial(link: &Link) -> bool {
    matches!(link.bus.as_deref(), None | Some("virtio" | "xen"))
}

impl Choice {
    fn takes(&self, network: &Network, link: &Link, is_port: bool) -> bool {
        if self.ports.is_empty() {
            is_leaf(link) && (network.forwards(link.ifindex) || network.bridges(link.ifindex))
        } else {
            // A port stays one under another name.
            is_port || self.ports.contains(&link.name) && unfit(network, link).is_none()
        }
    }

    /// The engine for packets that leave by a device, and why.
    fn engine(&self, network: &Network, link: &Link, ours: &dyn Fn(u32) -> bool) -> (Engine, String) {
        let tc = |why: String| (Engine::Tc, why);
        if self.engine == EngineChoice::Tc {
            return tc("chosen by configuration".to_owned());
        }
        match network.xdp.get(&link.ifindex) {
            None => return tc("the kernel does not say whether its driver has native XDP".to_owned()),
            Some((false, _)) => return tc("its driver has no native XDP".to_owned()),
            Some((true, false)) if link.kind.as_deref() == Some("veth") => {
                return tc(
                    "its peer takes no redirected frames (turn GRO on there, or attach an XDP program)"
                        .to_owned(),
                );
            }
            Some((true, false)) => return tc("its driver takes no redirected frames".to_owned()),
            Some((true, true)) => {}
        }
        if link.xdp_prog.is_some_and(|prog| !ours(prog)) {
            return tc("another XDP program is attached to it".to_owned());
        }
        if self.engine == EngineChoice::Xdp {
            return (Engine::Xdp, "chosen by configuration".to_owned());
        }
        if let Some(kind) = network.shaper(link.ifindex) {
            return tc(format!("its qdisc {kind} is in use, which XDP would bypass"));
        }
        if network.has_egress_filters(link.ifindex) {
            return tc("it has tc filters on egress, which XDP would bypass".to_owned());
        }
        (Engine::Xdp, "native XDP, and no qdisc that shapes or classifies".to_owned())
    }

    /// All ports as they should be now.
    pub(crate) fn plan(
        &self,
        network: &Network,
        captures: &BTreeSet<u32>,
        programs: &BTreeSet<Program>,
        ours: &dyn Fn(u32) -> bool,
        have: &BTreeMap<u32, PortView>,
    ) -> BTreeMap<u32, PortView> {
        let mut plan: BTreeMap<u32, PortView> = network
            .links
            .values()
            .filter(|link| self.takes(network, link, have.contains_key(&link.ifindex)))
            .map(|link| {
                let (engine, reason) = self.engine(network, link, ours);
                let filters = network.filters(link.ifindex, programs);
                let on = |hook| filters.iter().any(|filter| filter.hook == hook);
                let setting = PortSetting {
                    ifindex: link.ifindex,
                    engine,
                    xdp_in: false,
                    partial: may_be_partial(link),
                    up: link.up && link.carrier,
                    captured: network.is_captured(link.ifindex, captures),
                    filtered: on(FilterHook::Ingress),
                    filtered_out: on(FilterHook::Egress) || on(FilterHook::Qdisc),
                    bridged: Bridged::default(),
                };
                (link.ifindex, PortView { setting, reason, filters })
            })
            .collect();
        // A packet that leaves by XDP has come in by it, from any port; without such an egress XDP is only a cost.
        if plan.values().any(|port| port.setting.engine == Engine::Xdp) {
            for (ifindex, port) in &mut plan {
                let foreign = network.links[ifindex].xdp_prog.is_some_and(|prog| !ours(prog));
                port.setting.xdp_in = !foreign
                    && !network.has_vlans(*ifindex)
                    && !network.filters_vlans(*ifindex)
                    && network.xdp.get(ifindex).is_some_and(|(native, _)| *native);
            }
        }
        plan
    }
}
