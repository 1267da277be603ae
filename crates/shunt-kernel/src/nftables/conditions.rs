//! The conditions of a rule that tell kinds of traffic apart: protocol, address family, `ct state` and TCP flags; and
//! its verdict.
//!
//! Rules load fields of the packet into registers and compare them. This follows the registers within a rule. A
//! condition that it does not know may be met by any packet.

use super::{family::NFPROTO_IPV4, family::NFPROTO_IPV6, lookups::position};
use crate::{
    netlink_message::Attrs,
    packet_path::{Matched, Verdict, states, tcp_flags},
    xtables,
};
use shunt_core::Traffic;

const TCP: u32 = 6;
const UDP: u32 = 17;
const IPV4: u32 = 0x0800;
const IPV6: u32 = 0x86dd;
const VLAN_TAGS: [u32; 2] = [0x8100, 0x88a8];

const CONTINUE: i32 = -1;
const BREAK: i32 = -2;
const JUMP: i32 = -3;
const GOTO: i32 = -4;
const RETURN: i32 = -5;
const NF_DROP: i32 = 0;
const NF_ACCEPT: i32 = 1;

/// A field of packets that tells kinds of traffic apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    /// `meta l4proto`.
    Protocol,
    /// `ip protocol`.
    Protocol4,
    /// `ip6 nexthdr`.
    Protocol6,
    /// `meta nfproto`.
    Family,
    /// `meta protocol`.
    EtherType,
    /// `tcp flags`.
    TcpFlags,
    /// `ct state`.
    State,
}

impl Field {
    /// The values that packets of one kind may have; `None` if they are not known.
    fn values(self, kind: Traffic) -> Option<Vec<u32>> {
        let is_v4 = Traffic::V4.meets(kind);
        let protocol = if Traffic::TCP.meets(kind) { TCP } else { UDP };
        match self {
            Self::Protocol => Some(vec![protocol]),
            Self::Protocol4 => is_v4.then(|| vec![protocol]),
            Self::Protocol6 => (!is_v4).then(|| vec![protocol]),
            Self::Family => Some(vec![u32::from(if is_v4 { NFPROTO_IPV4 } else { NFPROTO_IPV6 })]),
            Self::EtherType => Some([&[if is_v4 { IPV4 } else { IPV6 }][..], &VLAN_TAGS].concat()),
            Self::TcpFlags => tcp_flags(kind).map(Iterator::collect),
            Self::State => states(kind),
        }
    }

    /// A value of the field in the byte order of registers; `None` if it has another size.
    fn number(self, bytes: &[u8]) -> Option<u32> {
        match (self, bytes) {
            (Self::State, bytes) => Some(u32::from_ne_bytes(bytes.try_into().ok()?)),
            (Self::EtherType, bytes) => Some(u16::from_be_bytes(bytes.try_into().ok()?).into()),
            (_, [byte]) => Some(u32::from(*byte)),
            _ => None,
        }
    }

    fn matched(self, condition: impl Fn(u32) -> bool) -> Matched {
        Matched::by_value(|kind| self.values(kind), condition)
    }
}

/// A field under a mask, as a register holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Loaded {
    field: Field,
    mask: u32,
}

/// A field that is looked up in a set.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Lookup {
    pub field: Field,
    pub set: String,
    pub inverted: bool,
}

/// The conditions and the verdict of a rule.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Conditions {
    /// The traffic that meets the conditions on fields, other than those on `ct state`.
    pub fields: Matched,
    /// The traffic that meets the conditions on `ct state`, in chains that come after conntrack.
    pub state: Matched,
    /// Conditions on sets, which are known only when all of the ruleset has been read.
    pub lookups: Vec<Lookup>,
    pub verdict: Option<Verdict<String>>,
    /// The verdict map, and the field that is looked up there, if it is known.
    pub map: Option<(Option<Field>, String)>,
    /// Whether the rule changes the packet, its mark or its tracking, or a set.
    pub changes: bool,
    /// What the rule writes into the packet, as a name of a statement.
    pub rewrites: Option<&'static str>,
    registers: Vec<(usize, Loaded)>,
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            fields: Matched::ALL,
            state: Matched::ALL,
            lookups: Vec::new(),
            verdict: None,
            map: None,
            changes: false,
            rewrites: None,
            registers: Vec::new(),
        }
    }
}

impl Conditions {
    /// Reads the expressions of a rule.
    pub fn read(family: u8, list: Attrs) -> Self {
        let mut found = Self::default();
        match family {
            NFPROTO_IPV4 => found.fields.may = Traffic::V4,
            NFPROTO_IPV6 => found.fields.may = Traffic::V6,
            _ => {}
        }
        for (_, expression) in list {
            found.add(Attrs::new(expression));
        }
        found.registers = Vec::new();
        found
    }

