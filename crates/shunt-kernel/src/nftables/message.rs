//! Parses nftables messages into chains, rules and sets. Expressions are recognised by their names.

use super::{
    ObjectName,
    conditions::{Conditions, Element, verdict},
    family::NFPROTO_BRIDGE,
    lookups::{ANONYMOUS, INTERVAL},
};
use crate::{
    netlink_message::{Attrs, Batch},
    xtables,
};
use shunt_core::{Effect, effect};
use std::time::Duration;

/// The size of struct nfgenmsg, whose first byte is the family.
pub(super) const FIXED_BYTES: usize = 4;

/// NFT_DATA_VERDICT.
const VERDICTS: u32 = 0xffff_ff00;
const NF_QUEUE: u32 = 3;

/// A chain.
#[derive(Debug)]
pub(super) struct Chain {
    pub at: ObjectName,
    /// `None` if it is not a base chain.
    pub hook: Option<Hook>,
    /// Whether packets that reach its end are dropped.
    pub drops: bool,
}

/// The hook of a base chain.
#[derive(Debug)]
pub(super) struct Hook {
    /// NF_INET_*, NF_BR_* or NF_NETDEV_*, by the family of the chain.
    pub number: u32,
    pub priority: i32,
    /// `filter`, `route` or `nat`.
    pub kind: String,
    /// The devices of a netdev or ingress chain. A name that ends in `*` is a prefix.
    pub devices: Vec<String>,
}

/// A rule that has effects or a verdict.
#[derive(Debug)]
pub(super) struct Rule {
    pub chain: ObjectName,
    pub handle: u64,
    pub effects: RuleEffects,
    pub conditions: Conditions,
}

/// A set or map.
#[derive(Debug)]
pub(super) struct Set {
    /// Whether it is a map of verdicts, which may lead to chains.
    pub has_verdicts: bool,
    /// NFT_SET_* flags.
    pub flags: u32,
    pub key_bytes: u32,
    /// The time after which an element leaves the set, unless a rule or the element has another one.
    pub timeout: Option<Duration>,
    pub effects: RuleEffects,
    /// The elements of an anonymous set, which never change, if they were read.
    pub elements: Vec<Element>,
}

/// The effects of a rule or set on a packet.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RuleEffects {
    /// The statements that [`effect`] knows.
    pub statements: Vec<String>,
    /// The chains that verdicts jump or go to.
    pub chains: Vec<String>,
    /// The sets in which values are looked up.
    pub sets: Vec<String>,
    /// The set whose elements are refreshed, with the timeout of the rule.
    pub refreshes: Option<(String, Option<Duration>)>,
}

impl Set {
    /// Whether it is a list of single values that never changes.
    pub fn is_constant(&self) -> bool {
        self.flags & ANONYMOUS != 0 && self.flags & INTERVAL == 0
    }
}

impl RuleEffects {
    pub fn extend(&mut self, more: Self) {
        self.statements.extend(more.statements);
        self.chains.extend(more.chains);
        self.sets.extend(more.sets);
        self.refreshes = self.refreshes.take().or(more.refreshes);
    }

    fn add_statement(&mut self, name: &str) {
        if effect(name).is_some() && !self.statements.iter().any(|have| have == name) {
            self.statements.push(name.to_owned());
        }
    }

    /// Drops the statements that only matter in tables of bridges. In other families every connection is tracked
    /// anyway.
    fn restricted_to(mut self, family: Option<&u8>) -> Self {
        if family != Some(&NFPROTO_BRIDGE) {
            self.statements.retain(|name| effect(name) != Some(Effect::Tracks));
        }
        self
    }

    /// Adds a list of expressions (NFTA_LIST_ELEM).
    fn add_expressions(&mut self, list: Attrs) {
        for (_, expression) in list {
            self.add_expression(Attrs::new(expression));
        }
    }

