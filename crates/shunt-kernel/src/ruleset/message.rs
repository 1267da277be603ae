//! nftables messages to chains, rules and sets. Expressions are known by their names.

use super::{Place, path::NFPROTO_BRIDGE};
use crate::wire::{Attrs, Batch};
use shunt_core::{Effect, effect};

/// struct nfgenmsg: the family comes first.
pub(super) const FIXED_BYTES: usize = 4;

/// NFT_DATA_VERDICT.
const VERDICTS: u32 = 0xffff_ff00;
const NF_QUEUE: u32 = 3;

/// A chain, and where it is hooked in if it is a base chain.
#[derive(Debug)]
pub(super) struct Chain {
    pub at: Place,
    pub hook: Option<Hook>,
}

#[derive(Debug)]
pub(super) struct Hook {
    pub number: u32,
    /// `filter`, `route` or `nat`.
    pub kind: String,
    /// Of netdev chains and ingress; a name that ends in `*` is a prefix.
    pub devices: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Rule {
    pub chain: Place,
    pub handle: u64,
    pub does: Does,
}

#[derive(Debug)]
pub(super) struct Set {
    /// It is a map to verdicts, which may lead to chains.
    pub has_verdicts: bool,
    pub does: Does,
}

/// What a rule or a set does to a packet.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Does {
    /// Those that [`effect`] knows.
    pub statements: Vec<String>,
    /// The chains that it jumps or goes to.
    pub chains: Vec<String>,
    /// The sets that it looks something up in.
    pub sets: Vec<String>,
}

impl Does {
    pub fn extend(&mut self, more: Self) {
        self.statements.extend(more.statements);
        self.chains.extend(more.chains);
        self.sets.extend(more.sets);
    }

    fn state(&mut self, name: &str) {
        if effect(name).is_some() && !self.statements.iter().any(|have| have == name) {
            self.statements.push(name.to_owned());
        }
    }

    /// Outside of bridges conntrack is asked of each connection, and it does not matter which rules do so, too.
    fn of_family(mut self, family: Option<&u8>) -> Self {
        if family != Some(&NFPROTO_BRIDGE) {
            self.statements.retain(|name| effect(name) != Some(Effect::Tracks));
        }
        self
    }

    /// NFTA_LIST_ELEM: one expression after the other.
    fn expressions(&mut self, list: Attrs) {
        for (_, one) in list {
            self.expression(Attrs::of(one));
        }
    }

    fn expression(&mut self, expression: Attrs) {
        const NAME: u16 = 1;
        const DATA: u16 = 2;
        let data = expression.nested(DATA);
        match expression.text(NAME).as_deref() {
            // NFTA_IMMEDIATE_DATA
            Some("immediate") => self.verdict(data.nested(2)),
            // NFTA_LOOKUP_SET
            Some("lookup") => self.sets.extend(data.text(1)),
            // NFTA_DYNSET_SET_NAME, _EXPR, _EXPRESSIONS
            Some("dynset") => {
                self.sets.extend(data.text(1));
                self.expression(data.nested(7));
                self.expressions(data.nested(10));
            }
            // NFTA_OBJREF_IMM_TYPE, _SET_NAME
            Some("objref") => match data.be32(1) {
                Some(kind) => self.object(kind),
                None => self.sets.extend(data.text(4)),
            },
            // NFTA_TARGET_NAME, NFTA_MATCH_NAME: of iptables
            Some("target" | "match") => self.state(&data.text(1).unwrap_or_default()),
            // NFTA_CT_KEY
            Some("ct") => {
                self.state("ct");
                match data.be32(2) {
                    Some(14) => self.state("ct packets"),
                    Some(15) => self.state("ct bytes"),
                    Some(16) => self.state("ct avgpkt"),
                    _ => {}
                }
            }
            // NFTA_META_KEY: NFT_META_PRANDOM
            Some("meta") if data.be32(2) == Some(24) => self.state("meta random"),
            Some(name) => self.state(name),
            None => {}
        }
    }

    /// NFT_OBJECT_*.
    fn object(&mut self, kind: u32) {
        match kind {
            1 => self.state("counter"),
            2 => self.state("quota"),
            4 => self.state("limit"),
            10 => self.state("synproxy"),
            _ => {}
        }
    }

