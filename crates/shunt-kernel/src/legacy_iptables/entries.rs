//! Parses the entries of a table: struct ipt_entry and struct ip6t_entry, each followed by its matches and its target.

use super::{Family, Table};
use crate::{
    netlink_message::{u16_at, u32_at},
    packet_path::{self, Branch, Findings, Matched, Outcome, Verdict},
    xtables,
};
use shunt_core::{Effect, Statement, Traffic, effect};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// XT_TABLE_MAXNAMELEN.
const NAME_BYTES: usize = 32;
/// The alignment of structures with 64-bit counters, as in C on this machine.
const ALIGN: usize = align_of::<u64>();
/// The size of struct ipt_get_entries without the entries.
pub(super) const HEAD_BYTES: usize = (NAME_BYTES + 4).next_multiple_of(ALIGN);
/// The size of struct ipt_getinfo: name, mask of hooks, first and last entry of each hook, number of entries and of
/// bytes.
pub const INFO_BYTES: usize = NAME_BYTES + 4 * (1 + 2 * HOOKS.len() + 2);

const COUNTERS_BYTES: usize = 16;
/// The size of struct xt_entry_match and struct xt_entry_target without their data: length, name, revision.
const EXTENSION_BYTES: usize = 32;

/// The hooks, by their NF_INET_* numbers.
const HOOKS: [&str; 5] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];
/// The hooks that forwarded packets pass.
const ON_PATH: [usize; 3] = [0, 2, 4];

/// Verdicts: -NF_DROP - 1, -NF_ACCEPT - 1, -NF_QUEUE - 1, and XT_RETURN. A verdict that is not negative is the offset
/// of the entry to continue at.
const DROP: i32 = -1;
const ACCEPT: i32 = -2;
const QUEUE: i32 = -4;
const RETURN: i32 = -5;

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

/// An entry: its offset, conditions and target.
struct Entry<'t> {
    offset: usize,
    /// struct ipt_ip or ip6t_ip6.
    head: &'t [u8],
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
        found.push(Entry { offset, head: entry.get(..offsets_at(family))?, matches, target });
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

    /// Whether the table has no rules and no chains of a user, and accepts everything, as a new one.
    pub(super) fn is_empty(&self) -> bool {
        let entries = entries(self.family, &self.entries).unwrap_or_default();
        let Some((_end, policies)) = entries.split_last() else { return false };
        let hooks = self.info.base_chains();
        let accepts = |entry: &Entry<'_>| {
            entry.matches.is_empty()
                && entry.target.get(2..EXTENSION_BYTES).is_some_and(|name| name[0] == 0)
                && u32_at(entry.target, EXTENSION_BYTES).map(|verdict| verdict as i32) == Some(ACCEPT)
        };
        policies.len() == hooks.len()
            && policies.iter().all(|entry| hooks.contains_key(&entry.offset) && accepts(entry))
    }
}

/// A chain with its rules in order. The last rule is the policy of a base chain, or the return from a user's chain.
#[derive(Default)]
struct Chain {
    name: String,
    rules: Vec<Rule>,
}

struct Rule {
    /// The matches and targets that [`effect`] knows.
    statements: BTreeSet<String>,
    /// The traffic that meets its conditions, other than those on conntrack's state.
    fields: Matched,
    /// The traffic that meets its conditions on conntrack's state, in chains that come after conntrack.
    state: Matched,
    /// `None` if packets continue with the next rule. The offset of a jump is the beginning of a chain, or just the
    /// next rule.
    verdict: Option<Verdict<usize>>,
    /// Whether it sets a mark or changes a set.
    changes: bool,
}