    fn add_expression(&mut self, expression: Attrs) {
        const NAME: u16 = 1;
        const DATA: u16 = 2;
        let data = expression.nested(DATA);
        match expression.text(NAME).as_deref() {
            // NFTA_IMMEDIATE_DATA
            Some("immediate") => self.add_verdict(data.nested(2)),
            // NFTA_LOOKUP_SET
            Some("lookup") => self.sets.extend(data.text(1)),
            // NFTA_DYNSET_SET_NAME, _OP, _TIMEOUT, _EXPR, _EXPRESSIONS; NFT_DYNSET_OP_UPDATE
            Some("dynset") => {
                self.sets.extend(data.text(1));
                if data.be32(3) == Some(1) {
                    self.add_statement("update");
                    self.refreshes = data.text(1).map(|set| (set, timeout(data, 6)));
                }
                self.add_expression(data.nested(7));
                self.add_expressions(data.nested(10));
            }
            // NFTA_OBJREF_IMM_TYPE, _SET_NAME
            Some("objref") => match data.be32(1) {
                Some(kind) => self.add_object(kind),
                None => self.sets.extend(data.text(4)),
            },
            // NFTA_TARGET_NAME, NFTA_MATCH_NAME: extensions of iptables
            Some(kind @ ("target" | "match")) => {
                let name = data.text(1).unwrap_or_default();
                if name == "connlimit" {
                    self.add_statement("ct");
                }
                self.add_statement(&name);
                // NFTA_TARGET_INFO, NFTA_MATCH_REV, _INFO
                let info = data.get(3).unwrap_or_default();
                let by_options = match kind {
                    "target" => xtables::by_options(&name, info),
                    _ => xtables::by_match(&name, data.be32(2).unwrap_or_default(), info),
                };
                if let Some(by_options) = by_options {
                    self.add_statement(by_options);
                }
            }
            // NFTA_CT_KEY
            Some("ct") => {
                self.add_statement("ct");
                match data.be32(2) {
                    Some(14) => self.add_statement("ct packets"),
                    Some(15) => self.add_statement("ct bytes"),
                    Some(16) => self.add_statement("ct avgpkt"),
                    Some(18) => self.add_statement("ct event"),
                    _ => {}
                }
            }
            Some("connlimit") => {
                self.add_statement("ct");
                self.add_statement("ct count");
            }
            // NFTA_META_KEY, _SREG: NFT_META_PRANDOM, NFT_META_NFTRACE
            Some("meta") if data.be32(2) == Some(24) => self.add_statement("meta random"),
            Some("meta") if data.be32(2) == Some(12) && data.has(3) => self.add_statement("meta nftrace"),
            Some(name) => self.add_statement(name),
            None => {}
        }
    }

    /// Adds the statement of an object (NFT_OBJECT_*).
    fn add_object(&mut self, kind: u32) {
        match kind {
            1 => self.add_statement("counter"),
            2 => self.add_statement("quota"),
            4 => self.add_statement("limit"),
            5 => self.add_statement("ct count"),
            10 => self.add_statement("synproxy"),
            _ => {}
        }
    }

    /// Adds the chain or queue of a verdict. Data that is not a verdict adds nothing.
    fn add_verdict(&mut self, data: Attrs) {
        const VERDICT: u16 = 2;
        const CODE: u16 = 1;
        const CHAIN: u16 = 2;
        let verdict = data.nested(VERDICT);
        self.chains.extend(verdict.text(CHAIN));
        // Verdicts of nftables itself (jump, return, ...) are negative. NF_QUEUE has the queue's number in its upper
        // half.
        if verdict.be32(CODE).is_some_and(|code| code & 0x8000_0000 == 0 && code & 0xff == NF_QUEUE) {
            self.add_statement("queue");
        }
    }
}

pub(super) fn chain(payload: &[u8]) -> Option<Chain> {
    const TABLE: u16 = 1;
    const NAME: u16 = 3;
    const HOOK: u16 = 4;
    const POLICY: u16 = 5;
    const TYPE: u16 = 7;
    const NF_DROP: u32 = 0;
    let attrs = Attrs::after(payload, FIXED_BYTES);
    let hook = attrs.has(HOOK).then(|| hook(attrs.nested(HOOK), attrs.text(TYPE).unwrap_or_default()));
    Some(Chain { at: place(payload, TABLE, NAME)?, hook, drops: attrs.be32(POLICY) == Some(NF_DROP) })
}

fn hook(attrs: Attrs, kind: String) -> Hook {
    const NUMBER: u16 = 1;
    const PRIORITY: u16 = 2;
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
    Hook {
        number: attrs.be32(NUMBER).unwrap_or_default(),
        priority: attrs.be32(PRIORITY).unwrap_or_default() as i32,
        kind,
        devices,
    }
}

/// The chain and the expressions of a rule.
pub(super) fn expressions(payload: &[u8]) -> Option<(ObjectName, Attrs<'_>)> {
    const TABLE: u16 = 1;
    const CHAIN: u16 = 2;
    const EXPRESSIONS: u16 = 4;
    Some((place(payload, TABLE, CHAIN)?, Attrs::after(payload, FIXED_BYTES).nested(EXPRESSIONS)))
}

