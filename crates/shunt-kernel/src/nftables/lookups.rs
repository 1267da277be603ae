//! Finds the sets that rules look up by an address of the packet: an element of such a set concerns only packets that
//! have the address of the element.
//!
//! Rules load fields of the packet into registers, and look registers up in sets. This follows what is in the registers
//! within each rule. Whatever it does not know makes a set unknown, whose elements may then concern every packet.

use super::{
    ObjectName, Ruleset,
    family::{NFPROTO_INET, NFPROTO_IPV4, NFPROTO_IPV6},
};
use crate::netlink_message::Attrs;
use std::collections::{BTreeSet, HashMap};

/// The size of all registers in bytes.
const REGISTERS: usize = 80;
/// The longest key of a set in bytes.
const KEY_MAX: usize = 64;
/// The most that `meta` and `ct` load: a name of a device, an address, labels.
const LOAD_MAX: usize = 16;

/// NFT_SET_ANONYMOUS, NFT_SET_INTERVAL, NFT_SET_OBJECT, NFT_SET_CONCAT.
pub(super) const ANONYMOUS: u32 = 0x1;
pub(super) const INTERVAL: u32 = 0x4;
const OBJECT: u32 = 0x40;
const CONCAT: u32 = 0x80;

/// A set or map that all rules that use it look up by the same address of packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressSet {
    /// NFPROTO_* of the table.
    pub family: u8,
    /// The name of the table.
    pub table: String,
    /// The name of the set.
    pub name: String,
    /// Whether the address is of IPv6.
    pub v6: bool,
    /// Where in the key the address is.
    pub offset: u8,
    /// The size of the key in bytes.
    pub key_bytes: u8,
    /// Whether the elements are boundaries of intervals.
    pub intervals: bool,
}

/// An address in the key of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Field {
    offset: usize,
    v6: bool,
}

impl Field {
    fn bytes(self) -> usize {
        if self.v6 { 16 } else { 4 }
    }
}

/// How the rules use sets.
#[derive(Debug, Default)]
pub(super) struct Lookups {
    /// The addresses that every lookup in a set has in its key; none if something else is looked up.
    fields: HashMap<ObjectName, BTreeSet<Field>>,
    /// A rule changes addresses. Later rules may see addresses that the packet has neither before nor after all rules.
    rewrites: bool,
}

/// What a rule has in its registers: for each byte, its offset in the IP header, if it is from there.
struct Registers {
    bytes: [Option<usize>; REGISTERS],
    /// The registers that hold the protocol of the packet (`meta nfproto`).
    protocols: BTreeSet<usize>,
    /// Whether the packet is IPv6; `None` while it can be either.
    v6: Option<bool>,
}

/// The position of a register: four of 16 bytes, or the same as 16 of four.
pub(super) fn position(register: Option<u32>) -> Option<usize> {
    match register? as usize {
        n @ 1..=4 => Some((n - 1) * 16),
        n @ 8..=23 => Some((n - 8) * 4),
        _ => None,
    }
}

impl Registers {
    fn forget(&mut self) {
        self.bytes = [None; REGISTERS];
        self.protocols.clear();
    }

    /// Stores `bytes` bytes in a register, each the one of the IP header given, if it is known.
    fn store(&mut self, register: Option<u32>, bytes: usize, header: Option<usize>) {
        let Some(at) = position(register).filter(|at| at + bytes <= REGISTERS) else {
            return self.forget();
        };
        self.protocols.retain(|have| !(at..at + bytes).contains(have));
        // A partial word is filled with zeros.
        for i in 0..bytes.next_multiple_of(4) {
            self.bytes[at + i] = header.filter(|_| i < bytes).map(|header| header + i);
        }
    }

    /// Whether these bytes of the IP header may be a part of an address.
    fn reaches_address(&self, offset: u32, bytes: u32) -> bool {
        let (first, end) = match self.v6 {
            Some(false) => (12, 20),
            Some(true) | None => (8, 40),
        };
        offset < end && offset.saturating_add(bytes) > first
    }

    /// The addresses of the packet in a key that begins in this register.
    fn fields(&self, register: Option<u32>) -> BTreeSet<Field> {
        let (Some(at), Some(v6)) = (position(register), self.v6) else { return BTreeSet::new() };
        let starts: [usize; 2] = if v6 { [8, 24] } else { [12, 16] };
        let is_address = |field: &Field| {
            let have = self.bytes.get(at + field.offset..at + field.offset + field.bytes());
            let holds = |start: usize| {
                have.is_some_and(|have| (start..).zip(have).all(|(want, have)| *have == Some(want)))
            };
            starts.into_iter().any(holds)
        };
        (0..KEY_MAX).step_by(4).map(|offset| Field { offset, v6 }).filter(is_address).collect()
    }
}

