//! A WAN over PPPoE: the port is the ppp device, and its packets leave by an Ethernet device below it. Frames of the
//! session with a wrong length, number or protocol are dropped there, so that the tests miss their packets.

use crate::{
    daemon,
    recorded::{RULES, Recorded},
    tcp::arrives,
};
use shunt_api::Engine;
use shunt_testkit::{
    Crossing, SELDOM_PROVED, Segment, Shuntd, Topology, port_engine, require_root, rulesets, silent,
    skip_missing_feature,
};

const LAN: Segment = Segment::LAN;
const WAN: Segment = Segment::WAN.over_pppoe();

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

/// The LAN host sends aggregates, which the kernel segments at the ppp device. By itself, the daemon takes the ppp
/// device as a port, and not the one below it.
#[test]
fn aggregates_arrive_whole_and_nearly_all_bytes_are_fast() {
    let Some(lab) = router(&[LAN, WAN]) else { return };
    lab.router().nft(rulesets::HOME_GATEWAY);
    let shuntd = Shuntd::on(lab.router()).engine("auto").start();
    let ports = shuntd.status().ports.into_iter().map(|port| port.name).collect::<Vec<_>>();
    assert_eq!(ports, ["r0", "r1"]);
    assert_eq!(port_engine(&shuntd.status(), "r1"), Engine::Tc);
    for server in [lab.wan().at(80), lab.wan().at6(80)] {
        let [fast, slow] = arrives(&lab, &shuntd, server);
        assert!(fast >= 19 * slow, "{server}: fast {fast}, slow {slow}");
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
