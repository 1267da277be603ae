//! Hosts around a router: the one place where topologies are set up.

use super::{
    NetNs, Tap,
    netns::{ip, ip_batch},
    wait_for,
};
use nix::{ifaddrs::getifaddrs, net::if_::InterfaceFlags};
use shunt_wire::{Mac, Tag};
use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

/// For how long a port gathers packets.
const GATHER_NS: u32 = 50_000;
/// For links that come up.
const PATIENCE: Duration = Duration::from_secs(10);

/// A host, the router's port that it is wired to, and the subnet they share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Names the host and its namespace.
    pub label: &'static str,
    /// The host's interface.
    pub nic: &'static str,
    /// The router's interface.
    pub port: &'static str,
    /// The router's bridge that the port belongs to and that holds the address in its place.
    pub bridge: Option<&'static str>,
    /// The VLAN devices of the router on top of the port, or of the bridge, the lowest first: the last one holds the address.
    pub vlans: &'static [Tag],
    /// Whether the bridge is on top of the VLAN devices, and holds the address in place of the last of them.
    pub bridge_on_top: bool,
    /// Whether the port is an access port: its frames have no tags, and the bridge, of one VLAN, knows which it is.
    pub access: bool,
    /// Whether the host too has VLAN devices, the last of which holds its addresses, so that what it runs sends tagged frames.
    pub tagged_host: bool,
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

    /// The same with its port in this bridge.
    #[must_use]
    pub const fn bridged(self, bridge: &'static str) -> Self {
        Self { bridge: Some(bridge), ..self }
    }

    /// The same with a bridge on top of its VLAN devices.
    #[must_use]
    pub const fn below(self, bridge: &'static str) -> Self {
        Self { bridge_on_top: true, ..self.bridged(bridge) }
    }

    /// The same with its port in these VLANs, the outermost first.
    #[must_use]
    pub const fn tagged(self, vlans: &'static [Tag]) -> Self {
        Self { vlans, ..self }
    }

    /// The same, and the host too has VLAN devices.
    #[must_use]
    pub const fn with_tagged_host(self) -> Self {
        Self { tagged_host: true, ..self }
    }

    /// The bridge that the port itself is in.
    fn bridge_of_port(&self) -> Option<&'static str> {
        self.bridge.filter(|_| !self.bridge_on_top)
    }

    /// The router's devices above its port, from the one that a VLAN device would be on to the last VLAN device.
    fn devices(&self) -> Vec<String> {
        self.above(self.bridge_of_port().unwrap_or(self.port))
    }

    /// The host's, where it has any.
    fn host_devices(&self) -> Vec<String> {
        if self.tagged_host { self.above(self.nic) } else { vec![self.nic.to_owned()] }
    }

    fn above(&self, lowest: &str) -> Vec<String> {
        let mut devices = vec![lowest.to_owned()];
        for vlan in self.vlans {
            let lower = devices.last().map_or("", String::as_str);
            devices.push(format!("{lower}.{}", vlan.vid));
        }
        devices
    }

    /// Where the router has its address.
    fn gateway(&self) -> String {
        match self.bridge {
            Some(bridge) if self.bridge_on_top => bridge.to_owned(),
            _ => self.devices().pop().unwrap_or_default(),
        }
    }

    const fn mac(&self, last: u8) -> Mac {
        Mac([0x02, 0, 0, 0, self.subnet, last])
    }

    const fn port_mac(&self) -> Mac {
        match self.bridge {
            Some(_) => Mac([0x02, 0, 0, 1, self.subnet, self.host]),
            None => self.mac(1),
        }
    }

    const fn v4(&self, last: u8) -> Ipv4Addr {
        let [a, b, c] = self.v4;
        Ipv4Addr::new(a, b, c, last)
    }

    const fn v6(&self, last: u8) -> Ipv6Addr {
        Ipv6Addr::new(0xfd00, self.subnet as u16, 0, 0, 0, 0, 0, last as u16)
    }
}

