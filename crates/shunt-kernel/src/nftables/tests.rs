//! Rulesets in the format of the kernel, built here: not every kernel has every expression.

mod lookups;

use super::*;
use crate::netlink_message::{Batch, Messages};

const IPV4: u8 = 2;
const INET: u8 = 1;
const NETDEV: u8 = 5;
const BRIDGE: u8 = 7;
const GENERATION: u16 = 7;

fn text(name: &str) -> Vec<u8> {
    [name.as_bytes(), &[0]].concat()
}

/// The messages of one answer.
#[derive(Default)]
struct Answer(Batch);

impl Answer {
    fn message(mut self, kind: u16, family: u8, attrs: impl FnOnce(&mut Batch)) -> Self {
        let [high, low] = GENERATION.to_be_bytes();
        self.0.message(kind, 0, 1, &[family, 0, high, low]);
        attrs(&mut self.0);
        self
    }

    fn chain(self, family: u8, name: &str, hook: Option<(u32, &str, &[&str])>) -> Self {
        self.message(NEWCHAIN, family, |b| {
            b.put(1, &text("fw"));
            b.put(3, &text(name));
            let Some((number, kind, devices)) = hook else { return };
            b.nest(4, |b| {
                b.put(1, &number.to_be_bytes());
                b.nest(4, |b| devices.iter().for_each(|name| b.put(1, &text(name))));
            });
            b.put(7, &text(kind));
        })
    }

    fn rule(self, family: u8, chain: &str, handle: u64, expressions: &[&dyn Fn(&mut Batch)]) -> Self {
        self.message(NEWRULE, family, |b| {
            b.put(1, &text("fw"));
            b.put(2, &text(chain));
            b.put(3, &handle.to_be_bytes());
            b.nest(4, |b| expressions.iter().for_each(|expression| b.nest(1, expression)));
        })
    }

    fn set(self, family: u8, name: &str, attrs: impl FnOnce(&mut Batch)) -> Self {
        self.message(NEWSET, family, |b| {
            b.put(1, &text("fw"));
            b.put(2, &text(name));
            attrs(b);
        })
    }

    fn elements(self, family: u8, set: &str, verdicts: &[(u32, &str)]) -> Self {
        self.message(NEWSETELEM, family, |b| {
            b.put(1, &text("fw"));
            b.put(2, &text(set));
            b.nest(3, |b| verdicts.iter().for_each(|to| b.nest(1, |b| b.nest(2, |b| verdict(b, *to)))));
        })
    }

    fn ruleset(&self) -> Ruleset {
        let mut ruleset = Ruleset::default();
        Messages(self.0.bytes()).for_each(|message| ruleset.add(&message.unwrap()));
        ruleset
    }

    /// The statements that packets may meet, as `chain handle statement`.
    fn found(&self) -> Vec<String> {
        let statements = path::statements(&self.ruleset());
        statements.iter().map(|s| format!("{} {} {}", s.chain, s.handle, s.name)).collect()
    }
}

const JUMP: u32 = -3_i32 as u32;
const GOTO: u32 = -4_i32 as u32;
const ACCEPT: u32 = 1;
const QUEUE_5: u32 = 5 << 16 | 3;

/// NFTA_DATA_VERDICT.
fn verdict(b: &mut Batch, (code, chain): (u32, &str)) {
    b.nest(2, |b| {
        b.put(1, &code.to_be_bytes());
        if !chain.is_empty() {
            b.put(2, &text(chain));
        }
    });
}

fn expression(name: &'static str, data: impl Fn(&mut Batch)) -> impl Fn(&mut Batch) {
    move |b| {
        b.put(1, &text(name));
        b.nest(2, &data);
    }
}

fn plain(name: &'static str) -> impl Fn(&mut Batch) {
    expression(name, |_| {})
}

fn immediate(code: u32, chain: &'static str) -> impl Fn(&mut Batch) {
    expression("immediate", move |b| b.nest(2, |b| verdict(b, (code, chain))))
}

fn named(kind: &'static str, attribute: u16, name: &'static str) -> impl Fn(&mut Batch) {
    expression(kind, move |b| b.put(attribute, &text(name)))
}

/// A base chain at the forward hook.
fn forward(family: u8) -> Answer {
    Answer::default().chain(family, "forward", Some((2, "filter", &[])))
}

