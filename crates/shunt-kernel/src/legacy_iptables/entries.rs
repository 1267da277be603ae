//! Parses the entries of a table: struct ipt_entry and struct ip6t_entry, each followed by its matches and its target.

use super::{Family, Table};
use crate::netlink_message::{u16_at, u32_at};
use shunt_core::{Statement, effect};
use std::collections::{BTreeMap, BTreeSet};

/// XT_TABLE_MAXNAMELEN.
const NAME_BYTES: usize = 32;
/// The alignment of structures with 64-bit counters, as in C on this machine.
const ALIGN: usize = align_of::<u64>();
/// The size of struct ipt_get_entries without the entries.
pub(super) const HEAD_BYTES: usize = (NAME_BYTES + 4).next_multiple_of(ALIGN);
/// The size of struct ipt_getinfo: name, mask of hooks, first and last entry of each hook, number of entries and of
/// bytes.
pub(crate) const INFO_BYTES: usize = NAME_BYTES + 4 * (1 + 2 * HOOKS.len() + 2);

const COUNTERS_BYTES: usize = 16;
/// The size of struct xt_entry_match and struct xt_entry_target without their data: length, name, revision.
const EXTENSION_BYTES: usize = 32;

/// The hooks, by their NF_INET_* numbers.
const HOOKS: [&str; 5] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];
/// The hooks that forwarded packets pass.
const ON_PATH: [usize; 3] = [0, 2, 4];

/// -NF_QUEUE - 1. A verdict that is not negative is the offset of the entry to continue at.
const QUEUE: i32 = -4;

/// The kernel's description of a table (struct ipt_getinfo).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Info(pub [u8; INFO_BYTES]);

impl Info {
    pub fn request(name: &str) -> Self {
        let mut info = [0; INFO_BYTES];
        put_name(name, &mut info);
        Self(info)
    }

    /// The size of all entries in bytes.
    pub fn size(&self) -> usize {
        u32_at(&self.0, INFO_BYTES - 4).unwrap_or_default() as usize
    }

    /// The hooks of base chains, by the offset of the first entry.
    fn base_chains(&self) -> BTreeMap<usize, usize> {
        let valid = u32_at(&self.0, NAME_BYTES).unwrap_or_default();
        let first_entry = |hook| Some((u32_at(&self.0, NAME_BYTES + 4 + 4 * hook)? as usize, hook));
        (0..HOOKS.len()).filter(|hook| valid & (1 << hook) != 0).filter_map(first_entry).collect()
    }
}

/// A buffer that requests a table's entries and has room for `size` bytes of them.
pub(super) fn entries_request(name: &str, size: usize) -> Vec<u8> {
    let mut buffer = vec![0; HEAD_BYTES + size];
    put_name(name, &mut buffer);
    buffer[NAME_BYTES..NAME_BYTES + 4].copy_from_slice(&(size as u32).to_ne_bytes());
    buffer
}

/// Writes a name of at most 31 bytes; the last byte of the field stays 0.
fn put_name(name: &str, buffer: &mut [u8]) {
    let bytes = &name.as_bytes()[..name.len().min(NAME_BYTES - 1)];
    buffer[..bytes.len()].copy_from_slice(bytes);
}

/// The offset of an entry's counters. Before them come struct ipt_ip or ip6t_ip6, nfcache, the offsets of the target
/// and of the next entry, and comefrom.
fn counters_at(family: Family) -> usize {
    (offsets_at(family) + 8).next_multiple_of(ALIGN)
}

fn offsets_at(family: Family) -> usize {
    match family {
        Family::V4 => 84 + 4,
        Family::V6 => 136 + 4,
    }
}

/// An entry: its offset, matches and target.
struct Entry<'t> {
    offset: usize,
    matches: &'t [u8],
    target: &'t [u8],
}

/// All entries; `None` if one has an impossible length.
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
        // Also ensures that every entry has a length, so that the loop ends.
        if target.len() < EXTENSION_BYTES {
            return None;
        }
        found.push(Entry { offset, matches, target });
        offset += next;
    }
    Some(found)
}

impl Table {
    /// Sets all counters to 0: a packet that is counted does not change the rules. `None` if the entries do not make a
    /// table.
    pub(super) fn clear_counters(&mut self) -> Option<()> {
        let at = counters_at(self.family);
        let offsets: Vec<usize> = entries(self.family, &self.entries)?.iter().map(|e| e.offset).collect();
        for offset in offsets {
            self.entries.get_mut(offset + at..offset + at + COUNTERS_BYTES)?.fill(0);
        }
        Some(())
    }
}

/// A chain with its rules in order. The last rule is the policy of a base chain, or the return from a user's chain.
#[derive(Default)]
struct Chain {
    name: String,
    rules: Vec<Rule>,
}

#[derive(Default)]
struct Rule {
    /// The matches and targets that [`effect`] knows.
    statements: BTreeSet<String>,
    /// The offset of the entry to continue at: the beginning of a chain, or just the next rule.
    jump: Option<usize>,
}

/// The statements that a forwarded packet may meet; `None` if the entries do not make a table.
pub(super) fn statements(table: &Table) -> Option<Vec<Statement>> {
    // Only the first packet of a connection meets the rules of nat, and that packet is never fast.
    if table.name == "nat" {
        return Some(Vec::new());
    }
    let hooks = table.info.base_chains();
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
        next.extend(chain.rules.iter().filter_map(|rule| rule.jump));
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

/// All chains, by the offset of their first rule; `None` if the entries do not make a table.
fn chains(table: &Table, hooks: &BTreeMap<usize, usize>) -> Option<BTreeMap<usize, Chain>> {
    let mut chains: BTreeMap<usize, Chain> = BTreeMap::new();
    let mut user: Option<String> = None;
    for entry in entries(table.family, &table.entries)? {
        let name = text(&entry.target[2..EXTENSION_BYTES - 1]);
        if name == "ERROR" {
            // The ERROR target begins a user's chain, and has its name, or ends the table.
            user = Some(text(entry.target.get(EXTENSION_BYTES..)?));
            continue;
        }
        let chain_name = hooks.get(&entry.offset).map(|hook| HOOKS[*hook].to_owned()).or_else(|| user.take());
        if let Some(name) = chain_name {
            chains.insert(entry.offset, Chain { name, rules: Vec::new() });
        }
        chains.last_entry()?.get_mut().rules.push(rule(&entry, &name)?);
    }
    Some(chains)
}

/// The statements and the jump of an entry; `None` if a match has an impossible length.
fn rule(entry: &Entry, target: &str) -> Option<Rule> {
    let mut rule = Rule::default();
    let mut add_statement = |name: &str| {
        if effect(name).is_some() {
            rule.statements.insert(name.to_owned());
        }
    };
    let mut rest = entry.matches;
    while !rest.is_empty() {
        let length = u16_at(rest, 0)? as usize;
        let extension = rest.get(..length).filter(|extension| extension.len() >= EXTENSION_BYTES)?;
        add_statement(&text(&extension[2..EXTENSION_BYTES - 1]));
        rest = &rest[length..];
    }
    if !target.is_empty() {
        add_statement(target);
        return Some(rule);
    }
    match u32_at(entry.target, EXTENSION_BYTES)? as i32 {
        QUEUE => add_statement("QUEUE"),
        verdict => rule.jump = usize::try_from(verdict).ok(),
    }
    Some(rule)
}

/// The text up to the first 0 byte.
fn text(bytes: &[u8]) -> String {
    let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}
