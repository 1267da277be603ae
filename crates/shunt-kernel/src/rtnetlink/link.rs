//! Link messages.

use super::{
    digest::{bridge_port, bridge_port_of, digest},
    link_layer::link_layer,
};
use crate::netlink_message::{AF_BRIDGE, AF_UNSPEC, Attrs, u16_at, u32_at};
use shunt_core::{Bridge, BridgeCalls, BridgePort, Event, Link};
use shunt_wire::Mac;
use std::time::Duration;

const FIXED_BYTES: usize = 16;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_PROTINFO: u16 = 12;
const IFLA_OPERSTATE: u16 = 16;
const IFLA_LINKINFO: u16 = 18;
const IFLA_PROMISCUITY: u16 = 30;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_XDP: u16 = 43;
const IFLA_PARENT_DEV_BUS_NAME: u16 = 57;

const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;

const IFLA_BR_FORWARD_DELAY: u16 = 1;
const IFLA_BR_AGEING_TIME: u16 = 4;
const IFLA_BR_STP_STATE: u16 = 5;
const IFLA_BR_VLAN_FILTERING: u16 = 7;
const IFLA_BR_VLAN_PROTOCOL: u16 = 8;
const IFLA_BR_NF_CALL_IPTABLES: u16 = 36;
const IFLA_BR_NF_CALL_IP6TABLES: u16 = 37;
const IFLA_BR_MULTI_BOOLOPT: u16 = 46;

/// A tick of USER_HZ, the unit of a bridge's times.
const TICK: Duration = Duration::from_millis(10);

const IFF_UP: u32 = 1;
const IFF_LOWER_UP: u32 = 1 << 16;
const IF_OPER_UNKNOWN: u8 = 0;
const IF_OPER_UP: u8 = 6;

pub(super) fn new(payload: &[u8]) -> Option<Event> {
    match *payload.first()? {
        AF_UNSPEC => link(payload).map(Event::Link),
        // A bridge reports the state, flags and VLANs of its ports in this way.
        AF_BRIDGE => port_of_bridge(payload, |attrs| bridge_port(attrs.nested(IFLA_PROTINFO))),
        family => {
            tracing::debug!(family, "ignoring RTM_NEWLINK of an unknown address family");
            None
        }
    }
}

pub(super) fn gone(payload: &[u8]) -> Option<Event> {
    match *payload.first()? {
        AF_UNSPEC => Some(Event::LinkGone { ifindex: u32_at(payload, 4)? }),
        // A port left its bridge; the device still exists.
        AF_BRIDGE => port_of_bridge(payload, |_| None),
        family => {
            tracing::debug!(family, "ignoring RTM_DELLINK of an unknown address family");
            None
        }
    }
}

/// A message that cannot be read is about an unknown device, and not one that the policy misses.
fn port_of_bridge(payload: &[u8], port: impl Fn(Attrs) -> Option<BridgePort>) -> Option<Event> {
    let attrs = Attrs::after(payload, FIXED_BYTES);
    let flags = u32_at(payload, 8).unwrap_or_default();
    Some(Event::BridgePort {
        ifindex: u32_at(payload, 4).unwrap_or_default(),
        port: port(attrs),
        runs: flags & IFF_UP != 0 && has_carrier(flags, attrs),
    })
}

fn has_carrier(flags: u32, attrs: Attrs) -> bool {
    let operstate = attrs.u8(IFLA_OPERSTATE).unwrap_or(IF_OPER_UNKNOWN);
    flags & IFF_LOWER_UP != 0 && matches!(operstate, IF_OPER_UP | IF_OPER_UNKNOWN)
}

fn link(payload: &[u8]) -> Option<Link> {
    let flags = u32_at(payload, 8)?;
    let attrs = Attrs::after(payload, FIXED_BYTES);
    let kind = kind(attrs);
    let is_pair = matches!(kind.as_deref(), Some("veth" | "netkit" | "vxcan"));
    let lower = attrs.u32(IFLA_LINK).filter(|index| *index != 0);
    Some(Link {
        ifindex: u32_at(payload, 4)?,
        name: attrs.text(IFLA_IFNAME)?,
        bus: attrs.text(IFLA_PARENT_DEV_BUS_NAME),
        layer: link_layer(u16_at(payload, 2)?, flags, kind.as_deref(), link_info(attrs)),
        up: flags & IFF_UP != 0,
        carrier: has_carrier(flags, attrs),
        // Wireless drivers report scans and associations as an RTM_NEWLINK with a name but without an MTU; such a
        // message does not describe the link.
        mtu: attrs.u32(IFLA_MTU)?,
        mac: attrs.get(IFLA_ADDRESS).and_then(|a| a.try_into().ok()).map(Mac).unwrap_or_default(),
        master: attrs.u32(IFLA_MASTER).filter(|index| *index != 0),
        lower: lower.filter(|_| !is_pair && !attrs.has(IFLA_LINK_NETNSID)),
        xdp_prog: xdp_prog(attrs.nested(IFLA_XDP)),
        bridge: (kind.as_deref() == Some("bridge")).then(|| bridge(attrs)),
        bridge_port: bridge_port_of(attrs.nested(IFLA_LINKINFO)),
        digest: digest(payload, attrs),
        kind,
    })
}

fn bridge(attrs: Attrs) -> Bridge {
    let data = link_info(attrs);
    let time = |kind| TICK * data.u32(kind).unwrap_or(0);
    let is_on = |kind| data.u8(kind).is_some_and(|on| on != 0);
    let mut ageing = time(IFLA_BR_AGEING_TIME);
    // A topology change of the spanning tree shortens the ageing time to the forward delay, and sends no message.
    if data.u32(IFLA_BR_STP_STATE).is_some_and(|on| on != 0) {
        ageing = ageing.min(time(IFLA_BR_FORWARD_DELAY));
    }
    Bridge {
        ageing,
        vlan_filtering: is_on(IFLA_BR_VLAN_FILTERING),
        vlan_protocol: data.u16(IFLA_BR_VLAN_PROTOCOL).unwrap_or(0),
        options: data.u32(IFLA_BR_MULTI_BOOLOPT).unwrap_or(0),
        calls: BridgeCalls { v4: is_on(IFLA_BR_NF_CALL_IPTABLES), v6: is_on(IFLA_BR_NF_CALL_IP6TABLES) },
        promiscuous: attrs.u32(IFLA_PROMISCUITY).is_some_and(|count| count != 0),
    }
}

/// The settings of the device's kind.
fn link_info(attrs: Attrs) -> Attrs {
    attrs.nested(IFLA_LINKINFO).nested(IFLA_INFO_DATA)
}

fn kind(attrs: Attrs) -> Option<String> {
    attrs.nested(IFLA_LINKINFO).text(IFLA_INFO_KIND)
}

/// The program that sees packets first. If one is attached in the driver and one behind it, the kernel reports both.
fn xdp_prog(xdp: Attrs) -> Option<u32> {
    const PROG_ID: u16 = 4;
    const DRV_PROG_ID: u16 = 5;
    const SKB_PROG_ID: u16 = 6;
    const HW_PROG_ID: u16 = 7;
    [PROG_ID, HW_PROG_ID, DRV_PROG_ID, SKB_PROG_ID]
        .into_iter()
        .filter_map(|kind| xdp.u32(kind))
        .find(|id| *id != 0)
}
