//! Which addresses are those of hosts behind the ports, and which host has which.

use crate::{Core, LinkLayer};
use shunt_wire::Mac;
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    net::IpAddr,
};

/// Neighbours that are known at a time: as many as the kernel keeps by default for each address family, and more.
const NEIGHBOURS_MAX: usize = 8192;

/// The router's addresses, networks and neighbours at one time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LocalSide {
    own: HashSet<IpAddr>,
    networks: Vec<LocalNetwork>,
    neighbours: HashMap<IpAddr, (u32, Mac)>,
}

/// A network of a port, or of a device on top of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LocalNetwork {
    ifindex: u32,
    addr: IpAddr,
    prefix: u8,
    /// Whether its hosts answer ARP or neighbour discovery.
    has_neighbours: bool,
}

/// Who has an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// The router.
    Router,
    /// A host of the local side, by its MAC.
    Host(Mac),
    /// A host of the local side behind a port without layer 2, by its address.
    Address(IpAddr),
    /// An address of a local network that no neighbour has.
    Unknown,
    /// A host beyond the line.
    Remote,
}

impl Core {
    /// The local side: networks of ports and of devices on top of them.
    pub fn local_side(&self) -> LocalSide {
        let network = &self.network;
        let devices = network.stacks(self.ports.keys().copied());
        let own = network.addresses.iter().map(|(_, addr, _)| *addr).collect();
        let networks = network.addresses.iter().filter(|(on, addr, prefix)| {
            devices.contains(on) && !is_link_local(*addr) && *prefix < width(*addr)
        });
        let networks = networks.map(|(on, addr, prefix)| LocalNetwork {
            ifindex: *on,
            addr: *addr,
            prefix: *prefix,
            has_neighbours: network.links.get(on).is_none_or(|link| link.layer == LinkLayer::Ethernet),
        });
        let neighbours = network.neighbours().filter(|(on, ..)| devices.contains(on)).take(NEIGHBOURS_MAX);
        LocalSide {
            own,
            networks: networks.collect(),
            neighbours: neighbours.map(|(on, addr, mac)| (addr, (on, mac))).collect(),
        }
    }
}

impl LocalSide {
    /// Leaves out these devices: those that lead to the rest of the world.
    pub fn leave_out(&mut self, devices: &BTreeSet<u32>) {
        self.networks.retain(|network| !devices.contains(&network.ifindex));
        self.neighbours.retain(|_, (on, _)| !devices.contains(on));
    }

    /// Who has this address.
    pub fn end(&self, addr: IpAddr) -> End {
        if self.own.contains(&addr) {
            return End::Router;
        }
        if let Some((_, mac)) = self.neighbours.get(&addr) {
            return End::Host(*mac);
        }
        match self.networks.iter().find(|network| network.has(addr)) {
            Some(network) if network.has_neighbours => End::Unknown,
            Some(_) => End::Address(addr),
            None if addr.is_loopback() => End::Router,
            None => End::Remote,
        }
    }
}

impl LocalNetwork {
    fn has(self, addr: IpAddr) -> bool {
        let (a, b) = match (self.addr, addr) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(a.to_bits()), u128::from(b.to_bits())),
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits(), b.to_bits()),
            _ => return false,
        };
        (a ^ b).checked_shr(u32::from(width(addr) - self.prefix.min(width(addr)))).unwrap_or(0) == 0
    }
}

const fn width(addr: IpAddr) -> u8 {
    if addr.is_ipv4() { 32 } else { 128 }
}

const fn is_link_local(addr: IpAddr) -> bool {
    matches!(addr, IpAddr::V6(addr) if addr.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn side() -> LocalSide {
        let network = |ifindex, text: &str, prefix, has_neighbours| LocalNetwork {
            ifindex,
            addr: addr(text),
            prefix,
            has_neighbours,
        };
        let neighbour = |text: &str, on, last| (addr(text), (on, Mac([2, 0, 0, 0, 0, last])));
        LocalSide {
            own: ["192.168.1.1", "203.0.113.1", "10.9.0.1"].map(addr).into(),
            networks: vec![
                network(2, "192.168.1.1", 24, true),
                network(2, "2001:db8:1::1", 64, true),
                network(3, "203.0.113.1", 24, true),
                network(4, "10.9.0.1", 24, false),
            ],
            neighbours: [
                neighbour("192.168.1.2", 2, 1),
                neighbour("2001:db8:1::2", 2, 1),
                neighbour("fe80::2", 2, 1),
                neighbour("203.0.113.9", 3, 9),
            ]
            .into(),
        }
    }

    #[test]
    fn the_addresses_of_a_neighbour_are_one_host_and_the_line_has_none() {
        let mut side = side();
        side.leave_out(&[3].into());
        let host = End::Host(Mac([2, 0, 0, 0, 0, 1]));
        for (text, end) in [
            ("192.168.1.2", host),
            ("2001:db8:1::2", host),
            ("fe80::2", host),
            ("192.168.1.77", End::Unknown),
            ("2001:db8:1::abcd", End::Unknown),
            ("10.9.0.7", End::Address(addr("10.9.0.7"))),
            ("192.168.1.1", End::Router),
            ("203.0.113.1", End::Router),
            ("127.0.0.1", End::Router),
            ("203.0.113.9", End::Remote),
            ("198.51.100.1", End::Remote),
            ("fe80::9", End::Remote),
        ] {
            assert_eq!(side.end(addr(text)), end, "{text}");
        }
    }
}
