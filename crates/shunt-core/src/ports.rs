//! Decides which devices are ports, and by which engine packets leave each port.

use crate::{
    Bridged, Choice, ExternalPorts, ExternalState, Link, LinkLayer, PortSetting, Program, external,
    network::{Network, Tags, Xdp},
    survey::{Driver, Received, Surveys},
};
use shunt_api::{Engine, EngineChoice, FilterHook, PortFilter};
use std::collections::{BTreeMap, BTreeSet};

/// A port with its setting, and the reasons for the setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortView {
    /// How the data plane treats the port.
    pub setting: PortSetting,
    /// The reason for the engine, in one sentence.
    pub reason: String,
    /// The filters, programs and qdiscs of others that the port's packets pass and that fast packets would bypass.
    pub filters: Vec<PortFilter>,
}

/// Whether a device that can be a port sends and receives packets of its own: they are not those of a device below it.
fn is_leaf(link: &Link) -> bool {
    link.is_left_to_tc() || matches!(link.kind.as_deref(), None | Some("veth" | "tun"))
}

/// The reason why a device without an Ethernet header cannot be a port; `None` if it can be one.
fn unfit_without_ethernet(link: &Link) -> Option<String> {
    match (link.layer, link.kind.as_deref()) {
        (LinkLayer::Absent, Some("xfrm" | "vti" | "vti6")) => {
            Some("an IPsec device cannot be a port: IPsec must see each packet".to_owned())
        }
        (
            LinkLayer::Absent,
            None
            | Some(
                "tun" | "wireguard" | "ppp" | "ipip" | "gre" | "sit" | "ip6tnl" | "ip6gre",
            ),
        ) => None,
        (LinkLayer::Other, Some("ppp")) => Some(
            "a ppp device can be a port from Linux 6.5 on: older kernels take it for an Ethernet device".to_owned(),
        ),
        (LinkLayer::WithoutRemote, _) => Some(
            "a tunnel whose other end depends on the route of each packet cannot be a port; give it a `remote` \
             address, without `external`"
                .to_owned(),
        ),
        _ => Some("not an Ethernet device".to_owned()),
    }
}

/// The name of the kind of a device that sends and receives through devices below it; `None` for other devices.
pub(crate) fn upper_kind(link: &Link) -> Option<&'static str> {
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

/// The reason why a device cannot be a port, and the devices to name instead; `None` if the device can be a port.
pub(crate) fn unfit(network: &Network, link: &Link) -> Option<String> {
    if link.layer != LinkLayer::Ethernet {
        return unfit_without_ethernet(link);
    }
    let users: Vec<_> = switch_ports(network, link).collect();
    if !users.is_empty() {
        return Some(format!(
            "the device that leads to a switch (DSA) cannot be a port; name the ports of the switch: {}",
            users.join(", ")
        ));
    }
    let kind = upper_kind(link)?;
    let lower = link.lower.and_then(|lower| network.links.get(&lower));
    let below = network.members(link.ifindex).chain(lower);
    let below: Vec<_> = below.map(|device| device.name.as_str()).collect();
    let devices = if below.is_empty() { String::new() } else { format!(": {}", below.join(", ")) };
    Some(format!("{kind} cannot be a port; name the devices below it as ports{devices}"))
}

/// The ports of the switch that a device leads to: its frames have tags of the switch, or trailers.
fn switch_ports<'n>(network: &'n Network, conduit: &Link) -> impl Iterator<Item = &'n str> + use<'n> {
    let Link { ifindex, kind, .. } = conduit;
    let links = if kind.is_none() { network.links.values() } else { Default::default() };
    let lower = Some(*ifindex);
    links
        .filter(move |link| link.lower == lower && link.kind.as_deref() == Some("dsa"))
        .map(|link| link.name.as_str())
}

/// Whether frames may come in that have never been on a wire: with unfinished L4 checksums, in aggregates, or in
/// buffers of a socket.
fn is_virtual(link: &Link) -> bool {
    matches!(link.bus.as_deref(), None | Some("virtio" | "xen"))
}

