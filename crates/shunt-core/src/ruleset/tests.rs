//! What rules hold back, and for how long.

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

/// A daemon that has read an empty ruleset, some time after that.
fn idle() -> (Core, Instant) {
    let (mut core, t) = started(crate::Choice::default(), router());
    assert_eq!(core.handle(t, Event::RulesetRead(Vec::new())), [Action::Hold(NONE)]);
    (core, t + REST_MAX * 2)
}

/// What is held when these are read.
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
fn nothing_is_learned_before_the_ruleset_was_read() {
    let mut core = Core::new(crate::Choice::default(), []);
    let t = started(crate::Choice::default(), router()).1;
    let actions = core.handle(t, Event::Dump(router()));
    assert_eq!(actions[..2], [Action::Hold(Hold::ALL), AT_ONCE]);
    assert!(actions[2..].iter().all(|action| matches!(action, Action::Attach(_))), "{actions:?}");
}

#[test]
fn a_change_of_rules_holds_everything_until_they_are_read() {
    let (mut core, t) = idle();
    assert_eq!(core.handle(t, Event::Rules), [Action::Hold(Hold::ALL), AT_ONCE]);
    assert_eq!(core.handle(t, Event::Rules), []);
    assert_eq!(core.handle(t, Event::Ruleset), [Action::MoveEpoch(Cause::Ruleset)]);
    assert_eq!(core.handle(t, Event::RulesetRead(Vec::new())), [Action::ReadRuleset { after: REST_MIN }]);
    assert_eq!(core.handle(t + REST_MIN, Event::RulesetRead(Vec::new())), [Action::Hold(NONE)]);
}

#[test]
fn a_generation_without_new_rules_is_not_read() {
    let (mut core, t) = idle();
    assert_eq!(core.handle(t, Event::Ruleset), [Action::MoveEpoch(Cause::Ruleset)]);
}

#[test]
fn what_changes_before_a_read_begins_is_covered_by_it() {
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
fn reads_that_take_long_take_at_most_a_tenth_of_the_time() {
    let (mut core, t) = idle();
    core.handle(t, Event::Rules);
    let took = Duration::from_millis(10);
    core.handle(t + took, Event::RulesetRead(Vec::new()));
    let after = Duration::from_millis(90);
    assert_eq!(core.handle(t + took, Event::Rules), [Action::Hold(Hold::ALL), Action::ReadRuleset { after }]);
}

#[test]
fn what_cannot_be_read_stays_held_and_is_tried_again() {
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
fn lost_messages_of_nftables_ask_for_a_read_and_of_others_do_not() {
    let (mut core, t) = idle();
    assert!(!core.handle(t, Event::Overrun(Source::Route)).contains(&AT_ONCE));
    let actions = core.handle(t, Event::Overrun(Source::Nftables));
    assert_eq!(actions[..3], [Action::Hold(Hold::ALL), AT_ONCE, Action::MoveEpoch(Cause::Overrun)]);
}

#[test]
fn a_table_holds_the_families_that_it_serves() {
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
fn what_only_counts_or_limits_holds_nothing_and_is_named_once_for_each_chain() {
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
fn a_netdev_chain_counts_where_its_device_is_a_port_or_above_one() {
    let on = |device: &str| held_by(vec![statement("netdev", "fwd", &[device])]);
    assert_eq!(on("r1"), Hold::ALL);
    assert_eq!(on("r*"), Hold::ALL);
    assert_eq!(on("r9"), NONE);
    assert_eq!(on("lo"), NONE);
}

#[test]
fn a_device_that_comes_to_stand_on_a_port_ends_what_was_learned() {
    let (mut core, t) = idle();
    core.handle(t, Event::Rules);
    core.handle(t, Event::RulesetRead(vec![statement("netdev", "dup", &["vlan5"])]));
    let above = crate::Link { kind: Some("macvlan".to_owned()), lower: Some(2), ..link(9, "vlan5") };
    let actions = core.handle(t, Event::Link(above));
    assert_eq!(actions[..2], [Action::Hold(Hold::ALL), Action::MoveEpoch(Cause::Ruleset)]);
    assert!(core.handle(t, Event::LinkGone { ifindex: 9 }).contains(&Action::Hold(NONE)));
}

fn legacy(family: &str, name: &str) -> Statement {
    Statement { legacy: true, ..statement(family, name, &[]) }
}

#[test]
fn rules_of_legacy_iptables_hold_their_family_and_are_named_beside_those_of_nft() {
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
fn any_change_of_legacy_iptables_moves_the_epoch_and_the_first_look_does_not() {
    let mut core = Core::new(crate::Choice::default(), []);
    let t = started(crate::Choice::default(), router()).1;
    core.handle(t, Event::Dump(router()));
    core.handle(t, Event::RulesetRead(Vec::new()));
    assert_eq!(core.ruleset().held, [Family::V4, Family::V6], "its rules are not known yet");
    assert_eq!(core.handle(t, Event::LegacyRead(Vec::new())), [Action::Hold(NONE)]);
    assert_eq!(core.handle(t, Event::LegacyRead(Vec::new())), [Action::MoveEpoch(Cause::Ruleset)]);
}

#[test]
fn legacy_iptables_that_cannot_be_read_holds_everything_and_says_why() {
    let (mut core, t) = idle();
    let moved = Action::MoveEpoch(Cause::Ruleset);
    assert_eq!(core.handle(t, Event::LegacyUnread("EPERM".to_owned())), [Action::Hold(Hold::ALL), moved]);
    assert_eq!(core.ruleset().unread.as_deref(), Some("EPERM"));
    assert!(core.handle(t, Event::LegacyRead(Vec::new())).contains(&Action::Hold(NONE)));
    assert_eq!(core.ruleset(), RulesetStatus::default());
}
