//! Tunnels of Ethernet frames (VXLAN, Geneve, GRE) as ports: the frames inside leave as from Linux alone, and so do the
//! packets around them.

use crate::{
    daemon,
    recorded::{RULES, Recorded},
    tcp::arrives,
    variations,
};
use shunt_api::Engine;
use shunt_testkit::{
    Crossing, Segment, Shuntd, Tap, Topology, require_root, rulesets, silent, skip_missing_feature,
};
use shunt_wire::Packet;
use std::{ops::Range, time::Duration};

const KINDS: [&str; 3] = ["vxlan", "geneve", "gretap"];
/// Identification and checksum of the outer IPv4 header, which Linux numbers as packets leave.
const NUMBERED: [Range<usize>; 2] = [18..20, 24..26];
const PATIENCE: Duration = Duration::from_secs(1);

/// Runs a test with a tunnel of each kind between the router and the WAN host.
fn with_each(lan: Segment, test: impl Fn(&str, Topology)) {
    if !require_root() {
        return;
    }
    for kind in KINDS {
        match Topology::try_new(&[lan, Segment::WAN.over(kind)]) {
            Ok(lab) => test(kind, lab),
            Err(why) => {
                skip_missing_feature(kind, "--test forwarding -- ethernet_tunnels", &why.to_string());
            }
        }
    }
}

/// UDP and TCP over both families, with and without translation, in both directions.
fn packets_are_the_same(lan: Segment) {
    with_each(lan, |_, lab| {
        let lab = silent(lab, RULES);
        let recorded = Recorded::all(lab.lan(), lab.wan());
        let shuntd = daemon(&lab, Engine::Tc);
        recorded.iter().for_each(|way| way.assert_same_with_shunt(&shuntd));
        shuntd.stop();
    });
}

#[test]
fn packets_between_ethernet_and_a_tunnel() {
    packets_are_the_same(Segment::LAN);
}

#[test]
fn packets_between_two_tunnels() {
    packets_are_the_same(Segment::LAN.over("vxlan"));
}

/// The frames on the wire below the tunnel, each with one of these packets inside.
fn outer(way: &Crossing, wire: &Tap, packets: &[Packet]) -> Vec<Vec<u8>> {
    packets.iter().map(|packet| around(way, wire, packet)).collect()
}

fn around(way: &Crossing, wire: &Tap, packet: &Packet) -> Vec<u8> {
    wire.drain();
    let inner = way.pass(packet).bytes;
    let is_around = |frame: &[u8]| frame.windows(inner.len()).any(|inside| inside == inner);
    let mut frame = wire.capture(PATIENCE, |frame| is_around(&frame.bytes)).unwrap().bytes;
    NUMBERED.into_iter().for_each(|field| frame[field].fill(0));
    frame
}

/// Addresses, DSCP and ECN, TTL, the source port (a hash of the flow), lengths, and the tunnel's own header.
#[test]
fn the_packets_of_the_tunnel_are_those_of_linux() {
    with_each(Segment::LAN, |kind, lab| {
        let lab = silent(lab, RULES);
        lab.router().run(&format!("ip link set r1 type {kind} {} tos inherit ttl 9", again(kind)));
        let wire = Tap::open(&lab.wan().ns, "wan0-below");
        let way = Crossing::between(lab.lan(), lab.wan());
        let flows = [lab.wan().at(5000), lab.wan().at6(5000)];
        let flows = flows.map(|to| variations(&lab.lan().udp_to(4000, to)));
        let alone = flows.each_ref().map(|packets| outer(&way, &wire, packets));
        let shuntd = daemon(&lab, Engine::Tc);
        for (packets, alone) in flows.iter().zip(alone) {
            way.teach(&shuntd, &packets[0]);
            let before = shuntd.status().packets.fast;
            for (packet, alone) in packets.iter().zip(alone) {
                assert_eq!(around(&way, &wire, packet), alone, "{kind}: {packet:?}");
            }
            assert_eq!(shuntd.status().packets.fast - before, packets.len() as u64, "{kind}");
        }
        shuntd.stop();
    });
}

/// What a change of a tunnel has to repeat.
fn again(kind: &str) -> &'static str {
    match kind {
        "vxlan" => "id 2",
        "geneve" => "id 2 remote 100.64.2.2",
        _ => "local 100.64.2.1 remote 100.64.2.2",
    }
}

/// By itself, the daemon takes the tunnel as a port. The LAN host sends aggregates, which the kernel segments below it.
#[test]
fn aggregates_arrive_whole_and_nearly_all_bytes_are_fast() {
    with_each(Segment::LAN, |kind, lab| {
        lab.router().nft(rulesets::HOME_GATEWAY);
        let shuntd = Shuntd::on(lab.router()).engine("auto").start();
        let ports = shuntd.status().ports.into_iter().map(|port| port.name).collect::<Vec<_>>();
        assert!(ports.contains(&"r1".to_owned()), "{kind}: {ports:?}");
        shuntd.stop();
        // The device below receives the tunnel's packets, which the router answers itself.
        let shuntd = Shuntd::on(lab.router()).engine("auto").port("r0").port("r1").start();
        for server in [lab.wan().at(80), lab.wan().at6(80)] {
            let [fast, slow] = arrives(&lab, &shuntd, server);
            assert!(fast >= 19 * slow, "{kind}, {server}: fast {fast}, slow {slow}");
        }
        shuntd.stop();
    });
}

/// Such a device sends each packet to where its route says, and a redirected packet has none.
#[test]
fn a_tunnel_without_a_remote_end_is_no_port() {
    with_each(Segment::LAN, |kind, lab| {
        let port = if kind == "gretap" { "" } else { "dstport 4788" };
        lab.router().run(&format!("ip link add many type {kind} {port} external"));
        lab.router().run("ip link set many up; ip address add 10.9.0.1/24 dev many");
        let shuntd = Shuntd::on(lab.router()).engine("tc").start();
        let status = shuntd.status();
        assert!(status.ports.iter().all(|port| port.name != "many"), "{kind}: {status:#?}");
        shuntd.stop();
    });
}
