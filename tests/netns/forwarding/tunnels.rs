//! Packets of tunnels: those that end on the router, whose packets the router receives twice, and those that only pass
//! it.

use crate::daemon;
use shunt_testkit::{
    Crossing, ENGINES, NetNs, Shuntd, Topology, engines, punts, refusals, require_root, silent_router,
    skip_missing_feature, wait_until,
};
use shunt_wire::{Checksum, Network, Packet, Tcp, Transport};
use std::{net::UdpSocket, thread::sleep, time::Duration};

/// Ten times as many packets as it takes to learn a flow.
const MANY: usize = 20;
/// Packets to another MAC may teach if the flow was not used for a second.
const UNUSED: Duration = Duration::from_millis(1100);
/// Within this time, a flow whose action was wrong is learned again.
const RELEARNED: Duration = Duration::from_millis(400);
const PATIENCE: Duration = Duration::from_secs(5);

const VXLAN_PORT: u16 = 4789;
/// A VXLAN header: flags, and network 7.
const VXLAN: [u8; 8] = [8, 0, 0, 0, 0, 0, 7, 0];

const STATEFUL: &str = "table inet filter { chain forward { type filter hook forward priority filter; ct state established,related accept; }; }";

/// Packets from the tunnel's network arrive through the tunnel only.
const TUNNEL_ONLY: &str = r#"table inet filter { chain forward { type filter hook forward priority filter;
    iifname "r1" ip saddr 10.9.0.0/24 drop; ct state established,related accept; }; }"#;

/// Commands that make the tunnel t0 on the router and on the WAN host.
fn tunnel(kind: &str, lab: &Topology) -> [String; 2] {
    let (router, wan) = (lab.wan().gateway_v4, lab.wan().v4);
    let ends = [(router, wan, "r1", 1), (wan, router, lab.wan().nic, 2)];
    ends.map(|(local, remote, device, number)| match kind {
        // With `dev`, the tunnel counts as a device on top of the port.
        "vxlan" => {
            let peer = 3 - number;
            format!(
                "ip link add t0 address 02:00:00:00:09:0{number} type vxlan id 7 dstport {VXLAN_PORT} local {local} \
                 remote {remote} dev {device} && ip link set t0 up \
                 && ip neigh add 10.9.0.{peer} lladdr 02:00:00:00:09:0{peer} dev t0 nud permanent"
            )
        }
        "wireguard" => {
            // 32 bytes in base64, of which `wg` makes a valid key.
            let key = |number: usize| format!("{}=", ["E", "I"][number % 2].repeat(43));
            format!(
                "ip link add t0 type wireguard && public=$(echo {} | wg pubkey) && echo {} | wg set t0 listen-port 51820 \
                 private-key /dev/stdin peer $public allowed-ips 0.0.0.0/0 endpoint {remote}:51820",
                key(number + 1),
                key(number),
            )
        }
        _ => format!("ip link add t0 type {kind} local {local} remote {remote}"),
    })
}

