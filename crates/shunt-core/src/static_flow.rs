//! Compiles static flows: replaces the names of ports and routes by what the data plane needs to forward a packet.

use crate::{Core, Link};
use shunt_api::{Engine, Failure, FailureCode, Hop, RouteChoice, StaticFlow, StaticRoute, Tuple, no_device};
use shunt_wire::{Ethernet, Mac, Tag, encap};
use std::collections::BTreeMap;

/// A static flow with every name resolved. Its match is that of the [`StaticFlow`], on device `in_ifindex`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompiledFlow {
    /// The ingress device of the flow's packets.
    pub in_ifindex: u32,
    /// Slot of the ingress port in the data plane's port table.
    pub in_slot: u16,
    /// Slot of the egress port in the data plane's port table.
    pub out_slot: u16,
    /// The engine that the egress port uses.
    pub engine: Engine,
    /// Whether the driver of the ingress port may hand up unfinished checksums.
    pub partial: bool,
    /// The largest L3 packet that is forwarded, in bytes.
    pub max_l3_bytes: u16,
    /// The MAC that packets must be sent to.
    pub in_dmac: Mac,
    /// The L2 header that packets leave with: MACs, tags and EtherType.
    pub l2: Vec<u8>,
    /// VLAN tags in `l2`, 0 to 2.
    pub out_tags: u8,
    /// Addresses and ports that packets leave with.
    pub new: Tuple,
}

fn bad_request(why: impl Into<String>) -> Failure {
    Failure::new(FailureCode::BadRequest, why)
}

/// Resolves the names in a flow. `slot` gives the data plane's slot of a device, `None` if the device is not a port.
///
/// # Errors
/// When the flow names an unknown route, an unknown device or a device that is not a port, or mixes address families.
pub fn compile_static_flow(
    flow: &StaticFlow,
    routes: &BTreeMap<String, StaticRoute>,
    core: &Core,
    slot: impl Fn(u32) -> Option<u16>,
) -> Result<CompiledFlow, Failure> {
    let port = |name: &str| {
        let link = core.link(name).ok_or_else(|| bad_request(no_device(name)))?;
        let not_a_port = || bad_request(format!("{name}: not a port of this instance; see `shunt status`"));
        Ok::<_, Failure>((link, slot(link.ifindex).ok_or_else(not_a_port)?))
    };
    let hop = match &flow.route {
        RouteChoice::Inline(hop) => hop.clone(),
        RouteChoice::Named(name) => {
            let unknown = || {
                let why = format!("there is no route `{name}`; `shunt flow show` lists those that there are");
                bad_request(format!("flow {}: {why}", flow.key()))
            };
            routes.get(name).ok_or_else(unknown)?.hop()
        }
    };
    let (in_link, in_slot) = port(&flow.in_port)?;
    let (out_link, out_slot) = port(&hop.out_port)?;
    if flow.src.is_ipv4() != flow.dst.is_ipv4() {
        return Err(bad_request(format!("flow {}: one address is IPv4 and the other IPv6", flow.key())));
    }
    let setting =
        |ifindex| core.ports().find(|(link, _)| link.ifindex == ifindex).map(|(_, view)| view.setting);
    let engine_of = |ifindex| setting(ifindex).map_or(Engine::Tc, |setting| setting.engine);
    let (into, out) = (engine_of(in_link.ifindex), engine_of(out_link.ifindex));
    // The external engine takes packets from its own ports only, and gives them to no other.
    let engine = if (into == Engine::External) == (out == Engine::External) { out } else { Engine::Tc };
    Ok(CompiledFlow {
        in_ifindex: in_link.ifindex,
        in_slot,
        out_slot,
        engine,
        partial: setting(in_link.ifindex).is_some_and(|setting| setting.partial),
        max_l3_bytes: flow.mtu.unwrap_or(u16::try_from(out_link.mtu).unwrap_or(u16::MAX)),
        in_dmac: flow.dmac.unwrap_or(in_link.mac),
        l2: l2_header(&hop, out_link, flow.src.is_ipv4()),
        out_tags: hop.vlans.len() as u8,
        new: flow.new_tuple(),
    })
}

