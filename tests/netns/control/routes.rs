//! Changes of routes and of policy routing.

use crate::{
    ENGINES, OPEN, Stage, daemon, moves, silent,
    stage::{by, nothing, one},
};
use shunt_api::Engine;
use shunt_testkit::{Shuntd, Topology, require_root};
use shunt_wire::{Mac, Packet};

const OTHER_HOP: Mac = Mac([2, 0, 0, 0, 2, 3]);

/// Marks the flow that the tests send.
const MARKED: &str = r"
table inet mangle {
	chain prerouting {
		type filter hook prerouting priority mangle; policy accept;
		udp dport 5000 meta mark set 7
	}
}
";

/// A flow to somewhere far behind the first of two uplinks, and a stage where both uplinks are watched.
fn start(engine: Engine) -> (Topology, Shuntd, Stage, Packet) {
    let lab = silent(Topology::two_uplinks(), OPEN);
    lab.router().run("ip route add 203.0.113.0/24 via 198.18.0.2");
    lab.router().run(&format!("ip neigh replace 198.18.0.3 lladdr {OTHER_HOP} dev r1 nud permanent"));
    let shuntd = daemon(&lab, engine);
    let stage = Stage::new(lab.lan(), &[lab.wan(), lab.host("wan2")]);
    let packet = lab.lan().udp_to(4000, "203.0.113.9:5000".parse().unwrap()).payload("from the lan");
    stage.teach(&shuntd, &packet);
    (lab, shuntd, stage, packet)
}

#[test]
fn a_route_to_another_next_hop_holds_at_once() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, shuntd, stage, packet) = start(engine);
        lab.router().run("ip route replace 203.0.113.0/24 via 198.18.0.3");
        let other = || one(0, |packet| packet.ethernet.destination == OTHER_HOP);
        stage.react("a route to another next hop", &packet, other());
        stage.teach(&shuntd, &packet);
        stage.react("nothing", &packet, other());
        assert!(moves(&shuntd.status(), "route") > 0, "{:#?}", shuntd.status());
        shuntd.stop();
    }
}

#[test]
fn a_route_to_another_uplink_holds_at_once() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, shuntd, stage, packet) = start(engine);
        lab.router().run("ip route replace 203.0.113.0/24 via 198.18.1.2");
        stage.react("a route to another uplink", &packet, by(1));
        stage.teach_via(&shuntd, &packet, 1);
        let out: Vec<_> =
            shuntd.flows().iter().flat_map(|c| c.directions.clone()).map(|d| d.out_port).collect();
        assert_eq!(out, ["r2"]);
        lab.router().run("ip route del 203.0.113.0/24");
        stage.react("the route gone", &packet, nothing);
        lab.router().run("ip route add 203.0.113.0/24 via 198.18.0.2");
        stage.react("the first route again", &packet, by(0));
        stage.teach(&shuntd, &packet);
        shuntd.stop();
    }
}

#[test]
fn a_policy_rule_with_a_mark_holds_at_once() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, shuntd, stage, packet) = start(engine);
        lab.router().nft(MARKED);
        lab.router().run("ip route add default via 198.18.1.2 table 100");
        stage.teach(&shuntd, &packet);
        let before = moves(&shuntd.status(), "rule");
        lab.router().run("ip rule add fwmark 7 table 100");
        stage.react("a policy routing rule", &packet, by(1));
        assert!(moves(&shuntd.status(), "rule") > before, "{:#?}", shuntd.status());
        stage.teach_via(&shuntd, &packet, 1);
        lab.router().run("ip rule del fwmark 7 table 100");
        stage.react("the policy routing rule gone", &packet, by(0));
        stage.teach(&shuntd, &packet);
        shuntd.stop();
    }
}

#[test]
fn a_nexthop_object_that_changes_holds_at_once() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, shuntd, stage, packet) = start(engine);
        lab.router().run("ip nexthop add id 7 via 198.18.0.2 dev r1");
        lab.router().run("ip route replace 203.0.113.0/24 nhid 7");
        stage.teach(&shuntd, &packet);
        let before = moves(&shuntd.status(), "nexthop");
        lab.router().run("ip nexthop replace id 7 via 198.18.1.2 dev r2");
        stage.react("a nexthop object that changes", &packet, by(1));
        assert!(moves(&shuntd.status(), "nexthop") > before, "{:#?}", shuntd.status());
        stage.teach_via(&shuntd, &packet, 1);
        shuntd.stop();
    }
}
