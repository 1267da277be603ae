//! A packet teaches a flow only by its own headers, whatever arrives while it is on its way through Linux.

use crate::daemon;
use shunt_testkit::{ALL_ENGINES, Host, Shuntd, Tap, Topology, require_root, silent, wait_for, wait_until};
use shunt_wire::Packet;
use std::time::Duration;

/// How many packets of the other port arrive meanwhile. A cookie returns after 15, so these return to it, and to its
/// neighbours.
const OTHERS: [usize; 4] = [15, 30, 14, 150];
const PATIENCE: Duration = Duration::from_secs(5);
/// `arp_ignore`: answer no request.
const NEVER: u8 = 8;
/// Nothing may leave that is sent by the other port.
const MANY: usize = 20;

/// Routes between a bridge of three ports and a WAN. The bridge drops what claims the LAN host's address on another
/// port.
fn guarded_bridge() -> Topology {
    let lab = Topology::bridged_lan();
    let rules = format!(
        r#"
        table bridge guard {{ chain pre {{ type filter hook prerouting priority 0; iifname "r2" ip saddr {} drop; }}; }}
        table inet filter {{ chain forward {{ type filter hook forward priority filter; ct state invalid drop; }}; }}"#,
        lab.lan().v4
    );
    for device in ["all", "default"] {
        lab.wan().ns.sysctl(&format!("ipv4/conf/{device}/arp_ignore"), NEVER);
    }
    silent(lab, &rules)
}

/// Forgets the WAN host's MAC, so that packets for it wait in Linux.
fn forget_neighbour(lab: &Topology) {
    lab.router().run(&format!("ip neigh del {} dev r1; ip neigh flush dev r1", lab.wan().v4));
}

/// Lets the packets go that wait for the WAN host's MAC.
fn resolve_neighbour(lab: &Topology) {
    let wan = lab.wan();
    lab.router().run(&format!("ip neigh replace {} lladdr {} dev r1 nud permanent", wan.v4, wan.mac));
}

fn arrives(tap: &Tap, packet: &Packet, timeout: Duration) -> bool {
    tap.capture_packet(timeout, |seen| seen.payload == packet.payload).is_some()
}

/// The packet as another host of the bridge would forge it.
fn forged(packet: &Packet, by: &Host) -> Packet {
    packet.clone().macs(by.mac, by.gateway_mac)
}

fn received(shuntd: &Shuntd, port: &str) -> u64 {
    let status = shuntd.status();
    status.ports.iter().find(|at| at.name == port).map_or(0, |at| at.packets.all())
}

#[test]
fn a_packet_that_waits_in_linux_does_not_take_the_candidate_of_another_port() {
    if !require_root() {
        return;
    }
    for engine in ALL_ENGINES {
        let lab = guarded_bridge();
        let shuntd = daemon(&lab, engine);
        let (victim, attacker, wan) = (lab.lan().tap(), lab.host("lan2").tap(), lab.wan().tap());
        for (round, others) in OTHERS.into_iter().enumerate() {
            let port = 4000 + round as u16;
            let packet = lab.lan().udp_to(port, lab.wan().at(5000)).payload(format!("round {round}"));
            let forged = forged(&packet, lab.host("lan2"));
            // The next packet of this tuple can teach a flow.
            victim.send(&packet);
            assert!(arrives(&wan, &packet, PATIENCE));
            forget_neighbour(&lab);
            let before = received(&shuntd, "r2");
            victim.send(&packet);
            assert!(!arrives(&wan, &packet, Duration::ZERO));
            (0..others).for_each(|_| attacker.send(&forged));
            wait_until("the forged packets have arrived", || {
                received(&shuntd, "r2") >= before + others as u64
            });
            resolve_neighbour(&lab);
            assert!(arrives(&wan, &packet, PATIENCE));
            // The packet that waited has taught its own flow, so the flow's next packets are fast.
            let fast = wait_for(PATIENCE, || {
                let before = shuntd.status().packets.fast;
                victim.send(&packet);
                assert!(arrives(&wan, &packet, PATIENCE));
                (shuntd.status().packets.fast > before).then_some(())
            });
            assert!(fast.is_some(), "{engine}: the flow never becomes fast: {:#?}", shuntd.status());
            // Twice, since a flow that is pending becomes active with its second packet.
            (0..MANY).for_each(|_| attacker.send(&forged));
            assert!(
                !arrives(&wan, &packet, Duration::from_millis(200)),
                "{engine}, {others}: a forged packet left"
            );
        }
        let flows = shuntd.flows();
        let forged =
            flows.iter().flat_map(|flow| &flow.directions).find(|direction| direction.in_port == "r2");
        assert_eq!(forged, None, "{engine}");
        shuntd.stop();
    }
}