#[test]
fn statements_are_found_by_the_names_of_their_expressions() {
    for name in [
        "queue", "dup", "fwd", "tproxy", "synproxy", "socket", "limit", "quota", "numgen", "log", "counter",
        "last",
    ] {
        let answer =
            forward(INET).rule(INET, "forward", 4, &[&plain("payload"), &plain("cmp"), &plain(name)]);
        assert_eq!(answer.found(), [format!("forward 4 {name}")]);
    }
    let rest = ["payload", "cmp", "bitwise", "meta", "nat", "masq", "reject", "notrack"];
    for name in rest {
        assert_eq!(forward(INET).rule(INET, "forward", 4, &[&plain(name)]).found(), [""; 0], "{name}");
    }
}

#[test]
fn of_the_meta_keys_only_random_is_reported() {
    let found = |key: u32| {
        let meta = expression("meta", move |b| b.put(2, &key.to_be_bytes()));
        forward(INET).rule(INET, "forward", 4, &[&meta]).found()
    };
    assert_eq!(found(24), ["forward 4 meta random"]);
    assert_eq!(found(3), [""; 0]);
}

#[test]
fn conntrack_expressions_are_reported_for_bridge_tables_only() {
    let bytes = expression("ct", |b| b.put(2, &15_u32.to_be_bytes()));
    let found = |family| {
        forward(family).rule(family, "forward", 4, &[&plain("ct"), &plain("connlimit"), &bytes]).found()
    };
    assert_eq!(found(BRIDGE), ["forward 4 ct", "forward 4 ct bytes", "forward 4 ct count"]);
    assert_eq!(found(INET), ["forward 4 ct bytes", "forward 4 ct count"]);
}

#[test]
fn targets_and_matches_of_iptables_are_found_by_their_own_names() {
    let answer = forward(IPV4)
        .rule(IPV4, "forward", 4, &[&named("match", 1, "hashlimit"), &named("target", 1, "NFQUEUE")])
        .rule(IPV4, "forward", 5, &[&named("match", 1, "udp"), &named("target", 1, "MARK")]);
    assert_eq!(answer.found(), ["forward 4 NFQUEUE", "forward 4 hashlimit"]);
}

#[test]
fn jumps_gotos_and_maps_of_verdicts_are_followed() {
    let answer = forward(IPV4)
        .chain(IPV4, "a", None)
        .chain(IPV4, "b", None)
        .chain(IPV4, "c", None)
        .chain(IPV4, "lonely", None)
        .rule(IPV4, "forward", 1, &[&immediate(JUMP, "a")])
        .rule(IPV4, "a", 2, &[&named("lookup", 1, "ways")])
        .rule(IPV4, "b", 3, &[&immediate(GOTO, "c")])
        // A loop. The kernel allows none, but a read may see two generations.
        .rule(IPV4, "c", 4, &[&immediate(JUMP, "a"), &plain("dup")])
        .rule(IPV4, "lonely", 5, &[&plain("queue")])
        .set(IPV4, "ways", |b| b.put(6, &0xffff_ff00_u32.to_be_bytes()))
        .elements(IPV4, "ways", &[(ACCEPT, ""), (GOTO, "b")]);
    assert_eq!(answer.found(), ["c 4 dup"]);
    assert!(answer.ruleset().sets.values().all(|set| set.has_verdicts));
}

#[test]
fn chains_of_the_same_name_in_different_tables_are_distinct() {
    let other = Answer::default().message(NEWRULE, IPV4, |b| {
        b.put(1, &text("other"));
        b.put(2, &text("forward"));
        b.put(3, &9_u64.to_be_bytes());
        b.nest(4, |b| b.nest(1, plain("queue")));
    });
    let mut ruleset = forward(IPV4).ruleset();
    ruleset.rules.extend(other.ruleset().rules);
    assert_eq!(path::statements(&ruleset), []);
}

#[test]
fn a_verdict_can_be_a_queue() {
    assert_eq!(
        forward(IPV4).rule(IPV4, "forward", 4, &[&immediate(QUEUE_5, "")]).found(),
        ["forward 4 queue"]
    );
    assert_eq!(forward(IPV4).rule(IPV4, "forward", 4, &[&immediate(ACCEPT, "")]).found(), [""; 0]);
    let by_map = forward(IPV4)
        .rule(IPV4, "forward", 4, &[&named("lookup", 1, "ways")])
        .set(IPV4, "ways", |b| b.put(6, &0xffff_ff00_u32.to_be_bytes()))
        .elements(IPV4, "ways", &[(QUEUE_5, "")]);
    assert_eq!(by_map.found(), ["forward 4 queue"]);
}

