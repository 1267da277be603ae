//! The bench's generator and sink: the packets are well-formed, and all of them are counted.

use shunt_gen::Grid;
use shunt_testkit::{Host, Topology, require_root, rulesets, wait_until};
use shunt_traffic::{BareRedirect, Generator, Sink};
use shunt_wire::{Checksum, Packet};
use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

const PATIENCE: Duration = Duration::from_secs(5);

fn flows(lab: &Topology, near: SocketAddr, far: SocketAddr) -> Grid {
    Grid { near, frame_bytes: 68, ..lab.lan().flows_to(far, 3, 2) }
}

fn generate(host: &Host, flows: &Grid, packets: u64) {
    let ifindex = host.ns.ifindex(host.nic);
    let traffic = flows.traffic().unwrap();
    let sent = host.ns.within(|| Generator::new(&traffic, ifindex)?.run(packets));
    sent.unwrap_or_else(|e| panic!("{e}"));
}

fn pairs(packets: &[Packet]) -> BTreeSet<(SocketAddr, SocketAddr)> {
    packets.iter().filter_map(|p| Some((p.source()?, p.destination()?))).collect()
}

fn expected(
    near: impl Fn(u16) -> SocketAddr,
    far: impl Fn(u16) -> SocketAddr,
) -> BTreeSet<(SocketAddr, SocketAddr)> {
    let with_port = |address: SocketAddr, low: u16| SocketAddr::new(address.ip(), address.port() + low);
    (0..6).map(|i| (with_port(near(i / 3), i % 3), with_port(far(i / 3), i / 3))).collect()
}

#[test]
fn generated_packets_are_well_formed_and_of_all_flows() {
    if !require_root() {
        return;
    }
    let lab = Topology::two_hosts_and_a_router();
    lab.pin_neighbours();
    let (lan, wan) = (lab.lan(), lab.wan());
    let is_udp = |p: &Packet| p.udp().is_some();

    let tap = wan.tap();
    generate(lan, &flows(&lab, lan.at(1000), wan.at(5000)), 12);
    let seen = tap.capture_packets(12, PATIENCE, is_udp);
    assert_eq!(seen.len(), 12);
    let near = |high| SocketAddr::from(([192, 168, 1, 2 + high as u8], 1000));
    assert_eq!(pairs(&seen), expected(near, |_| wan.at(5000)));
    let ids: BTreeSet<u16> = seen.iter().map(|p| p.ipv4().unwrap().id).collect();
    assert_eq!(ids.len(), 12);
    for packet in &seen {
        assert_eq!(packet.ipv4().unwrap().checksum, Checksum::Good);
        assert_eq!(packet.l4_checksum(), Some(Checksum::Good));
        assert_eq!(packet.hop_limit(), Some(63));
        assert_eq!(packet.to_bytes().len(), 64);
    }

    generate(lan, &flows(&lab, lan.at6(1000), wan.at6(5000)), 12);
    let seen = tap.capture_packets(12, PATIENCE, is_udp);
    let near = |high| format!("[fd00:1::{}]:1000", 2 + high).parse().unwrap();
    assert_eq!(pairs(&seen), expected(near, |_| wan.at6(5000)));
    assert!(seen.iter().all(|p| p.l4_checksum() == Some(Checksum::Good)));

    generate(lan, &Grid { udp_checksum: false, ..flows(&lab, lan.at(1000), wan.at(5000)) }, 6);
    let seen = tap.capture_packets(6, PATIENCE, is_udp);
    assert_eq!(seen.len(), 6);
    assert!(seen.iter().all(|p| p.l4_checksum() == Some(Checksum::Zero)));
}

#[test]
fn replies_find_their_way_through_a_masquerade() {
    if !require_root() {
        return;
    }
    let lab = Topology::two_hosts_and_a_router();
    lab.router().nft(rulesets::TEN_RULES);
    lab.router().nft(rulesets::MASQUERADE);
    lab.pin_neighbours();
    let (lan, wan) = (lab.lan(), lab.wan());
    let forward = flows(&lab, lan.at(1000), wan.at(5000));
    generate(lan, &forward, 6);
    let entries = || lab.router().run("conntrack -C").trim().to_owned();
    wait_until("every flow has a connection", || entries() == "6");

    let port = shunt_testkit::Tap::open(lab.router(), wan.port);
    let reply = Grid {
        near: (wan.gateway_v4, 1000).into(),
        near_fixed: true,
        reply: true,
        source_mac: wan.mac,
        destination_mac: wan.gateway_mac,
        ..forward
    };
    generate(wan, &reply, 6);
    let seen = port.capture_packets(6, PATIENCE, |p| p.udp().is_some());
    assert_eq!(seen.len(), 6);
    assert!(seen.iter().all(|p| p.l4_checksum() == Some(Checksum::Good)));
    wait_until("every connection has seen a reply", || {
        lab.router().run("conntrack -L 2>/dev/null").matches("ASSURED").count() == 6
            || !lab.router().run("conntrack -L 2>/dev/null").contains("UNREPLIED")
    });
}

#[test]
fn a_sink_counts_the_packets_of_a_bare_redirect() {
    if !require_root() {
        return;
    }
    let lab = Topology::two_hosts_and_a_router();
    let (lan, wan) = (lab.lan(), lab.wan());
    let (r0, r1) = (lab.router().ifindex("r0"), lab.router().ifindex("r1"));
    let _bare = lab.router().within(|| BareRedirect::attach(r0, r1)).unwrap();
    let sink = wan.ns.within(|| Sink::attach(wan.ns.ifindex(wan.nic))).unwrap();
    generate(lan, &flows(&lab, lan.at(1000), wan.at(5000)), 128);
    wait_until("all packets have arrived", || sink.count().unwrap().packets == 128);
    assert_eq!(sink.count().unwrap().bytes, 128 * 64);
}
