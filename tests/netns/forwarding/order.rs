//! No packet is lost, doubled or overtaken within a direction, however often its flow is re-proved.

use shunt_api::Engine;
use shunt_testkit::{Crossing, Shuntd, require_root, rulesets, silent_router};
use shunt_wire::Packet;
use std::time::Duration;

/// Number of packets in flight.
const WINDOW: u32 = 32;
const PROOFS: u64 = 8;

/// The number in a packet's payload.
fn number(seen: &Packet) -> Option<u32> {
    Some(u32::from_be_bytes(seen.udp().and(seen.payload.get(..4))?.try_into().ok()?))
}

#[track_caller]
fn arrives_in_order(engine: Engine) {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::HOME_GATEWAY);
    lab.keep_order();
    let shuntd = Shuntd::on(lab.router()).engine(&engine.to_string()).config("reprove = \"200ms\"").start();
    let there = Crossing::between(lab.lan(), lab.wan());
    let packet = lab.lan().udp_to(4000, lab.wan().at(5000));
    let mut seen = Vec::new();
    let mut sent = 0;
    // Start with the first packet, so that the flow is learned while packets follow each other.
    loop {
        while sent - (seen.len() as u32) < WINDOW {
            there.from.send(&packet.clone().payload(sent.to_be_bytes()));
            sent += 1;
        }
        let some = there.to.capture_packets(1, Duration::from_secs(5), |p| number(p).is_some());
        assert!(!some.is_empty(), "packets were lost after {} of {sent}: {:#?}", seen.len(), shuntd.status());
        seen.extend(some.iter().filter_map(number));
        if seen.len() % 256 == 0 && shuntd.status().proved >= PROOFS {
            break;
        }
    }
    let rest =
        there.to.capture_packets(sent as usize - seen.len(), Duration::from_secs(5), |p| number(p).is_some());
    seen.extend(rest.iter().filter_map(number));

    let status = shuntd.status();
    assert!(status.packets.fast > status.packets.slow, "{status:#?}");
    let late = seen.windows(2).filter(|pair| pair[1] < pair[0]).count() as u64;
    let why = |reason| *status.reasons.get(reason).unwrap_or(&0);
    // Without the packets that a host sends to all stations by itself.
    let slow = status.packets.slow - why("not-ours");
    // Two packets teach the flow, and one goes to Linux for each proof.
    assert!(slow <= 2 * status.learned + status.proved, "{status:#?}");
    let others = match engine {
        // Packets that XDP passed to tc while tc learned or re-proved the flow may overtake others.
        Engine::Xdp | Engine::External => {
            let by_tc = status.ports.iter().map(|port| port.packets.tc).sum::<u64>();
            // XDP leaves packets to tc whose checksum looks unfinished: one number in 65,535 gives such a checksum.
            let unfinished = u64::from(sent.div_ceil(65_535));
            assert!(
                by_tc <= u64::from(WINDOW) * (status.learned + why("stale")) + unfinished,
                "of {sent} packets: {status:#?}"
            );
            by_tc + slow
        }
        Engine::Tc => 0,
    };
    assert!(late <= others, "{late} of {sent} packets are late: {status:#?}");
    seen.sort_unstable();
    assert_eq!(seen, (0..sent).collect::<Vec<_>>(), "packets were lost or doubled");
    shuntd.stop();
}

#[test]
fn packets_by_tc_arrive_once_and_in_order() {
    arrives_in_order(Engine::Tc);
}

#[test]
fn packets_by_xdp_arrive_once_and_in_order() {
    arrives_in_order(Engine::Xdp);
}

#[test]
fn packets_by_the_external_engine_arrive_once_and_in_order() {
    arrives_in_order(Engine::External);
}
