//! Packets that a port or the router sees twice: as they came in, and again out of a tunnel or another network
//! namespace.

use crate::daemon;
use shunt_testkit::{
    Crossing, ENGINES, NetNs, Topology, punts, refusals, require_ipsec, require_root, silent_router,
};
use shunt_wire::Packet;
use std::{net::UdpSocket, time::Duration};

/// Ten times as many packets as it takes to learn a flow.
const MANY: usize = 20;

const STATEFUL: &str = "table inet filter { chain forward { type filter hook forward priority filter; ct state established,related accept; }; }";

/// Moves the router's addresses and routes into a container behind two of its bridges. With br_netfilter, conntrack
/// sees the bridged packets.
fn route_in_a_container(lab: &Topology) -> NetNs {
    let (router, container) = (lab.router(), NetNs::new("container"));
    for (n, (port, inside, host)) in
        [("r0", "c0", lab.lan()), ("r1", "c1", lab.wan())].into_iter().enumerate()
    {
        let (bridge, outside) = (format!("br{n}"), format!("v{n}"));
        router.run(&format!(
            "ip addr flush dev {port} && ip link set {port} address 02:00:00:00:99:0{n} \
             && ip link add {bridge} type bridge && ip link set {port} master {bridge} && ip link set {bridge} up \
             && ip link add {outside} type veth peer name {inside} netns {} \
             && ip link set {outside} master {bridge} up",
            container.name(),
        ));
        container.run(&format!(
            "ip link set {inside} address {} up && ip addr add {}/24 dev {inside} \
             && ip neigh replace {} lladdr {} dev {inside} nud permanent",
            host.gateway_mac, host.gateway_v4, host.v4, host.mac,
        ));
    }
    container.sysctl("ipv4/ip_forward", 1);
    router.run("modprobe -q br_netfilter; sysctl -qw net.bridge.bridge-nf-call-iptables=1");
    container
}

/// Otherwise packets that a container refuses would be forwarded past it until the next proof.
#[test]
fn packets_that_passed_another_namespace_are_not_learned() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent_router(STATEFUL);
        let container = route_in_a_container(&lab);
        let shuntd =
            shunt_testkit::Shuntd::on(lab.router()).engine(&engine.to_string()).port("r0").port("r1").start();
        let there = Crossing::between(lab.lan(), lab.wan());
        let packet = lab.lan().udp_to(4000, lab.wan().at(5000)).payload("through a container");
        for n in 0..MANY {
            let seen = there.pass(&packet.clone().with_id(n as u16)).packet().unwrap();
            assert_eq!(seen.ipv4().unwrap().ttl, packet.ipv4().unwrap().ttl - 1);
        }
        assert_eq!(shuntd.flows(), [], "{engine}");
        assert!(refusals(&shuntd.status(), "re-entered") > 0, "{:#?}", shuntd.status());

        container.nft("table ip filter { chain forward { type filter hook forward priority filter; udp dport 5000 drop; }; }");
        for _ in 0..MANY {
            assert_eq!(there.all_that_leave(&packet), [], "{engine}");
        }
        shuntd.stop();
    }
}

/// ESP in tunnel mode from the WAN host to the router, which accepts UDP from that host to the LAN only through the
/// tunnel.
fn demand_ipsec(lab: &Topology) {
    let (wan, lan, router) = (lab.wan().v4, lab.lan().v4, lab.wan().gateway_v4);
    let esp = format!("src {wan} dst {router} proto esp");
    let state = format!("ip xfrm state add {esp} spi 0x100 reqid 1 mode tunnel");
    let state = format!("{state} aead 'rfc4106(gcm(aes))' 0x{} 128", "01".repeat(20));
    let policy = |direction: &str| {
        format!(
            "ip xfrm policy add src {wan}/32 dst {lan}/32 proto udp dir {direction} tmpl {esp} reqid 1 mode tunnel"
        )
    };
    lab.wan().ns.run(&format!("{state} && {}", policy("out")));
    lab.router().run(&format!("{state} && {} && {}", policy("in"), policy("fwd")));
}

/// A port sees a packet of a tunnel twice: encrypted, and decapsulated. Only the IPsec policy distinguishes the second
/// from a packet sent in clear text.
#[test]
fn packets_that_ipsec_requires_encrypted_are_not_forwarded_in_clear_text() {
    if !require_ipsec() {
        return;
    }
    for engine in ENGINES {
        let lab = silent_router(STATEFUL);
        demand_ipsec(&lab);
        let shuntd = daemon(&lab, engine);
        let there = Crossing::between(lab.wan(), lab.lan());
        let (from, to) = (lab.wan().at(5000), lab.lan().at(4000));
        lab.wan().ns.within(|| {
            let socket = UdpSocket::bind(from).unwrap();
            for n in 0..MANY {
                let payload = format!("encrypted {n}");
                socket.send_to(payload.as_bytes(), to).unwrap();
                let is_it = |seen: &Packet| seen.payload == payload.as_bytes();
                let seen = there.to.capture_packet(Duration::from_secs(5), is_it);
                assert!(seen.is_some(), "{engine}: packet {n} does not come out of the tunnel");
            }
        });
        assert!(punts(&shuntd.status(), "ipsec") > 0, "{:#?}", shuntd.status());
        assert_eq!(shuntd.flows(), [], "{engine}");
        let clear = lab.wan().udp_to(5000, to).payload("in the clear");
        for _ in 0..MANY {
            assert_eq!(there.all_that_leave(&clear), [], "{engine}");
        }
        shuntd.stop();
    }
}