/// The L2 header that the flow's packets leave with.
fn l2_header(hop: &Hop, out: &Link, v4: bool) -> Vec<u8> {
    let (destination, source) = (hop.dmac, hop.smac.unwrap_or(out.mac));
    let ethernet = Ethernet { destination, source, tags: Tag::stack(&hop.vlans) };
    ethernet.header(if v4 { encap::IPV4 } else { encap::IPV6 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Choice,
        core::tests::{router, started},
    };
    use shunt_api::Proto;

    const NEXT_HOP: Mac = Mac([2, 0, 0, 0, 9, 9]);

    fn hop(vlans: &[u16]) -> Hop {
        Hop { out_port: "r1".to_owned(), dmac: NEXT_HOP, smac: None, vlans: vlans.to_vec() }
    }

    fn flow(route: RouteChoice) -> StaticFlow {
        StaticFlow {
            in_port: "r0".to_owned(),
            in_vlans: Vec::new(),
            proto: Proto::Udp,
            src: [192, 168, 1, 2].into(),
            sport: 1000,
            dst: [198, 18, 0, 9].into(),
            dport: 53,
            dmac: None,
            snat: None,
            dnat: None,
            route,
            mark: 0,
            priority: 0,
            mtu: None,
        }
    }

    /// Compiles on a router whose ports r0 and r1 have the slots 11 and 12.
    fn compile(flow: &StaticFlow, routes: &BTreeMap<String, StaticRoute>) -> Result<CompiledFlow, String> {
        let (core, _) = started(Choice::default(), router());
        let slot = |ifindex: u32| u16::try_from(ifindex + 10).ok();
        compile_static_flow(flow, routes, &core, slot).map_err(|failure| failure.message)
    }

    #[test]
    fn defaults_come_from_the_ports() {
        let compiled = compile(&flow(RouteChoice::Inline(hop(&[]))), &BTreeMap::new()).unwrap();
        assert_eq!((compiled.in_ifindex, compiled.in_slot, compiled.out_slot), (1, 11, 12));
        assert_eq!((compiled.engine, compiled.partial, compiled.max_l3_bytes), (Engine::Xdp, false, 1500));
        assert_eq!(compiled.in_dmac, Mac([2, 0, 0, 0, 0, 1]));
        assert_eq!(compiled.l2, [2, 0, 0, 0, 9, 9, 2, 0, 0, 0, 0, 2, 0x08, 0]);
    }

    #[test]
    fn of_two_tags_the_outer_one_is_a_service_tag() {
        let l2 =
            |vlans: &[u16]| compile(&flow(RouteChoice::Inline(hop(vlans))), &BTreeMap::new()).unwrap().l2;
        assert_eq!(l2(&[5])[12..], [0x81, 0x00, 0, 5, 0x08, 0]);
        assert_eq!(l2(&[7, 5])[12..], [0x88, 0xa8, 0, 7, 0x81, 0x00, 0, 5, 0x08, 0]);
    }

    #[test]
    fn a_failure_names_the_route_the_device_or_the_family() {
        let message = |flow: StaticFlow| compile(&flow, &BTreeMap::new()).unwrap_err();
        let named = flow(RouteChoice::Named("uplink".to_owned()));
        assert!(message(named).contains("there is no route `uplink`; `shunt flow show`"));
        let inline = || flow(RouteChoice::Inline(hop(&[])));
        let unknown = StaticFlow { in_port: "r9".to_owned(), ..inline() };
        assert_eq!(message(unknown), "r9: no such device in this network namespace; see `ip link`");
        let mixed = StaticFlow { dst: "2001:db8::1".parse().unwrap(), ..inline() };
        assert!(message(mixed).ends_with("one address is IPv4 and the other IPv6"));
        let (core, _) = started(Choice::default(), router());
        let failure = compile_static_flow(&inline(), &BTreeMap::new(), &core, |_| None).unwrap_err();
        assert_eq!(failure.message, "r0: not a port of this instance; see `shunt status`");
    }
}
