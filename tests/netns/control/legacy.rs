//! Rules of legacy iptables, of which the kernel tells nothing unless it is asked.

use crate::{
    ENGINES, Stage, daemon, daemon_with, moves,
    stage::{by, nothing},
    stops::{held, learns_again, start},
};
use shunt_api::{Engine, Explained, Family, RuleNote};
use shunt_testkit::{Frame, NetNs, Shuntd, Topology, require_root};

/// Long enough that a flow which ends has not ended by a proof.
const SELDOM: &str = "reprove = \"30s\"";

fn places(notes: &[RuleNote]) -> Vec<String> {
    notes.iter().map(|note| format!("{}: {}", note.place(), note.statement)).collect()
}

/// What a rule of the mangle table has counted.
#[track_caller]
fn counted(router: &NetNs, chain: &str) -> u64 {
    let line = router.run(&format!("iptables-legacy -t mangle -vnxL {chain} 1"));
    line.split_whitespace().next().and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

/// The queue has no reader, so its packets pass: each of them by the rule.
#[test]
fn a_queue_sees_every_packet_of_its_family_until_it_is_gone() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, stage, v4, v6) = start();
        let shuntd = daemon(&lab, engine);
        stage.teach(&shuntd, &v4);
        stage.teach(&shuntd, &v6);

        let rule = "-p udp --dport 5000 -j NFQUEUE --queue-num 3 --queue-bypass";
        lab.router().run("iptables-legacy -t mangle -A FORWARD -p udp --dport 9 -j ACCEPT");
        lab.router().run(&format!("iptables-legacy -t mangle -A FORWARD {rule}"));
        let status = shuntd.wait_until("the rule is read", |s| !s.ruleset.stops.is_empty());
        assert_eq!(places(&status.ruleset.stops), ["iptables-legacy -t mangle FORWARD rule 2: NFQUEUE"]);
        assert_eq!(status.ruleset.held, [Family::V4]);
        lab.router().run("iptables-legacy -t mangle -D FORWARD 1");
        shuntd.wait_until("it has another number", |s| {
            places(&s.ruleset.stops) == ["iptables-legacy -t mangle FORWARD rule 1: NFQUEUE"]
        });

        let (seen, before) = (counted(lab.router(), "FORWARD"), held(&shuntd.status()));
        stage.never_fast(&shuntd, &v4, by(0));
        let slow = held(&shuntd.status()) - before;
        assert!(slow >= 40, "{:#?}", shuntd.status());
        assert_eq!(counted(lab.router(), "FORWARD") - seen, slow, "every packet was queued");
        stage.teach(&shuntd, &v6);
        explains(&shuntd);

        lab.router().run(&format!("iptables-legacy -t mangle -D FORWARD {rule}"));
        learns_again(&shuntd);
        stage.teach(&shuntd, &v4);
        shuntd.stop();
    }
}

/// People and programs are told the same.
#[track_caller]
fn explains(shuntd: &Shuntd) {
    let said = |words: &[&str]| String::from_utf8(shuntd.shunt(words).stdout).unwrap();
    let text = said(&["status"]);
    let line = "learning off for ipv4: iptables-legacy -t mangle FORWARD rule 1: NFQUEUE\n";
    assert!(text.contains(line), "{text}");
    let json: serde_json::Value =
        serde_json::from_str(&said(&["why", "--json", "--dst", "198.18.0.2"])).unwrap();
    let found: Vec<Explained> = serde_json::from_value(json["connections"].clone()).unwrap();
    let because = found[0].directions[0].because.as_ref().unwrap();
    assert_eq!(because.reason, "ruleset");
    assert_eq!(because.detail, "`NFQUEUE` in iptables-legacy -t mangle FORWARD rule 1");
}

#[test]
fn a_tee_copies_every_packet_until_it_is_gone() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, stage, v4, _) = start();
        // The copies go to the same host by another address.
        let router = lab.router();
        router.run(&format!("ip neigh replace 198.18.0.9 lladdr {} dev r1 nud permanent", lab.wan().mac));
        let shuntd = daemon(&lab, engine);
        stage.teach(&shuntd, &v4);
        router.run("iptables-legacy -t mangle -N copies; iptables-legacy -t mangle -A POSTROUTING -j copies");
        router.run("iptables-legacy -t mangle -A copies -p udp -j TEE --gateway 198.18.0.9");
        let status = shuntd.wait_until("the rule is read", |s| !s.ruleset.stops.is_empty());
        assert_eq!(places(&status.ruleset.stops), ["iptables-legacy -t mangle copies rule 1: TEE"]);
        stage.never_fast(&shuntd, &v4, |left: &[Vec<Frame>]| left[0].len() == 2);

        // The rule is there, but no way leads to it.
        router.run("iptables-legacy -t mangle -F POSTROUTING");
        learns_again(&shuntd);
        stage.teach(&shuntd, &v4);
        shuntd.stop();
    }
}