/// The inner packets leave through a port, as if they had arrived on the port of the tunnel. In clear text, the rules
/// refuse them.
#[test]
fn packets_of_a_tunnel_that_ends_on_the_router_are_not_learned() {
    if !require_root() {
        return;
    }
    let kinds = ["gre", "ipip", "vxlan", "wireguard"];
    for (engine, kind) in engines().into_iter().flat_map(|engine| kinds.map(|kind| (engine, kind))) {
        let lab = Topology::two_hosts_and_a_router();
        lab.pin_neighbours();
        lab.lan().be_silent();
        lab.router().nft(TUNNEL_ONLY);
        let [router, wan] = tunnel(kind, &lab);
        let up = "ip addr add 10.9.0.1/24 dev t0 && ip link set t0 up";
        if let Err(why) = lab.router().try_run(&format!("{router} && {up}")) {
            skip_missing_feature(kind, "--test forwarding -- tunnels", &why.to_string());
            continue;
        }
        lab.wan().ns.run(&format!(
            "{wan} && ip addr add 10.9.0.2/24 dev t0 && ip link set t0 up && ip route add {}/32 via 10.9.0.1",
            lab.lan().v4
        ));
        for device in ["all", "r1"] {
            lab.router().sysctl(&format!("ipv4/conf/{device}/rp_filter"), 0);
        }
        let shuntd = Shuntd::on(lab.router()).engine(&engine.to_string()).port("r0").port("r1").start();
        let there = Crossing::between(lab.wan(), lab.lan());
        let (inner, to) = ("10.9.0.2:5000".parse().unwrap(), lab.lan().at(4000));
        lab.wan().ns.within(|| {
            let socket = UdpSocket::bind(inner).unwrap();
            let passes = |text: &str| {
                socket.send_to(text.as_bytes(), to).unwrap();
                there.to.capture_packet(PATIENCE, |seen| seen.payload == text.as_bytes()).is_some()
            };
            // WireGuard shakes hands first.
            wait_until("the tunnel works", || passes("first"));
            for n in 0..MANY {
                assert!(passes(&format!("in a tunnel {n}")), "{engine}, {kind}: packet {n} is lost");
                there.to.send(&lab.lan().udp_to(4000, inner).payload(format!("back {n}")));
            }
        });
        assert_eq!(shuntd.flows(), [], "{engine}, {kind}");
        let clear = lab.wan().udp_to(5000, to).with_source(inner).payload("in the clear");
        for _ in 0..MANY {
            assert_eq!(there.all_that_leave(&clear), [], "{engine}, {kind}");
        }
        shuntd.stop();
    }
}

/// A container that routes between macvlans of both ports, which have the ifindexes of the ports.
fn route_between_macvlans(lab: &Topology) -> Option<NetNs> {
    let (router, container) = (lab.router(), NetNs::new("container"));
    for (n, host) in [lab.lan(), lab.wan()].into_iter().enumerate() {
        let (port, ifindex) = (host.port, router.ifindex(host.port));
        // Each new device takes the next ifindex, so try until it is the port's. (Kernels before 6.13 look for `index
        // N` in the wrong namespace.)
        loop {
            let made = router.try_run(&format!(
                "ip link add link {port} name c{n} netns {} address 02:00:00:00:99:0{n} type macvlan mode private",
                container.name(),
            ));
            if let Err(why) = made {
                skip_missing_feature("macvlan", "--test forwarding -- tunnels", &why.to_string());
                return None;
            }
            if container.ifindex(&format!("c{n}")) >= ifindex {
                break;
            }
            container.run(&format!("ip link del c{n}"));
        }
        assert_eq!(container.ifindex(&format!("c{n}")), ifindex);
        container.run(&format!(
            "ip link set c{n} up && ip addr add {}/24 dev c{n} && ip neigh replace {} lladdr {} dev c{n} nud permanent",
            host.gateway_v4, host.v4, host.mac,
        ));
    }
    container.sysctl("ipv4/ip_forward", 1);
    Some(container)
}

/// The packets leave the container by the port below its macvlan, and Linux does not receive them a second time. The
/// router itself knows a connection with the same addresses and ports.
#[test]
fn packets_that_a_container_routes_between_macvlans_are_not_learned() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent_router(STATEFUL);
        let Some(container) = route_between_macvlans(&lab) else { return };
        let shuntd = daemon(&lab, engine);
        let there = Crossing::between(lab.lan(), lab.wan());
        let own = lab.lan().udp_to(4000, lab.wan().at(5000)).payload("to the router");
        there.teach(&shuntd, &own);
        let packet = own
            .clone()
            .payload("through the container")
            .macs(lab.lan().mac, "02:00:00:00:99:00".parse().unwrap());
        let before = shuntd.status().packets.fast;
        sleep(UNUSED);
        for n in 0..MANY as u16 {
            sleep(RELEARNED / MANY as u32);
            let seen = there.pass(&packet.clone().with_id(n)).packet().unwrap();
            assert_eq!(seen.ethernet.source, "02:00:00:00:99:01".parse().unwrap());
        }
        assert_eq!(shuntd.status().packets.fast, before, "{engine}: {:#?}", shuntd.flows());
        assert!(refusals(&shuntd.status(), "no-conntrack") > 0, "{engine}: {:#?}", shuntd.status());
        container.nft("table ip filter { chain forward { type filter hook forward priority filter; udp dport 5000 drop; }; }");
        for _ in 0..MANY {
            assert_eq!(there.all_that_leave(&packet), [], "{engine}");
        }
        shuntd.stop();
    }
}