pub(super) fn rule(payload: &[u8]) -> Option<Rule> {
    const HANDLE: u16 = 3;
    let (chain, list) = expressions(payload)?;
    let attrs = Attrs::after(payload, FIXED_BYTES);
    let mut effects = RuleEffects::default();
    effects.add_expressions(list);
    let mut effects = effects.restricted_to(payload.first());
    let conditions = Conditions::read(chain.family, list);
    if let Some(name) = conditions.rewrites {
        effects.add_statement(name);
    }
    if effects == RuleEffects::default() && conditions.verdict.is_none() && conditions.map.is_none() {
        return None;
    }
    Some(Rule { chain, handle: attrs.be64(HANDLE)?, effects, conditions })
}

pub(super) fn set(payload: &[u8]) -> Option<(ObjectName, Set)> {
    const TABLE: u16 = 1;
    const NAME: u16 = 2;
    const FLAGS: u16 = 3;
    const KEY_LEN: u16 = 5;
    const DATA_TYPE: u16 = 6;
    const TIMEOUT: u16 = 11;
    const OBJECT_TYPE: u16 = 15;
    const EXPRESSION: u16 = 17;
    const EXPRESSIONS: u16 = 18;
    let attrs = Attrs::after(payload, FIXED_BYTES);
    let mut effects = RuleEffects::default();
    effects.add_object(attrs.be32(OBJECT_TYPE).unwrap_or_default());
    effects.add_expression(attrs.nested(EXPRESSION));
    effects.add_expressions(attrs.nested(EXPRESSIONS));
    let has_verdicts = attrs.be32(DATA_TYPE) == Some(VERDICTS);
    let set = Set {
        has_verdicts,
        flags: attrs.be32(FLAGS).unwrap_or_default(),
        key_bytes: attrs.be32(KEY_LEN).unwrap_or_default(),
        timeout: timeout(attrs, TIMEOUT),
        effects: effects.restricted_to(payload.first()),
        elements: Vec::new(),
    };
    Some((place(payload, TABLE, NAME)?, set))
}

const ELEMENTS_TABLE: u16 = 1;
const ELEMENTS_SET: u16 = 2;

/// The set of an element message, what its elements do, and the elements.
pub(super) fn elements(payload: &[u8]) -> Option<(ObjectName, RuleEffects, Vec<Element>)> {
    const ELEMENTS: u16 = 3;
    const KEY: u16 = 1;
    const DATA: u16 = 2;
    const VALUE: u16 = 1;
    let mut effects = RuleEffects::default();
    let mut elements = Vec::new();
    for (_, element) in Attrs::after(payload, FIXED_BYTES).nested(ELEMENTS) {
        let element = Attrs::new(element);
        effects.add_verdict(element.nested(DATA));
        elements.push(Element {
            key: element.nested(KEY).get(VALUE).unwrap_or_default().to_owned(),
            verdict: verdict(element.nested(DATA)),
        });
    }
    Some((place(payload, ELEMENTS_TABLE, ELEMENTS_SET)?, effects, elements))
}

/// A timeout in milliseconds.
fn timeout(attrs: Attrs, kind: u16) -> Option<Duration> {
    attrs.be64(kind).filter(|ms| *ms > 0).map(Duration::from_millis)
}

/// Whether the elements of a message lead to chains or queues. A message that cannot be parsed counts as such.
pub(super) fn leads_to_chains(payload: &[u8]) -> bool {
    elements(payload).is_none_or(|(_, effects, _)| effects != RuleEffects::default())
}

/// The low bits of the generation that a message is about.
pub(super) fn generation(payload: &[u8]) -> Option<u16> {
    // nfgenmsg.res_id
    Some(u16::from_be_bytes(payload.get(2..FIXED_BYTES)?.try_into().ok()?))
}

/// Writes the attributes that name a set in a request.
pub(super) fn set_attributes(table: &str, set: &str) -> impl Fn(&mut Batch) {
    let text = |name: &str| [name.as_bytes(), &[0]].concat();
    let (table, set) = (text(table), text(set));
    move |batch| {
        batch.put(ELEMENTS_TABLE, &table);
        batch.put(ELEMENTS_SET, &set);
    }
}

fn place(payload: &[u8], table: u16, name: u16) -> Option<ObjectName> {
    let attrs = Attrs::after(payload, FIXED_BYTES);
    Some(ObjectName { family: *payload.first()?, table: attrs.text(table)?, name: attrs.text(name)? })
}