/// A host of a topology.
#[derive(Debug)]
pub struct Host {
    /// Its namespace.
    pub ns: NetNs,
    /// Its interface.
    pub nic: &'static str,
    /// The MAC address of its interface.
    pub mac: Mac,
    /// Its IPv4 address.
    pub v4: Ipv4Addr,
    /// Its IPv6 address.
    pub v6: Ipv6Addr,
    /// The router's port that it is wired to.
    pub port: &'static str,
    /// The tags of all frames on its wire, the outermost first. The host knows nothing of them, but its packets have them.
    pub tags: &'static [Tag],
    /// The MAC address of its next hop: the router's port, or the bridge that the port is in.
    pub gateway_mac: Mac,
    /// The router's IPv4 address on this subnet.
    pub gateway_v4: Ipv4Addr,
    /// The router's IPv6 address on this subnet.
    pub gateway_v6: Ipv6Addr,
    /// The router's device that has these addresses.
    pub gateway: String,
    /// Where it has its addresses.
    device: String,
}

impl Host {
    /// Its IPv4 address with a port.
    pub fn at(&self, port: u16) -> SocketAddr {
        (self.v4, port).into()
    }

    /// Its IPv6 address with a port.
    pub fn at6(&self, port: u16) -> SocketAddr {
        (self.v6, port).into()
    }

    /// A raw socket on its interface.
    ///
    /// # Panics
    /// When it cannot be opened.
    #[track_caller]
    pub fn tap(&self) -> Tap {
        Tap::open(&self.ns, self.nic)
    }
}

/// A router and the hosts around it, up and routed in both families.
///
/// The MACs, addresses and names are fixed; see [`Segment`]. Neighbours are resolved as always unless
/// [`Topology::pin_neighbours`] is called.
#[derive(Debug)]
pub struct Topology {
    router: NetNs,
    hosts: Vec<Host>,
}

impl Topology {
    /// A LAN host at r0 and a WAN host at r1.
    ///
    /// # Panics
    /// When it cannot be set up.
    #[track_caller]
    pub fn two_hosts_and_a_router() -> Self {
        Self::of(&[Segment::LAN, Segment::WAN])
    }

    /// The same with a second WAN at r2.
    ///
    /// # Panics
    /// When it cannot be set up.
    #[track_caller]
    pub fn two_uplinks() -> Self {
        Self::of(&[Segment::LAN, Segment::WAN, Segment::SECOND_WAN])
    }

    /// Three LAN hosts at the bridge br0 (r0, r2, r3) and a WAN host at r1.
    ///
    /// # Panics
    /// When it cannot be set up.
    #[track_caller]
    pub fn bridged_lan() -> Self {
        let lan = [Segment::LAN, Segment::SECOND_LAN, Segment::THIRD_LAN].map(|s| s.bridged("br0"));
        Self::of(&[lan[0], lan[1], lan[2], Segment::WAN])
    }

    /// A router with these segments. Hosts have their default route through it.
    ///
    /// # Panics
    /// When it cannot be set up.
    #[track_caller]
    pub fn of(segments: &[Segment]) -> Self {
        Self::try_of(segments).unwrap_or_else(|e| panic!("{e}"))
    }