/// What native XDP does on a device, if it pays only for some of the packets that may come in; `None` if it always
/// pays.
fn driver(network: &Network, link: &Link) -> Option<Driver> {
    let merges = network.merges(link.ifindex);
    match (link.kind.as_deref(), link.bus.as_deref()) {
        (Some("veth" | "tun"), _) => Some(Driver::Copies),
        (_, Some("virtio")) => (merges != Some(false)).then_some(Driver::Guest),
        _ if is_virtual(link) => Some(Driver::Guest),
        _ => (merges == Some(true)).then_some(Driver::Nic),
    }
}

/// The ports where the program would neither redirect to another port nor let another port redirect to this one.
/// Reviews do not count, because they pass.
fn idle_ports(surveys: &Surveys, plan: &BTreeMap<u32, PortView>) -> BTreeSet<u32> {
    let mut idle = BTreeSet::new();
    if plan.len() == 1 {
        // A port may redirect to itself.
        return idle;
    }
    let (mut receive, mut send) = (BTreeSet::new(), BTreeSet::new());
    for (ifindex, PortView { setting, .. }) in plan {
        let takes_frames = surveys.received(*ifindex).is_none_or(Received::is_frames);
        if setting.xdp_in && !setting.xdp_external && takes_frames {
            receive.insert(*ifindex);
        }
        if setting.engine == Engine::Xdp && (takes_frames || !surveys.needs_program(*ifindex)) {
            send.insert(*ifindex);
        }
    }
    let others = |of: &BTreeSet<u32>, port: u32| of.iter().any(|other| *other != port);
    while let Some(port) = receive.iter().copied().find(|port| {
        let is_target = send.contains(port) && surveys.needs_program(*port) && others(&receive, *port);
        !others(&send, *port) && !is_target
    }) {
        receive.remove(&port);
        if surveys.needs_program(port) {
            send.remove(&port);
        }
        idle.insert(port);
    }
    idle
}

/// Leaves ports that do not accept redirected frames yet to tc. Some drivers accept them only while an XDP program is
/// attached: the plan attaches it, and the kernel reports if that changes anything.
fn leave_to_tc_until_accepted(network: &Network, plan: &mut BTreeMap<u32, PortView>) {
    let accepts = |ifindex: &u32| network.xdp.get(ifindex).is_none_or(|xdp| xdp.target);
    let waiting = plan.iter_mut().filter(|(ifindex, _)| !accepts(ifindex)).map(|(_, view)| view);
    for view in waiting.filter(|view| view.setting.engine == Engine::Xdp) {
        view.setting.engine = Engine::Tc;
        view.reason = "its driver does not accept redirected frames yet".to_owned();
    }
}

/// Takes XDP off the ports where it comes back at once and resets no link, since there is no flow to forward. Their
/// engine stays: other programs still lead there when the first flow is learned.
pub(crate) fn take_programs_off(network: &Network, plan: &mut BTreeMap<u32, PortView>) {
    let is_cheap = |ifindex: &u32| {
        let kind = network.links.get(ifindex).and_then(|link| link.kind.as_deref());
        matches!(kind, Some("veth" | "tun"))
    };
    for (_, PortView { setting, reason, .. }) in plan.iter_mut().filter(|(ifindex, _)| is_cheap(ifindex)) {
        if setting.xdp_in && !setting.xdp_external {
            setting.xdp_in = false;
            reason.push_str("; no program while there are no flows");
        }
    }
}

/// Leaves the devices out for which an instance has no place, and returns them. Those that are ports already stay; of
/// the others, the older devices become ports.
pub(crate) fn leave_beyond(
    most: usize,
    have: &BTreeMap<u32, PortView>,
    plan: &mut BTreeMap<u32, PortView>,
) -> BTreeSet<u32> {
    let stay = plan.keys().filter(|ifindex| have.contains_key(ifindex)).count();
    let places = most.saturating_sub(stay);
    let new = plan.keys().copied().filter(|ifindex| !have.contains_key(ifindex));
    let beyond: BTreeSet<u32> = new.skip(places).collect();
    plan.retain(|ifindex, _| !beyond.contains(ifindex));
    beyond
}

