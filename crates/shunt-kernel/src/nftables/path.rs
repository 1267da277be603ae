//! Follows the path of a forwarded packet through the ruleset.

use super::{
    ObjectName, Ruleset,
    family::{NFPROTO_BRIDGE, NFPROTO_INET, NFPROTO_IPV4, NFPROTO_IPV6, NFPROTO_NETDEV, family_name},
    message::{Hook, Rule, RuleEffects},
};
use shunt_core::Statement;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

const PREROUTING: u32 = 0;
const FORWARD: u32 = 2;
const POSTROUTING: u32 = 4;
const INGRESS: u32 = 5;

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

/// The statements that a forwarded packet may meet.
pub(super) fn statements(ruleset: &Ruleset) -> Vec<Statement> {
    let mut rules: HashMap<&ObjectName, Vec<&Rule>> = HashMap::new();
    for rule in &ruleset.rules {
        rules.entry(&rule.chain).or_default().push(rule);
    }
    let mut found: BTreeMap<(u8, &str, &str, u64, &str), Devices> = BTreeMap::new();
    for base in &ruleset.chains {
        let Some(hook) = base.hook.as_ref().filter(|hook| is_on_path(base.at.family, hook)) else { continue };
        let devices = Devices::from_hook(hook);
        for chain in reachable_chains(&base.at, &rules, ruleset) {
            for rule in rules.get(&chain).into_iter().flatten() {
                let at = &rule.chain;
                let mut add_statement = |name| {
                    let key = (at.family, at.table.as_str(), at.name.as_str(), rule.handle, name);
                    found.entry(key).and_modify(|have| have.add(&devices)).or_insert_with(|| devices.clone());
                };
                for effects in all_effects(rule, ruleset) {
                    effects.statements.iter().for_each(|name| add_statement(name));
                }
            }
        }
    }
    let statement =
        |((family, table, chain, handle, name), devices): ((u8, &str, &str, u64, &str), _)| Statement {
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
        };
    found.into_iter().map(statement).collect()
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
fn reachable_chains(
    base: &ObjectName,
    rules: &HashMap<&ObjectName, Vec<&Rule>>,
    ruleset: &Ruleset,
) -> HashSet<ObjectName> {
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
