//! Next hops that do not answer.

use super::{
    RTM_NEWNEIGH,
    neighbour::{FIXED_BYTES, NDA_DST, is_unanswered},
    route,
    way_out::{family_and_bytes, route_to},
};
use crate::{Error, netlink_channel::Channel, netlink_message::Attrs};
use netlink_sys::protocols::NETLINK_ROUTE;
use std::net::IpAddr;

const RTM_GETNEIGH: u16 = 30;

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
    let hops = routes.iter().flat_map(|found| route::hops(Attrs::after(&found.payload, route::FIXED_BYTES)));
    // A route without a gateway leads to the destination itself.
    let mut hops =
        hops.filter_map(|hop| Some(SilentHop { ifindex: hop.device?, addr: hop.gateway.unwrap_or(addr) }));
    let Some(hop) = hops.next() else { return Ok(None) };
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
