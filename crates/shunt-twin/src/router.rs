//! One of the two routers, configured so that Linux makes no random or time-dependent choice.

use crate::{
    flow::Flow,
    ruleset::ruleset,
    site::{FAR_V4, FAR_V6, Site, Wires},
    worker::{Frame, Wire},
};
use shunt_api::Tuple;
use shunt_testkit::{NetNs, Shuntd, Topology};
use shunt_wire::Packet;
use std::collections::BTreeMap;

/// A router with its wires.
#[derive(Debug)]
pub(crate) struct Router {
    topology: Topology,
}

/// The daemon on a router, restarted by changes that crash it.
#[derive(Debug)]
pub(crate) struct Daemon<'a> {
    router: &'a NetNs,
    engine: String,
    program: Option<String>,
    shuntd: Option<Shuntd>,
    fast: u64,
}

/// No rate limits, no unsolicited messages, no expired timeouts. Checksums and TCP windows are not checked, since Shunt
/// checks neither (docs/limitations.md).
const SYSCTLS: &[(&str, &str)] = &[
    ("ipv4/icmp_ratemask", "0"),
    ("ipv4/icmp_ratelimit", "0"),
    ("ipv4/icmp_msgs_per_sec", "1000000"),
    ("ipv4/icmp_msgs_burst", "1000000"),
    ("ipv4/conf/all/accept_source_route", "0"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv4/ipfrag_time", "100000"),
    ("ipv6/icmp/ratelimit", "0"),
    ("ipv6/icmp/ratemask", "255"),
    ("ipv6/auto_flowlabels", "0"),
    ("ipv6/conf/all/keep_addr_on_down", "1"),
    ("netfilter/nf_conntrack_checksum", "0"),
    // Also for connections that are older than the daemon.
    ("netfilter/nf_conntrack_events", "1"),
    ("netfilter/nf_conntrack_tcp_be_liberal", "1"),
];

/// MTU of the LAN side: larger than that of the WAN side, so that packets can exceed the latter.
const LAN_MTU: u32 = 2000;

impl Router {
    /// Sets up a router for these flows.
    pub(crate) fn new(flows: &[Flow], wires: Wires) -> Self {
        let topology = Topology::new(&wires.segments());
        let router = topology.router();
        for (name, value) in SYSCTLS {
            router.sysctl(name, value);
        }
        router.run("for f in /proc/sys/net/netfilter/nf_conntrack_*timeout*; do echo 100000 > $f; done");
        // The sysctls exist only with br_netfilter.
        router
            .run("for f in /proc/sys/net/bridge/bridge-nf-call-*tables; do [ ! -e $f ] || echo 0 > $f; done");
        // `default` applies only to interfaces that are created later.
        router.run("for f in /proc/sys/net/ipv4/conf/*/send_redirects; do echo 0 > $f; done");
        topology.offloads(false);
        topology.pin_neighbours();
        for (site, host) in Site::ALL.into_iter().zip(topology.hosts()) {
            let (nic, port) = (host.nic, site.port());
            // One queue keeps the order, no GRO merges frames, and the host's own stack answers nothing.
            host.ns.run(&format!(
                "ethtool -L {nic} rx 1 tx 1; ip link set dev {nic} mtu 3000 gro_max_size 1 &&
                 echo 1 > /proc/sys/net/ipv6/conf/{nic}/disable_ipv6 &&
                 nft 'table netdev silent {{ chain deaf {{ type filter hook ingress device {nic} priority 0; policy drop; }}; }}'"
            ));
            router.run(&format!("ethtool -L {port} rx 1 tx 1; true"));
            if matches!(site, Site::Lan | Site::Lan2 | Site::Dmz) {
                router.run(&format!("ip link set dev {port} mtu {LAN_MTU}"));
                router.run(&format!("ip link set dev {} mtu {LAN_MTU}", wires.device(site)));
            }
        }
        router.run("ip link set dev br0 type bridge mcast_snooping 0");
        let (far_v4, far_v6) = (Site::Wan.address(false), Site::Wan.address(true));
        router.run(&format!("ip route add {FAR_V4} via {far_v4}; ip -6 route add {FAR_V6} via {far_v6}"));
        router.nft(&ruleset(flows, wires));
        Self { topology }
    }

    pub(crate) fn netns(&self) -> &NetNs {
        self.topology.router()
    }

    /// The wires, in the order of [`Site`].
    pub(crate) fn wires(&self) -> Vec<Wire> {
        self.topology.hosts().iter().map(|host| Wire::new(host.tap(), host.tags)).collect()
    }
}

impl<'a> Daemon<'a> {
    pub(crate) fn start(router: &'a NetNs, engine: &str, program: Option<&str>) -> Self {
        let (engine, program) = (engine.to_owned(), program.map(str::to_owned));
        let mut daemon = Self { router, engine, program, shuntd: None, fast: 0 };
        daemon.spawn();
        daemon
    }

    fn spawn(&mut self) {
        let mut builder = Shuntd::on(self.router).engine(&self.engine);
        if let Some(program) = &self.program {
            builder = builder.program(program);
        }
        self.shuntd = Some(builder.start());
    }

    /// Kills the daemon and starts another.
    pub(crate) fn crash(&mut self) {
        self.fast = self.fast();
        if let Some(mut shuntd) = self.shuntd.take() {
            shuntd.kill();
            // Without TCX its filters stay, and the next instance has another name.
            shuntd.cleanup();
        }
        self.spawn();
    }

    /// Number of packets that the daemons so far forwarded on the fast path.
    pub(crate) fn fast(&self) -> u64 {
        self.fast + self.shuntd.as_ref().map_or(0, |shuntd| shuntd.status().packets.fast)
    }

    /// Whether one direction of a frame's connection is fast, and the other is not.
    pub(crate) fn has_one_direction(&self, frame: &Frame) -> bool {
        let Ok(packet) = Packet::parse(&frame.bytes) else { return false };
        let (Some((src, dst)), Some((sport, dport))) = (packet.addresses(), packet.ports()) else {
            return false;
        };
        let tuple = Tuple { src, dst, sport, dport };
        let reversed = Tuple { src: dst, dst: src, sport: dport, dport: sport };
        let connections = self.shuntd.as_ref().map(Shuntd::flows).unwrap_or_default();
        let directions = || connections.iter().flat_map(|connection| &connection.directions);
        directions().any(|d| d.new == reversed) != directions().any(|d| d.tuple == tuple)
    }

    /// Numbers of packets by punt reason and by refusal, of the running daemon.
    pub(crate) fn reasons(&self) -> BTreeMap<String, u64> {
        let status = self.shuntd.as_ref().map(Shuntd::status);
        status.into_iter().flat_map(|status| status.reasons.into_iter().chain(status.refusals)).collect()
    }
}
