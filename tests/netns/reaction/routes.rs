//! How soon changes of routes and policy rules take effect.

use shunt_api::Engine;
use shunt_testkit::{
    ENGINES, Shuntd, Stage, Topology, daemon, daemon_with, epoch_moves, ip_batch, require_root, rulesets,
    silent, stage::leaves_as, stage::leaves_by, stage::nothing_leaves,
};
use shunt_wire::{Mac, Packet};
use std::{
    net::{IpAddr, SocketAddr},
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

const OTHER_HOP: Mac = Mac([2, 0, 0, 0, 2, 3]);

/// Marks the packets of the flow.
const MARKED: &str = r"
table inet mangle {
	chain prerouting {
		type filter hook prerouting priority mangle; policy accept;
		udp dport 5000 meta mark set 7
	}
}
";

/// A flow to a network behind the first of two uplinks, and a stage that captures at both uplinks.
fn start(engine: Engine) -> (Topology, Shuntd, Stage, Packet) {
    let lab = silent(Topology::two_uplinks(), rulesets::OPEN);
    lab.router().run("ip route add 203.0.113.0/24 via 198.18.0.2");
    lab.router().run(&format!("ip neigh replace 198.18.0.3 lladdr {OTHER_HOP} dev r1 nud permanent"));
    let shuntd = daemon(&lab, engine);
    let stage = Stage::new(lab.lan(), &[lab.wan(), lab.host("wan2")]);
    let packet = lab.lan().udp_to(4000, "203.0.113.9:5000".parse().unwrap()).payload("from the lan");
    stage.teach(&shuntd, &packet);
    (lab, shuntd, stage, packet)
}

#[test]
fn a_route_to_another_next_hop_takes_effect_at_once() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, shuntd, stage, packet) = start(engine);
        lab.router().run("ip route replace 203.0.113.0/24 via 198.18.0.3");
        let other = || leaves_as(0, |packet| packet.ethernet.destination == OTHER_HOP);
        stage.react("a route to another next hop", &packet, other());
        stage.teach(&shuntd, &packet);
        stage.react("nothing", &packet, other());
        assert!(epoch_moves(&shuntd.status(), "route") > 0, "{:#?}", shuntd.status());
        shuntd.stop();
    }
}

#[test]
fn a_route_to_another_uplink_takes_effect_at_once() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, shuntd, stage, packet) = start(engine);
        lab.router().run("ip route replace 203.0.113.0/24 via 198.18.1.2");
        stage.react("a route to another uplink", &packet, leaves_by(1));
        stage.teach_via(&shuntd, &packet, 1);
        let out: Vec<_> =
            shuntd.flows().iter().flat_map(|c| c.directions.clone()).map(|d| d.out_port).collect();
        assert_eq!(out, ["r2"]);
        lab.router().run("ip route del 203.0.113.0/24");
        stage.react("the route gone", &packet, nothing_leaves);
        lab.router().run("ip route add 203.0.113.0/24 via 198.18.0.2");
        stage.react("the first route again", &packet, leaves_by(0));
        stage.teach(&shuntd, &packet);
        shuntd.stop();
    }
}

#[test]
fn a_policy_rule_that_matches_a_mark_takes_effect_at_once() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, shuntd, stage, packet) = start(engine);
        lab.router().nft(MARKED);
        lab.router().run("ip route add default via 198.18.1.2 table 100");
        stage.teach(&shuntd, &packet);
        let before = epoch_moves(&shuntd.status(), "rule");
        lab.router().run("ip rule add fwmark 7 table 100");
        stage.react("a policy routing rule", &packet, leaves_by(1));
        assert!(epoch_moves(&shuntd.status(), "rule") > before, "{:#?}", shuntd.status());
        stage.teach_via(&shuntd, &packet, 1);
        lab.router().run("ip rule del fwmark 7 table 100");
        stage.react("the policy routing rule gone", &packet, leaves_by(0));
        stage.teach(&shuntd, &packet);
        shuntd.stop();
    }
}

#[test]
fn a_changed_nexthop_object_takes_effect_at_once() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, shuntd, stage, packet) = start(engine);
        lab.router().run("ip nexthop add id 7 via 198.18.0.2 dev r1");
        lab.router().run("ip route replace 203.0.113.0/24 nhid 7");
        stage.teach(&shuntd, &packet);
        let before = epoch_moves(&shuntd.status(), "nexthop");
        lab.router().run("ip nexthop replace id 7 via 198.18.1.2 dev r2");
        stage.react("a nexthop object that changes", &packet, leaves_by(1));
        assert!(epoch_moves(&shuntd.status(), "nexthop") > before, "{:#?}", shuntd.status());
        stage.teach_via(&shuntd, &packet, 1);
        shuntd.stop();
    }
}

/// Linux announces the end of a nexthop object, and then removes its IPv6 routes one by one, without messages if
/// `nexthop_compat_mode` is 0. Packets sent meanwhile still take the old route, but must not be fast after the last is
/// gone.
#[test]
fn deleting_a_nexthop_object_stops_flows_over_its_routes() {
    if !require_root() {
        return;
    }
    const OTHERS: u32 = 60_000;
    for engine in ENGINES {
        let lab = silent(Topology::two_uplinks(), rulesets::OPEN);
        let (router, far) = (lab.router(), "2001:db8:ffff::9".parse::<IpAddr>().unwrap());
        router.sysctl("ipv4/nexthop_compat_mode", 0);
        // The route that is added first is removed last.
        router.run(&format!(
            "ip nexthop add id 7 via {} dev r1; ip route add {far}/128 nhid 7",
            lab.wan().at6(0).ip()
        ));
        ip_batch(router, OTHERS, |n| format!("route add 2001:db8:fffe::{n:x}/128 nhid 7"));
        let shuntd = daemon_with(&lab, engine, "reprove = \"30s\"");
        let stage = Stage::new(lab.lan(), &[lab.wan(), lab.host("wan2")]);
        let packet = lab.lan().udp_to(4000, SocketAddr::new(far, 5000)).payload("from the lan");
        stage.teach(&shuntd, &packet);
        let from = lab.lan().tap();
        let (going, since) = (AtomicBool::new(true), Instant::now());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while going.load(Ordering::Relaxed) {
                    from.send(&packet);
                }
            });
            router.run("ip nexthop del id 7");
            going.store(false, Ordering::Relaxed);
        });
        eprintln!("the nexthop object was deleted in {:?}", since.elapsed());
        stage.react("a nexthop object that goes", &packet, nothing_leaves);
        stage.never_fast(&shuntd, &packet, nothing_leaves);
        shuntd.stop();
    }
}