    fn is_unknown(&mut self) {
        self.fields = self.fields.and(Matched::UNKNOWN);
    }

    fn load(&mut self, register: Option<u32>, field: Option<Field>) {
        self.put(register, field.map(|field| Loaded { field, mask: u32::MAX }));
    }

    /// Stores a value in a register. What overlaps with it there is not known any more.
    fn put(&mut self, register: Option<u32>, value: Option<Loaded>) {
        let Some(at) = position(register) else { return self.registers.clear() };
        // The value may be of any size.
        self.registers.retain(|(have, _)| *have < at);
        self.registers.extend(value.map(|value| (at, value)));
    }

    fn loaded(&self, register: Option<u32>) -> Option<Loaded> {
        let at = position(register)?;
        self.registers.iter().find(|(have, _)| *have == at).map(|(_, loaded)| *loaded)
    }

    fn require(&mut self, field: Field, matched: Matched) {
        let place = if field == Field::State { &mut self.state } else { &mut self.fields };
        *place = place.and(matched);
    }

    fn add(&mut self, expression: Attrs) {
        const NAME: u16 = 1;
        const DATA: u16 = 2;
        let data = expression.nested(DATA);
        match expression.text(NAME).as_deref() {
            // NFTA_PAYLOAD_SREG
            Some("payload") if data.has(5) => {
                self.add_write(data);
                self.changes = true;
            }
            // NFTA_EXTHDR_DREG: without, it changes an option.
            Some("exthdr") if !data.has(1) => self.changes = true,
            Some("notrack") => self.changes = true,
            // NFTA_PAYLOAD_DREG, _BASE, _OFFSET, _LEN; NFT_PAYLOAD_NETWORK_HEADER, _TRANSPORT_HEADER
            Some("payload") => {
                let field = match (data.be32(2), data.be32(3), data.be32(4)) {
                    (Some(1), Some(9), Some(1)) => Some(Field::Protocol4),
                    (Some(1), Some(6), Some(1)) => Some(Field::Protocol6),
                    (Some(2), Some(13), Some(1)) => Some(Field::TcpFlags),
                    _ => None,
                };
                self.load(data.be32(1), field);
            }
            // NFTA_META_DREG, _KEY; NFT_META_PROTOCOL, _NFPROTO, _L4PROTO
            Some("meta") if data.has(1) => {
                let field = match data.be32(2) {
                    Some(1) => Some(Field::EtherType),
                    Some(15) => Some(Field::Family),
                    Some(16) => Some(Field::Protocol),
                    _ => None,
                };
                self.load(data.be32(1), field);
            }
            // NFT_META_NFTRACE
            Some("meta") => self.changes |= data.be32(2) != Some(12),
            // NFTA_CT_DREG, _KEY; NFT_CT_STATE
            Some("ct") if data.has(1) => {
                self.load(data.be32(1), (data.be32(2) == Some(0)).then_some(Field::State));
            }
            Some("ct") => self.changes = true,
            Some("bitwise") => self.add_bitwise(data),
            Some("cmp") => self.add_comparison(data),
            Some("lookup") => self.add_lookup(data),
            // NFTA_IMMEDIATE_DREG, _DATA; NFT_REG_VERDICT
            Some("immediate") if data.be32(1) == Some(0) => self.verdict = verdict(data.nested(2)),
            Some("immediate") => self.load(data.be32(1), None),
            Some("reject") => self.verdict = Some(Verdict::Drop),
            // NFTA_DYNSET_EXPR, _EXPRESSIONS: a set that counts or limits by itself
            Some("dynset") => {
                self.is_unknown();
                self.changes |= !data.has(7) && !data.has(10);
            }
            // NFTA_OBJREF_IMM_TYPE; NFT_OBJECT_QUOTA, NFT_OBJECT_LIMIT
            Some("objref") => {
                if !data.has(1) || matches!(data.be32(1), Some(2 | 4)) {
                    self.is_unknown();
                }
            }
            // NFTA_MATCH_NAME, _REV, _INFO
            Some("match") => {
                let name = data.text(1).unwrap_or_default();
                let (fields, state) = xtables::matched(
                    &name,
                    data.be32(2).unwrap_or_default(),
                    data.get(3).unwrap_or_default(),
                );
                self.fields = self.fields.and(fields);
                self.state = self.state.and(state);
            }
            // NFTA_TARGET_NAME
            Some("target") => {
                let target = xtables::target(&data.text(1).unwrap_or_default());
                self.verdict = target.verdict;
                self.changes |= target.changes;
            }
            Some("counter" | "log" | "last" | "queue" | "dup" | "fwd" | "tproxy" | "synproxy") => {}
            _ => {
                self.is_unknown();
                self.registers.clear();
            }
        }
    }