#[test]
fn what_fast_packets_go_past_is_named_and_stops_nothing() {
    if !require_root() {
        return;
    }
    let (lab, stage, v4, v6) = start();
    lab.router().run(
        "iptables-legacy -A FORWARD -m limit --limit 5/s -j LOG
         iptables-legacy -A FORWARD -m hashlimit --hashlimit-above 1000/s --hashlimit-name x -j DROP
         iptables-legacy -A INPUT -j NFQUEUE --queue-bypass
         iptables-legacy -t nat -A PREROUTING -j NFQUEUE --queue-bypass
         ip6tables-legacy -t raw -A PREROUTING -j NFLOG",
    );
    let shuntd = daemon(&lab, ENGINES[0]);
    let status = shuntd.status();
    let named = [
        "iptables-legacy -t filter FORWARD rule 1: LOG",
        "iptables-legacy -t filter FORWARD rule 2: hashlimit",
        "iptables-legacy -t filter FORWARD rule 1: limit",
        "ip6tables-legacy -t raw PREROUTING rule 1: NFLOG",
    ];
    assert_eq!(places(&status.ruleset.bypassed), named);
    assert_eq!((&status.ruleset.stops, &status.ruleset.held), (&vec![], &vec![]));
    stage.teach(&shuntd, &v4);
    stage.teach(&shuntd, &v6);
    let text = String::from_utf8(shuntd.shunt(&["status"]).stdout).unwrap();
    for line in named {
        assert!(text.contains(&format!("bypassed by established traffic: {line}\n")), "{text}");
    }
    shuntd.stop();
}

#[test]
fn a_rule_from_before_the_start_counts_from_the_first_packet() {
    if !require_root() {
        return;
    }
    let (lab, stage, v4, v6) = start();
    lab.router().run("ip6tables-legacy -t mangle -A PREROUTING -p udp --dport 9 -j TPROXY --on-port 1");
    let shuntd = daemon(&lab, ENGINES[0]);
    let status = shuntd.status();
    assert_eq!(places(&status.ruleset.stops), ["ip6tables-legacy -t mangle PREROUTING rule 1: TPROXY"]);
    assert_eq!(status.ruleset.held, [Family::V6]);
    assert_eq!(moves(&status, "ruleset"), 0, "what is there is no change");
    stage.never_fast(&shuntd, &v6, by(0));
    stage.teach(&shuntd, &v4);
    shuntd.stop();
}

fn with_seldom_proofs(engine: Engine) -> (Topology, Stage, [shunt_wire::Packet; 2], Shuntd) {
    let (lab, stage, v4, v6) = start();
    // The tables are there, and so is a rule.
    for command in ["iptables-legacy", "ip6tables-legacy"] {
        lab.router().run(&format!("{command} -A FORWARD -p udp --dport 9 -j DROP"));
    }
    let shuntd = daemon_with(&lab, engine, SELDOM);
    (lab, stage, [v4, v6], shuntd)
}

#[test]
fn a_rule_that_drops_a_fast_flow_stops_it_until_the_rule_goes() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, stage, packets, shuntd) = with_seldom_proofs(engine);
        for (command, packet) in ["iptables-legacy", "ip6tables-legacy"].into_iter().zip(&packets) {
            stage.teach(&shuntd, packet);
            let before = moves(&shuntd.status(), "ruleset");
            lab.router().run(&format!("{command} -I FORWARD -p udp --dport 5000 -j DROP"));
            stage.react("a legacy rule that drops", packet, nothing);
            stage.never_fast(&shuntd, packet, nothing);
            assert!(moves(&shuntd.status(), "ruleset") > before, "{:#?}", shuntd.status());
            lab.router().run(&format!("{command} -D FORWARD -p udp --dport 5000 -j DROP"));
            stage.react("the rule gone", packet, by(0));
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
    stage.react("a legacy policy that drops", &v4, nothing);
    shuntd.stop();
}

/// The rules are read twice a second, and packets change their counters all the time.
#[test]
fn counters_that_change_end_nothing() {
    if !require_root() {
        return;
    }
    let (lab, stage, [v4, _], shuntd) = with_seldom_proofs(ENGINES[0]);
    lab.router().run("iptables-legacy -I FORWARD -p udp --dport 5001");
    shuntd.wait_until("the rule is seen", |s| moves(s, "ruleset") > 0);
    stage.teach(&shuntd, &v4);
    let before = moves(&shuntd.status(), "ruleset");
    let other = lab.lan().udp_to(4000, lab.wan().at(5001)).payload("counted, and learned anew");
    let since = std::time::Instant::now();
    while since.elapsed() < std::time::Duration::from_secs(2) {
        assert!(stage.passes(&other));
    }
    assert_eq!(moves(&shuntd.status(), "ruleset"), before);
    shuntd.stop();
}
