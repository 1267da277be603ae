//! Hosts around a router: all topologies are set up here.

use super::{
    NetNs, Tap,
    modem::Modem,
    netns::{ip, ip_batch},
    segment::{Segment, Wire},
    tunnel::tunnel,
    wait_for,
};
use nix::{ifaddrs::getifaddrs, net::if_::InterfaceFlags};
use shunt_wire::{Mac, Tag};
use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

/// Time for which a port gathers packets.
const GATHER_NS: u32 = 50_000;
/// Time limit for links to come up.
const PATIENCE: Duration = Duration::from_secs(10);

/// A host of a topology.
#[derive(Debug)]
pub struct Host {
    /// The wire to a port without layer 2. Dropped first: its thread uses the namespaces.
    modem: Option<Modem>,
    /// The host's namespace.
    pub ns: NetNs,
    /// The host's interface.
    pub nic: &'static str,
    /// MAC address of the interface.
    pub mac: Mac,
    /// The host's IPv4 address.
    pub v4: Ipv4Addr,
    /// The host's IPv6 address.
    pub v6: Ipv6Addr,
    /// The router's port that the host is connected to.
    pub port: &'static str,
    /// Tags of all frames on the host's wire, the outermost first. The host is not configured for them; packets made
    /// for it have them.
    pub tags: &'static [Tag],
    /// MAC address of the next hop: the router's port, or its bridge.
    pub gateway_mac: Mac,
    /// The router's IPv4 address on this subnet.
    pub gateway_v4: Ipv4Addr,
    /// The router's IPv6 address on this subnet.
    pub gateway_v6: Ipv6Addr,
    /// The router's device that has these addresses.
    pub gateway: String,
    /// The host's device that has its addresses.
    device: String,
}

impl Host {
    /// The host's IPv4 address with a port.
    pub fn at(&self, port: u16) -> SocketAddr {
        (self.v4, port).into()
    }

    /// The host's IPv6 address with a port.
    pub fn at6(&self, port: u16) -> SocketAddr {
        (self.v6, port).into()
    }

    /// Opens a raw socket on the host's interface.
    ///
    /// # Panics
    /// Panics if the socket cannot be opened.
    #[track_caller]
    pub fn tap(&self) -> Tap {
        Tap::open(&self.ns, self.nic)
    }
}

