//! A WAN over PPPoE: the port is the ppp device, and its packets leave by an Ethernet device below it. Frames of the
//! session with a wrong length, number or protocol are dropped there, so that the tests miss their packets.

use crate::{
    daemon,
    recorded::{RULES, Recorded},
    tcp::arrives,
};
use shunt_api::Engine;
use shunt_testkit::{
    Crossing, SELDOM_PROVED, Segment, Shuntd, Tap, Topology, port_engine, require_root, rulesets, silent,
    skip_missing_feature, wait_for,
};
use shunt_traffic::ppp::PppDevice;
use shunt_wire::{Ethernet, Mac, encap};
use std::time::Duration;

const LAN: Segment = Segment::LAN;
const WAN: Segment = Segment::WAN.over_pppoe();
const PATIENCE: Duration = Duration::from_secs(1);

/// A router with these segments; none after a message if the kernel has no PPPoE.
fn router(segments: &[Segment]) -> Option<Topology> {
    if !require_root() {
        return None;
    }
    let made = Topology::try_new(segments);
    made.inspect_err(|why| {
        let tests = "--kernel drivers --test forwarding -- pppoe";
        skip_missing_feature("PPPoE", tests, &why.to_string());
    })
    .ok()
}

/// UDP and TCP over both families, with and without translation, in both directions.
fn packets_are_the_same(lan: Segment, start: impl Fn(&Topology) -> Shuntd) {
    let Some(lab) = router(&[lan, WAN]) else { return };
    let lab = silent(lab, RULES);
    let recorded = Recorded::all(lab.lan(), lab.wan());
    let shuntd = start(&lab);
    recorded.iter().for_each(|way| way.assert_same_with_shunt(&shuntd));
    shuntd.stop();
}

#[test]
fn packets_between_ethernet_and_pppoe() {
    packets_are_the_same(LAN, |lab| daemon(lab, Engine::Tc));
}

#[test]
fn packets_between_two_sessions_of_pppoe() {
    packets_are_the_same(LAN.over_pppoe(), |lab| daemon(lab, Engine::Tc));
}

/// The Ethernet device sees each packet a second time, in the session, and passes it on to Linux.
#[test]
fn packets_if_the_device_below_is_a_port_too() {
    packets_are_the_same(LAN, |lab| {
        let shuntd = Shuntd::on(lab.router()).engine("tc").config(SELDOM_PROVED);
        ["r0", "r1", "r1-below"].into_iter().fold(shuntd, |shuntd, port| shuntd.port(port)).start()
    });
}

/// A daemon that has seen the sessions of all ppp ports, so that XDP adds and removes their headers.
fn with_sessions(lab: &Topology) -> Shuntd {
    // Without GRO at the other end, a veth accepts no redirected frames.
    for host in [lab.lan(), lab.wan()] {
        let far = format!("{}-far", host.port);
        host.ns.run(&format!("! ip link show {far} || ethtool -K {far} gro on"));
    }
    let shuntd = daemon(lab, Engine::Xdp);
    let there = Crossing::between(lab.lan(), lab.wan());
    let packet = lab.lan().udp_to(4090, lab.wan().at(5090)).payload("first");
    there.teach(&shuntd, &packet);
    let back = Crossing::between(lab.wan(), lab.lan());
    back.teach(&shuntd, &lab.wan().answer_to(&there.pass(&packet).packet().unwrap()));
    shuntd
        .wait_until("all ports use XDP", |status| status.ports.iter().all(|port| port.engine == Engine::Xdp));
    shuntd
}

/// As [`packets_are_the_same`], by XDP. Linux sees those that teach, and those with padding.
fn packets_by_xdp_are_the_same(lan: Segment, wan: Segment) {
    let Some(lab) = router(&[lan, wan]) else { return };
    let lab = silent(lab, RULES);
    let recorded = Recorded::all(lab.lan(), lab.wan());
    let shuntd = with_sessions(&lab);
    recorded.iter().for_each(|way| way.assert_same_with_shunt(&shuntd));
    let status = shuntd.status();
    let [xdp, tc] =
        status.ports.iter().fold([0, 0], |[xdp, tc], port| [xdp + port.packets.xdp, tc + port.packets.tc]);
    assert!(xdp > 2 * tc, "xdp {xdp}, tc {tc}: {status:#?}");
    shuntd.stop();
}

#[test]
fn packets_between_ethernet_and_pppoe_by_xdp() {
    packets_by_xdp_are_the_same(LAN, WAN);
}

#[test]
fn packets_between_two_sessions_of_pppoe_by_xdp() {
    packets_by_xdp_are_the_same(LAN.over_pppoe(), WAN);
}

#[test]
fn packets_between_ethernet_and_pppoe_in_a_vlan() {
    packets_by_xdp_are_the_same(LAN, Segment::WAN.over_pppoe_in(7));
}