/// Adds to the reasons of NICs where XDP could run if it saw the VLAN tags.
fn explain_hidden_tags(network: &Network, plan: &mut BTreeMap<u32, PortView>) {
    for (ifindex, view) in plan.iter_mut().filter(|(_, view)| view.setting.engine == Engine::Xdp) {
        let nic = network.links.get(ifindex).filter(|link| link.bus.is_some());
        if let Some(link) = nic.filter(|link| network.tags(link) == Tags::Hidden) {
            let Link { name, .. } = link;
            view.reason = format!(
                "{}; what comes in goes by tc, since its driver takes VLAN tags out of the frames (`ethtool -K {name} \
                 rxvlan off` leaves them in)",
                view.reason
            );
        }
    }
}

impl Choice {
    fn is_port(&self, network: &Network, link: &Link, was_port: bool) -> bool {
        let is_chosen = if self.ports.is_empty() {
            is_leaf(link)
                && (network.forwards(link.ifindex)
                    || network.bridges(link.ifindex)
                    || self.may_serve_session(network, link))
        } else {
            // A device that is a port stays one after a rename.
            was_port || self.ports.contains(&link.name)
        };
        is_chosen && unfit(network, link).is_none()
    }

    /// Whether XDP could add and remove the headers of a session of PPPoE that a device carries.
    fn may_serve_session(&self, network: &Network, link: &Link) -> bool {
        matches!(self.engine, EngineChoice::Auto | EngineChoice::Xdp)
            && network.carries_session(link.ifindex)
            && network.xdp.get(&link.ifindex).is_some_and(|xdp| xdp.native)
    }

    /// Lets XDP send to the ppp ports whose packets leave by a port where XDP runs, unless it would bypass something on
    /// either of them.
    pub(crate) fn serve_sessions(&self, network: &Network, plan: &mut BTreeMap<u32, PortView>) {
        if !matches!(self.engine, EngineChoice::Auto | EngineChoice::Xdp) {
            return;
        }
        for (ppp, below) in &network.sessions.below {
            let Some(carrier) = network.links.get(below).filter(|link| link.master.is_none()) else {
                continue;
            };
            let Some(PortView { setting, .. }) = plan.get(below) else { continue };
            let serves = setting.engine == Engine::Xdp && setting.xdp_in && !setting.xdp_external;
            let sees_all = !setting.captured && !setting.filtered && !setting.filtered_out;
            let bypasses = self.engine == EngineChoice::Auto
                && (network.shaper(*ppp).is_some() || network.has_egress_filters(*ppp));
            if let Some(view) = plan.get_mut(ppp).filter(|_| serves && sees_all && !bypasses) {
                view.setting.engine = Engine::Xdp;
                view.reason = format!("XDP on {} adds and removes the headers of its session", carrier.name);
            }
        }
    }

    /// The reason why a device is not a port.
    pub(crate) fn why_no_port(&self, network: &Network, link: &Link) -> String {
        if let Some(why) = unfit(network, link) {
            return why;
        }
        let name = &link.name;
        match &link.kind {
            _ if !self.ports.is_empty() => format!("not named; --port {name} makes it a port, too"),
            Some(kind) if !is_leaf(link) => {
                format!("devices of the kind {kind} are ports only if they are named: --port {name}")
            }
            _ => format!(
                "no address to forward from, and no member of a bridge; --port {name} makes it a port"
            ),
        }
    }

    /// Whether the configuration gives a device to the external engine.
    fn is_external(&self, link: &Link) -> bool {
        self.engine == EngineChoice::External || self.external_ports.contains(&link.name)
    }

