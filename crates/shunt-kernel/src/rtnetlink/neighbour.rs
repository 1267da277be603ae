//! Messages about neighbours and about the stations that bridges know.

use crate::netlink_message::{AF_BRIDGE, AF_INET, AF_INET6, Attrs, u16_at, u32_at};
use shunt_core::Event;
use shunt_wire::Mac;
use std::net::IpAddr;

pub(super) const FIXED_BYTES: usize = 12;

pub(super) const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NDA_VLAN: u16 = 5;
const NDA_MASTER: u16 = 9;

const NUD_INCOMPLETE: u16 = 0x01;
const NUD_REACHABLE: u16 = 0x02;
const NUD_STALE: u16 = 0x04;
const NUD_DELAY: u16 = 0x08;
const NUD_PROBE: u16 = 0x10;
const NUD_FAILED: u16 = 0x20;
const NUD_NOARP: u16 = 0x40;
const NUD_PERMANENT: u16 = 0x80;
const RESOLVED: u16 = NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE | NUD_NOARP | NUD_PERMANENT;

const NTF_MASTER: u8 = 0x04;
const NTF_PROXY: u8 = 0x08;

pub(super) fn new(payload: &[u8]) -> Option<Event> {
    let ifindex = u32_at(payload, 4)?;
    match *payload.first()? {
        AF_INET | AF_INET6 => {
            let addr = addr(payload)?;
            let resolved = u16_at(payload, 8)? & RESOLVED != 0;
            Some(Event::Neighbour { ifindex, addr, mac: mac(payload).filter(|_| resolved) })
        }
        AF_BRIDGE => station(payload).map(|(vlan, mac)| Event::Fdb { ifindex, vlan, mac }),
        family => {
            tracing::debug!(family, "ignoring RTM_NEWNEIGH of an unknown address family");
            None
        }
    }
}

pub(super) fn gone(payload: &[u8]) -> Option<Event> {
    let ifindex = u32_at(payload, 4)?;
    match *payload.first()? {
        AF_INET | AF_INET6 => Some(Event::NeighbourGone { ifindex, addr: addr(payload)? }),
        AF_BRIDGE => station(payload).map(|(vlan, mac)| Event::FdbGone { ifindex, vlan, mac }),
        family => {
            tracing::debug!(family, "ignoring RTM_DELNEIGH of an unknown address family");
            None
        }
    }
}

/// Whether the kernel asks for the MAC of this neighbour, or has asked in vain.
pub(super) fn is_unanswered(payload: &[u8]) -> bool {
    u16_at(payload, 8).is_some_and(|state| state & (NUD_INCOMPLETE | NUD_FAILED) != 0)
}

/// The address of a neighbour that packets can be forwarded to: not multicast, not broadcast, not a proxy entry.
fn addr(payload: &[u8]) -> Option<IpAddr> {
    let flags = *payload.get(10)?;
    let addr = Attrs::after(payload, FIXED_BYTES).addr(NDA_DST)?;
    let is_broadcast = matches!(addr, IpAddr::V4(v4) if v4.is_broadcast());
    (flags & NTF_PROXY == 0 && !addr.is_multicast() && !is_broadcast).then_some(addr)
}

fn mac(payload: &[u8]) -> Option<Mac> {
    Attrs::after(payload, FIXED_BYTES).get(NDA_LLADDR)?.try_into().ok().map(Mac)
}

/// The VLAN and MAC of a station in a bridge's table. The same message (NTF_SELF) also reports a device's own filter
/// list and a VXLAN's remotes, which belong to no bridge.
fn station(payload: &[u8]) -> Option<(u16, Mac)> {
    let attrs = Attrs::after(payload, FIXED_BYTES);
    let is_bridged = attrs.has(NDA_MASTER) || payload.get(10)? & NTF_MASTER != 0;
    let mac = mac(payload).filter(|mac| is_bridged && !mac.is_group())?;
    Some((attrs.u16(NDA_VLAN).unwrap_or(0), mac))
}
