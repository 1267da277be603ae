//! The entries of a table: struct ipt_entry and struct ip6t_entry, each with its matches and its target behind it.

use super::{Family, Table};
use crate::wire::{u16_at, u32_at};
use shunt_core::{Statement, effect};
use std::collections::{BTreeMap, BTreeSet};

/// XT_TABLE_MAXNAMELEN.
const NAME_BYTES: usize = 32;
/// Structures with 64-bit counters begin where this machine's C has those begin.
const ALIGN: usize = align_of::<u64>();
/// struct ipt_get_entries without the entries.
pub(super) const HEAD_BYTES: usize = (NAME_BYTES + 4).next_multiple_of(ALIGN);
/// struct ipt_getinfo: the name, which hooks there are, their first entries, their last, how many entries and bytes.
const INFO_BYTES: usize = NAME_BYTES + 4 * (1 + 2 * HOOKS.len() + 2);

const COUNTERS_BYTES: usize = 16;
/// struct xt_entry_match and struct xt_entry_target without their data: a length, a name, a revision.
const EXTENSION_BYTES: usize = 32;

/// By their numbers, which are those of netfilter.
const HOOKS: [&str; 5] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];
/// Those that forwarded packets pass.
const ON_PATH: [usize; 3] = [0, 2, 4];

/// Verdicts that are none are the offset of an entry to go on at. This one is -NF_QUEUE - 1.
const QUEUE: i32 = -4;

/// What the kernel says of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Info(pub [u8; INFO_BYTES]);

impl Info {
    pub fn question(name: &str) -> Self {
        let mut info = [0; INFO_BYTES];
        put_name(name, &mut info);
        Self(info)
    }

    /// The bytes of all entries.
    pub fn size(&self) -> usize {
        u32_at(&self.0, INFO_BYTES - 4).unwrap_or_default() as usize
    }

    /// The offsets at which the chains of hooks begin, and which hooks.
    fn chains(&self) -> BTreeMap<usize, usize> {
        let valid = u32_at(&self.0, NAME_BYTES).unwrap_or_default();
        let begins = |hook| Some((u32_at(&self.0, NAME_BYTES + 4 + 4 * hook)? as usize, hook));
        (0..HOOKS.len()).filter(|hook| valid & (1 << hook) != 0).filter_map(begins).collect()
    }
}

/// A buffer for so many bytes of entries.
pub(super) fn question(name: &str, size: usize) -> Vec<u8> {
    let mut buffer = vec![0; HEAD_BYTES + size];
    put_name(name, &mut buffer);
    buffer[NAME_BYTES..NAME_BYTES + 4].copy_from_slice(&(size as u32).to_ne_bytes());
    buffer
}

/// The last byte stays 0.
fn put_name(name: &str, buffer: &mut [u8]) {
    let bytes = &name.as_bytes()[..name.len().min(NAME_BYTES - 1)];
    buffer[..bytes.len()].copy_from_slice(bytes);
}

/// Where an entry's counters are. Before them come struct ipt_ip or ip6t_ip6, nfcache, the offsets of the target and of
/// the next entry, and comefrom.
fn counters_at(family: Family) -> usize {
    (offsets_at(family) + 8).next_multiple_of(ALIGN)
}

fn offsets_at(family: Family) -> usize {
    match family {
        Family::V4 => 84 + 4,
        Family::V6 => 136 + 4,
    }
}

/// One entry: its place, its matches and its target.
struct Entry<'t> {
    offset: usize,
    matches: &'t [u8],
    target: &'t [u8],
}

/// All entries; none if one does not fit.
fn entries(family: Family, bytes: &[u8]) -> Option<Vec<Entry<'_>>> {
    let matches_at = counters_at(family) + COUNTERS_BYTES;
    let mut found = Vec::new();
    let mut offset = 0;
    while offset < bytes.len() {
        let entry = &bytes[offset..];
        let target_at = u16_at(entry, offsets_at(family))? as usize;
        let next = u16_at(entry, offsets_at(family) + 2)? as usize;
        let matches = entry.get(matches_at..target_at)?;
        let target = entry.get(target_at..next)?;
        // So each entry has a length, and this an end.
        if target.len() < EXTENSION_BYTES {
            return None;
        }
        found.push(Entry { offset, matches, target });
        offset += next;
    }
    Some(found)
}