/// A router and the hosts around it, up and routed in both families.
///
/// MACs, addresses and names are fixed; see [`Segment`]. Neighbours are resolved as usual unless
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
    /// Panics if the topology cannot be set up.
    #[track_caller]
    pub fn two_hosts_and_a_router() -> Self {
        Self::new(&[Segment::LAN, Segment::WAN])
    }

    /// A LAN host at r0, a WAN host at r1 and a second WAN host at r2.
    ///
    /// # Panics
    /// Panics if the topology cannot be set up.
    #[track_caller]
    pub fn two_uplinks() -> Self {
        Self::new(&[Segment::LAN, Segment::WAN, Segment::SECOND_WAN])
    }

    /// Three LAN hosts at the bridge br0 (r0, r2, r3) and a WAN host at r1.
    ///
    /// # Panics
    /// Panics if the topology cannot be set up.
    #[track_caller]
    pub fn bridged_lan() -> Self {
        let lan = [Segment::LAN, Segment::SECOND_LAN, Segment::THIRD_LAN].map(|s| s.bridged("br0"));
        Self::new(&[lan[0], lan[1], lan[2], Segment::WAN])
    }

    /// A router with these segments. Hosts have their default route through the router.
    ///
    /// # Panics
    /// Panics if the topology cannot be set up.
    #[track_caller]
    pub fn new(segments: &[Segment]) -> Self {
        Self::try_new(segments).unwrap_or_else(|e| panic!("{e}"))
    }

    /// As [`Topology::new`].
    ///
    /// # Errors
    /// Fails if the topology cannot be set up, which needs root, iproute2 and ethtool.
    pub fn try_new(segments: &[Segment]) -> io::Result<Self> {
        let router = NetNs::try_new("router")?;
        for sysctl in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            router.try_sysctl(sysctl, 1)?;
        }
        let hosts = segments.iter().map(|segment| Host::wired(segment, &router));
        let hosts: Vec<Host> = hosts.collect::<io::Result<_>>()?;
        // Set addresses after the carrier is up: Linux does not use routes over a link without carrier.
        for host in &hosts {
            wait_for_carrier(&host.ns, host.nic)?;
            // A bridge may be up before this port of it is, and forwards nothing from the port until then.
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

    /// The router's namespace.
    pub fn router(&self) -> &NetNs {
        &self.router
    }

    /// The host of the segment with this label.
    ///
    /// # Panics
    /// Panics if there is no such host.
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

    /// Makes all neighbour entries of router and hosts permanent: no ARP or ND is needed, or sent.
    ///
    /// # Panics
    /// Panics if an entry cannot be set.
    #[track_caller]
    pub fn pin_neighbours(&self) {
        self.try_pin_neighbours().unwrap_or_else(|e| panic!("{e}"));
    }

    /// As [`Topology::pin_neighbours`].
    ///
    /// # Errors
    /// Fails if an entry cannot be set.
    pub fn try_pin_neighbours(&self) -> io::Result<()> {
        let entry = |ip: IpAddr, mac: Mac, dev: &str| {
            format!("neigh replace {ip} lladdr {mac} dev {dev} nud permanent")
        };
        let mut router = Vec::new();
        for host in &self.hosts {
            let gateway = [host.gateway_v4.into(), host.gateway_v6.into()];
            ip_batch(&host.ns, &gateway.map(|ip| entry(ip, host.gateway_mac, &host.device)))?;
            if host.modem.is_some() {
                continue;
            }
            router.extend([host.v4.into(), host.v6.into()].map(|ip| entry(ip, host.mac, &host.gateway)));
        }
        ip_batch(&self.router, &router)
    }

    /// Keeps the packets of each direction in order on every wire, whatever CPUs senders and shapers run on; see
    /// [`NetNs::receive_on`].
    ///
    /// # Panics
    /// Panics if a CPU cannot be set.
    #[track_caller]
    pub fn keep_order(&self) {
        for host in &self.hosts {
            host.ns.receive_on(host.nic, 0);
            self.router.receive_on(host.port, 0);
        }
    }

    /// Turns checksum and segmentation offloads of all interfaces on (the default) or off. When off, every frame on a
    /// wire has its checksum and fits the MTU. GRO stays on at the hosts: XDP can redirect into a veth only if its peer
    /// has NAPI.
    ///
    /// # Panics
    /// Panics if ethtool fails.
    #[track_caller]
    pub fn offloads(&self, on: bool) {
        let state = if on { "on" } else { "off" };
        for host in self.hosts.iter().filter(|host| host.modem.is_none()) {
            host.ns.run(&format!("ethtool -K {} tx {state} tso {state} gso {state}", host.nic));
            self.router
                .run(&format!("ethtool -K {} tx {state} tso {state} gso {state} gro {state}", host.port));
        }
    }

    /// Sets the MTU of all devices that carry traffic.
    ///
    /// # Errors
    /// Fails if a device refuses.
    pub fn try_set_mtu(&self, mtu: u32) -> io::Result<()> {
        let set = |device: &str| format!("link set {device} mtu {mtu}");
        for host in &self.hosts {
            // A VLAN device takes no more than the device below it.
            ip_batch(&host.ns, &[set(host.nic), set(&host.device)])?;
            ip_batch(&self.router, &[set(host.port), set(&host.gateway)])?;
        }
        Ok(())
    }

    /// Makes veths more like NICs, or undoes it: hosts send frames of the MTU, and the router's ports gather packets
    /// for a while before they are polled, as interrupt moderation does.
    ///
    /// # Errors
    /// Fails if ethtool or sysfs refuse.
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
    /// A host in its own namespace, connected to a port of the router; both ends are up and have no address.
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
            modem: None,
            ns,
        };
        match segment.wire {
            Wire::Ethernet => ip(&format!(
                "link add name {nic} address {} netns {} type veth peer name {port} address {} netns {}",
                host.mac,
                host.ns.name(),
                segment.port_mac(),
                router.name()
            ))?,
            Wire::Tunnel(kind) => tunnel(segment, kind, router, &host.ns)?,
            Wire::Tun | Wire::Pppoe(_) | Wire::IpTunnel(_) => return host.behind_modem(router, segment.wire),
        }
        let up = |dev: &str| format!("link set {dev} up");
        ip_batch(&host.ns, &[up(nic)])?;
        if let Some(bridge) = segment.bridge
            && !has_device(router, bridge)
        {
            let knows_vlans = !segment.vlans.is_empty() && !segment.bridge_on_top;
            let filtering = if knows_vlans { "vlan_filtering 1" } else { "" };
            let kind = format!("type bridge forward_delay 0 {filtering}");
            ip_batch(
                router,
                &[format!("link add {bridge} address {} {kind}", host.gateway_mac), up(bridge)],
            )?;
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

    /// Connects a host to a port of the router that has no Ethernet header. Nobody answers the host's ARP, so it knows
    /// the router's MAC.
    fn behind_modem(mut self, router: &NetNs, wire: Wire) -> io::Result<Self> {
        let Self { nic, port, mac, gateway_mac, .. } = self;
        self.modem = Some(Modem::connect(router, port, wire, &self.ns, nic, mac, gateway_mac)?);
        let gateway = [IpAddr::from(self.gateway_v4), self.gateway_v6.into()];
        let entry = |ip| format!("neigh replace {ip} lladdr {gateway_mac} dev {nic} nud permanent");
        ip_batch(&self.ns, &[vec![format!("link set {nic} up")], gateway.map(entry).to_vec()].concat())?;
        ip_batch(router, &[format!("link set {port} up")])?;
        Ok(self)
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
    wait_for(PATIENCE, || running().then_some(())).ok_or_else(|| {
        io::Error::other(format!("{ifname} in {} has no carrier after {PATIENCE:?}", ns.name()))
    })
}