    /// Nft data that may be a verdict: to another chain, or to user space.
    fn verdict(&mut self, data: Attrs) {
        const VERDICT: u16 = 2;
        const CODE: u16 = 1;
        const CHAIN: u16 = 2;
        let verdict = data.nested(VERDICT);
        self.chains.extend(verdict.text(CHAIN));
        // Those of nftables itself (jump, return, ...) are negative; the others have a queue's number above the verdict.
        if verdict.be32(CODE).is_some_and(|code| code & 0x8000_0000 == 0 && code & 0xff == NF_QUEUE) {
            self.state("queue");
        }
    }
}

pub(super) fn chain(payload: &[u8]) -> Option<Chain> {
    const TABLE: u16 = 1;
    const NAME: u16 = 3;
    const HOOK: u16 = 4;
    const TYPE: u16 = 7;
    let attrs = Attrs::after(payload, FIXED_BYTES);
    let hook = attrs.has(HOOK).then(|| hook(attrs.nested(HOOK), attrs.text(TYPE).unwrap_or_default()));
    Some(Chain { at: place(payload, TABLE, NAME)?, hook })
}

fn hook(attrs: Attrs, kind: String) -> Hook {
    const NUMBER: u16 = 1;
    const DEVICE: u16 = 3;
    const DEVICES: u16 = 4;
    const PREFIX: u16 = 2;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned();
    let listed = attrs
        .nested(DEVICES)
        .into_iter()
        .map(|(kind, name)| if kind == PREFIX { format!("{}*", text(name)) } else { text(name) });
    let mut devices: Vec<String> = listed.collect();
    if devices.is_empty() {
        devices.extend(attrs.text(DEVICE));
    }
    Hook { number: attrs.be32(NUMBER).unwrap_or_default(), kind, devices }
}

pub(super) fn rule(payload: &[u8]) -> Option<Rule> {
    const TABLE: u16 = 1;
    const CHAIN: u16 = 2;
    const HANDLE: u16 = 3;
    const EXPRESSIONS: u16 = 4;
    let attrs = Attrs::after(payload, FIXED_BYTES);
    let mut does = Does::default();
    does.expressions(attrs.nested(EXPRESSIONS));
    let does = does.of_family(payload.first());
    // Most rules of a large ruleset only match and drop.
    if does == Does::default() {
        return None;
    }
    Some(Rule { chain: place(payload, TABLE, CHAIN)?, handle: attrs.be64(HANDLE)?, does })
}

pub(super) fn set(payload: &[u8]) -> Option<(Place, Set)> {
    const TABLE: u16 = 1;
    const NAME: u16 = 2;
    const DATA_TYPE: u16 = 6;
    const OBJECT_TYPE: u16 = 15;
    const EXPRESSION: u16 = 17;
    const EXPRESSIONS: u16 = 18;
    let attrs = Attrs::after(payload, FIXED_BYTES);
    let mut does = Does::default();
    does.object(attrs.be32(OBJECT_TYPE).unwrap_or_default());
    does.expression(attrs.nested(EXPRESSION));
    does.expressions(attrs.nested(EXPRESSIONS));
    let has_verdicts = attrs.be32(DATA_TYPE) == Some(VERDICTS);
    Some((place(payload, TABLE, NAME)?, Set { has_verdicts, does: does.of_family(payload.first()) }))
}

const ELEMENTS_TABLE: u16 = 1;
const ELEMENTS_SET: u16 = 2;

/// What the elements of a set lead to, and which set that is.
pub(super) fn elements(payload: &[u8]) -> Option<(Place, Does)> {
    const ELEMENTS: u16 = 3;
    const DATA: u16 = 2;
    let mut does = Does::default();
    for (_, element) in Attrs::after(payload, FIXED_BYTES).nested(ELEMENTS) {
        does.verdict(Attrs::of(element).nested(DATA));
    }
    Some((place(payload, ELEMENTS_TABLE, ELEMENTS_SET)?, does))
}

/// Whether elements are of a map of verdicts, and change more than accept and drop. Those that cannot be read may.
pub(super) fn leads_to_chains(payload: &[u8]) -> bool {
    elements(payload).is_none_or(|(_, does)| does != Does::default())
}

/// The attributes that ask for the elements of a set.
pub(super) fn of_set(table: &str, set: &str) -> impl Fn(&mut Batch) {
    let text = |name: &str| [name.as_bytes(), &[0]].concat();
    let (table, set) = (text(table), text(set));
    move |batch| {
        batch.put(ELEMENTS_TABLE, &table);
        batch.put(ELEMENTS_SET, &set);
    }
}

fn place(payload: &[u8], table: u16, name: u16) -> Option<Place> {
    let attrs = Attrs::after(payload, FIXED_BYTES);
    Some(Place { family: *payload.first()?, table: attrs.text(table)?, name: attrs.text(name)? })
}
