//! Compares the frames that left the two routers.

use crate::{
    packet::{ICMP, ICMP6, Identity},
    site::Site,
    worker::Frame,
};
use shunt_wire::{Ethernet, Tag, encap};
use std::{
    collections::{BTreeMap, HashMap, HashSet, hash_map::Entry},
    hash::{BuildHasher, RandomState},
    mem,
};

/// One of the two routers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The router without Shunt.
    Reference,
    /// The router with Shunt.
    Subject,
}

/// A frame without a counterpart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Discrepancy {
    pub(crate) kind: Fault,
    pub(crate) identity: Option<Identity>,
    pub(crate) reference: Option<Frame>,
    pub(crate) subject: Option<Frame>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// The frame has other bytes or another egress.
    Different,
    /// Only the reference sends the frame.
    Lost,
    /// Only the subject sends the frame.
    Extra,
    /// The subject sends the frame once more than the reference.
    Duplicated,
}

/// Offset of the IP header in a frame without tags.
const L3: usize = encap::header_bytes(0);
const IGMP: u8 = 2;
/// The next header of an IPv6 fragment.
const FRAGMENT: u8 = 44;

/// Matches frames as they arrive, from either router first.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    /// How many times more a frame left the reference than the subject.
    open: HashMap<Frame, i32>,
    matched: HashSet<u64>,
    hasher: RandomState,
    order: [Order; 2],
    /// Number of frames that Linux sent by its timers.
    pub(crate) unasked: u64,
    pub(crate) compared: u64,
    /// Number of frames that could have been fast: they left the reference, and are of an eligible shape.
    pub(crate) eligible: u64,
}

/// The order in which plain packets leave within a direction of a flow.
#[derive(Debug, Default)]
struct Order {
    last: HashMap<(u16, bool, Site), u32>,
    late: Vec<Identity>,
}

impl Comparison {
    /// Adds a frame that left a router.
    pub(crate) fn add(&mut self, side: Side, frame: Frame) {
        if is_unasked(&frame.bytes) {
            self.unasked += 1;
            return;
        }
        if let Some(identity) = Identity::find(&frame.bytes).filter(|i| i.plain && is_stream(&frame.bytes)) {
            self.order[side as usize].see(frame.site, identity);
            self.eligible += u64::from(side == Side::Reference);
        }
        let step = if side == Side::Reference { 1 } else { -1 };
        let frame = masked(frame);
        let hash = self.hasher.hash_one(&frame);
        match self.open.entry(frame) {
            Entry::Occupied(mut open) => {
                if *open.get() * step < 0 {
                    self.compared += 1;
                    self.matched.insert(hash);
                }
                *open.get_mut() += step;
                if *open.get() == 0 {
                    open.remove();
                }
            }
            Entry::Vacant(open) => drop(open.insert(step)),
        }
    }

    /// Whether every frame has its counterpart.
    pub(crate) fn is_even(&self) -> bool {
        self.open.is_empty()
    }

    /// Returns the frames without a counterpart, once no more can arrive, and forgets them.
    pub(crate) fn judge(&mut self) -> Vec<Discrepancy> {
        let mut by_packet: BTreeMap<Option<Identity>, [Vec<Frame>; 2]> = BTreeMap::new();
        for (frame, count) in self.open.drain() {
            let sides = by_packet.entry(Identity::find(&frame.bytes)).or_default();
            let side = usize::from(count < 0);
            sides[side].extend(std::iter::repeat_n(frame, count.unsigned_abs() as usize));
        }
        let mut found = Vec::new();
        for (identity, [mut references, mut subjects]) in by_packet {
            // Sort, since the order of a hash map is random.
            references.sort_by(|a, b| (a.site, &a.bytes).cmp(&(b.site, &b.bytes)));
            subjects.sort_by(|a, b| (a.site, &a.bytes).cmp(&(b.site, &b.bytes)));
            while !references.is_empty() || !subjects.is_empty() {
                let (reference, subject) = (references.pop(), subjects.pop());
                let again = |frame: &Frame| self.matched.contains(&self.hasher.hash_one(frame));
                let kind = match (&reference, &subject) {
                    (Some(_), Some(_)) => Fault::Different,
                    (Some(_), None) => Fault::Lost,
                    (None, Some(frame)) if again(frame) => Fault::Duplicated,
                    _ => Fault::Extra,
                };
                found.push(Discrepancy { kind, identity, reference, subject });
            }
        }
        found
    }

    /// Packets that were overtaken in the subject and not in the reference, since the last call.
    pub(crate) fn overtaken(&mut self) -> Vec<Identity> {
        let [reference, mut subject] = self.order.each_mut().map(|order| mem::take(&mut order.late));
        subject.retain(|identity| !reference.contains(identity));
        subject
    }
}

impl Order {
    fn see(&mut self, site: Site, identity: Identity) {
        let last = self.last.entry((identity.flow, identity.back, site)).or_insert(0);
        if identity.number < *last {
            self.late.push(identity);
        }
        *last = identity.number.max(*last);
    }
}

/// Whether a frame is UDP or TCP.
fn is_stream(frame: &[u8]) -> bool {
    let protocol = frame[L3 + if encap::outer_type(frame) == encap::IPV4 { 9 } else { 6 }];
    protocol == 6 || protocol == 17
}

/// Whether Linux sends a frame by its timers: neighbour discovery, multicast memberships, and redirects, which are
/// rate-limited. The ICMP errors for IPv4 destinations without a route are rate-limited, too, and the limit cannot be
/// set for a namespace.
pub(crate) fn is_unasked(frame: &[u8]) -> bool {
    // On the wire of a VLAN, frames of the port itself have a tag too many here (worker.rs).
    let outer = Ethernet::parse(frame).and_then(|(ethernet, _)| ethernet.tags.first().copied());
    let mut frame = frame.to_vec();
    if let Some(tag) = outer.filter(|tag| tag.tpid == Tag::vlan(0).tpid) {
        encap::pop_tags(&mut frame, &[tag]);
    }
    let kind = |at: usize| frame.get(L3 + at).copied().unwrap_or(0);
    // An answer to a packet with options has options.
    let icmp = 4 * usize::from(kind(0) & 15);
    match encap::outer_type(&frame) {
        encap::IPV4 if kind(9) == ICMP => kind(8) == 64 && kind(icmp) == 3 && kind(icmp + 1) <= 1,
        encap::IPV4 => kind(9) == IGMP,
        encap::IPV6 if kind(6) == ICMP6 => (130..=137).contains(&kind(40)),
        encap::IPV6 if kind(6) == 0 && kind(40) == ICMP6 => (130..=143).contains(&kind(48)),
        _ => false,
    }
}

/// Masks what Linux chooses at random: the identification of its own ICMP messages, which leave with TTL 64 (packets of
/// hosts leave with less), and that of IPv6 fragments, which Linux fragments again.
pub(crate) fn masked(mut frame: Frame) -> Frame {
    let bytes = &mut frame.bytes;
    let has =
        |ethertype, l3_bytes: usize| bytes.len() >= L3 + l3_bytes && encap::outer_type(bytes) == ethertype;
    if has(encap::IPV4, 20) && bytes[L3 + 8] == 64 && bytes[L3 + 9] == ICMP {
        bytes[L3 + 4..L3 + 6].fill(0);
        bytes[L3 + 10..L3 + 12].fill(0);
    } else if has(encap::IPV6, 48) && bytes[L3 + 6] == FRAGMENT {
        bytes[L3 + 44..L3 + 48].fill(0);
    }
    frame
}
