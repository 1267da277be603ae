//! How soon changes of the nftables ruleset take effect.

use shunt_testkit::{
    ENGINES, Stage, daemon, epoch_moves, require_root, rulesets, stage::leaves_as, stage::leaves_by,
    stage::nothing_leaves, wait_until,
};
use shunt_wire::Packet;

/// Drops packets to the ports of a set before any other rule.
const BLOCKED_PORTS: &str = r"
table inet filter {
	set blocked { type inet_service; }
	chain forward {
		type filter hook forward priority filter; policy drop;
		udp dport @blocked drop
		ct state established,related accept
		ct state new accept
	}
}
";

/// Blocks a host that sends a packet to port 7. No netlink message announces the new element.
const KNOCKERS: &str = r"
table inet filter {
	set knockers { type ipv4_addr; flags dynamic; size 16; }
	chain forward {
		type filter hook forward priority filter; policy drop;
		udp dport 7 add @knockers { ip saddr } drop
		ip saddr @knockers drop
		ct state established,related accept
		ct state new accept
	}
}
";

/// Drops everything.
const CLOSED: &str = r"
flush ruleset
table inet filter {
	chain forward {
		type filter hook forward priority filter; policy drop;
	}
}
";

fn dscp(packet: &Packet) -> u8 {
    packet.ipv4().map_or(0, |ipv4| ipv4.tos >> 2)
}

#[test]
fn a_rule_that_drops_a_fast_flow_stops_it_until_the_rule_is_deleted() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, stage, packet) = Stage::with_router(rulesets::HOME_GATEWAY);
        let shuntd = daemon(&lab, engine);
        stage.teach(&shuntd, &packet);
        let before = epoch_moves(&shuntd.status(), "ruleset");
        lab.router().run("nft insert rule inet filter forward udp dport 5000 drop");
        stage.react("a rule that drops", &packet, nothing_leaves);
        stage.never_fast(&shuntd, &packet, nothing_leaves);
        assert!(epoch_moves(&shuntd.status(), "ruleset") > before, "{:#?}", shuntd.status());

        let listed = lab.router().run("nft -a list chain inet filter forward");
        let handle = listed.lines().find(|line| line.contains("dport 5000")).unwrap();
        let handle = handle.rsplit(' ').next().unwrap();
        lab.router().run(&format!("nft delete rule inet filter forward handle {handle}"));
        stage.react("the rule gone", &packet, leaves_by(0));
        stage.teach(&shuntd, &packet);
        shuntd.stop();
    }
}

#[test]
fn replacing_the_ruleset_by_a_closed_one_stops_all_flows() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, stage, packet) = Stage::with_router(rulesets::OPEN);
        let shuntd = daemon(&lab, engine);
        stage.teach(&shuntd, &packet);
        lab.router().nft(CLOSED);
        stage.react("another ruleset", &packet, nothing_leaves);
        stage.never_fast(&shuntd, &packet, nothing_leaves);
        lab.router().nft(&format!("flush ruleset\n{}", rulesets::OPEN));
        stage.react("an open ruleset", &packet, leaves_by(0));
        stage.teach(&shuntd, &packet);
        shuntd.stop();
    }
}

#[test]
fn an_element_of_a_set_stops_a_fast_flow() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, stage, packet) = Stage::with_router(BLOCKED_PORTS);
        let shuntd = daemon(&lab, engine);
        stage.teach(&shuntd, &packet);
        lab.router().run("nft add element inet filter blocked '{ 5000 }'");
        stage.react("an element of a set", &packet, nothing_leaves);
        lab.router().run("nft delete element inet filter blocked '{ 5000 }'");
        stage.react("the element gone", &packet, leaves_by(0));
        stage.teach(&shuntd, &packet);
        shuntd.stop();
    }
}

#[test]
fn an_element_that_a_packet_adds_stops_a_fast_flow_at_the_next_proof() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, stage, packet) = Stage::with_router(KNOCKERS);
        let shuntd = daemon(&lab, engine);
        stage.teach(&shuntd, &packet);
        assert!(!stage.passes(&lab.lan().udp_to(4001, lab.wan().at(7)).payload("knock knock")));
        stage.react_by_proof("an element that a packet added", &packet, nothing_leaves);
        stage.never_fast(&shuntd, &packet, nothing_leaves);
        shuntd.stop();
    }
}

#[test]
fn a_rule_that_changes_the_dscp_keeps_a_flow_from_being_fast() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, stage, packet) = Stage::with_router(rulesets::HOME_GATEWAY);
        let shuntd = daemon(&lab, engine);
        stage.teach(&shuntd, &packet);
        lab.router().run("nft insert rule inet filter forward udp dport 5000 ip dscp set af41");
        let marked = || leaves_as(0, |packet| dscp(packet) == 34);
        stage.react("a rule that changes the DSCP", &packet, marked());
        stage.never_fast(&shuntd, &packet, marked());
        wait_until("the refusal is counted", || {
            stage.send(&packet);
            shuntd.status().refusals.contains_key("not-proved")
        });

        lab.router().run("nft flush chain inet filter forward; nft add rule inet filter forward accept");
        stage.react("the DSCP left alone", &packet, leaves_as(0, |packet| dscp(packet) == 0));
        stage.teach(&shuntd, &packet);
        shuntd.stop();
    }
}
