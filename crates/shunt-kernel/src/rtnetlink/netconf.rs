//! Messages about sysctls of a device.

use crate::netlink_message::{AF_INET, AF_INET6, Attrs, u32_at};
use shunt_core::{Netconf, Sysctl, SysctlOf};

/// The size of struct netconfmsg, aligned.
const FIXED_BYTES: usize = 4;

const NETCONFA_IFINDEX: u16 = 1;
const NETCONFA_FORWARDING: u16 = 2;
const NETCONFA_RP_FILTER: u16 = 3;
const NETCONFA_MC_FORWARDING: u16 = 4;
const NETCONFA_PROXY_NEIGH: u16 = 5;
const NETCONFA_IGNORE_ROUTES_WITH_LINKDOWN: u16 = 6;
const NETCONFA_INPUT: u16 = 7;
const NETCONFA_BC_FORWARDING: u16 = 8;

/// NETCONFA_IFINDEX_ALL and NETCONFA_IFINDEX_DEFAULT.
const ALL: i32 = -1;
const DEFAULT: i32 = -2;

/// A message about sysctls. One about a single sysctl has its value; one about a device that comes has all of them, and
/// one about a device that goes has none.
pub(super) fn changed(payload: &[u8]) -> Netconf {
    let attrs = Attrs::after(payload, FIXED_BYTES);
    let Some(family) = payload.first().and_then(|family| family_name(*family)) else {
        return Netconf::Unknown;
    };
    let Some(of) = attrs.u32(NETCONFA_IFINDEX) else { return Netconf::Unknown };
    let of = match of as i32 {
        ALL => SysctlOf::All,
        DEFAULT => SysctlOf::Default,
        _ => SysctlOf::Device(of),
    };
    let values: Vec<(u16, &[u8])> = attrs.into_iter().filter(|(kind, _)| *kind != NETCONFA_IFINDEX).collect();
    let (name, value) = match values.as_slice() {
        [(kind, value)] => (name(family, *kind), u32_at(value, 0)),
        _ => return Netconf::OfDevice,
    };
    match name.zip(value) {
        Some((name, value)) => Netconf::Changed(Sysctl { family, of, name, value: value as i32 }),
        None => Netconf::Unknown,
    }
}

fn family_name(family: u8) -> Option<&'static str> {
    const AF_MPLS: u8 = 28;
    match family {
        AF_INET => Some("ipv4"),
        AF_INET6 => Some("ipv6"),
        AF_MPLS => Some("mpls"),
        _ => None,
    }
}

fn name(family: &str, kind: u16) -> Option<&'static str> {
    Some(match kind {
        NETCONFA_FORWARDING => "forwarding",
        NETCONFA_RP_FILTER => "rp_filter",
        NETCONFA_MC_FORWARDING => "mc_forwarding",
        NETCONFA_PROXY_NEIGH if family == "ipv4" => "proxy_arp",
        NETCONFA_PROXY_NEIGH => "proxy_ndp",
        NETCONFA_IGNORE_ROUTES_WITH_LINKDOWN => "ignore_routes_with_linkdown",
        NETCONFA_INPUT => "input",
        NETCONFA_BC_FORWARDING => "bc_forwarding",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink_message::Batch;

    /// The message without its header.
    fn message(family: u8, attrs: &[(u16, i32)]) -> Vec<u8> {
        let mut batch = Batch::default();
        batch.message(0, 0, 0, &[family, 0, 0, 0]);
        attrs.iter().for_each(|(kind, value)| batch.put(*kind, &value.to_ne_bytes()));
        batch.bytes()[16..].to_vec()
    }

    #[test]
    fn a_sysctl_has_its_name_device_and_value() {
        let forwarding = |of| Netconf::Changed(Sysctl { family: "ipv4", of, name: "forwarding", value: 1 });
        for (ifindex, of) in [(-1, SysctlOf::All), (-2, SysctlOf::Default), (7, SysctlOf::Device(7))] {
            assert_eq!(changed(&message(AF_INET, &[(1, ifindex), (2, 1)])), forwarding(of));
        }
        let Netconf::Changed(sysctl) = changed(&message(AF_INET6, &[(1, 7), (5, 0)])) else { panic!() };
        assert_eq!((sysctl.family, sysctl.name, sysctl.value), ("ipv6", "proxy_ndp", 0));
        assert_eq!(changed(&message(AF_INET, &[(1, 7), (2, 1), (3, 0), (4, 0)])), Netconf::OfDevice);
        assert_eq!(changed(&message(AF_INET, &[(1, 7)])), Netconf::OfDevice);
        for unknown in [message(AF_INET, &[(1, 7), (99, 1)]), message(AF_INET, &[(2, 1)]), vec![99], vec![]] {
            assert_eq!(changed(&unknown), Netconf::Unknown);
        }
    }
}
