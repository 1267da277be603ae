//! The devices by which the rest of the world is reached.

use super::{
    RTM_NEWROUTE,
    route::{FIXED_BYTES, hops},
};
use crate::{
    Error,
    netlink_channel::{Answer, Channel},
    netlink_message::{AF_INET, AF_INET6, Attrs},
};
use netlink_sys::protocols::NETLINK_ROUTE;
use std::{collections::BTreeSet, net::IpAddr};

const RTM_GETROUTE: u16 = 26;
/// Return the route itself, with all of its next hops.
const RTM_F_FIB_MATCH: u32 = 0x2000;
const RTA_DST: u16 = 1;

/// The devices of the routes to these addresses, in the network namespace of the calling thread. An address without a
/// route has none. Nothing is sent to the addresses.
///
/// # Errors
/// When the process may not use rtnetlink.
pub fn devices_to(addrs: &[IpAddr]) -> Result<BTreeSet<u32>, Error> {
    let mut channel = Channel::open(NETLINK_ROUTE, "NETLINK_ROUTE")?;
    let mut devices = BTreeSet::new();
    for addr in addrs {
        for route in route_to(&mut channel, *addr, RTM_F_FIB_MATCH)? {
            devices.extend(devices_of(&route.payload));
        }
    }
    Ok(devices)
}

/// The route to an address; nothing if there is none, or one that refuses.
pub(super) fn route_to(channel: &mut Channel, addr: IpAddr, flags: u32) -> Result<Vec<Answer>, Error> {
    let (family, bytes) = family_and_bytes(addr);
    let mut fixed = [0; FIXED_BYTES];
    (fixed[0], fixed[1]) = (family, bytes.len() as u8 * 8);
    fixed[8..].copy_from_slice(&flags.to_ne_bytes());
    match channel.request("RTM_GETROUTE", RTM_GETROUTE, &fixed, |batch| batch.put(RTA_DST, &bytes)) {
        Ok(mut answers) => {
            answers.retain(|answer| answer.kind == RTM_NEWROUTE);
            Ok(answers)
        }
        Err(Error::Refused { .. }) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

pub(super) fn family_and_bytes(addr: IpAddr) -> (u8, Vec<u8>) {
    match addr {
        IpAddr::V4(addr) => (AF_INET, addr.octets().to_vec()),
        IpAddr::V6(addr) => (AF_INET6, addr.octets().to_vec()),
    }
}

fn devices_of(payload: &[u8]) -> Vec<u32> {
    hops(Attrs::after(payload, FIXED_BYTES)).into_iter().filter_map(|hop| hop.device).collect()
}

#[cfg(test)]
mod tests {
    use super::{
        super::route::{RTA_MULTIPATH, RTA_OIF},
        *,
    };

    #[test]
    fn each_next_hop_of_a_route_has_a_device() {
        let hop = |device: u32| {
            let mut hop = vec![16, 0, 0, 0];
            hop.extend(device.to_ne_bytes());
            hop.extend([8, 0, 5, 0, 192, 0, 2, 1]);
            hop
        };
        let attribute = |kind: u16, value: &[u8]| {
            let mut bytes = (value.len() as u16 + 4).to_ne_bytes().to_vec();
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(value);
            bytes
        };
        let single = [vec![0; FIXED_BYTES], attribute(RTA_OIF, &7u32.to_ne_bytes())].concat();
        assert_eq!(devices_of(&single), [7]);
        let multi = [vec![0; FIXED_BYTES], attribute(RTA_MULTIPATH, &[hop(3), hop(4)].concat())].concat();
        assert_eq!(devices_of(&multi), [3, 4]);
        assert_eq!(devices_of(&multi[..multi.len() - 13]), Vec::<u32>::new());
        assert_eq!(devices_of(&[]), Vec::<u32>::new());
    }
}