    /// Names the part of the packet that an expression writes.
    fn add_write(&mut self, data: Attrs) {
        // NFTA_PAYLOAD_BASE, _OFFSET, _LEN; NFT_PAYLOAD_LL_HEADER, whose changes actions repeat, and _NETWORK_HEADER
        let (base, first, bytes) = (data.be32(2), data.be32(3), data.be32(4));
        let (first, bytes) = (first.unwrap_or_default(), bytes.unwrap_or_default());
        let writes = |at: u32| base == Some(1) && (first..first.saturating_add(bytes)).contains(&at);
        let (v4, v6) = (self.fields.may.meets(Traffic::V4), self.fields.may.meets(Traffic::V6));
        self.rewrites = match base {
            Some(0) => self.rewrites,
            _ if v4 && !v6 && writes(8) => Some("ip ttl set"),
            _ if v6 && !v4 && writes(7) => Some("ip6 hoplimit set"),
            _ if v4 && !v6 && (writes(0) || writes(1)) => Some("ip dscp set"),
            _ if v6 && !v4 && (writes(0) || writes(1)) => Some("ip6 dscp set"),
            _ => Some("payload set"),
        };
    }

    fn add_bitwise(&mut self, data: Attrs) {
        // NFTA_BITWISE_SREG, _DREG, _MASK, _XOR, _OP, each value in NFTA_DATA_VALUE; NFT_BITWISE_MASK_XOR
        let is_mask = data.be32(6).unwrap_or_default() == 0
            && data.nested(5).get(1).is_some_and(|xor| xor.iter().all(|byte| *byte == 0));
        let masked = self.loaded(data.be32(1)).filter(|_| is_mask).and_then(|Loaded { field, mask }| {
            Some(Loaded { field, mask: mask & field.number(data.nested(4).get(1)?)? })
        });
        self.put(data.be32(2), masked);
    }

    fn add_comparison(&mut self, data: Attrs) {
        // NFTA_CMP_SREG, _OP, _DATA; NFT_CMP_EQ, NFT_CMP_NEQ
        let known = self.loaded(data.be32(1)).and_then(|Loaded { field, mask }| {
            let value = field.number(data.nested(3).get(1)?)?;
            let equal = field.matched(|have| have & mask == value);
            match data.be32(2)? {
                0 => Some((field, equal)),
                1 => Some((field, equal.not())),
                _ => None,
            }
        });
        match known {
            Some((field, matched)) => self.require(field, matched),
            None => self.is_unknown(),
        }
    }

    fn add_lookup(&mut self, data: Attrs) {
        // NFTA_LOOKUP_SET, _SREG, _DREG, _FLAGS; NFT_REG_VERDICT, NFT_LOOKUP_F_INV
        let whole = self.loaded(data.be32(2)).filter(|loaded| loaded.mask == u32::MAX);
        let field = whole.map(|loaded| loaded.field);
        let set = data.text(1).unwrap_or_default();
        match (data.be32(3), field) {
            (Some(0), field) => self.map = Some((field, set)),
            (None, Some(field)) => {
                let inverted = data.be32(5).unwrap_or_default() & 1 != 0;
                self.lookups.push(Lookup { field, set, inverted });
            }
            (register, _) => {
                self.is_unknown();
                if register.is_some() {
                    self.load(register, None);
                }
            }
        }
    }
}

impl Lookup {
    /// The traffic whose field is in a set with these elements, or is not if the lookup is inverted.
    pub fn matched(&self, elements: &[Element]) -> Matched {
        let found = in_elements(self.field, elements.iter());
        if self.inverted { found.not() } else { found }
    }
}

/// The traffic whose field is one of these elements.
pub(super) fn in_elements<'a>(field: Field, elements: impl Iterator<Item = &'a Element>) -> Matched {
    let keys: Option<Vec<u32>> = elements.map(|element| field.number(&element.key)).collect();
    keys.map_or(Matched::UNKNOWN, |keys| field.matched(|value| keys.contains(&value)))
}

/// An element of a set or map.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Element {
    /// Empty for the element that stands for all others.
    pub key: Vec<u8>,
    pub verdict: Option<Verdict<String>>,
}

/// The verdict of an expression or element; `None` if packets continue with the next rule.
pub(super) fn verdict(data: Attrs) -> Option<Verdict<String>> {
    const VERDICT: u16 = 2;
    const CODE: u16 = 1;
    const CHAIN: u16 = 2;
    let verdict = data.nested(VERDICT);
    let chain = || verdict.text(CHAIN).unwrap_or_default();
    Some(match verdict.be32(CODE)? as i32 {
        NF_ACCEPT => Verdict::Accept,
        NF_DROP => Verdict::Drop,
        JUMP => Verdict::Jump(chain()),
        GOTO => Verdict::Goto(chain()),
        RETURN => Verdict::Return,
        CONTINUE | BREAK => return None,
        _ => Verdict::Unknown,
    })
}
