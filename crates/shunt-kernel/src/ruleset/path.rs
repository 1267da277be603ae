//! The way of a forwarded packet through the ruleset.

use super::{
    Parts, Place,
    message::{Does, Hook, Rule},
};
use shunt_core::Statement;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

const NFPROTO_INET: u8 = 1;
const NFPROTO_IPV4: u8 = 2;
const NFPROTO_NETDEV: u8 = 5;
pub(super) const NFPROTO_BRIDGE: u8 = 7;
const NFPROTO_IPV6: u8 = 10;

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
    fn of(hook: &Hook) -> Self {
        if hook.devices.is_empty() { Self::All } else { Self::These(hook.devices.iter().cloned().collect()) }
    }

    fn add(&mut self, more: &Self) {
        match (&mut *self, more) {
            (Self::These(have), Self::These(more)) => have.extend(more.iter().cloned()),
            _ => *self = Self::All,
        }
    }
}

/// Whether forwarded packets pass a base chain, beyond the first of each connection.
fn is_on_path(family: u8, hook: &Hook) -> bool {
    // Only the first packet of a connection meets the rules of a nat chain; it is never fast.
    if hook.kind == "nat" {
        return false;
    }
    match family {
        NFPROTO_IPV4 | NFPROTO_IPV6 => matches!(hook.number, PREROUTING | FORWARD | POSTROUTING),
        NFPROTO_INET => matches!(hook.number, PREROUTING | FORWARD | POSTROUTING | INGRESS),
        // What is routed to and from a bridge passes the bridge's own input and output.
        NFPROTO_BRIDGE | NFPROTO_NETDEV => true,
        _ => false,
    }
}

fn name_of(family: u8) -> &'static str {
    match family {
        NFPROTO_IPV4 => "ip",
        NFPROTO_IPV6 => "ip6",
        NFPROTO_INET => "inet",
        NFPROTO_BRIDGE => "bridge",
        _ => "netdev",
    }
}

/// What a forwarded packet may meet.
pub(super) fn statements(parts: &Parts) -> Vec<Statement> {
    let mut rules: HashMap<&Place, Vec<&Rule>> = HashMap::new();
    for rule in &parts.rules {
        rules.entry(&rule.chain).or_default().push(rule);
    }
    let mut found: BTreeMap<(u8, &str, &str, u64, &str), Devices> = BTreeMap::new();
    for base in &parts.chains {
        let Some(hook) = base.hook.as_ref().filter(|hook| is_on_path(base.at.family, hook)) else { continue };
        let devices = Devices::of(hook);
        for chain in reached(&base.at, &rules, parts) {
            for rule in rules.get(&chain).into_iter().flatten() {
                let at = &rule.chain;
                let mut state = |name| {
                    let key = (at.family, at.table.as_str(), at.name.as_str(), rule.handle, name);
                    found.entry(key).and_modify(|have| have.add(&devices)).or_insert_with(|| devices.clone());
                };
                for does in with_sets(rule, parts) {
                    does.statements.iter().for_each(|name| state(name));
                }
            }
        }
    }
    let statement =
        |((family, table, chain, handle, name), devices): ((u8, &str, &str, u64, &str), _)| Statement {
            family: name_of(family).to_owned(),
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

/// What a rule does by itself, and by the sets that it looks up in.
fn with_sets<'a>(rule: &'a Rule, parts: &'a Parts) -> impl Iterator<Item = &'a Does> {
    let sets = rule.does.sets.iter().filter_map(|name| {
        let at = Place { name: name.clone(), ..rule.chain.clone() };
        Some(&parts.sets.get(&at)?.does)
    });
    std::iter::once(&rule.does).chain(sets)
}

/// A base chain and all chains that its rules lead to.
fn reached(base: &Place, rules: &HashMap<&Place, Vec<&Rule>>, parts: &Parts) -> HashSet<Place> {
    let mut seen = HashSet::new();
    let mut next = vec![base.clone()];
    while let Some(chain) = next.pop() {
        if seen.contains(&chain) {
            continue;
        }
        for rule in rules.get(&chain).into_iter().flatten() {
            for does in with_sets(rule, parts) {
                next.extend(does.chains.iter().map(|name| Place { name: name.clone(), ..chain.clone() }));
            }
        }
        seen.insert(chain);
    }
    seen
}
