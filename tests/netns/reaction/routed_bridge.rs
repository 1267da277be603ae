//! How soon changes of a bridge take effect on flows that are routed to and from its stations.

use shunt_testkit::{
    Crossing, ENGINES, Stage, Topology, daemon, epoch_moves, require_root, rulesets, silent, stage::REACTION,
    stage::leaves_by, stage::nothing_leaves, wait_until,
};
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
fn flows_follow_a_station_that_roams_at_once() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent(Topology::bridged_lan(), rulesets::OPEN);
        let (lan, lan2) = (lab.lan(), lab.host("lan2"));
        let stage = Stage::new(lab.wan(), &[lan, lan2, lab.host("lan3")]);
        let shuntd = daemon(&lab, engine);
        let there = Stage::new(lan, &[lab.wan()]);
        let hello = lan.udp_to(4000, lab.wan().at(5000)).payload("it is here");
        there.pass(&hello);
        let packet: Packet = lab.wan().udp_to(5000, lan.at(4000)).payload("from the wan");
        stage.teach(&shuntd, &packet);

        // Mute the station's kernel, which would send a packet from the old port now and then.
        lan.ns.nft(MUTE);
        let before = epoch_moves(&shuntd.status(), "fdb");
        lan2.tap().send(&hello);
        stage.react("a station that roams", &packet, leaves_by(1));
        assert!(epoch_moves(&shuntd.status(), "fdb") > before, "{:#?}", shuntd.status());
        stage.teach_via(&shuntd, &packet, 1);

        // A bridge floods packets to an unknown station to all ports, which is no flow to learn.
        lab.router()
            .run("bridge fdb flush dev br0 dynamic 2>/dev/null || ip link set br0 type bridge fdb_flush");
        stage.react("a station that is forgotten", &packet, |left| left.iter().all(|at| at.len() == 1));
        stage.never_fast(&shuntd, &packet, |left| left.iter().all(|at| at.len() == 1));
        shuntd.stop();
    }
}

/// The state of a bridge port, as a spanning tree sets it, applies to routed packets, too.
#[test]
fn the_state_of_a_bridge_port_takes_effect_at_once_on_routed_flows() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent(Topology::bridged_lan(), rulesets::OPEN);
        let (lan, wan) = (lab.lan(), lab.wan());
        let shuntd = daemon(&lab, engine);
        let stage = Stage::new(wan, &[lan, lab.host("lan2"), lab.host("lan3")]);
        let packet: Packet = wan.udp_to(5000, lan.at(4000)).payload("from the wan");
        let hello = lan.udp_to(4000, wan.at(5000)).payload("it is here");
        let way = Crossing::between(lan, wan);
        for state in [0, 1, 2] {
            wait_until("packets are routed both ways", || {
                way.from.send(&hello);
                leaves_by(0)(&stage.send(&packet))
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
                assert!(since.elapsed() < REACTION, "{change}: packets still come in");
            }
            stage.react(&change, &packet, nothing_leaves);
            lab.router().run("bridge link set dev r0 state 3");
        }
        shuntd.stop();
    }
}
