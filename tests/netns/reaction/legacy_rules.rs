//! How soon changes of legacy iptables, which the kernel does not report, take effect.

use shunt_api::Engine;
use shunt_testkit::{
    ENGINES, SELDOM_PROVED, Shuntd, Stage, Topology, daemon_with, epoch_moves, require_root, rulesets,
    stage::{leaves_by, nothing_leaves},
};

fn with_seldom_proofs(engine: Engine) -> (Topology, Stage, [shunt_wire::Packet; 2], Shuntd) {
    let (lab, stage, v4) = Stage::with_router(rulesets::OPEN);
    let v6 = lab.lan().udp_to(4000, lab.wan().at6(5000)).payload("from the lan");
    // Load the tables, with a rule in each.
    for command in ["iptables-legacy", "ip6tables-legacy"] {
        lab.router().run(&format!("{command} -A FORWARD -p udp --dport 9 -j DROP"));
    }
    let shuntd = daemon_with(&lab, engine, SELDOM_PROVED);
    (lab, stage, [v4, v6], shuntd)
}

#[test]
fn a_rule_that_drops_a_fast_flow_stops_it_until_the_rule_is_deleted() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, stage, packets, shuntd) = with_seldom_proofs(engine);
        for (command, packet) in ["iptables-legacy", "ip6tables-legacy"].into_iter().zip(&packets) {
            stage.teach(&shuntd, packet);
            let before = epoch_moves(&shuntd.status(), "ruleset");
            lab.router().run(&format!("{command} -I FORWARD -p udp --dport 5000 -j DROP"));
            stage.react("a legacy rule that drops", packet, nothing_leaves);
            stage.never_fast(&shuntd, packet, nothing_leaves);
            assert!(epoch_moves(&shuntd.status(), "ruleset") > before, "{:#?}", shuntd.status());
            lab.router().run(&format!("{command} -D FORWARD -p udp --dport 5000 -j DROP"));
            stage.react("the rule gone", packet, leaves_by(0));
            stage.teach(&shuntd, packet);
        }
        shuntd.stop();
    }
}

#[test]
fn a_policy_that_drops_stops_a_fast_flow() {
    if !require_root() {
        return;
    }
    let (lab, stage, [v4, _], shuntd) = with_seldom_proofs(ENGINES[1]);
    stage.teach(&shuntd, &v4);
    lab.router().run("iptables-legacy -P FORWARD DROP");
    stage.react("a legacy policy that drops", &v4, nothing_leaves);
    shuntd.stop();
}

/// The daemon reads the rules twice a second; their counters change with every packet.
#[test]
fn changing_rule_counters_do_not_move_the_epoch() {
    if !require_root() {
        return;
    }
    let (lab, stage, [v4, _], shuntd) = with_seldom_proofs(ENGINES[0]);
    lab.router().run("iptables-legacy -I FORWARD -p udp --dport 5001");
    shuntd.wait_until("the daemon has seen the rule", |s| epoch_moves(s, "ruleset") > 0);
    stage.teach(&shuntd, &v4);
    let before = epoch_moves(&shuntd.status(), "ruleset");
    let other = lab.lan().udp_to(4000, lab.wan().at(5001)).payload("counted and learned again");
    let since = std::time::Instant::now();
    while since.elapsed() < std::time::Duration::from_secs(2) {
        assert!(stage.passes(&other));
    }
    assert_eq!(epoch_moves(&shuntd.status(), "ruleset"), before);
    shuntd.stop();
}
