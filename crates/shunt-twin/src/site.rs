//! Sites: the ends of the router's wires, where hosts are.

use shunt_testkit::Segment;
use shunt_wire::{Mac, Tag};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A site from which packets come and at which they arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Site {
    /// Bridged, by port r0 of br0.
    Lan,
    /// Bridged, by port r2 of br0.
    Lan2,
    /// Routed, by r1.
    Wan,
    /// Routed, by r3 or a VLAN device on it.
    Wan2,
    /// Routed, by r4 or a VLAN device on it.
    Dmz,
}

/// The segments, in the order of [`Site`].
const SEGMENTS: [Segment; 5] = [
    Segment::LAN.bridged("br0"),
    Segment::SECOND_LAN.bridged("br0"),
    Segment::WAN,
    Segment { port: "r3", ..Segment::SECOND_WAN },
    Segment { label: "dmz", nic: "dmz0", port: "r4", subnet: 4, v4: [192, 168, 2], ..Segment::WAN },
];

const WAN2_VLAN: &[Tag] = &[Tag::vlan(30)];
const DMZ_VLAN: &[Tag] = &[Tag::vlan(40)];

/// Whether wires carry VLANs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wires {
    /// All frames are untagged.
    Plain,
    /// The wires of WAN 2 and of the DMZ carry a VLAN each, for which the router has a device.
    Tagged,
}

impl Wires {
    /// The segments, in the order of [`Site`].
    pub(crate) fn segments(self) -> [Segment; 5] {
        let mut segments = SEGMENTS;
        if self == Self::Tagged {
            segments[Site::Wan2 as usize] = segments[Site::Wan2 as usize].tagged(WAN2_VLAN);
            segments[Site::Dmz as usize] = segments[Site::Dmz as usize].tagged(DMZ_VLAN);
        }
        segments
    }

    /// The router's device that has the address on the wire to a site.
    pub(crate) fn device(self, site: Site) -> &'static str {
        match (self, site) {
            (Self::Tagged, Site::Wan2) => "r3.30",
            (Self::Tagged, Site::Dmz) => "r4.40",
            _ => site.segment().bridge.unwrap_or(site.port()),
        }
    }
}

/// Networks behind the WAN hosts.
pub(crate) const FAR_V4: &str = "203.0.113.0/24";
pub(crate) const FAR_V6: &str = "2001:db8:f::/64";

impl Site {
    pub(crate) const ALL: [Self; 5] = [Self::Lan, Self::Lan2, Self::Wan, Self::Wan2, Self::Dmz];

    fn segment(self) -> &'static Segment {
        &SEGMENTS[self as usize]
    }

    fn v4(self, last: u8) -> IpAddr {
        let [a, b, c] = self.segment().v4;
        Ipv4Addr::new(a, b, c, last).into()
    }

    fn v6(self, last: u8) -> IpAddr {
        Ipv6Addr::new(0xfd00, self.segment().subnet.into(), 0, 0, 0, 0, 0, last.into()).into()
    }

    /// The host's address.
    pub(crate) fn address(self, v6: bool) -> IpAddr {
        let host = self.segment().host;
        if v6 { self.v6(host) } else { self.v4(host) }
    }

    /// The host's address with a port.
    pub(crate) fn at(self, v6: bool, port: u16) -> SocketAddr {
        (self.address(v6), port).into()
    }

    /// The router's address in the host's network.
    pub(crate) fn gateway(self, v6: bool) -> IpAddr {
        if v6 { self.v6(1) } else { self.v4(1) }
    }

    /// An address behind the host, or the host's own if there is no network behind it.
    pub(crate) fn far(self, v6: bool) -> IpAddr {
        match (self, v6) {
            (Self::Wan, false) => Ipv4Addr::new(203, 0, 113, 7).into(),
            (Self::Wan, true) => Ipv6Addr::new(0x2001, 0xdb8, 0xf, 0, 0, 0, 0, 7).into(),
            _ => self.address(v6),
        }
    }

    pub(crate) fn mac(self) -> Mac {
        let Segment { subnet, host, .. } = *self.segment();
        Mac([0x02, 0, 0, 0, subnet, host])
    }

    /// The host's second MAC, used after a change.
    pub(crate) fn other_mac(self) -> Mac {
        let Mac(mut bytes) = self.mac();
        bytes[4] ^= 0x40;
        Mac(bytes)
    }

    /// The site of the host with this MAC, where `lan_at` is the present site of the LAN host.
    pub(crate) fn from_mac(mac: Mac, lan_at: Self) -> Option<Self> {
        let site = Self::ALL.into_iter().find(|site| mac == site.mac() || mac == site.other_mac())?;
        Some(if site == Self::Lan { lan_at } else { site })
    }

    pub(crate) fn gateway_mac(self) -> Mac {
        Mac([0x02, 0, 0, 0, self.segment().subnet, 1])
    }

    /// The router's port of the wire.
    pub(crate) fn port(self) -> &'static str {
        self.segment().port
    }

    /// Whether the port belongs to a bridge.
    pub(crate) fn is_bridged(self) -> bool {
        self.segment().bridge.is_some()
    }
}