    /// As [`Topology::of`].
    ///
    /// # Errors
    /// When it cannot be set up, which takes root, iproute2 and ethtool.
    pub fn try_of(segments: &[Segment]) -> io::Result<Self> {
        let router = NetNs::try_new("router")?;
        for sysctl in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            router.try_sysctl(sysctl, 1)?;
        }
        let hosts = segments.iter().map(|segment| Host::wired(segment, &router));
        let hosts: Vec<Host> = hosts.collect::<io::Result<_>>()?;
        // Addresses wait for the carrier: routes over a link without one are not used.
        for host in &hosts {
            wait_for_carrier(&host.ns, host.nic)?;
            // A bridge may run before this one of its ports does, and forwards nothing from it until then.
            wait_for_carrier(&router, host.port)?;
            wait_for_carrier(&router, &host.gateway)?;
        }
        let mut gateways = Vec::new();
        for host in &hosts {
            host.address()?;
            if !gateways.contains(&&host.gateway) {
                gateways.push(&host.gateway);
                host.address_gateway(&router)?;
            }
        }
        Ok(Self { router, hosts })
    }

    /// The router.
    pub fn router(&self) -> &NetNs {
        &self.router
    }

    /// The host of the segment with this label.
    ///
    /// # Panics
    /// When there is none.
    #[track_caller]
    pub fn host(&self, label: &str) -> &Host {
        let prefix = format!("shunt-{label}-");
        let found = self.hosts.iter().find(|host| host.ns.name().starts_with(&prefix));
        found.unwrap_or_else(|| panic!("this topology has no host `{label}`"))
    }

    /// The host `lan`.
    pub fn lan(&self) -> &Host {
        self.host("lan")
    }

    /// The host `wan`.
    pub fn wan(&self) -> &Host {
        self.host("wan")
    }

    /// All hosts.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Makes all neighbour entries permanent, both ways: no ARP or ND is needed, or seen.
    ///
    /// # Panics
    /// When an entry cannot be set.
    #[track_caller]
    pub fn pin_neighbours(&self) {
        self.try_pin_neighbours().unwrap_or_else(|e| panic!("{e}"));
    }

    /// As [`Topology::pin_neighbours`].
    ///
    /// # Errors
    /// When an entry cannot be set.
    pub fn try_pin_neighbours(&self) -> io::Result<()> {
        let entry = |ip: IpAddr, mac: Mac, dev: &str| {
            format!("neigh replace {ip} lladdr {mac} dev {dev} nud permanent")
        };
        let mut router = Vec::new();
        for host in &self.hosts {
            let gateway = [host.gateway_v4.into(), host.gateway_v6.into()];
            ip_batch(&host.ns, &gateway.map(|ip| entry(ip, host.gateway_mac, &host.device)))?;
            router.extend([host.v4.into(), host.v6.into()].map(|ip| entry(ip, host.mac, &host.gateway)));
        }
        ip_batch(&self.router, &router)
    }

    /// Keeps the packets of a direction in order on every wire, whatever CPUs their senders and shapers run on: see
    /// [`NetNs::receive_on`].
    ///
    /// # Panics
    /// When that cannot be set.
    #[track_caller]
    pub fn keep_order(&self) {
        for host in &self.hosts {
            host.ns.receive_on(host.nic, 0);
            self.router.receive_on(host.port, 0);
        }
    }

    /// Turns checksum and segmentation offloads of every interface on, as they are at first, or off. Off means that
    /// every frame on a wire is finished and no larger than the MTU. GRO stays on at the hosts: without NAPI on the
    /// peer, XDP cannot redirect into a veth.
    ///
    /// # Panics
    /// When ethtool refuses.
    #[track_caller]
    pub fn offloads(&self, on: bool) {
        let state = if on { "on" } else { "off" };
        for host in &self.hosts {
            host.ns.run(&format!("ethtool -K {} tx {state} tso {state} gso {state}", host.nic));
            self.router
                .run(&format!("ethtool -K {} tx {state} tso {state} gso {state} gro {state}", host.port));
        }
    }

    /// Makes veths more like NICs on wires: hosts send frames of the MTU, and the router's ports gather packets for a while
    /// before they are polled, as interrupt moderation does. Or the router's ports no longer do.
    ///
    /// # Errors
    /// When ethtool or sysfs refuse.
    pub fn try_gather(&self, on: bool) -> io::Result<()> {
        let (defer, flush_ns) = if on { (2, GATHER_NS) } else { (0, 0) };
        for host in &self.hosts {
            host.ns.try_run(&format!("ethtool -K {} tso off gso off", host.nic))?;
            let port = format!("/sys/class/net/{}", host.port);
            self.router.try_run(&format!("echo {defer} > {port}/napi_defer_hard_irqs"))?;
            self.router.try_run(&format!("echo {flush_ns} > {port}/gro_flush_timeout"))?;
        }
        Ok(())
    }

    /// Leaves all namespaces in place when this value is dropped.
    pub fn keep(&mut self) {
        self.router.keep();
        self.hosts.iter_mut().for_each(|host| host.ns.keep());
    }
}

