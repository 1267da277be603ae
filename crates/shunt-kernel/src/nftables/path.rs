//! Follows the path of a forwarded packet through the ruleset.

use super::{
    ObjectName, Ruleset,
    conditions::{Conditions, Field, Lookup, in_elements},
    family::{NFPROTO_BRIDGE, NFPROTO_INET, NFPROTO_IPV4, NFPROTO_IPV6, NFPROTO_NETDEV, family_name},
    message::{Chain, Hook, Rule, RuleEffects, Set},
};
use crate::packet_path::{self, Branch, Findings, Matched, Outcome, Verdict};
use shunt_core::{Effect, RulesPlace, Statement, Traffic, effect};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    time::Duration,
};

const PREROUTING: u32 = 0;
const FORWARD: u32 = 2;
const POSTROUTING: u32 = 4;
const INGRESS: u32 = 5;

/// NF_IP_PRI_CONNTRACK: from here on, packets of the prerouting hook have a state.
const CONNTRACK: i32 = -200;

/// The devices whose packets meet a statement.
#[derive(Debug, Clone)]
enum Devices {
    All,
    These(BTreeSet<String>),
}

impl Devices {
    fn from_hook(hook: &Hook) -> Self {
        if hook.devices.is_empty() { Self::All } else { Self::These(hook.devices.iter().cloned().collect()) }
    }

    fn add(&mut self, more: &Self) {
        match (&mut *self, more) {
            (Self::These(have), Self::These(more)) => have.extend(more.iter().cloned()),
            _ => *self = Self::All,
        }
    }
}

/// Whether forwarded packets other than the first one of a connection pass a base chain.
fn is_on_path(family: u8, hook: &Hook) -> bool {
    // Only the first packet of a connection meets the rules of a nat chain, and that packet is never fast.
    if hook.kind == "nat" {
        return false;
    }
    match family {
        NFPROTO_IPV4 | NFPROTO_IPV6 => matches!(hook.number, PREROUTING | FORWARD | POSTROUTING),
        NFPROTO_INET => matches!(hook.number, PREROUTING | FORWARD | POSTROUTING | INGRESS),
        // Packets that are routed to or from a bridge pass the input and output hooks of the bridge.
        NFPROTO_BRIDGE | NFPROTO_NETDEV => true,
        _ => false,
    }
}

/// Whether conntrack has certainly seen the packets that pass a base chain.
fn is_after_conntrack(family: u8, hook: &Hook) -> bool {
    match family {
        NFPROTO_IPV4 | NFPROTO_IPV6 | NFPROTO_INET => match hook.number {
            PREROUTING => hook.priority > CONNTRACK,
            number => number != INGRESS,
        },
        _ => false,
    }
}

/// Whether the effect of any rule depends on the traffic that meets the rule.
pub(super) fn depends_on_traffic(ruleset: &Ruleset) -> bool {
    let in_effects =
        |effects: &RuleEffects| effects.statements.iter().any(|name| packet_path::is_about_traffic(name));
    ruleset.rules.iter().any(|rule| in_effects(&rule.effects))
        || ruleset.sets.values().any(|set| in_effects(&set.effects))
}

/// Whether a chain is a base chain that forwarded packets pass.
pub(super) fn is_base_on_path(chain: &Chain) -> bool {
    chain.hook.as_ref().is_some_and(|hook| is_on_path(chain.at.family, hook))
}

/// The chains that forwarded packets may pass, and the sets that the rules of these use.
pub(super) fn places(ruleset: &Ruleset) -> BTreeSet<RulesPlace> {
    let rules = by_chain(ruleset);
    let bases = ruleset.chains.iter().filter(|chain| is_base_on_path(chain));
    let chains: HashSet<ObjectName> =
        bases.flat_map(|base| reachable_chains(&base.at, &rules, ruleset)).collect();
    let sets_of = |chain: &ObjectName| {
        let rules = rules.get(chain).into_iter().flatten();
        let names = rules.flat_map(|rule| &rule.effects.sets).cloned();
        let table = chain.clone();
        names.map(move |name| ObjectName { name, ..table.clone() }.of_kind(true)).collect::<Vec<_>>()
    };
    let sets: Vec<RulesPlace> = chains.iter().flat_map(sets_of).collect();
    chains.into_iter().map(|chain| chain.of_kind(false)).chain(sets).collect()
}