impl Lookups {
    /// Adds a rule, whose expressions are `list`. `chain` is its chain.
    pub(super) fn add(&mut self, chain: &ObjectName, list: Attrs) {
        let v6 = match chain.family {
            NFPROTO_IPV4 => Some(false),
            NFPROTO_IPV6 => Some(true),
            _ => None,
        };
        let mut registers = Registers { bytes: [None; REGISTERS], protocols: BTreeSet::new(), v6 };
        for (_, expression) in list {
            self.add_expression(chain, Attrs::new(expression), &mut registers);
        }
    }

    fn add_expression(&mut self, chain: &ObjectName, expression: Attrs, registers: &mut Registers) {
        const NAME: u16 = 1;
        const DATA: u16 = 2;
        let data = expression.nested(DATA);
        match expression.text(NAME).as_deref() {
            // NFTA_PAYLOAD_DREG, _BASE, _OFFSET, _LEN, _SREG; NFT_PAYLOAD_NETWORK_HEADER
            Some("payload") => match (data.has(5), data.be32(2), data.be32(3), data.be32(4)) {
                (true, base, Some(offset), Some(bytes)) => {
                    self.rewrites |= base == Some(1) && registers.reaches_address(offset, bytes);
                }
                (true, ..) => self.rewrites = true,
                (false, Some(base), Some(offset), Some(bytes)) => {
                    let header = (base == 1).then_some(offset as usize);
                    registers.store(data.be32(1), bytes as usize, header);
                }
                _ => registers.forget(),
            },
            // NFTA_META_DREG, _KEY; NFT_META_NFPROTO. Without a register, the value is set.
            Some("meta") if data.has(1) => {
                registers.store(data.be32(1), LOAD_MAX, None);
                if data.be32(2) == Some(15) {
                    registers.protocols.extend(position(data.be32(1)));
                }
            }
            Some("meta" | "counter") => {}
            // NFTA_CT_DREG
            Some("ct") if data.has(1) => registers.store(data.be32(1), LOAD_MAX, None),
            // NFTA_CMP_SREG, _OP, _DATA, NFTA_DATA_VALUE; NFT_CMP_EQ
            Some("cmp") => {
                let is_protocol = position(data.be32(1)).is_some_and(|at| registers.protocols.contains(&at));
                if is_protocol && chain.family == NFPROTO_INET && data.be32(2) == Some(0) {
                    registers.v6 = match data.nested(3).get(1) {
                        Some([NFPROTO_IPV4]) => Some(false),
                        Some([NFPROTO_IPV6]) => Some(true),
                        _ => None,
                    };
                }
            }
            // NFTA_LOOKUP_SET, _SREG, _DREG
            Some("lookup") => {
                self.add_lookup(chain, data.text(1), registers.fields(data.be32(2)));
                if data.has(3) {
                    registers.forget();
                }
            }
            // NFTA_DYNSET_SET_NAME
            Some("dynset") => self.add_lookup(chain, data.text(1), BTreeSet::new()),
            // NFTA_OBJREF_SET_NAME
            Some("objref") => self.add_lookup(chain, data.text(4), BTreeSet::new()),
            // NFTA_TARGET_NAME: the stateless translations of iptables
            Some("target") => {
                self.rewrites |= matches!(data.text(1).as_deref(), Some("SNPT" | "DNPT"));
                registers.forget();
            }
            _ => registers.forget(),
        }
    }

    fn add_lookup(&mut self, chain: &ObjectName, set: Option<String>, fields: BTreeSet<Field>) {
        let Some(name) = set else { return };
        let at = ObjectName { name, ..chain.clone() };
        self.fields
            .entry(at)
            .and_modify(|have| have.retain(|field| fields.contains(field)))
            .or_insert(fields);
    }
}

/// The sets whose elements concern only packets with their address.
pub(super) fn address_sets(ruleset: &Ruleset) -> Vec<AddressSet> {
    if ruleset.lookups.rewrites {
        return Vec::new();
    }
    let described = |(at, fields): (&ObjectName, &BTreeSet<Field>)| {
        let set = ruleset.sets.get(at)?;
        let key_bytes = set.key_bytes as usize;
        let field = fields.iter().find(|field| field.offset + field.bytes() <= key_bytes)?;
        let intervals = set.flags & INTERVAL != 0 && set.flags & CONCAT == 0;
        let unknown = set.has_verdicts
            || set.flags & (ANONYMOUS | OBJECT) != 0
            || intervals && key_bytes != field.bytes()
            || key_bytes > KEY_MAX;
        (!unknown).then(|| AddressSet {
            family: at.family,
            table: at.table.clone(),
            name: at.name.clone(),
            v6: field.v6,
            offset: field.offset as u8,
            key_bytes: key_bytes as u8,
            intervals,
        })
    };
    ruleset.lookups.fields.iter().filter_map(described).collect()
}
