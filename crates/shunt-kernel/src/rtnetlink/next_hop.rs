//! Next hops that do not answer.

use super::{
    RTM_NEWNEIGH,
    neighbour::{FIXED_BYTES, NDA_DST, is_unanswered},
    way_out::{FIXED, RTA_OIF, family_and_bytes, route_to},
};
use crate::{Error, netlink_channel::Channel, netlink_message::Attrs};
use netlink_sys::protocols::NETLINK_ROUTE;
use std::net::IpAddr;

const RTM_GETNEIGH: u16 = 30;
const RTA_GATEWAY: u16 = 5;
const RTA_VIA: u16 = 18;

/// A next hop without an answer to ARP or neighbour discovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SilentHop {
    /// The device that leads to it.
    pub ifindex: u32,
    /// Its address.
    pub addr: IpAddr,
}

/// The next hop of the route to this address, in the network namespace of the calling thread, if the kernel has asked
/// for its MAC and has none. Nothing is sent.
///
/// # Errors
/// When the process may not use rtnetlink.
pub fn silent_hop_to(addr: IpAddr) -> Result<Option<SilentHop>, Error> {
    let mut channel = Channel::open(NETLINK_ROUTE, "NETLINK_ROUTE")?;
    let routes = route_to(&mut channel, addr, 0)?;
    let hop = routes.iter().find_map(|route| hop_of(Attrs::after(&route.payload, FIXED), addr));
    let Some(hop) = hop else { return Ok(None) };
    let (family, bytes) = family_and_bytes(hop.addr);
    let mut fixed = [0; FIXED_BYTES];
    fixed[0] = family;
    fixed[4..8].copy_from_slice(&hop.ifindex.to_ne_bytes());
    match channel.request("RTM_GETNEIGH", RTM_GETNEIGH, &fixed, |batch| batch.put(NDA_DST, &bytes)) {
        Ok(answers) => {
            let mut neighbours = answers.iter().filter(|answer| answer.kind == RTM_NEWNEIGH);
            Ok(neighbours.any(|answer| is_unanswered(&answer.payload)).then_some(hop))
        }
        // There is no such neighbour.
        Err(Error::Refused { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The next hop of a route: its gateway, or the destination itself. `None` if the gateway is of the other family.
fn hop_of(route: Attrs<'_>, to: IpAddr) -> Option<SilentHop> {
    let addr = route.addr(RTA_GATEWAY).unwrap_or(to);
    (!route.has(RTA_VIA)).then_some(SilentHop { ifindex: route.u32(RTA_OIF)?, addr })
}