    /// The engine for packets that leave through a device, and the reason.
    fn engine(
        &self,
        network: &Network,
        link: &Link,
        external: &ExternalState,
        ours: &dyn Fn(u32) -> bool,
    ) -> (Engine, String) {
        let tc = |why: String| (Engine::Tc, why);
        if link.layer != LinkLayer::Ethernet {
            return tc(external::NO_ETHERNET.to_owned());
        }
        if self.is_external(link) {
            let why = external::obstacle(network, link, ours).or_else(|| external.why_not(link.ifindex));
            return why.map_or((Engine::External, "chosen by configuration".to_owned()), tc);
        }
        if self.engine == EngineChoice::Tc {
            return tc("chosen by configuration".to_owned());
        }
        match network.xdp.get(&link.ifindex) {
            None => return tc("the kernel does not say whether its driver has native XDP".to_owned()),
            Some(Xdp { native: false, .. }) => return tc("its driver has no native XDP".to_owned()),
            Some(Xdp { target: false, .. }) if link.kind.as_deref() == Some("veth") => {
                return tc(
                    "its veth peer accepts no redirected frames (turn GRO on there, or attach an XDP program)"
                        .to_owned(),
                );
            }
            Some(Xdp { target: false, .. }) if network.no_targets.contains(&link.ifindex) => {
                return tc("its driver accepts no redirected frames".to_owned());
            }
            Some(_) => {}
        }
        if let Some(error) = network.xdp_refusals.get(&link.ifindex) {
            return tc(format!("its driver refuses the XDP program ({error})"));
        }
        if let Some(error) = network.tx_errors.get(&link.ifindex) {
            return tc(format!("its driver refuses redirected frames ({error})"));
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

    /// The ports on which XDP would run, but pays only for some of the packets that they may receive: those of virtual
    /// devices, and of NICs that merge packets.
    pub(crate) fn surveyed(
        &self,
        network: &Network,
        plan: &BTreeMap<u32, PortView>,
    ) -> BTreeMap<u32, Driver> {
        let auto = self.engine == EngineChoice::Auto;
        let runs = plan.iter().filter(|(_, view)| auto && view.setting.xdp_in && !view.setting.xdp_external);
        let links = runs.filter_map(|(ifindex, _)| network.links.get(ifindex));
        links.filter_map(|link| Some((link.ifindex, driver(network, link)?))).collect()
    }

    /// Takes XDP off the ports where it does not pay or is not possible yet, and completes the reasons. If it runs on
    /// no port, all packets leave through tc.
    pub(crate) fn apply_surveys(
        &self,
        network: &Network,
        surveys: &Surveys,
        plan: &mut BTreeMap<u32, PortView>,
    ) {
        let name = |ifindex: u32| network.links.get(&ifindex).map_or("", |link| link.name.as_str());
        let reasons = surveys.reasons(plan.keys().map(|ifindex| (*ifindex, name(*ifindex))));
        let is_auto = self.engine == EngineChoice::Auto;
        let idle = if is_auto { idle_ports(surveys, plan) } else { BTreeSet::new() };
        for (ifindex, view) in plan.iter_mut() {
            let is_idle = idle.contains(ifindex);
            view.setting.xdp_in &= surveys.allows_program(*ifindex) != Some(false) && !is_idle;
            let is_target = surveys.allows_redirects(*ifindex) != Some(false)
                && !(is_idle && surveys.needs_program(*ifindex));
            if view.setting.engine == Engine::Xdp && !is_target {
                view.setting.engine = Engine::Tc;
                let why = is_idle.then(|| "no other port uses XDP".to_owned());
                view.reason = why.into_iter().chain(reasons.clone()).collect::<Vec<_>>().join("; ");
            }
        }
        let pays = |(ifindex, view): (&u32, &PortView)| {
            view.setting.xdp_in && !view.setting.xdp_external
                || surveys.received(*ifindex).is_some_and(Received::is_frames)
        };
        let pays = plan.iter().any(pays);
        for view in plan.values_mut().filter(|view| view.setting.engine == Engine::Xdp) {
            if !pays {
                view.setting.engine = Engine::Tc;
                view.reason = reasons.join("; ");
            } else if !reasons.is_empty() {
                view.reason = format!("{}; {}", view.reason, reasons.join("; "));
            }
        }
        explain_hidden_tags(network, plan);
        leave_to_tc_until_accepted(network, plan);
    }

    /// The ports of a plan that the external engine can serve, and how.
    pub(crate) fn for_external(
        &self,
        network: &Network,
        plan: &BTreeMap<u32, PortView>,
        ours: &dyn Fn(u32) -> bool,
    ) -> ExternalPorts {
        let links = plan.keys().filter_map(|ifindex| network.links.get(ifindex));
        let fit = |link: &&Link| self.is_external(link) && external::obstacle(network, link, ours).is_none();
        let ports: BTreeSet<u32> = links.filter(fit).map(|link| link.ifindex).collect();
        let has_zero_copy = |port: &u32| network.xdp.get(port).is_some_and(|xdp| xdp.zero_copy);
        let copied = ports.iter().copied().filter(|port| !has_zero_copy(port)).collect();
        ExternalPorts { ports, copied }
    }

    /// Whether a port that the external engine does not serve at the moment keeps its XDP program: to attach one resets
    /// the link of some NICs.
    fn keeps_program(
        &self,
        network: &Network,
        link: &Link,
        external: &ExternalState,
        ours: &dyn Fn(u32) -> bool,
        have: Option<&PortView>,
    ) -> bool {
        have.is_some_and(|view| view.setting.xdp_external)
            && self.is_external(link)
            && !external.fails.contains_key(&link.ifindex)
            && external::obstacle(network, link, ours).is_none()
    }

    /// All ports with the settings that they should have now. `ours` says whether an XDP program is Shunt's.
    pub(crate) fn plan(
        &self,
        network: &Network,
        captures: &BTreeSet<u32>,
        programs: &BTreeSet<Program>,
        external: &ExternalState,
        ours: &dyn Fn(u32) -> bool,
        have: &BTreeMap<u32, PortView>,
    ) -> BTreeMap<u32, PortView> {
        let mut wants_xdp = false;
        let mut plan: BTreeMap<u32, PortView> = network
            .links
            .values()
            .filter(|link| self.is_port(network, link, have.contains_key(&link.ifindex)))
            .map(|link| {
                let (engine, reason) = self.engine(network, link, external, ours);
                let have = have.get(&link.ifindex);
                let xdp_external =
                    engine == Engine::External || self.keeps_program(network, link, external, ours, have);
                wants_xdp |= engine == Engine::Xdp;
                let filters = network.filters(link.ifindex, programs);
                let on = |hook| filters.iter().any(|filter| filter.hook == hook);
                let setting = PortSetting {
                    ifindex: link.ifindex,
                    engine,
                    no_l2: link.layer != LinkLayer::Ethernet,
                    xdp_in: xdp_external,
                    xdp_external,
                    xdp_tags: false,
                    xdp_frags: network.xdp.get(&link.ifindex).is_some_and(|xdp| xdp.target_frags),
                    partial: is_virtual(link),
                    up: link.up && link.carrier,
                    captured: network.is_captured(link.ifindex, captures),
                    filtered: on(FilterHook::Ingress),
                    filtered_out: on(FilterHook::Egress) || on(FilterHook::Qdisc),
                    bridged: Bridged::default(),
                    floods_unseen: false,
                    paced: network.is_paced(link.ifindex),
                };
                (link.ifindex, PortView { setting, reason, filters })
            })
            .collect();
        // A packet can leave through XDP only if XDP has received it, on any port. If no port sends by XDP, running it
        // only costs time.
        if wants_xdp {
            let others = plan.iter_mut().filter(|(_, port)| !port.setting.xdp_external);
            for (ifindex, port) in others {
                let link = &network.links[ifindex];
                let foreign = link.xdp_prog.is_some_and(|prog| !ours(prog));
                let tags = network.tags(link);
                port.setting.xdp_tags = tags == Tags::Told;
                port.setting.xdp_in = !foreign
                    && !port.setting.no_l2
                    && tags != Tags::Hidden
                    && network.xdp.get(ifindex).is_some_and(|xdp| xdp.native)
                    && !network.xdp_refusals.contains_key(ifindex);
            }
        }
        plan
    }
}

/// The ports of two states whose packets are captured in the second one only.
pub(crate) fn newly_captured(before: &BTreeMap<u32, PortView>, now: &BTreeMap<u32, PortView>) -> Vec<u32> {
    let was_free = |ifindex: &u32| before.get(ifindex).is_some_and(|view| !view.setting.captured);
    let captured = now.iter().filter(|(_, view)| view.setting.captured).map(|(ifindex, _)| *ifindex);
    captured.filter(was_free).collect()
}
