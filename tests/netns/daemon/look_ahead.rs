//! With many flows, XDP programs load the flows of waiting packets ahead. What they forward stays the same.

use shunt_api::{Engine, Status};
use shunt_gen::Grid;
use shunt_testkit::{Host, Shuntd, daemon_with, require_root, rulesets, silent_router, wait_for};
use shunt_traffic::Generator;
use shunt_wire::{Checksum, Packet};
use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

const FLOWS: u16 = 32;
/// Packets of each flow in the frames that are compared.
const ROUNDS: u64 = 16;
const PATIENCE: Duration = Duration::from_secs(30);

fn looks_ahead(status: &Status) -> bool {
    status.ports.iter().any(|port| port.name == "r0" && port.looks_ahead)
}

/// Sends XDP frames, which wait in the veth's ring as such.
fn send(lan: &Host, far: SocketAddr, packets: u64) {
    let flows = Grid { frame_bytes: 68, ..lan.flows_to(far, FLOWS, 1) };
    let traffic = flows.traffic().unwrap();
    let sent = lan.ns.within(|| Generator::new(&traffic, lan.ns.ifindex(lan.nic))?.run(packets));
    sent.unwrap_or_else(|e| panic!("{e}"));
}

fn fast(shuntd: &Shuntd) -> u64 {
    shuntd.status().packets.fast
}

/// Asserts that each packet of each flow arrives once and is rewritten as Linux would rewrite it.
fn assert_forwarded(packets: &[Packet], far: SocketAddr) {
    let mut of_flow: BTreeMap<SocketAddr, u64> = BTreeMap::new();
    for packet in packets {
        assert_eq!((packet.hop_limit(), packet.destination()), (Some(63), Some(far)), "{packet:?}");
        assert_eq!(packet.l4_checksum(), Some(Checksum::Good), "{packet:?}");
        assert!(packet.ipv4().is_none_or(|ip| ip.checksum == Checksum::Good), "{packet:?}");
        *of_flow.entry(packet.source().unwrap()).or_default() += 1;
    }
    assert_eq!(of_flow.len(), usize::from(FLOWS));
    assert!(of_flow.values().all(|packets| *packets == ROUNDS), "{of_flow:?}");
}

#[test]
fn programs_look_ahead_while_enough_flows_are_in_use() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    let shuntd = daemon_with(&lab, Engine::Xdp, &format!("look_ahead_flows = {FLOWS}"));
    let (lan, wan) = (lab.lan(), lab.wan());
    for far in [wan.at(5000), wan.at6(5000)] {
        assert!(!looks_ahead(&shuntd.status()));
        let begun = wait_for(PATIENCE, || {
            send(lan, far, u64::from(FLOWS));
            looks_ahead(&shuntd.status()).then_some(())
        });
        assert!(begun.is_some(), "{:#?}\n{}", shuntd.status(), shuntd.log());
        let tap = wan.tap();
        let all = u64::from(FLOWS) * ROUNDS;
        let before = fast(&shuntd);
        send(lan, far, all);
        let packets = tap.capture_packets(all as usize, PATIENCE, |packet| packet.udp().is_some());
        assert_forwarded(&packets, far);
        assert!(fast(&shuntd) - before > all / 2, "{:#?}", shuntd.status());
        shuntd.flush();
        shuntd.wait_until("the flows are gone", |status| !looks_ahead(status));
    }
    assert!(shuntd.log().contains("no longer looks ahead"), "{}", shuntd.log());
    shuntd.stop();
}

#[test]
fn programs_never_look_ahead_if_the_configuration_says_so() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    let shuntd = daemon_with(&lab, Engine::Xdp, "look_ahead_flows = 0");
    let (lan, far) = (lab.lan(), lab.wan().at(5000));
    let learned = wait_for(PATIENCE, || {
        send(lan, far, u64::from(FLOWS));
        (shuntd.flows().len() >= usize::from(FLOWS)).then_some(())
    });
    assert!(learned.is_some(), "{:#?}", shuntd.status());
    assert!(!looks_ahead(&shuntd.status()));
    shuntd.stop();
}
