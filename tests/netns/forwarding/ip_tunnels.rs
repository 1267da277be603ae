//! Tunnels of IP packets (6in4, GRE, IP6IP6, WireGuard) as ports: the packets inside leave as from Linux alone, and so
//! do the packets around them, unless they are encrypted.

use crate::{
    daemon,
    recorded::{RULES, Recorded},
    variations,
};
use shunt_api::Engine;
use shunt_testkit::{Crossing, Segment, Tap, Topology, require_root, silent, skip_missing_feature};
use shunt_wire::{Packet, encap};
use std::time::Duration;

/// Those that carry IPv4 and IPv6.
const PLAIN: [&str; 4] = ["sit", "gre", "ip6tnl", "ip6gre"];
const ETHERNET_BYTES: usize = encap::header_bytes(0);
const PATIENCE: Duration = Duration::from_secs(1);

/// Runs a test with a tunnel of each kind as the router's WAN port.
fn with_each(kinds: &[&'static str], test: impl Fn(&str, Topology)) {
    if !require_root() {
        return;
    }
    for kind in kinds {
        match Topology::try_new(&[Segment::LAN, Segment::WAN.over_ip(kind)]) {
            Ok(lab) => test(kind, lab),
            Err(why) => {
                let tests = "--kernel drivers --test forwarding -- ip_tunnels";
                skip_missing_feature(kind, tests, &why.to_string());
            }
        }
    }
}

/// UDP and TCP over both families, with and without translation, in both directions.
fn packets_are_the_same(kinds: &[&'static str]) {
    with_each(kinds, |kind, lab| {
        let lab = silent(lab, RULES);
        let recorded = Recorded::all(lab.lan(), lab.wan());
        let shuntd = daemon(&lab, Engine::Tc);
        println!("{kind}");
        recorded.iter().for_each(|way| way.assert_same_with_shunt(&shuntd));
        shuntd.stop();
    });
}

#[test]
fn packets_between_ethernet_and_a_tunnel() {
    packets_are_the_same(&PLAIN);
}

#[test]
fn packets_between_ethernet_and_wireguard() {
    packets_are_the_same(&["wireguard"]);
}

/// The frame on the wire below the tunnel with this packet inside.
fn around(way: &Crossing, wire: &Tap, packet: &Packet) -> Vec<u8> {
    wire.drain();
    let inner = way.pass(packet).bytes;
    let inner = &inner[ETHERNET_BYTES..];
    let is_around = |frame: &[u8]| frame.windows(inner.len()).any(|inside| inside == inner);
    let mut frame = wire.capture(PATIENCE, |frame| is_around(&frame.bytes)).unwrap().bytes;
    if frame[12..ETHERNET_BYTES] == encap::IPV4.to_be_bytes() {
        // Identification and checksum: Linux numbers packets as they leave.
        frame[18..20].fill(0);
        frame[24..26].fill(0);
    }
    frame
}

/// Addresses, DSCP and ECN, TTL, flow label, lengths, and the tunnel's own header.
#[test]
fn the_packets_of_the_tunnel_are_those_of_linux() {
    with_each(&PLAIN, |kind, lab| {
        let lab = silent(lab, RULES);
        let how = if kind.starts_with("ip6") { "hoplimit 9 tclass inherit" } else { "ttl 9 tos inherit" };
        let ends =
            if kind.starts_with("ip6") { ["fd00:9::1", "fd00:9::2"] } else { ["100.64.9.1", "100.64.9.2"] };
        let [local, remote] = ends;
        lab.router().run(&format!("ip link set r1 type {kind} local {local} remote {remote} {how}"));
        let wire = Tap::open(&lab.wan().ns, "r1-below");
        let way = Crossing::between(lab.lan(), lab.wan());
        let flows = [lab.wan().at(5000), lab.wan().at6(5000)];
        let flows = flows.map(|to| variations(&lab.lan().udp_to(4000, to)));
        let outer = |packet| around(&way, &wire, packet);
        let alone = flows.each_ref().map(|packets| packets.iter().map(outer).collect::<Vec<_>>());
        let shuntd = daemon(&lab, Engine::Tc);
        for (packets, alone) in flows.iter().zip(alone) {
            way.teach(&shuntd, &packets[0]);
            let before = shuntd.status().packets.fast;
            for (packet, alone) in packets.iter().zip(alone) {
                assert_eq!(outer(packet), alone, "{kind}: {packet:?}");
            }
            assert_eq!(shuntd.status().packets.fast - before, packets.len() as u64, "{kind}");
        }
        shuntd.stop();
    });
}
