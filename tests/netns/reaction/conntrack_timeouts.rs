//! Conntrack keeps the entries of fast connections, whose packets it does not see.

use shunt_api::Engine;
use shunt_testkit::{
    ConntrackEvents, Crossing, ENGINES, Handshake, Shuntd, Stage, Topology, daemon, daemon_with,
    require_root, rulesets, silent_router, stage::nothing_leaves, wait_for, wait_until,
};
use std::time::{Duration, Instant};

/// How long packets are sent: longer than the timeouts of 3 and 5 s.
const TRAFFIC: Duration = Duration::from_secs(7);

#[test]
fn conntrack_keeps_a_fast_connection_while_it_is_active() {
    if require_root() {
        let lab = silent_router(rulesets::HOME_GATEWAY);
        for name in ["udp_timeout", "udp_timeout_stream"] {
            lab.router().sysctl(&format!("netfilter/nf_conntrack_{name}"), 3);
        }
        stays_while_it_is_active(&lab);
    }
}

/// Gives UDP a `ct timeout` policy, which overrides the sysctls.
const SHORT_TIMEOUTS: &str = r#"
table ip short {
	ct timeout datagrams { protocol udp; policy = { unreplied : 3, replied : 3 }; }
	chain prerouting {
		type filter hook prerouting priority mangle; policy accept;
		meta l4proto udp ct timeout set "datagrams"
	}
}
"#;

#[test]
fn conntrack_keeps_a_fast_connection_with_a_ct_timeout_policy() {
    if require_root() {
        let lab = silent_router(rulesets::HOME_GATEWAY);
        lab.router().nft(SHORT_TIMEOUTS);
        stays_while_it_is_active(&lab);
    }
}

#[track_caller]
fn stays_while_it_is_active(lab: &Topology) {
    lab.router().sysctl("netfilter/nf_conntrack_tcp_timeout_established", 5);
    let events = ConntrackEvents::listen(lab);
    let shuntd = daemon_with(lab, Engine::Xdp, "reprove = \"10s\"");
    let (there, back) = (Crossing::between(lab.lan(), lab.wan()), Crossing::between(lab.wan(), lab.lan()));
    let stage = Stage::new(lab.lan(), &[lab.wan()]);
    let udp = lab.lan().udp_to(4000, lab.wan().at(5000)).payload("one way only");
    let syn = lab.lan().tcp_to(4000, lab.wan().at(80), 0);
    let connection = Handshake::open(&there, &back, &syn, lab.wan());
    let tcp = connection.from_client(&syn, 0, "data that is never answered");
    stage.teach(&shuntd, &udp);
    stage.teach(&shuntd, &tcp);

    let before = shuntd.status().packets;
    let since = Instant::now();
    let mut sent = 0;
    // One packet of each flow about every ten milliseconds.
    wait_for(TRAFFIC, || {
        if since.elapsed() > Duration::from_millis(10) * sent {
            stage.pass(&udp);
            stage.pass(&tcp);
            sent += 1;
        }
        None::<()>
    });
    let now = shuntd.status().packets;
    let fast = now.fast - before.fast;
    assert!(fast > u64::from(sent), "only {fast} of {} packets were fast: {:#?}", 2 * sent, shuntd.status());
    let udp_and_tcp = |kind| (events.count(kind, " dport=5000 "), events.count(kind, " dport=80 "));
    assert_eq!((udp_and_tcp("NEW"), udp_and_tcp("DESTROY")), ((1, 1), (0, 0)), "an entry timed out");
    wait_until("conntrack has deleted both entries", || {
        // Listing the entries makes conntrack delete those that have timed out.
        lab.router().run("conntrack -L");
        udp_and_tcp("DESTROY") == (1, 1)
    });
    shuntd.stop();
}

#[test]
fn a_fast_connection_deleted_from_conntrack_gets_a_new_entry() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::HOME_GATEWAY);
    let events = ConntrackEvents::listen(&lab);
    let shuntd = Shuntd::on(lab.router()).config("reprove = \"200ms\"").start();
    let (stage, packet) = Stage::from_lan(&lab);
    stage.teach(&shuntd, &packet);
    lab.router().run("conntrack -D -p udp --dport 5000");
    wait_until("conntrack has a new entry", || {
        stage.pass(&packet);
        events.count("NEW", "dport=5000") == 2
    });
    shuntd.stop();
}

/// Accepts established connections, and new ones to the ports of a set.
const WELCOME: &str = r"
table inet filter {
	set welcome { type inet_service; elements = { 5000 } }
	chain forward {
		type filter hook forward priority filter; policy drop;
		ct state established accept
		udp dport @welcome accept
	}
}
";

#[test]
fn a_deleted_connection_that_the_rules_now_refuse_stops_at_once() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent_router(WELCOME);
        let shuntd = daemon(&lab, engine);
        let (stage, packet) = Stage::from_lan(&lab);
        let seen = stage.pass(&packet);
        let back = Stage::new(lab.wan(), &[lab.lan()]);
        back.pass(&lab.wan().answer_to(&seen).payload("from the wan"));
        lab.router().run("nft delete element inet filter welcome '{ 5000 }'");
        stage.teach(&shuntd, &packet);
        lab.router().run("conntrack -D -p udp --dport 5000");
        stage.react("conntrack -D", &packet, nothing_leaves);
        stage.never_fast(&shuntd, &packet, nothing_leaves);
        shuntd.stop();
    }
}