/// The LAN host sends aggregates, which the kernel segments at the ppp device. By itself, the daemon takes the ppp
/// device as a port, and the one below it, where XDP could run.
#[test]
fn aggregates_arrive_whole_and_nearly_all_bytes_are_fast() {
    let Some(lab) = router(&[LAN, WAN]) else { return };
    lab.router().nft(rulesets::HOME_GATEWAY);
    let shuntd = Shuntd::on(lab.router()).engine("auto").start();
    let ports = shuntd.status().ports.into_iter().map(|port| port.name).collect::<Vec<_>>();
    assert_eq!(ports, ["r0", "r1-below", "r1"]);
    assert_eq!(port_engine(&shuntd.status(), "r1"), Engine::Tc);
    for server in [lab.wan().at(80), lab.wan().at6(80)] {
        let [fast, slow] = arrives(&lab, &shuntd, server);
        assert!(fast >= 19 * slow, "{server}: fast {fast}, slow {slow}");
    }
    shuntd.stop();
}

/// A capture on the device below sees every packet.
#[test]
fn packets_leave_xdp_while_the_device_below_is_captured() {
    let Some(lab) = router(&[LAN, WAN]) else { return };
    let lab = silent(lab, rulesets::OPEN);
    let shuntd = with_sessions(&lab);
    let way = Crossing::between(lab.wan(), lab.lan());
    let packet = lab.wan().udp_to(4000, lab.lan().at(5000)).payload("known");
    way.teach(&shuntd, &packet);
    let engine = |engine| shuntd.wait_until("the engine of r1", |status| port_engine(status, "r1") == engine);
    engine(Engine::Xdp);
    let capture = Tap::open(lab.router(), "r1-below");
    engine(Engine::Tc);
    capture.drain();
    way.pass(&packet);
    let packet = packet.to_bytes().split_off(encap::header_bytes(0));
    assert!(capture.capture(PATIENCE, |frame| frame.bytes.ends_with(&packet)).is_some());
    drop(capture);
    engine(Engine::Xdp);
    shuntd.stop();
}

/// The number of a new session is on the wire as soon as its packets are fast, although the ppp device has the name and
/// the addresses of the former one.
#[test]
fn a_session_that_comes_back_has_its_new_number() {
    let Some(lab) = router(&[LAN, WAN]) else { return };
    let lab = silent(lab, rulesets::OPEN);
    let shuntd = with_sessions(&lab);
    let [peer, ours] = [1, 2].map(|last| Mac([2, 0, 0, 0xc, 0, last]));
    let wan = lab.wan();
    let there = Crossing::between(lab.lan(), wan);
    let packet = lab.lan().udp_to(4000, wan.at(5000)).payload("known");
    lab.router().run("ip link del r1");
    for number in [0x77, 0x78] {
        let session = lab.router().within(|| PppDevice::over_pppoe("r1-below", number, peer)).unwrap();
        lab.router().run(&format!(
            "ip link set {} name r1 mtu 1492 up && ip address add {}/24 dev r1",
            session.name, wan.gateway_v4
        ));
        let wire = Tap::open(&wan.ns, "r1-far");
        let xdp = || shuntd.status().ports.iter().map(|port| port.packets.xdp).sum::<u64>();
        let before = xdp();
        let frame = wait_for(PATIENCE * 30, || {
            wire.drain();
            there.from.send(&packet);
            let frame = wire.capture(PATIENCE, |frame| frame.bytes.ends_with(b"known"));
            frame.filter(|_| xdp() > before)
        });
        let frame = frame.expect("packets are never fast").bytes;
        let header = encap::header_bytes(0) + encap::PPPOE_BYTES;
        let ethernet = Ethernet { destination: peer, source: ours, tags: Vec::new() };
        let expected = encap::session_header(&ethernet, number, &frame[header..]).unwrap();
        assert_eq!(frame[..header], expected);
        drop(session);
        shuntd.wait_until("r1 is no port", |status| status.ports.iter().all(|port| port.name != "r1"));
    }
    shuntd.stop();
}

/// After a session has ended, its device is gone, and nothing is sent into it.
#[test]
fn a_session_that_ends_is_no_port_any_more() {
    let Some(lab) = router(&[LAN, WAN]) else { return };
    let lab = silent(lab, rulesets::OPEN);
    let shuntd = Shuntd::on(lab.router()).engine("auto").start();
    let there = Crossing::between(lab.lan(), lab.wan());
    let packet = lab.lan().udp_to(4000, lab.wan().at(5000)).payload("known");
    there.teach(&shuntd, &packet);
    lab.router().run("ip link del r1");
    shuntd.wait_until("r1 is no port", |status| status.ports.iter().all(|port| port.name != "r1"));
    let before = shuntd.status().packets;
    there.from.send(&packet);
    let after = shuntd.wait_until("the packet is slow", |status| status.packets.slow > before.slow);
    assert_eq!(after.packets.fast, before.fast);
    shuntd.stop();
}
