//! The segments of a topology: a host, its port and their subnet.

use shunt_wire::{Mac, Tag};
use std::net::{Ipv4Addr, Ipv6Addr};

/// What connects a host and its port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// A pair of veths.
    Ethernet,
    /// The port is a tun device, whose packets have no Ethernet header.
    Tun,
    /// The port is a ppp device, whose packets leave by an Ethernet device below it, in a session of PPPoE, and in this
    /// VLAN.
    Pppoe(Option<u16>),
    /// The port is a tunnel device of this kind (`sit`, `gre`, `ip6tnl`, `ip6gre`, `wireguard`), whose packets have no
    /// Ethernet header, over a pair of veths.
    IpTunnel(&'static str),
    /// Both are devices of this kind (`vxlan`, `geneve`, `gretap`): a tunnel of Ethernet frames, over a pair of veths.
    Tunnel(&'static str),
}

/// A host, the router's port that it is connected to, and their subnet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Name of the host and part of its namespace's name.
    pub label: &'static str,
    /// The host's interface.
    pub nic: &'static str,
    /// The router's interface.
    pub port: &'static str,
    /// The router's bridge that the port belongs to and that has the router's address.
    pub bridge: Option<&'static str>,
    /// The router's VLAN devices on top of the port or of the bridge, the lowest first; the last one has the address.
    pub vlans: &'static [Tag],
    /// Whether the bridge is on top of the VLAN devices and has the address in place of the last of them.
    pub bridge_on_top: bool,
    /// Whether the port is an access port: its frames have no tags, and the bridge knows its VLAN.
    pub access: bool,
    /// Whether the host has VLAN devices, too, so that its programs send tagged frames; the last one has the host's
    /// addresses.
    pub tagged_host: bool,
    /// What connects the host and the port. The host does not notice.
    pub wire: Wire,
    /// Number of the subnet; part of the MAC addresses and of the IPv6 prefix.
    pub subnet: u8,
    /// Last byte of the host's addresses. The router has 1.
    pub host: u8,
    /// The IPv4 subnet, a /24.
    pub v4: [u8; 3],
}

impl Segment {
    /// `lan`: lan0 192.168.1.2/24 fd00:1::2/64, at port r0.
    pub const LAN: Self = Self {
        label: "lan",
        nic: "lan0",
        port: "r0",
        bridge: None,
        vlans: &[],
        bridge_on_top: false,
        access: false,
        tagged_host: false,
        wire: Wire::Ethernet,
        subnet: 1,
        host: 2,
        v4: [192, 168, 1],
    };
    /// `wan`: wan0 198.18.0.2/24 fd00:2::2/64, at port r1.
    pub const WAN: Self =
        Self { label: "wan", nic: "wan0", port: "r1", subnet: 2, v4: [198, 18, 0], ..Self::LAN };
    /// `wan2`: wan1 198.18.1.2/24 fd00:3::2/64, at port r2.
    pub const SECOND_WAN: Self =
        Self { label: "wan2", nic: "wan1", port: "r2", subnet: 3, v4: [198, 18, 1], ..Self::WAN };
    /// `lan2`: lan0 192.168.1.3/24 fd00:1::3/64, at port r2. For a bridged LAN.
    pub const SECOND_LAN: Self = Self { label: "lan2", port: "r2", host: 3, ..Self::LAN };
    /// `lan3`: lan0 192.168.1.4/24 fd00:1::4/64, at port r3. For a bridged LAN.
    pub const THIRD_LAN: Self = Self { label: "lan3", port: "r3", host: 4, ..Self::LAN };

    /// The same segment with its port in this bridge.
    #[must_use]
    pub const fn bridged(self, bridge: &'static str) -> Self {
        Self { bridge: Some(bridge), ..self }
    }

    /// The same segment with a bridge on top of its VLAN devices.
    #[must_use]
    pub const fn below(self, bridge: &'static str) -> Self {
        Self { bridge_on_top: true, ..self.bridged(bridge) }
    }

    /// The same segment with its port in these VLANs, the outermost first.
    #[must_use]
    pub const fn tagged(self, vlans: &'static [Tag]) -> Self {
        Self { vlans, ..self }
    }

    /// The same segment with a tun device as its port.
    #[must_use]
    pub const fn without_l2(self) -> Self {
        Self { wire: Wire::Tun, ..self }
    }

    /// The same segment with a ppp device as its port.
    #[must_use]
    pub const fn over_pppoe(self) -> Self {
        Self { wire: Wire::Pppoe(None), ..self }
    }

    /// The same segment with a ppp device as its port, whose session is in this VLAN.
    #[must_use]
    pub const fn over_pppoe_in(self, vlan: u16) -> Self {
        Self { wire: Wire::Pppoe(Some(vlan)), ..self }
    }

    /// The same segment with a tunnel of this kind: `vxlan`, `geneve` or `gretap`.
    #[must_use]
    pub const fn over(self, kind: &'static str) -> Self {
        Self { wire: Wire::Tunnel(kind), ..self }
    }

    /// The same segment with a tunnel of IP packets of this kind as its port: `sit`, `gre`, `ip6tnl`, `ip6gre` or
    /// `wireguard`.
    #[must_use]
    pub const fn over_ip(self, kind: &'static str) -> Self {
        Self { wire: Wire::IpTunnel(kind), ..self }
    }

    /// The same segment with VLAN devices at the host, too.
    #[must_use]
    pub const fn with_tagged_host(self) -> Self {
        Self { tagged_host: true, ..self }
    }

    /// The bridge that the port itself is in.
    pub(super) fn bridge_of_port(&self) -> Option<&'static str> {
        self.bridge.filter(|_| !self.bridge_on_top)
    }

    /// The router's devices above its port, from the lowest device that can carry a VLAN device to the last VLAN
    /// device.
    pub(super) fn devices(&self) -> Vec<String> {
        self.above(self.bridge_of_port().unwrap_or(self.port))
    }

    /// The host's devices, if it has VLAN devices.
    pub(super) fn host_devices(&self) -> Vec<String> {
        if self.tagged_host { self.above(self.nic) } else { vec![self.nic.to_owned()] }
    }

    pub(super) fn above(&self, lowest: &str) -> Vec<String> {
        let mut devices = vec![lowest.to_owned()];
        for vlan in self.vlans {
            let lower = devices.last().map_or("", String::as_str);
            devices.push(format!("{lower}.{}", vlan.vid));
        }
        devices
    }

    /// The router's device that has its address.
    pub(super) fn gateway(&self) -> String {
        match self.bridge {
            Some(bridge) if self.bridge_on_top => bridge.to_owned(),
            _ => self.devices().pop().unwrap_or_default(),
        }
    }

    pub(super) const fn mac(&self, last: u8) -> Mac {
        Mac([0x02, 0, 0, 0, self.subnet, last])
    }

    pub(super) const fn port_mac(&self) -> Mac {
        match self.bridge {
            Some(_) => Mac([0x02, 0, 0, 1, self.subnet, self.host]),
            None => self.mac(1),
        }
    }

    pub(super) const fn v4(&self, last: u8) -> Ipv4Addr {
        let [a, b, c] = self.v4;
        Ipv4Addr::new(a, b, c, last)
    }

    pub(super) const fn v6(&self, last: u8) -> Ipv6Addr {
        Ipv6Addr::new(0xfd00, self.subnet as u16, 0, 0, 0, 0, 0, last as u16)
    }
}