type RulesByChain<'a> = HashMap<&'a ObjectName, Vec<&'a Rule>>;

fn by_chain(ruleset: &Ruleset) -> RulesByChain<'_> {
    let mut rules: RulesByChain = HashMap::new();
    for rule in &ruleset.rules {
        rules.entry(&rule.chain).or_default().push(rule);
    }
    rules
}

/// What is known about a statement of a rule.
struct Found {
    devices: Devices,
    concerns: Traffic,
    timeout: Option<Duration>,
}

/// The statements that a forwarded packet may meet.
pub(super) fn statements(ruleset: &Ruleset) -> Vec<Statement> {
    let rules = by_chain(ruleset);
    let follows = depends_on_traffic(ruleset);
    let mut found: BTreeMap<(u8, &str, &str, u64, &str), Found> = BTreeMap::new();
    for base in &ruleset.chains {
        let Some(hook) = base.hook.as_ref().filter(|hook| is_on_path(base.at.family, hook)) else { continue };
        let devices = Devices::from_hook(hook);
        let chains = reachable_chains(&base.at, &rules, ruleset);
        let findings = if follows { follow(base, hook, &chains, &rules, ruleset) } else { HashMap::new() };
        for chain in &chains {
            for (at, rule) in rules.get(chain).into_iter().flatten().enumerate() {
                let finding = findings.get(&(chain, at)).copied().unwrap_or_default();
                let timeout = timeout(rule, ruleset);
                for name in all_effects(rule, ruleset).flat_map(|effects| &effects.statements) {
                    let chain = &rule.chain;
                    let key =
                        (chain.family, chain.table.as_str(), chain.name.as_str(), rule.handle, name.as_str());
                    let have = found.entry(key).or_insert_with(|| Found {
                        devices: devices.clone(),
                        concerns: Traffic::NONE,
                        timeout: timeout.filter(|_| effect(name) == Some(Effect::Refreshes)),
                    });
                    have.devices.add(&devices);
                    have.concerns |= packet_path::concerns(name, finding);
                }
            }
        }
    }
    let statement = |((family, table, chain, handle, name), found): ((u8, &str, &str, u64, &str), Found)| {
        let Found { devices, concerns, timeout } = found;
        Statement {
            family: family_name(family).to_owned(),
            table: table.to_owned(),
            chain: chain.to_owned(),
            handle,
            legacy: false,
            name: name.to_owned(),
            devices: match devices {
                Devices::All => Vec::new(),
                Devices::These(names) => names.into_iter().collect(),
            },
            concerns,
            timeout,
        }
    };
    found.into_iter().map(statement).collect()
}

/// The timeout of the elements that a rule refreshes.
fn timeout(rule: &Rule, ruleset: &Ruleset) -> Option<Duration> {
    let (name, timeout) = rule.effects.refreshes.as_ref()?;
    let set = || ruleset.sets.get(&ObjectName { name: name.clone(), ..rule.chain.clone() });
    timeout.or_else(|| set()?.timeout)
}

/// Follows all traffic from a base chain through these chains.
fn follow<'a>(
    base: &'a Chain,
    hook: &Hook,
    chains: &'a HashSet<ObjectName>,
    rules: &RulesByChain<'a>,
    ruleset: &'a Ruleset,
) -> Findings<&'a ObjectName> {
    let has_state = is_after_conntrack(base.at.family, hook);
    let of_chain = |chain: &'a ObjectName| {
        let rules = rules.get(chain).into_iter().flatten();
        (chain, rules.map(|rule| for_path(rule, has_state, chains, ruleset)).collect())
    };
    let by_chain = chains.iter().map(of_chain).collect();
    let policy = if base.drops { Outcome::DROP } else { Outcome::PASS };
    packet_path::follow(&base.at, policy, &by_chain)
}