#[test]
fn statements_of_sets_are_reported_at_the_rule_that_uses_the_set() {
    let update = expression("dynset", |b| {
        b.put(1, &text("seen"));
        b.nest(10, |b| b.nest(1, plain("limit")));
    });
    let proxy = expression("objref", |b| b.put(1, &10_u32.to_be_bytes()));
    let by_map = expression("objref", |b| b.put(4, &text("quotas")));
    let answer = forward(IPV4)
        .rule(IPV4, "forward", 1, &[&update])
        .rule(IPV4, "forward", 2, &[&proxy])
        .rule(IPV4, "forward", 3, &[&by_map])
        .rule(IPV4, "forward", 4, &[&named("lookup", 1, "counted")])
        .set(IPV4, "seen", |_| {})
        .set(IPV4, "quotas", |b| b.put(15, &2_u32.to_be_bytes()))
        .set(IPV4, "counted", |b| b.nest(17, plain("counter")));
    let want = ["forward 1 limit", "forward 2 synproxy", "forward 3 quota", "forward 4 counter"];
    assert_eq!(answer.found(), want);
}

#[test]
fn only_the_hooks_that_forwarded_packets_pass_count() {
    let found = |family, hook| {
        let answer = Answer::default().chain(family, "base", Some(hook));
        answer.rule(family, "base", 1, &[&plain("queue")]).found().len()
    };
    let (ipv6, arp, bridge) = (10, 3, 7);
    for family in [IPV4, ipv6, INET] {
        let on_path: Vec<u32> = (0..5).filter(|hook| found(family, (*hook, "filter", &[])) == 1).collect();
        assert_eq!(on_path, [0, 2, 4], "{family}");
        assert_eq!(found(family, (2, "nat", &[])), 0, "only the first packet of a connection");
    }
    assert_eq!(found(INET, (5, "filter", &["r0"])), 1);
    assert!((0..5).all(|hook| found(bridge, (hook, "filter", &[])) == 1));
    assert!((0..2).all(|hook| found(NETDEV, (hook, "filter", &["r0"])) == 1));
    assert_eq!(found(arp, (2, "filter", &[])), 0);
}

#[test]
fn a_statement_has_the_devices_of_all_chains_that_lead_to_it() {
    let mut answer = Answer::default()
        .chain(NETDEV, "one", Some((0, "filter", &["r0"])))
        .chain(NETDEV, "two", Some((1, "filter", &["r1", "r2"])))
        .chain(NETDEV, "both", None);
    for (chain, handle) in [("one", 1), ("two", 2)] {
        answer = answer.rule(NETDEV, chain, handle, &[&immediate(JUMP, "both")]);
    }
    let answer = answer.rule(NETDEV, "both", 3, &[&plain("dup")]).rule(NETDEV, "one", 4, &[&plain("fwd")]);
    let statements = path::statements(&answer.ruleset());
    let devices: Vec<_> = statements.iter().map(|s| (s.name.as_str(), s.devices.join(" "))).collect();
    assert_eq!(devices, [("dup", "r0 r1 r2".to_owned()), ("fwd", "r0".to_owned())]);
}

#[test]
fn messages_of_two_generations_make_a_torn_ruleset() {
    let mut ruleset = forward(IPV4).ruleset();
    assert!(!ruleset.torn);
    let mut later = Batch::default();
    later.message(NEWCHAIN, 0, 1, &[IPV4, 0, 0, 8]);
    Messages(later.bytes()).for_each(|message| ruleset.add(&message.unwrap()));
    assert!(ruleset.torn);
}

#[test]
fn set_elements_concern_rules_if_they_lead_to_a_chain_or_queue() {
    let at_ways = Some(Event::RulesAt(place("ways", true)));
    assert_eq!(event(&Answer::default().elements(IPV4, "ways", &[(ACCEPT, ""), (JUMP, "a")])), at_ways);
    assert_eq!(event(&Answer::default().elements(IPV4, "ways", &[(QUEUE_5, "")])), at_ways);
    assert_eq!(event(&Answer::default().elements(IPV4, "ways", &[(ACCEPT, ""), (0, "")])), None);
}

/// The event of the last message.
fn event(answer: &Answer) -> Option<Event> {
    Messages(answer.0.bytes()).last().and_then(|message| rules_event(&message.unwrap()))
}

fn place(name: &str, is_set: bool) -> RulesPlace {
    RulesPlace { family: IPV4, table: "fw".to_owned(), name: name.to_owned(), is_set }
}