impl Table {
    /// Every packet changes the counters, and that is no change of the rules.
    pub(super) fn forget_counters(&mut self) -> Option<()> {
        let at = counters_at(self.family);
        let offsets: Vec<usize> = entries(self.family, &self.entries)?.iter().map(|e| e.offset).collect();
        for offset in offsets {
            self.entries.get_mut(offset + at..offset + at + COUNTERS_BYTES)?.fill(0);
        }
        Some(())
    }
}

/// A chain, in the order of its rules. The last one is its policy, or returns from it.
#[derive(Default)]
struct Chain {
    name: String,
    rules: Vec<Rule>,
}

#[derive(Default)]
struct Rule {
    /// Those that [`effect`] knows.
    statements: BTreeSet<String>,
    /// The place where it goes on, which is where a chain begins or just the next rule.
    to: Option<usize>,
}

/// What a forwarded packet may meet; none if the entries do not make a table.
pub(super) fn statements(table: &Table) -> Option<Vec<Statement>> {
    // Only the first packet of a connection meets the rules of this table; it is never fast.
    if table.name == "nat" {
        return Some(Vec::new());
    }
    let hooks = table.info.chains();
    let chains = chains(table, &hooks)?;
    let mut next: Vec<usize> =
        hooks.iter().filter(|(_, hook)| ON_PATH.contains(hook)).map(|(at, _)| *at).collect();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    while let Some(at) = next.pop() {
        let Some(chain) = chains.get(&at) else { continue };
        if !seen.insert(at) {
            continue;
        }
        next.extend(chain.rules.iter().filter_map(|rule| rule.to));
        for (rule, number) in chain.rules.iter().zip(1..) {
            found.extend(rule.statements.iter().map(|name| Statement {
                family: if table.family == Family::V4 { "ip" } else { "ip6" }.to_owned(),
                table: table.name.clone(),
                chain: chain.name.clone(),
                handle: number,
                legacy: true,
                name: name.clone(),
                devices: Vec::new(),
            }));
        }
    }
    Some(found)
}

/// All chains by the place of their first rule.
fn chains(table: &Table, hooks: &BTreeMap<usize, usize>) -> Option<BTreeMap<usize, Chain>> {
    let mut chains: BTreeMap<usize, Chain> = BTreeMap::new();
    let mut user: Option<String> = None;
    for entry in entries(table.family, &table.entries)? {
        let name = text(&entry.target[2..EXTENSION_BYTES - 1]);
        if name == "ERROR" {
            // It begins a chain of the user, whose name it has, or ends the table.
            user = Some(text(entry.target.get(EXTENSION_BYTES..)?));
            continue;
        }
        let begins = hooks.get(&entry.offset).map(|hook| HOOKS[*hook].to_owned()).or_else(|| user.take());
        if let Some(name) = begins {
            chains.insert(entry.offset, Chain { name, rules: Vec::new() });
        }
        chains.last_entry()?.get_mut().rules.push(rule(&entry, &name)?);
    }
    Some(chains)
}

fn rule(entry: &Entry, target: &str) -> Option<Rule> {
    let mut rule = Rule::default();
    let mut state = |name: &str| {
        if effect(name).is_some() {
            rule.statements.insert(name.to_owned());
        }
    };
    let mut rest = entry.matches;
    while !rest.is_empty() {
        let length = u16_at(rest, 0)? as usize;
        let one = rest.get(..length).filter(|one| one.len() >= EXTENSION_BYTES)?;
        state(&text(&one[2..EXTENSION_BYTES - 1]));
        rest = &rest[length..];
    }
    if !target.is_empty() {
        state(target);
        return Some(rule);
    }
    match u32_at(entry.target, EXTENSION_BYTES)? as i32 {
        QUEUE => state("QUEUE"),
        verdict => rule.to = usize::try_from(verdict).ok(),
    }
    Some(rule)
}

/// Up to the first 0.
fn text(bytes: &[u8]) -> String {
    let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}
