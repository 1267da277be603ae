//! Rules of legacy iptables that stop learning or that fast packets bypass. The kernel sends no notification of them.

use crate::{unsupported_rules::held, unsupported_rules::learns_again, unsupported_rules::start};
use shunt_api::{Explained, Family, RuleNote};
use shunt_testkit::{
    ENGINES, Frame, NetNs, Shuntd, daemon, daemon_with, epoch_moves, require_root, stage::leaves_by,
};

fn places(notes: &[RuleNote]) -> Vec<String> {
    notes.iter().map(|note| format!("{}: {}", note.place(), note.statement)).collect()
}

/// Number of packets that the first rule of a chain of the mangle table has counted.
#[track_caller]
fn counted(router: &NetNs, chain: &str) -> u64 {
    let line = router.run(&format!("iptables-legacy -t mangle -vnxL {chain} 1"));
    line.split_whitespace().next().and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

/// The queue has no reader, and --queue-bypass lets its packets pass.
#[test]
fn nfqueue_sees_every_packet_of_its_family_until_it_is_deleted() {
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
        shuntd.wait_until("the rule has another number", |s| {
            places(&s.ruleset.stops) == ["iptables-legacy -t mangle FORWARD rule 1: NFQUEUE"]
        });

        let (seen, before) = (counted(lab.router(), "FORWARD"), held(&shuntd.status()));
        stage.never_fast(&shuntd, &v4, leaves_by(0));
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

/// The text and the JSON output name the rule.
#[track_caller]
fn explains(shuntd: &Shuntd) {
    let answer = |words: &[&str]| String::from_utf8(shuntd.shunt(words).stdout).unwrap();
    let text = answer(&["status"]);
    let line = "learning off for ipv4: iptables-legacy -t mangle FORWARD rule 1: NFQUEUE\n";
    assert!(text.contains(line), "{text}");
    let json: serde_json::Value =
        serde_json::from_str(&answer(&["why", "--json", "--dst", "198.18.0.2"])).unwrap();
    let found: Vec<Explained> = serde_json::from_value(json["connections"].clone()).unwrap();
    let because = found[0].directions[0].because.as_ref().unwrap();
    assert_eq!(because.reason, "ruleset");
    assert_eq!(because.detail, "`NFQUEUE` in iptables-legacy -t mangle FORWARD rule 1");
}

#[test]
fn tee_copies_every_packet_until_it_is_deleted() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, stage, v4, _) = start();
        // The copies go to the same host under another address.
        let router = lab.router();
        router.run(&format!("ip neigh replace 198.18.0.9 lladdr {} dev r1 nud permanent", lab.wan().mac));
        let shuntd = daemon(&lab, engine);
        stage.teach(&shuntd, &v4);
        router.run("iptables-legacy -t mangle -N copies; iptables-legacy -t mangle -A POSTROUTING -j copies");
        router.run("iptables-legacy -t mangle -A copies -p udp -j TEE --gateway 198.18.0.9");
        let status = shuntd.wait_until("the rule is read", |s| !s.ruleset.stops.is_empty());
        assert_eq!(places(&status.ruleset.stops), ["iptables-legacy -t mangle copies rule 1: TEE"]);
        stage.never_fast(&shuntd, &v4, |left: &[Vec<Frame>]| left[0].len() == 2);

        // The rule stays, but no chain jumps to it.
        router.run("iptables-legacy -t mangle -F POSTROUTING");
        learns_again(&shuntd);
        stage.teach(&shuntd, &v4);
        shuntd.stop();
    }
}

#[test]
fn statements_that_fast_packets_bypass_are_listed_and_do_not_stop_learning() {
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
    let shuntd = daemon_with(&lab, ENGINES[0], "limits = \"ignore\"\n");
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
fn a_rule_from_before_the_start_takes_effect_on_the_first_packet() {
    if !require_root() {
        return;
    }
    let (lab, stage, v4, v6) = start();
    lab.router().run("ip6tables-legacy -t mangle -A PREROUTING -p udp --dport 9 -j TPROXY --on-port 1");
    let shuntd = daemon(&lab, ENGINES[0]);
    let status = shuntd.status();
    assert_eq!(places(&status.ruleset.stops), ["ip6tables-legacy -t mangle PREROUTING rule 1: TPROXY"]);
    assert_eq!(status.ruleset.held, [Family::V6]);
    assert_eq!(epoch_moves(&status, "ruleset"), 0, "a rule from before the start is no change");
    stage.never_fast(&shuntd, &v6, leaves_by(0));
    stage.teach(&shuntd, &v4);
    shuntd.stop();
}
