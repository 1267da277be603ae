//! Changes of the nftables ruleset.

use crate::{
    ENGINES, OPEN, daemon, moves,
    stage::{by, nothing, one, start},
};
use shunt_testkit::{require_root, rulesets, wait_until};
use shunt_wire::Packet;

/// A set of ports that are refused before anything else is asked.
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

/// A host is blocked when it knocks. No netlink message tells of that.
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

/// Refuses everything.
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
fn a_rule_that_drops_a_fast_flow_stops_it_until_the_rule_goes() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, stage, packet) = start(rulesets::HOME_GATEWAY);
        let shuntd = daemon(&lab, engine);
        stage.teach(&shuntd, &packet);
        let before = moves(&shuntd.status(), "ruleset");
        lab.router().run("nft insert rule inet filter forward udp dport 5000 drop");
        stage.react("a rule that drops", &packet, nothing);
        stage.never_fast(&shuntd, &packet, nothing);
        assert!(moves(&shuntd.status(), "ruleset") > before, "{:#?}", shuntd.status());

        let listed = lab.router().run("nft -a list chain inet filter forward");
        let handle = listed.lines().find(|line| line.contains("dport 5000")).unwrap();
        let handle = handle.rsplit(' ').next().unwrap();
        lab.router().run(&format!("nft delete rule inet filter forward handle {handle}"));
        stage.react("the rule gone", &packet, by(0));
        stage.teach(&shuntd, &packet);
        shuntd.stop();
    }
}

#[test]
fn a_ruleset_that_is_replaced_by_a_closed_one_stops_everything() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, stage, packet) = start(OPEN);
        let shuntd = daemon(&lab, engine);
        stage.teach(&shuntd, &packet);
        lab.router().nft(CLOSED);
        stage.react("another ruleset", &packet, nothing);
        stage.never_fast(&shuntd, &packet, nothing);
        lab.router().nft(&format!("flush ruleset\n{OPEN}"));
        stage.react("an open ruleset", &packet, by(0));
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
        let (lab, stage, packet) = start(BLOCKED_PORTS);
        let shuntd = daemon(&lab, engine);
        stage.teach(&shuntd, &packet);
        lab.router().run("nft add element inet filter blocked '{ 5000 }'");
        stage.react("an element of a set", &packet, nothing);
        lab.router().run("nft delete element inet filter blocked '{ 5000 }'");
        stage.react("the element gone", &packet, by(0));
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
        let (lab, stage, packet) = start(KNOCKERS);
        let shuntd = daemon(&lab, engine);
        stage.teach(&shuntd, &packet);
        assert!(!stage.passes(&lab.lan().udp_to(4001, lab.wan().at(7)).payload("knock knock")));
        stage.react_by_proof("an element that a packet added", &packet, nothing);
        stage.never_fast(&shuntd, &packet, nothing);
        shuntd.stop();
    }
}

#[test]
fn a_rule_that_changes_the_dscp_keeps_a_flow_from_being_fast() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, stage, packet) = start(rulesets::HOME_GATEWAY);
        let shuntd = daemon(&lab, engine);
        stage.teach(&shuntd, &packet);
        lab.router().run("nft insert rule inet filter forward udp dport 5000 ip dscp set af41");
        let marked = || one(0, |packet| dscp(packet) == 34);
        stage.react("a rule that changes the DSCP", &packet, marked());
        stage.never_fast(&shuntd, &packet, marked());
        wait_until("that is the reason", || {
            stage.send(&packet);
            shuntd.status().refusals.contains_key("not-proved")
        });

        lab.router().run("nft flush chain inet filter forward; nft add rule inet filter forward accept");
        stage.react("the DSCP left alone", &packet, one(0, |packet| dscp(packet) == 0));
        stage.teach(&shuntd, &packet);
        shuntd.stop();
    }
}