/// A rule as [`packet_path`] knows rules.
fn for_path<'a>(
    rule: &'a Rule,
    has_state: bool,
    chains: &'a HashSet<ObjectName>,
    ruleset: &'a Ruleset,
) -> packet_path::Rule<&'a ObjectName> {
    let set = |name: &str| ruleset.sets.get(&ObjectName { name: name.to_owned(), ..rule.chain.clone() });
    let matched = matched(&rule.conditions, has_state, &set);
    let limits = all_effects(rule, ruleset)
        .flat_map(|effects| &effects.statements)
        .any(|name| effect(name) == Some(Effect::Limits));
    // A limit may match or not.
    let matched = if limits { matched.and(Matched::UNKNOWN) } else { matched };
    // A chain that has gone meanwhile has no rules.
    let named = |name: &str| chains.get(&ObjectName { name: name.to_owned(), ..rule.chain.clone() });
    let verdict = |verdict: &Verdict<String>| match verdict {
        Verdict::Accept => Verdict::Accept,
        Verdict::Drop => Verdict::Drop,
        Verdict::Return => Verdict::Return,
        Verdict::Jump(name) => named(name).map_or(Verdict::Unknown, Verdict::Jump),
        Verdict::Goto(name) => named(name).map_or(Verdict::Unknown, Verdict::Goto),
        Verdict::Unknown => Verdict::Unknown,
    };
    let branch = |of: &Verdict<String>, matched: Matched| {
        let verdict = verdict(of);
        // Packets may continue behind an unknown verdict.
        let known = if verdict == Verdict::Unknown { Matched::UNKNOWN } else { Matched::ALL };
        Branch { matched: matched.and(known), verdict }
    };
    let Conditions { verdict: own, map, changes, .. } = &rule.conditions;
    let mut branches: Vec<_> = own.iter().map(|of| branch(of, matched)).collect();
    let is_known = |field: Field| has_state || field != Field::State;
    if let Some((field, name)) = map {
        let elements = || set(name).into_iter().flat_map(|set| &set.elements);
        let is_constant = set(name).is_some_and(Set::is_constant);
        let mut verdicts: Vec<_> = elements().filter_map(|element| element.verdict.as_ref()).collect();
        // The other verdicts of a map come and go without being read, unless they lead to chains.
        if !is_constant {
            verdicts.push(&Verdict::Unknown);
        }
        verdicts.sort_unstable();
        verdicts.dedup();
        let known = field.filter(|field| is_constant && is_known(*field));
        let of_verdict = |verdict: &Verdict<String>| {
            let same = elements().filter(|element| element.verdict.as_ref() == Some(verdict));
            known.map_or(Matched::UNKNOWN, |field| in_elements(field, same))
        };
        branches
            .extend(verdicts.into_iter().map(|verdict| branch(verdict, matched.and(of_verdict(verdict)))));
    }
    packet_path::Rule { may: matched.may, branches, limits, changes: *changes }
}

/// The traffic that meets the conditions of a rule.
fn matched<'a>(conditions: &Conditions, has_state: bool, set: &impl Fn(&str) -> Option<&'a Set>) -> Matched {
    let state = match conditions.state {
        state if has_state || state == Matched::ALL => state,
        _ => Matched::UNKNOWN,
    };
    let of_lookup = |lookup: &Lookup| {
        let set = set(&lookup.set).filter(|set| set.is_constant() && !set.elements.is_empty());
        match set {
            Some(set) if has_state || lookup.field != Field::State => lookup.matched(&set.elements),
            _ => Matched::UNKNOWN,
        }
    };
    let lookups = conditions.lookups.iter().map(of_lookup).fold(Matched::ALL, Matched::and);
    conditions.fields.and(state).and(lookups)
}

/// The effects of a rule itself and of the sets that it uses.
fn all_effects<'a>(rule: &'a Rule, ruleset: &'a Ruleset) -> impl Iterator<Item = &'a RuleEffects> {
    let sets = rule.effects.sets.iter().filter_map(|name| {
        let at = ObjectName { name: name.clone(), ..rule.chain.clone() };
        Some(&ruleset.sets.get(&at)?.effects)
    });
    std::iter::once(&rule.effects).chain(sets)
}

/// A base chain and all chains that its rules lead to, directly or by other chains.
fn reachable_chains(base: &ObjectName, rules: &RulesByChain, ruleset: &Ruleset) -> HashSet<ObjectName> {
    let mut seen = HashSet::new();
    let mut next = vec![base.clone()];
    while let Some(chain) = next.pop() {
        if seen.contains(&chain) {
            continue;
        }
        for rule in rules.get(&chain).into_iter().flatten() {
            for effects in all_effects(rule, ruleset) {
                next.extend(
                    effects.chains.iter().map(|name| ObjectName { name: name.clone(), ..chain.clone() }),
                );
            }
        }
        seen.insert(chain);
    }
    seen
}
