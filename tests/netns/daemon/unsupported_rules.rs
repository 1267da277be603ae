//! Statements that must see every packet stop learning; statements that fast packets merely bypass are listed.

use shunt_api::{Family, RuleNote, Status};
use shunt_testkit::{
    ENGINES, Shuntd, Stage, Topology, daemon, daemon_with, require_root, rulesets, silent_router,
    stage::leaves_by,
};
use shunt_wire::Packet;

pub(crate) fn start() -> (Topology, Stage, Packet, Packet) {
    let lab = silent_router(rulesets::OPEN);
    let stage = Stage::new(lab.lan(), &[lab.wan()]);
    let v4 = lab.lan().udp_to(4000, lab.wan().at(5000)).payload("from the lan");
    let v6 = lab.lan().udp_to(4000, lab.wan().at6(5000)).payload("from the lan");
    (lab, stage, v4, v6)
}

/// Matches packets that never come, so that the rule itself has no effect on the traffic.
const NEVER: &str = "udp dport 9";

pub(crate) fn held(status: &Status) -> u64 {
    status.reasons.get("ruleset").copied().unwrap_or(0)
}

#[track_caller]
pub(crate) fn learns_again(shuntd: &Shuntd) -> Status {
    shuntd.wait_until("learning is on again", |s| s.ruleset.held.is_empty() && s.ruleset.stops.is_empty())
}

fn names(notes: &[RuleNote]) -> Vec<String> {
    let name = |n: &RuleNote| format!("{} {} {} {}", n.family, n.table, n.chain, n.statement);
    notes.iter().map(name).collect()
}

/// While a rule exists that `add` makes, flows of these families are slow, flows of the others fast, and status names
/// the rule. After it is deleted, all flows are fast.
#[track_caller]
fn stops(add: &str, families: &[Family], named: &str, take_away: &str) {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, stage, v4, v6) = start();
        let shuntd = daemon(&lab, engine);
        let packets = [(Family::V4, &v4), (Family::V6, &v6)];
        for (_, packet) in packets {
            stage.teach(&shuntd, packet);
        }

        lab.router().run(add);
        let status = shuntd.wait_until("the rule is read", |s| !s.ruleset.stops.is_empty());
        assert_eq!(names(&status.ruleset.stops), [named]);
        assert_eq!(status.ruleset.held, families);
        let listed = lab.router().run("nft -a list ruleset");
        assert!(listed.contains(&format!("# handle {}\n", status.ruleset.stops[0].handle)), "{listed}");
        for (family, packet) in packets {
            if families.contains(&family) {
                let before = held(&shuntd.status());
                stage.never_fast(&shuntd, packet, leaves_by(0));
                assert!(held(&shuntd.status()) > before, "{:#?}", shuntd.status());
            } else {
                stage.teach(&shuntd, packet);
            }
        }

        lab.router().run(take_away);
        learns_again(&shuntd);
        for (_, packet) in packets {
            stage.teach(&shuntd, packet);
        }
        shuntd.stop();
    }
}

#[test]
fn tproxy_stops_the_family_of_its_table() {
    stops(
        &format!(
            "nft 'table ip proxy {{ chain in {{ type filter hook prerouting priority mangle; {NEVER} tproxy to :1; }}; }}'"
        ),
        &[Family::V4],
        "ip proxy in tproxy",
        "nft delete table ip proxy",
    );
}

/// Without the event of its end, a flow would outlive its connection.
#[test]
fn rules_that_choose_the_events_of_conntrack_stop_learning() {
    stops(
        "nft 'table inet events { chain in { type filter hook prerouting priority mangle; ct event set new; }; }'",
        &[Family::V4, Family::V6],
        "inet events in ct event",
        "nft delete table inet events",
    );
}

#[test]
fn a_ct_target_of_iptables_nft_that_chooses_events_stops_its_family() {
    stops(
        "iptables-nft -t raw -A PREROUTING -p udp --dport 9 -j CT --ctevents new",
        &[Family::V4],
        "ip raw PREROUTING CT --ctevents",
        "nft delete table ip raw",
    );
}

#[test]
fn synproxy_in_a_chain_that_is_jumped_to_stops_both_families() {
    stops(
        "nft 'table inet proxy { chain syn { tcp dport 9 synproxy mss 1460 wscale 7; }; \
         chain forward { type filter hook forward priority mangle; tcp dport vmap { 9 : jump syn }; }; }'",
        &[Family::V4, Family::V6],
        "inet proxy syn synproxy",
        "nft delete table inet proxy",
    );
}

#[test]
fn dup_at_the_ingress_of_a_port_stops_both_families() {
    stops(
        &format!(
            "nft 'table netdev copies {{ chain in {{ type filter hook ingress device \"r0\" priority 0; {NEVER} dup to \"r1\"; }}; }}'"
        ),
        &[Family::V4, Family::V6],
        "netdev copies in dup",
        "nft delete table netdev copies",
    );
}

#[test]
fn nfqueue_of_iptables_nft_stops_its_family() {
    stops(
        "ip6tables-nft -t mangle -A FORWARD -p udp --dport 9 -j NFQUEUE --queue-num 3",
        &[Family::V6],
        "ip6 mangle FORWARD NFQUEUE",
        "nft delete table ip6 mangle",
    );
}