/// The statements that a forwarded packet may meet; `None` if the entries do not make a table.
pub(super) fn statements(table: &Table) -> Option<Vec<Statement>> {
    // Only the first packet of a connection meets the rules of nat, and that packet is never fast.
    if table.name == "nat" {
        return Some(Vec::new());
    }
    let hooks = table.info.base_chains();
    let chains = chains(table, &hooks)?;
    let findings = follow(table, &hooks, &chains);
    let mut next: Vec<usize> =
        hooks.iter().filter(|(_, hook)| ON_PATH.contains(hook)).map(|(at, _)| *at).collect();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    while let Some(at) = next.pop() {
        let Some(chain) = chains.get(&at) else { continue };
        if !seen.insert(at) {
            continue;
        }
        next.extend(chain.rules.iter().filter_map(Rule::jump));
        for (index, rule) in chain.rules.iter().enumerate() {
            found.extend(rule.statements.iter().map(|name| Statement {
                family: if table.family == Family::V4 { "ip" } else { "ip6" }.to_owned(),
                table: table.name.clone(),
                chain: chain.name.clone(),
                handle: index as u64 + 1,
                legacy: true,
                name: name.clone(),
                concerns: concerns(name, (at, index), &findings),
                ..Statement::default()
            }));
        }
    }
    Some(found)
}

/// The traffic that a statement concerns, by what was found from each base chain.
fn concerns(statement: &str, at: (usize, usize), findings: &[Findings<usize>]) -> Traffic {
    let found = findings.iter().filter_map(|findings| findings.get(&at));
    found.fold(Traffic::NONE, |all, finding| all | packet_path::concerns(statement, *finding))
}

/// Follows all traffic from each base chain, if the effect of any rule depends on the traffic that meets the rule.
fn follow(
    table: &Table,
    hooks: &BTreeMap<usize, usize>,
    chains: &BTreeMap<usize, Chain>,
) -> Vec<Findings<usize>> {
    let statements = chains.values().flat_map(|chain| &chain.rules).flat_map(|rule| &rule.statements);
    if !statements.clone().any(|name| packet_path::is_about_traffic(name)) {
        return Vec::new();
    }
    let from = |(&base, &hook): (&usize, &usize)| {
        let has_state = table.name != "raw" || HOOKS[hook] != "PREROUTING";
        let rules = |chain: &Chain| chain.rules.iter().map(|rule| rule.for_path(has_state, chains)).collect();
        let by_chain: HashMap<usize, Vec<_>> = chains.iter().map(|(at, chain)| (*at, rules(chain))).collect();
        let policy = chains.get(&base).and_then(|chain| chain.rules.last()?.verdict);
        let policy = if policy == Some(Verdict::Drop) { Outcome::DROP } else { Outcome::PASS };
        packet_path::follow(base, policy, &by_chain)
    };
    hooks.iter().filter(|(_, hook)| ON_PATH.contains(hook)).map(from).collect()
}

impl Rule {
    fn jump(&self) -> Option<usize> {
        match self.verdict {
            Some(Verdict::Jump(to) | Verdict::Goto(to)) => Some(to),
            _ => None,
        }
    }

    /// The rule as [`packet_path`] knows rules.
    fn for_path(&self, has_state: bool, chains: &BTreeMap<usize, Chain>) -> packet_path::Rule<usize> {
        let state = if has_state || self.state == Matched::ALL { self.state } else { Matched::UNKNOWN };
        let limits = self.statements.iter().any(|name| effect(name) == Some(Effect::Limits));
        // A limit may match or not, and packets may continue behind an unknown verdict.
        let doubt =
            if limits || self.verdict == Some(Verdict::Unknown) { Matched::UNKNOWN } else { Matched::ALL };
        let matched = self.fields.and(state).and(doubt);
        let verdict = self.verdict.filter(|_| self.jump().is_none_or(|to| chains.contains_key(&to)));
        let branches = verdict.map(|verdict| Branch { matched, verdict }).into_iter().collect();
        packet_path::Rule { may: matched.may, branches, limits, changes: self.changes }
    }
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
        chains.last_entry()?.get_mut().rules.push(rule(table.family, &entry, &name)?);
    }
    Some(chains)
}