#[test]
fn changes_of_rules_name_their_chain_and_base_chains_on_the_path_concern_all() {
    let at = |name: &str| Some(Event::RulesAt(place(name, false)));
    assert_eq!(event(&Answer::default().rule(IPV4, "a", 1, &[&plain("queue")])), at("a"));
    assert_eq!(
        event(&Answer::default().set(IPV4, "ways", |_| ())),
        Some(Event::RulesAt(place("ways", true)))
    );
    assert_eq!(event(&forward(IPV4)), Some(Event::Rules));
    let nat = Some((2, "nat", &[][..]));
    // Without NLM_F_CREATE, as here, a chain may have been renamed.
    assert_eq!(event(&Answer::default().chain(IPV4, "a", nat)), Some(Event::Rules));
    let created = |answer: Answer| {
        let message = Messages(answer.0.bytes()).last().unwrap().unwrap();
        rules_event(&Message { flags: libc::NLM_F_CREATE as u16, ..message })
    };
    assert_eq!(created(Answer::default().chain(IPV4, "a", nat)), at("a"));
    assert_eq!(created(Answer::default().chain(IPV4, "a", None)), at("a"));
    assert_eq!(created(forward(IPV4)), Some(Event::Rules));
    assert_eq!(event(&Answer::default().message(SUBSYSTEM, IPV4, |_| ())), Some(Event::Rules), "a table");
}

#[test]
fn the_path_has_the_chains_and_sets_that_forwarded_packets_may_come_to() {
    let ruleset = forward(IPV4)
        .chain(IPV4, "prerouting", Some((0, "nat", &[])))
        .rule(IPV4, "forward", 1, &[&named("lookup", 1, "ways"), &immediate(JUMP, "a")])
        .rule(IPV4, "prerouting", 2, &[&named("lookup", 1, "services"), &immediate(JUMP, "service")])
        .rule(IPV4, "service", 3, &[&immediate(GOTO, "endpoint")])
        .set(IPV4, "ways", |b| b.put(6, &0xffff_ff00_u32.to_be_bytes()))
        .set(IPV4, "services", |b| b.put(6, &0xffff_ff00_u32.to_be_bytes()))
        .elements(IPV4, "ways", &[(JUMP, "b")])
        .elements(IPV4, "services", &[(JUMP, "service")])
        .ruleset();
    let chains = ["a", "b", "forward"].map(|name| place(name, false));
    assert_eq!(path::places(&ruleset), chains.into_iter().chain([place("ways", true)]).collect());
}

#[test]
fn a_truncated_message_is_parsed_without_panic() {
    let answer = forward(IPV4)
        .rule(IPV4, "forward", 1, &[&named("lookup", 1, "ways"), &immediate(JUMP, "a"), &plain("queue")])
        .set(IPV4, "ways", |b| b.nest(18, |b| b.nest(1, plain("counter"))))
        .elements(IPV4, "ways", &[(GOTO, "b")]);
    for message in Messages(answer.0.bytes()) {
        let message = message.unwrap();
        for len in 0..message.payload.len() {
            let mut ruleset = Ruleset::default();
            ruleset.add(&Message { payload: &message.payload[..len], ..message });
            let _ = (path::statements(&ruleset), rules_event(&message));
        }
    }
}

#[test]
fn rules_that_need_conntrack_are_recognised_in_every_chain() {
    let tracks = |family: u8, expression: &dyn Fn(&mut Batch)| {
        let answer = forward(family).rule(family, "elsewhere", 4, &[&plain("payload"), expression]);
        Messages(answer.0.bytes()).any(|message| tracking::needs_conntrack(&message.unwrap()))
    };
    for name in ["ct", "nat", "masq", "redir", "connlimit"] {
        assert!(tracks(INET, &plain(name)) && tracks(IPV4, &plain(name)), "{name}");
        assert!(!tracks(BRIDGE, &plain(name)) && !tracks(NETDEV, &plain(name)), "{name}");
    }
    for name in ["counter", "payload", "notrack", "queue"] {
        assert!(!tracks(INET, &plain(name)), "{name}");
    }
    assert!(tracks(IPV4, &named("match", 1, "conntrack")) && tracks(IPV4, &named("target", 1, "MASQUERADE")));
    assert!(!tracks(IPV4, &named("match", 1, "tcp")) && !tracks(IPV4, &named("target", 1, "LOG")));
}
