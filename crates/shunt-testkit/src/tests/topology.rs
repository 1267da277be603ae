use crate::{Tap, TcpEcho, Topology, UdpEcho, require_root, rulesets, tcp_exchange, udp_exchange};
use shunt_wire::{Checksum, Packet, Tag};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(5);

#[test]
fn a_routed_packet_arrives_translated_with_ttl_minus_one() {
    if !require_root() {
        return;
    }
    let lab = Topology::two_hosts_and_a_router();
    lab.router().nft(rulesets::HOME_GATEWAY);
    let (lan, wan) = (lab.lan(), lab.wan());
    let sent = Packet::udp_between(lan.at(40000), wan.at(9)).macs(lan.mac, lan.gateway_mac).payload("one");
    let tap = wan.tap();
    lan.tap().send(&sent);
    let seen = tap.capture_packet(PATIENCE, |p| p.udp().is_some()).unwrap();
    let expected =
        sent.with_source((wan.gateway_v4, 40000).into()).with_hop_limit(63).macs(wan.gateway_mac, wan.mac);
    assert_eq!(seen, expected);
    assert_eq!(seen.l4_checksum(), Some(Checksum::Good));
}

#[test]
fn the_home_gateway_forwards_port_8080_to_the_lan_host() {
    if !require_root() {
        return;
    }
    let lab = Topology::two_hosts_and_a_router();
    lab.router().nft(rulesets::HOME_GATEWAY);
    let (lan, wan) = (lab.lan(), lab.wan());
    let udp = UdpEcho::start(&lan.ns, lan.at(8080));
    let tcp = TcpEcho::start(&lan.ns, lan.at(8080));
    let public = (wan.gateway_v4, 8080).into();
    assert_eq!(udp_exchange(&wan.ns, wan.at(0), public, b"in", PATIENCE).unwrap(), b"in");
    assert_eq!(tcp_exchange(&wan.ns, public, b"in", PATIENCE).unwrap(), b"in");
    assert_eq!(udp.answered(), 1);
    drop(tcp);
}

#[test]
fn ipv6_goes_out_and_nothing_comes_in() {
    if !require_root() {
        return;
    }
    let lab = Topology::two_hosts_and_a_router();
    lab.router().nft(rulesets::HOME_GATEWAY);
    let (lan, wan) = (lab.lan(), lab.wan());
    let _outside = TcpEcho::start(&wan.ns, wan.at6(7));
    let inside = UdpEcho::start(&lan.ns, lan.at6(7));
    assert_eq!(tcp_exchange(&lan.ns, wan.at6(7), b"out", PATIENCE).unwrap(), b"out");
    let refused = udp_exchange(&wan.ns, wan.at6(0), lan.at6(7), b"in", Duration::from_millis(200));
    assert!(refused.is_err());
    assert_eq!(inside.answered(), 0);
}

#[test]
fn all_hosts_of_a_bridged_lan_and_of_two_uplinks_reach_the_wan() {
    if !require_root() {
        return;
    }
    for lab in [Topology::bridged_lan(), Topology::two_uplinks()] {
        lab.pin_neighbours();
        let wan = lab.wan();
        let echo = UdpEcho::start(&wan.ns, wan.at(7));
        let others = lab.hosts().iter().filter(|host| host.nic != wan.nic);
        let answers =
            others.map(|host| udp_exchange(&host.ns, host.at(0), wan.at(7), b"x", PATIENCE).unwrap());
        assert_eq!(answers.count() as u64, echo.answered());
    }
}

#[test]
fn captured_frames_keep_both_tags() {
    if !require_root() {
        return;
    }
    let lab = Topology::two_hosts_and_a_router();
    let lan = lab.lan();
    let port = Tap::open(lab.router(), lan.port);
    for tags in [vec![], vec![Tag::vlan(5)], vec![Tag::service(100), Tag { priority: 5, ..Tag::vlan(7) }]] {
        let sent = Packet::udp_between(lan.at(1), lab.wan().at(2))
            .macs(lan.mac, lan.gateway_mac)
            .with_tags(&tags)
            .payload("tagged")
            .padded_to(60);
        lan.tap().send(&sent);
        let seen = port.capture_packet(PATIENCE, |p| p.udp().is_some());
        assert_eq!(seen, Some(sent));
    }
}
