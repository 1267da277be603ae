//! Tests of which rules stop learning, and for how long.

use super::*;
use crate::{
    Action, Cause, Core, Event, Source,
    core::tests::{link, router, started},
};

fn statement(family: &str, name: &str, devices: &[&str]) -> Statement {
    let devices = devices.iter().map(|name| (*name).to_owned()).collect();
    let [family, name] = [family, name].map(str::to_owned);
    let [table, chain] = ["fw", "forward"].map(str::to_owned);
    Statement { family, table, chain, handle: 12, legacy: false, name, devices }
}

const NONE: Hold = Hold { v4: false, v6: false };
const AT_ONCE: Action = Action::ReadRuleset { after: Duration::ZERO };

/// A policy that has read an empty ruleset, some time later.
fn idle() -> (Core, Instant) {
    let (mut core, t) = started(crate::Choice::default(), router());
    assert_eq!(core.handle(t, Event::RulesetRead(Vec::new())), [Action::Hold(NONE)]);
    (core, t + REST_MAX * 2)
}

/// The families that are held after these statements have been read.
fn held_by(statements: Vec<Statement>) -> Hold {
    let (mut core, t) = idle();
    core.handle(t, Event::Rules);
    match core.handle(t, Event::RulesetRead(statements))[..] {
        [] => Hold::ALL,
        [Action::Hold(hold)] => hold,
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn nothing_is_learned_before_the_ruleset_has_been_read() {
    let mut core = Core::new(crate::Choice::default(), []);
    let t = started(crate::Choice::default(), router()).1;
    let actions = core.handle(t, Event::Dump(router()));
    assert_eq!(actions[..2], [Action::Hold(Hold::ALL), AT_ONCE]);
    assert!(actions[2..].iter().all(|action| matches!(action, Action::Attach(_))), "{actions:?}");
}

#[test]
fn a_change_of_rules_holds_both_families_until_the_rules_are_read() {
    let (mut core, t) = idle();
    assert_eq!(core.handle(t, Event::Rules), [Action::Hold(Hold::ALL), AT_ONCE]);
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
fn changes_before_a_read_begins_need_no_other_read() {
    let (mut core, t) = idle();
    core.handle(t, Event::Rules);
    assert_eq!(core.handle(t, Event::RulesetRead(Vec::new())), [Action::Hold(NONE)]);
    let hold_and_wait = [Action::Hold(Hold::ALL), Action::ReadRuleset { after: REST_MIN }];
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
    assert_eq!(core.handle(t + took, Event::Rules), [Action::Hold(Hold::ALL), Action::ReadRuleset { after }]);
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
    assert!(!core.handle(t, Event::Overrun(Source::Route)).contains(&AT_ONCE));
    let actions = core.handle(t, Event::Overrun(Source::Nftables));
    assert_eq!(actions[..3], [Action::Hold(Hold::ALL), AT_ONCE, Action::MoveEpoch(Cause::Overrun)]);
}

#[test]
fn a_statement_holds_the_families_of_its_table() {
    for (family, v4, v6) in
        [("ip", true, false), ("ip6", false, true), ("inet", true, true), ("bridge", true, true)]
    {
        let of_nft = ["queue", "dup", "fwd", "tproxy", "synproxy"];
        let of_iptables = ["NFQUEUE", "QUEUE", "TEE", "TPROXY", "SYNPROXY"];
        for name in of_nft.into_iter().chain(of_iptables) {
            assert_eq!(held_by(vec![statement(family, name, &[])]), Hold { v4, v6 }, "{family} {name}");
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
    assert_eq!(on("r1"), Hold::ALL);
    assert_eq!(on("r*"), Hold::ALL);
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
    let held = [Action::Hold(Hold::ALL), Action::MoveEpoch(Cause::Ruleset)];
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
    let held = Hold { v4: false, v6: true };
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
    assert_eq!(core.handle(t, Event::LegacyUnread("EPERM".to_owned())), [Action::Hold(Hold::ALL), moved]);
    assert_eq!(core.ruleset().unread.as_deref(), Some("EPERM"));
    assert!(core.handle(t, Event::LegacyRead(Vec::new())).contains(&Action::Hold(NONE)));
    assert_eq!(core.ruleset(), RulesetStatus::default());
}
