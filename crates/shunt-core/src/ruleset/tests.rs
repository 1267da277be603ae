//! Tests of which rules stop learning, and for how long.

use super::*;
use crate::{
    Action, Cause, Core, Event, EventSource,
    core::tests::{link, router, started},
};

fn statement(family: &str, name: &str, devices: &[&str]) -> Statement {
    let devices = devices.iter().map(|name| (*name).to_owned()).collect();
    let [family, name] = [family, name].map(str::to_owned);
    let [table, chain] = ["fw", "forward"].map(str::to_owned);
    Statement { family, table, chain, handle: 12, name, devices, ..Statement::default() }
}

const NONE: Traffic = Traffic::NONE;
const AT_ONCE: Action = Action::ReadRuleset { after: Duration::ZERO };

/// A policy that has read an empty ruleset, some time later.
fn idle() -> (Core, Instant) {
    let (mut core, t) = started(crate::Choice::default(), router());
    assert_eq!(core.handle(t, Event::RulesetRead(Vec::new())), [Action::Hold(NONE)]);
    (core, t + REST_MAX * 2)
}

/// The traffic that is held after these statements have been read.
fn held_by(statements: Vec<Statement>) -> Traffic {
    let (mut core, t) = idle();
    core.handle(t, Event::Rules);
    match core.handle(t, Event::RulesetRead(statements))[..] {
        [] => Traffic::ALL,
        [Action::Hold(hold)] => hold,
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn nothing_is_learned_before_the_ruleset_has_been_read() {
    let mut core = Core::new(crate::Choice::default(), []);
    let t = started(crate::Choice::default(), router()).1;
    let actions = core.handle(t, Event::Dump(router()));
    assert_eq!(actions[..2], [Action::Hold(Traffic::ALL), AT_ONCE]);
    assert!(actions[2..].iter().all(|action| matches!(action, Action::Attach(_))), "{actions:?}");
}

#[test]
fn a_change_of_rules_holds_both_families_until_the_rules_are_read() {
    let (mut core, t) = idle();
    assert_eq!(core.handle(t, Event::Rules), [Action::Hold(Traffic::ALL), AT_ONCE]);
    assert_eq!(core.handle(t, Event::Rules), []);
    assert_eq!(core.handle(t, Event::Ruleset), [Action::MoveEpoch(Cause::Ruleset)]);
    assert_eq!(core.handle(t, Event::RulesetRead(Vec::new())), [Action::ReadRuleset { after: REST_MIN }]);
    assert_eq!(core.handle(t + REST_MIN, Event::RulesetRead(Vec::new())), [Action::Hold(NONE)]);
}

#[test]
fn a_new_generation_without_changed_rules_is_not_read() {
    let (mut core, t) = idle();
    assert_eq!(core.handle(t, Event::Ruleset), [Action::MoveEpoch(Cause::Ruleset)]);
}

#[test]
fn rules_that_no_forwarded_packet_meets_are_read_while_flows_are_learned() {
    let place =
        |name: &str| RulesPlace { family: 2, table: "nat".to_owned(), name: name.to_owned(), is_set: false };
    let (mut core, t) = idle();
    let path = || Event::RulesetPath([place("on")].into());
    core.handle(t, path());
    assert_eq!(core.handle(t, Event::RulesAt(place("off"))), [AT_ONCE]);
    assert_eq!(core.handle(t, Event::RulesAt(place("off"))), []);
    // What changes during the read is read later.
    core.handle(t, path());
    assert_eq!(core.handle(t, Event::RulesetRead(Vec::new())), [Action::ReadRuleset { after: REST_MIN }]);
    // A rule that forwarded packets meet, meanwhile: nothing is learned before it is read.
    assert_eq!(
        core.handle(t, Event::RulesAt(place("on"))),
        [Action::Hold(Traffic::ALL), Action::ReadRuleset { after: REST_MIN }]
    );
    // During that read, changes elsewhere are seen for what they are once the path is known.
    let t = t + REST_MIN;
    assert_eq!(core.handle(t, Event::RulesAt(place("off"))), []);
    core.handle(t, path());
    let refresh = Action::ReadRuleset { after: REST_MIN };
    assert_eq!(core.handle(t, Event::RulesetRead(Vec::new())), [Action::Hold(NONE), refresh]);
    let t = t + REST_MIN;
    core.handle(t, path());
    assert_eq!(core.handle(t, Event::RulesetRead(Vec::new())), []);
    // A place that is on the path since that read.
    let t = t + 9 * REST_MAX;
    let hold_and_read = [Action::Hold(Traffic::ALL), AT_ONCE];
    assert_eq!(core.handle(t, Event::RulesAt(place("on"))), hold_and_read);
    assert_eq!(core.handle(t, Event::RulesAt(place("off"))), []);
    core.handle(t, Event::RulesetPath([place("on"), place("off")].into()));
    assert_eq!(core.handle(t, Event::RulesetRead(Vec::new())), [Action::ReadRuleset { after: REST_MIN }]);
}

#[test]
fn a_failed_read_of_rules_aside_holds_everything() {
    let (mut core, t) = idle();
    let place = RulesPlace { family: 2, table: "nat".to_owned(), name: "off".to_owned(), is_set: false };
    assert_eq!(core.handle(t, Event::RulesAt(place)), [AT_ONCE]);
    let actions = core.handle(t, Event::RulesetUnread("EPERM".to_owned()));
    assert!(actions.contains(&Action::Hold(Traffic::ALL)), "{actions:?}");
}

#[test]
fn changes_before_a_read_begins_need_no_other_read() {
    let (mut core, t) = idle();
    core.handle(t, Event::Rules);
    assert_eq!(core.handle(t, Event::RulesetRead(Vec::new())), [Action::Hold(NONE)]);
    let hold_and_wait = [Action::Hold(Traffic::ALL), Action::ReadRuleset { after: REST_MIN }];
    assert_eq!(core.handle(t, Event::Rules), hold_and_wait);
    for _ in 0..100 {
        assert_eq!(core.handle(t + REST_MIN / 2, Event::Rules), []);
    }
    assert_eq!(core.handle(t + REST_MIN, Event::RulesetRead(Vec::new())), [Action::Hold(NONE)]);
}

#[test]
fn slow_reads_take_at_most_a_tenth_of_the_time() {
    let (mut core, t) = idle();
    core.handle(t, Event::Rules);
    let took = Duration::from_millis(10);
    core.handle(t + took, Event::RulesetRead(Vec::new()));
    let after = Duration::from_millis(90);
    assert_eq!(
        core.handle(t + took, Event::Rules),
        [Action::Hold(Traffic::ALL), Action::ReadRuleset { after }]
    );
}

#[test]
fn after_a_failed_read_both_families_stay_held_and_the_read_is_repeated() {
    let (mut core, t) = idle();
    core.handle(t, Event::Rules);
    let again = [Action::ReadRuleset { after: REST_MAX }];
    assert_eq!(core.handle(t, Event::RulesetUnread("EPERM".to_owned())), again);
    let view = core.ruleset();
    assert_eq!((view.unread.as_deref(), &view.held[..]), (Some("EPERM"), &[Family::V4, Family::V6][..]));
    assert_eq!(core.handle(t + REST_MAX, Event::RulesetRead(Vec::new())), [Action::Hold(NONE)]);
    assert_eq!(core.ruleset(), RulesetStatus::default());
}

#[test]
fn an_overrun_of_nftables_requires_a_read_and_other_overruns_do_not() {
    let (mut core, t) = idle();
    assert!(!core.handle(t, Event::Overrun(EventSource::Route)).contains(&AT_ONCE));
    let actions = core.handle(t, Event::Overrun(EventSource::Nftables));
    assert_eq!(actions[..3], [Action::Hold(Traffic::ALL), AT_ONCE, Action::MoveEpoch(Cause::Overrun)]);
}

#[test]
fn a_statement_holds_the_families_of_its_table() {
    for (family, held) in
        [("ip", Traffic::V4), ("ip6", Traffic::V6), ("inet", Traffic::ALL), ("bridge", Traffic::ALL)]
    {
        let of_nft = ["queue", "dup", "fwd", "tproxy", "synproxy", "socket", "ct event"];
        let of_iptables = ["NFQUEUE", "QUEUE", "TEE", "TPROXY", "SYNPROXY", "CT --ctevents", "socket"];
        for name in of_nft.into_iter().chain(of_iptables) {
            assert_eq!(held_by(vec![statement(family, name, &[])]), held, "{family} {name}");
        }
    }
}

#[test]
fn statements_that_only_count_or_limit_hold_nothing_and_have_one_note_per_chain() {
    let (mut core, t) = idle();
    core.handle(t, Event::Rules);
    let mut read: Vec<_> =
        ["counter", "limit", "quota", "log", "hashlimit", "LOG"].map(|s| statement("ip", s, &[])).into();
    read.push(Statement { handle: 3, ..statement("ip", "counter", &[]) });
    read.push(statement("ip", "masq", &[]));
    assert_eq!(core.handle(t, Event::RulesetRead(read)), [Action::Hold(NONE)]);
    let view = core.ruleset();
    let notes: Vec<_> = view.bypassed.iter().map(|n| (n.statement.as_str(), n.handle, n.rules)).collect();
    let want = [
        ("LOG", 12, 1),
        ("counter", 3, 2),
        ("hashlimit", 12, 1),
        ("limit", 12, 1),
        ("log", 12, 1),
        ("quota", 12, 1),
    ];
    assert_eq!(notes, want);
    assert_eq!(view.stops, []);
}

#[test]
fn a_netdev_chain_counts_if_its_device_is_a_port_or_an_upper_device() {
    let on = |device: &str| held_by(vec![statement("netdev", "fwd", &[device])]);
    assert_eq!(on("r1"), Traffic::ALL);
    assert_eq!(on("r*"), Traffic::ALL);
    assert_eq!(on("r9"), NONE);
    assert_eq!(on("lo"), NONE);
}

#[test]
fn a_new_upper_device_with_a_blocking_rule_moves_the_epoch() {
    let (mut core, t) = idle();
    core.handle(t, Event::Rules);
    core.handle(t, Event::RulesetRead(vec![statement("netdev", "dup", &["vlan5"])]));
    let above = crate::Link { kind: Some("macvlan".to_owned()), lower: Some(2), ..link(9, "vlan5") };
    let actions = core.handle(t, Event::Link(above));
    let held = [Action::Hold(Traffic::ALL), Action::MoveEpoch(Cause::Ruleset)];
    assert!(actions.windows(2).any(|actions| actions == held), "{actions:?}");
    assert!(core.handle(t, Event::LinkGone { ifindex: 9 }).contains(&Action::Hold(NONE)));
}

fn legacy(family: &str, name: &str) -> Statement {
    Statement { legacy: true, ..statement(family, name, &[]) }
}

#[test]
fn rules_of_legacy_iptables_hold_their_family_and_are_listed_beside_those_of_nftables() {
    let (mut core, t) = idle();
    core.handle(t, Event::Rules);
    core.handle(t, Event::RulesetRead(vec![statement("ip", "LOG", &[])]));
    let held = Traffic::V6;
    let read = vec![legacy("ip6", "NFQUEUE"), legacy("ip", "LOG")];
    let moved = Action::MoveEpoch(Cause::Ruleset);
    assert_eq!(core.handle(t, Event::LegacyRead(read)), [Action::Hold(held), moved.clone()]);
    let view = core.ruleset();
    let places = |notes: &[RuleNote]| notes.iter().map(RuleNote::place).collect::<Vec<_>>();
    assert_eq!(places(&view.stops), ["ip6tables-legacy -t fw forward rule 12"]);
    let both = ["ip fw forward handle 12", "iptables-legacy -t fw forward rule 12"];
    assert_eq!(places(&view.bypassed), both);
    assert_eq!(core.handle(t, Event::LegacyRead(Vec::new())), [Action::Hold(NONE), moved]);
}

#[test]
fn any_change_of_legacy_iptables_moves_the_epoch_and_the_first_read_does_not() {
    let mut core = Core::new(crate::Choice::default(), []);
    let t = started(crate::Choice::default(), router()).1;
    core.handle(t, Event::Dump(router()));
    core.handle(t, Event::RulesetRead(Vec::new()));
    assert_eq!(
        core.ruleset().held,
        [Family::V4, Family::V6],
        "the rules of legacy iptables are not known yet"
    );
    assert_eq!(core.handle(t, Event::LegacyRead(Vec::new())), [Action::Hold(NONE)]);
    assert_eq!(core.handle(t, Event::LegacyRead(Vec::new())), [Action::MoveEpoch(Cause::Ruleset)]);
}

#[test]
fn a_failed_read_of_legacy_iptables_holds_both_families_and_is_reported() {
    let (mut core, t) = idle();
    let moved = Action::MoveEpoch(Cause::Ruleset);
    assert_eq!(core.handle(t, Event::LegacyUnread("EPERM".to_owned())), [Action::Hold(Traffic::ALL), moved]);
    assert_eq!(core.ruleset().unread.as_deref(), Some("EPERM"));
    assert!(core.handle(t, Event::LegacyRead(Vec::new())).contains(&Action::Hold(NONE)));
    assert_eq!(core.ruleset(), RulesetStatus::default());
}

fn limiter(name: &str, concerns: Traffic) -> Statement {
    Statement { concerns, ..statement("ip", name, &[]) }
}

#[test]
fn a_limit_holds_the_traffic_that_it_drops_and_no_other() {
    let udp4 = Traffic::UDP & Traffic::V4;
    for name in ["limit", "quota", "ct count", "hashlimit", "connbytes", "connlimit"] {
        assert_eq!(held_by(vec![limiter(name, udp4)]), udp4, "{name}");
        assert_eq!(held_by(vec![limiter(name, Traffic::NONE)]), NONE, "{name}");
    }
    let both = vec![limiter("limit", Traffic::UNANSWERED), limiter("quota", Traffic::TCP)];
    assert_eq!(held_by(both), Traffic::TCP | Traffic::UNANSWERED);
}

#[test]
fn a_limit_that_appears_ends_the_flows_that_it_holds() {
    let (mut core, t) = idle();
    let udp = Traffic::UDP & Traffic::V4;
    core.handle(t, Event::LegacyRead(Vec::new()));
    let moved = Action::MoveEpoch(Cause::Ruleset);
    let read = vec![Statement { legacy: true, ..limiter("limit", udp) }];
    assert_eq!(core.handle(t, Event::LegacyRead(read)), [Action::Hold(udp), moved]);
}

#[test]
fn a_limit_is_listed_as_such_or_else_as_bypassed() {
    let listed = |limits: LimitChoice| {
        let (mut core, t) = started(crate::Choice { limits, ..crate::Choice::default() }, router());
        core.handle(t, Event::RulesetRead(Vec::new()));
        core.handle(t, Event::Rules);
        let read = vec![
            limiter("limit", Traffic::UDP & Traffic::V4),
            limiter("quota", Traffic::NONE),
            limiter("ct count", Traffic::V4),
        ];
        core.handle(t + REST_MAX * 2, Event::RulesetRead(read));
        let view = core.ruleset();
        let names = |notes: &[RuleNote]| {
            notes.iter().map(|note| (note.statement.clone(), note.traffic.clone())).collect::<Vec<_>>()
        };
        assert_eq!(view.held, if limits == LimitChoice::Slow { vec![Family::V4] } else { Vec::new() });
        (names(&view.limits), names(&view.bypassed).into_iter().map(|(name, _)| name).collect::<Vec<_>>())
    };
    let (limits, bypassed) = listed(LimitChoice::Slow);
    let of = |name: &str, traffic: &str| (name.to_owned(), traffic.to_owned());
    assert_eq!(limits, [of("ct count", "TCP and UDP over IPv4"), of("limit", "UDP over IPv4")]);
    assert_eq!(bypassed, ["quota"]);
    assert_eq!(
        listed(LimitChoice::Ignore),
        (Vec::new(), ["ct count", "limit", "quota"].map(str::to_owned).to_vec())
    );
}

#[test]
fn rules_that_change_packets_are_listed_with_the_traffic_that_they_reach_and_hold_nothing() {
    let (mut core, t) = idle();
    core.handle(t, Event::Rules);
    let read = vec![limiter("ip ttl set", Traffic::V4), limiter("TTL", Traffic::NONE)];
    assert_eq!(core.handle(t, Event::RulesetRead(read)), [Action::Hold(NONE)]);
    let view = core.ruleset();
    assert_eq!((view.rewrites.len(), view.rewrites[0].traffic.as_str()), (1, "TCP and UDP over IPv4"));
}

#[test]
fn elements_that_are_refreshed_shorten_the_time_between_proofs_down_to_a_bound() {
    let with = |seconds_tenths: u64, concerns: Traffic| {
        let (mut core, t) = idle();
        core.handle(t, Event::Rules);
        let timeout = Some(Duration::from_millis(seconds_tenths * 100));
        core.handle(t, Event::RulesetRead(vec![Statement { timeout, ..limiter("update", concerns) }]));
        (core.shortest_memory(), core.ruleset().bypassed.len())
    };
    assert_eq!(with(30, Traffic::V4), (Some(Duration::from_secs(3)), 0));
    assert_eq!(
        with(5, Traffic::V4),
        (Some(Duration::from_secs(1)), 1),
        "named, since proofs may come too late"
    );
    assert_eq!(with(5, Traffic::NONE), (None, 0));
}