impl Host {
    /// A host in a namespace of its own, wired to a port of the router; both ends up, neither with an address.
    fn wired(segment: &Segment, router: &NetNs) -> io::Result<Self> {
        let ns = NetNs::try_new(segment.label)?;
        let Segment { nic, port, .. } = *segment;
        let host = Self {
            nic,
            mac: segment.mac(segment.host),
            v4: segment.v4(segment.host),
            v6: segment.v6(segment.host),
            port,
            tags: if segment.access { &[] } else { segment.vlans },
            gateway_mac: segment.mac(1),
            gateway_v4: segment.v4(1),
            gateway_v6: segment.v6(1),
            gateway: segment.gateway(),
            device: segment.host_devices().pop().unwrap_or_default(),
            ns,
        };
        ip(&format!(
            "link add name {nic} address {} netns {} type veth peer name {port} address {} netns {}",
            host.mac,
            host.ns.name(),
            segment.port_mac(),
            router.name()
        ))?;
        let up = |dev: &str| format!("link set {dev} up");
        ip_batch(&host.ns, &[up(nic)])?;
        if let Some(bridge) = segment.bridge {
            if !has_device(router, bridge) {
                let knows_vlans = !segment.vlans.is_empty() && !segment.bridge_on_top;
                let filtering = if knows_vlans { "vlan_filtering 1" } else { "" };
                let kind = format!("type bridge forward_delay 0 {filtering}");
                ip_batch(
                    router,
                    &[format!("link add {bridge} address {} {kind}", host.gateway_mac), up(bridge)],
                )?;
            }
        }
        if let Some(bridge) = segment.bridge_of_port() {
            ip_batch(router, &[format!("link set {port} master {bridge}")])?;
            if let [vlan] = segment.vlans {
                let how = if segment.access { "pvid untagged" } else { "" };
                router.try_run(&format!("bridge vlan add dev {port} vid {} {how}", vlan.vid))?;
                router.try_run(&format!("bridge vlan add dev {bridge} vid {} self", vlan.vid))?;
            }
        }
        ip_batch(router, &[up(port)])?;
        for (ns, devices) in [(router, segment.devices()), (&host.ns, segment.host_devices())] {
            for (pair, vlan) in devices.windows(2).zip(segment.vlans) {
                let (lower, device, Tag { tpid, vid, .. }) = (&pair[0], &pair[1], vlan);
                if !has_device(ns, device) {
                    let kind = format!("type vlan protocol {tpid:#x} id {vid}");
                    ip_batch(ns, &[format!("link add link {lower} name {device} {kind}"), up(device)])?;
                }
            }
        }
        if segment.bridge_on_top {
            let last = segment.devices().pop().unwrap_or_default();
            ip_batch(router, &[format!("link set {last} master {}", segment.gateway())])?;
        }
        // A veth has NAPI, as a NIC has, only with GRO or an XDP program.
        host.ns.try_run(&format!("ethtool -K {nic} gro on"))?;
        router.try_run(&format!("ethtool -K {port} gro on"))?;
        Ok(host)
    }

    fn address(&self) -> io::Result<()> {
        let Self { device, v4, v6, gateway_v4, gateway_v6, .. } = self;
        ip_batch(
            &self.ns,
            &[
                format!("address add {v4}/24 dev {device}"),
                format!("address add {v6}/64 dev {device} nodad"),
                format!("route add default via {gateway_v4}"),
                format!("route add ::/0 via {gateway_v6}"),
            ],
        )
    }

    fn address_gateway(&self, router: &NetNs) -> io::Result<()> {
        let Self { gateway, gateway_v4, gateway_v6, .. } = self;
        ip_batch(
            router,
            &[
                format!("address add {gateway_v4}/24 dev {gateway}"),
                format!("address add {gateway_v6}/64 dev {gateway} nodad"),
            ],
        )
    }
}

fn has_device(ns: &NetNs, name: &str) -> bool {
    ns.within(|| nix::net::if_::if_nametoindex(name)).is_ok()
}

fn wait_for_carrier(ns: &NetNs, ifname: &str) -> io::Result<()> {
    let running = || {
        ns.within(|| {
            let mut interfaces = getifaddrs().into_iter().flatten();
            interfaces.any(|i| i.interface_name == ifname && i.flags.contains(InterfaceFlags::IFF_RUNNING))
        })
    };
    wait_for(PATIENCE, || running().then_some(()))
        .ok_or_else(|| io::Error::other(format!("{ifname} in {} does not run after {PATIENCE:?}", ns.name())))
}