/// A packet of another tunnel that only passes the router: a TCP segment in VXLAN, without a UDP checksum.
fn tunnelled(lab: &Topology, number: u16, bytes: u16) -> Packet {
    let (from, to) = ("10.7.0.1:6000".parse().unwrap(), "10.7.0.2:80".parse().unwrap());
    let whole = |mut packet: Packet| {
        if let Network::V4(ip) = &mut packet.network {
            (ip.dont_fragment, ip.id) = (true, number);
        }
        packet
    };
    let mut inner = Packet::tcp_between(from, to, Tcp::ACK).payload(vec![b'x'; bytes.into()]);
    if let Transport::Tcp(tcp) = &mut inner.transport {
        tcp.sequence = u32::from(number) * u32::from(bytes);
    }
    let inner = whole(inner).macs(lab.lan().mac, lab.wan().mac).to_bytes();
    let outer = lab.lan().udp_to(4000, lab.wan().at(VXLAN_PORT)).with_l4_checksum(Checksum::Zero);
    whole(outer.payload([&VXLAN[..], &inner].concat()))
}

/// GRO aggregates packets of other tunnels, too, if the router has a tunnel of that kind. The inner headers make each
/// packet longer than the aggregate shows.
#[test]
fn aggregates_of_a_tunnel_that_passes_the_router_are_not_sent_longer_than_the_mtu() {
    const SEGMENT: u16 = 1350;
    if !require_root() {
        return;
    }
    let lab = silent_router(STATEFUL);
    let router = lab.router();
    if let Err(why) =
        router.try_run(&format!("ip link add vx0 type vxlan id 9 dstport {VXLAN_PORT} && ip link set vx0 up"))
    {
        return skip_missing_feature("VXLAN", "--test forwarding -- tunnels", &why.to_string());
    }
    // A veth gathers packets only if its peer has no TSO.
    lab.lan().ns.run(&format!("ethtool -K {} tso off", lab.lan().nic));
    router.run("cd /sys/class/net/r0 && echo 2 > napi_defer_hard_irqs && echo 5000000 > gro_flush_timeout");
    let shuntd = daemon(&lab, ENGINES[0]);
    let there = Crossing::between(lab.lan(), lab.wan());
    let longest = |first: u16| {
        there.to.drain();
        for number in first..first + 2 {
            there.from.send(&tunnelled(&lab, number, SEGMENT));
        }
        let mut longest = 0;
        there.to.capture(Duration::from_millis(500), |frame| {
            longest = longest.max(frame.bytes.len());
            longest > 2 * usize::from(SEGMENT)
        });
        longest
    };
    wait_until("packets of the tunnel are aggregated", || longest(1) > 2 * usize::from(SEGMENT));

    // Packets of the MTU's size are fast.
    router.run("ip link set r1 mtu 1400");
    let plain = lab.lan().udp_to(4000, lab.wan().at(VXLAN_PORT)).payload(vec![b'p'; 1400 - 28]);
    there.teach(&shuntd, &plain);
    let before = shuntd.status();
    for n in 0..MANY as u16 {
        assert!(longest(100 + 2 * n) <= 1414, "a packet longer than the MTU left: {:#?}", shuntd.status());
    }
    let status = shuntd.status();
    assert!(punts(&status, "tunnel-aggregate") > punts(&before, "tunnel-aggregate"), "{status:#?}");
    shuntd.stop();
}