#[test]
fn tee_of_iptables_nft_stops_its_family() {
    stops(
        "iptables-nft -t mangle -A POSTROUTING -p udp --dport 9 -j TEE --gateway 198.18.0.9",
        &[Family::V4],
        "ip mangle POSTROUTING TEE",
        "nft delete table ip mangle",
    );
}

/// The first element of a verdict map leads to a chain that existed before.
#[test]
fn an_element_of_a_verdict_map_starts_and_stops_learning() {
    if !require_root() {
        return;
    }
    let (lab, stage, v4, _) = start();
    lab.router().nft(
        "table ip proxy {
            map ways { type inet_service : verdict; }
            chain elsewhere { udp dport 9 tproxy to :1; }
            chain in { type filter hook prerouting priority mangle; udp dport vmap @ways; }
        }",
    );
    let shuntd = daemon(&lab, ENGINES[0]);
    stage.teach(&shuntd, &v4);
    assert_eq!(shuntd.status().ruleset.stops, []);
    lab.router().run("nft add element ip proxy ways '{ 9 : goto elsewhere }'");
    shuntd.wait_until("the statement is found", |s| names(&s.ruleset.stops) == ["ip proxy elsewhere tproxy"]);
    stage.never_fast(&shuntd, &v4, leaves_by(0));
    lab.router().run("nft delete element ip proxy ways '{ 9 }'");
    shuntd.wait_until("the statement is unreachable", |s| {
        s.ruleset.stops.is_empty() && s.ruleset.held.is_empty()
    });
    stage.teach(&shuntd, &v4);
    shuntd.stop();
}

/// Chains that forwarded packets do not pass have no effect on learning.
#[test]
fn statements_that_forwarded_packets_never_meet_do_not_stop_learning() {
    if !require_root() {
        return;
    }
    let (lab, stage, v4, v6) = start();
    lab.router().run("ip link add spare type veth peer name spare1");
    lab.router().nft(&format!(
        "table inet local {{
            chain unused {{ {NEVER} meta nfproto ipv4 tproxy ip to :1; }}
            chain in {{ type filter hook input priority filter; tcp dport 9 synproxy; }}
        }}
        table netdev spare {{ chain in {{ type filter hook ingress device spare priority 0; {NEVER} dup to lo; }}; }}"
    ));
    let shuntd = daemon(&lab, ENGINES[0]);
    assert_eq!(shuntd.status().ruleset.stops, []);
    stage.teach(&shuntd, &v4);
    stage.teach(&shuntd, &v6);
    shuntd.stop();
}

#[test]
fn statements_that_fast_packets_bypass_are_listed_and_do_not_stop_learning() {
    if !require_root() {
        return;
    }
    let (lab, stage, v4, _) = start();
    lab.router().nft(
        "table ip watch {
            counter total { }
            set seen { type ipv4_addr; flags dynamic; }
            chain forward {
                type filter hook forward priority mangle;
                counter
                udp dport 9 counter
                counter name total
                limit rate over 1000000/second drop
                quota over 1000000 mbytes drop
                numgen inc mod 2 0 log
                meta random 0 log
                update @seen { ip saddr limit rate 5/second } accept
            }
            chain first { type nat hook prerouting priority dstnat; counter log; }
        }",
    );
    let shuntd = daemon_with(&lab, ENGINES[0], "limits = \"ignore\"\n");
    let status = shuntd.status();
    let of = |statement: &str| status.ruleset.bypassed.iter().find(|note| note.statement == statement);
    assert_eq!(of("counter").map(|note| note.rules), Some(3), "{status:#?}");
    assert_eq!(of("limit").map(|note| note.rules), Some(2), "{status:#?}");
    assert!(
        ["quota", "numgen", "meta random", "log"].into_iter().all(|name| of(name).is_some()),
        "{status:#?}"
    );
    assert!(status.ruleset.bypassed.iter().all(|note| note.chain == "forward"), "{status:#?}");
    assert_eq!((&status.ruleset.stops, &status.ruleset.held), (&vec![], &vec![]));
    stage.teach(&shuntd, &v4);
    let text = String::from_utf8(shuntd.shunt(&["status"]).stdout).unwrap();
    let counter = of("counter").unwrap().handle;
    let line =
        format!("bypassed by established traffic: ip watch forward handle {counter}: counter (3 rules");
    assert!(text.contains(&line), "{text}");
    shuntd.stop();
}

/// The daemon reads the ruleset before it learns.
#[test]
fn a_rule_from_before_the_start_takes_effect_on_the_first_packet() {
    if !require_root() {
        return;
    }
    let (lab, stage, v4, v6) = start();
    lab.router().nft("table ip proxy { chain in { type filter hook prerouting priority mangle; udp dport 9 tproxy to :1; }; }");
    let shuntd = Shuntd::on(lab.router()).start();
    assert_eq!(shuntd.status().ruleset.held, [Family::V4]);
    stage.never_fast(&shuntd, &v4, leaves_by(0));
    stage.teach(&shuntd, &v6);
    assert!(held(&shuntd.status()) > 0);
    let text = String::from_utf8(shuntd.shunt(&["status"]).stdout).unwrap();
    assert!(text.contains("learning off for ipv4: ip proxy in handle "), "{text}");
    shuntd.stop();
}
