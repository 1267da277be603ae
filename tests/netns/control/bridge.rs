//! A station that moves to another port of a bridge.

use crate::{
    ENGINES, OPEN, Stage, daemon, moves, silent,
    stage::{BOUND, by, nothing},
};
use shunt_testkit::{Crossing, Topology, require_root, wait_until};
use shunt_wire::Packet;
use std::time::{Duration, Instant};

const MUTE: &str = r#"
table netdev mute {
	chain egress {
		type filter hook egress device "lan0" priority 0; policy drop;
	}
}
"#;

#[test]
fn a_station_that_roams_gets_its_flows_where_it_is_at_once() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent(Topology::bridged_lan(), OPEN);
        let (lan, lan2) = (lab.lan(), lab.host("lan2"));
        let stage = Stage::new(lab.wan(), &[lan, lan2, lab.host("lan3")]);
        let shuntd = daemon(&lab, engine);
        let there = Stage::new(lan, &[lab.wan()]);
        let hello = lan.udp_to(4000, lab.wan().at(5000)).payload("it is here");
        there.pass(&hello);
        let packet: Packet = lab.wan().udp_to(5000, lan.at(4000)).payload("from the wan");
        stage.teach(&shuntd, &packet);

        // It is heard at its new place only: its kernel would say something now and then.
        lan.ns.nft(MUTE);
        let before = moves(&shuntd.status(), "fdb");
        lan2.tap().send(&hello);
        stage.react("a station that roams", &packet, by(1));
        assert!(moves(&shuntd.status(), "fdb") > before, "{:#?}", shuntd.status());
        stage.teach_via(&shuntd, &packet, 1);

        // A station of which the bridge knows nothing is looked for at every port. That is no flow to learn.
        lab.router()
            .run("bridge fdb flush dev br0 dynamic 2>/dev/null || ip link set br0 type bridge fdb_flush");
        stage.react("a station that is forgotten", &packet, |left| left.iter().all(|at| at.len() == 1));
        stage.never_fast(&shuntd, &packet, |left| left.iter().all(|at| at.len() == 1));
        shuntd.stop();
    }
}

/// What a spanning tree decides of a port counts for what is routed to it and from it, too.
#[test]
fn the_state_of_a_port_of_a_bridge_holds_at_once_for_what_is_routed() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent(Topology::bridged_lan(), OPEN);
        let (lan, wan) = (lab.lan(), lab.wan());
        let shuntd = daemon(&lab, engine);
        let stage = Stage::new(wan, &[lan, lab.host("lan2"), lab.host("lan3")]);
        let packet: Packet = wan.udp_to(5000, lan.at(4000)).payload("from the wan");
        let hello = lan.udp_to(4000, wan.at(5000)).payload("it is here");
        let way = Crossing::between(lan, wan);
        for state in [0, 1, 2] {
            wait_until("it is routed both ways", || {
                way.from.send(&hello);
                by(0)(&stage.send(&packet))
            });
            stage.teach(&shuntd, &packet);
            way.teach(&shuntd, &hello);
            let change = format!("bridge link set dev r0 state {state}");
            lab.router().run(&change);
            let since = Instant::now();
            loop {
                way.from.send(&hello);
                let left =
                    way.to.capture_packet(Duration::from_millis(50), |seen| seen.payload == hello.payload);
                if left.is_none() {
                    break;
                }
                assert!(since.elapsed() < BOUND, "{change}: it still comes in");
            }
            stage.react(&change, &packet, nothing);
            lab.router().run("bridge link set dev r0 state 3");
        }
        shuntd.stop();
    }
}