/// The rule of an entry; `None` if a match has an impossible length.
fn rule(family: Family, entry: &Entry, target: &str) -> Option<Rule> {
    let head = Head::read(family, entry.head)?;
    let mut rule = Rule {
        statements: BTreeSet::new(),
        fields: head.matched,
        state: Matched::ALL,
        verdict: None,
        changes: false,
    };
    let mut rest = entry.matches;
    while !rest.is_empty() {
        let length = u16_at(rest, 0)? as usize;
        let extension = rest.get(..length).filter(|extension| extension.len() >= EXTENSION_BYTES)?;
        let name = text(&extension[2..EXTENSION_BYTES - 1]);
        let revision = u32::from(extension[EXTENSION_BYTES - 1]);
        let (fields, state) = xtables::matched(&name, revision, &extension[EXTENSION_BYTES..]);
        rule.fields = rule.fields.and(fields);
        rule.state = rule.state.and(state);
        rule.add_statement(&name);
        if let Some(name) = xtables::by_match(&name, revision, &extension[EXTENSION_BYTES..]) {
            rule.add_statement(name);
        }
        rest = &rest[length..];
    }
    if !target.is_empty() {
        rule.add_statement(target);
        if let Some(name) = xtables::by_options(target, &entry.target[EXTENSION_BYTES..]) {
            rule.add_statement(name);
        }
        let target = xtables::target(target);
        rule.verdict = target.verdict;
        rule.changes = target.changes;
        return Some(rule);
    }
    rule.verdict = match u32_at(entry.target, EXTENSION_BYTES)? as i32 {
        QUEUE => {
            rule.add_statement("QUEUE");
            Some(Verdict::Unknown)
        }
        DROP => Some(Verdict::Drop),
        ACCEPT => Some(Verdict::Accept),
        RETURN => Some(Verdict::Return),
        verdict => match usize::try_from(verdict) {
            Ok(to) if head.goes => Some(Verdict::Goto(to)),
            Ok(to) => Some(Verdict::Jump(to)),
            Err(_) => Some(Verdict::Unknown),
        },
    };
    Some(rule)
}

impl Rule {
    fn add_statement(&mut self, name: &str) {
        if effect(name).is_some() {
            self.statements.insert(name.to_owned());
        }
    }
}

/// What struct ipt_ip or ip6t_ip6 says: addresses, their masks, names of devices, their masks, protocol, flags.
struct Head {
    matched: Matched,
    /// Whether a jump does not come back.
    goes: bool,
}

impl Head {
    fn read(family: Family, head: &[u8]) -> Option<Self> {
        const INVERTED_PROTOCOL: u8 = 0x40;
        let (addresses, devices, protocol, flags, goto, traffic) = match family {
            Family::V4 => (8..16, 48..80, 80, 82, 0x02, Traffic::V4),
            Family::V6 => (32..64, 96..128, 128, 131, 0x04, Traffic::V6),
        };
        let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        let (flags, inverted) = (*head.get(flags)?, *head.get(flags + 1)?);
        let of_protocol = match u16_at(head, protocol)? {
            0 => Traffic::ALL,
            6 => Traffic::TCP,
            17 => Traffic::UDP,
            _ => Traffic::NONE,
        };
        let of_protocol = Matched { may: of_protocol, sure: of_protocol };
        let of_protocol = if inverted & INVERTED_PROTOCOL != 0 { of_protocol.not() } else { of_protocol };
        // The other flags are conditions on fragments and on the TOS; IP6T_F_PROTO says that there is a protocol.
        let others = flags & !goto & if family == Family::V6 { !0x01 } else { !0 };
        let is_any = is_zero(head.get(addresses)?)
            && is_zero(head.get(devices)?)
            && inverted & !INVERTED_PROTOCOL == 0
            && others == 0;
        let rest = if is_any { Matched::ALL } else { Matched::UNKNOWN };
        let matched = Matched { may: traffic, sure: Traffic::ALL }.and(of_protocol).and(rest);
        Some(Self { matched, goes: flags & goto != 0 })
    }
}

/// The text up to the first 0 byte.
fn text(bytes: &[u8]) -> String {
    let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}
