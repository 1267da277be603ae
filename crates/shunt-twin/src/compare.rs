//! Compares the frames that left the two routers.

use crate::{
    packet::{ICMP, ICMP6, Identity},
    site::Site,
    worker::Frame,
};
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
    let protocol = if frame[12..14] == [8, 0] { frame[23] } else { frame[20] };
    protocol == 6 || protocol == 17
}

/// Whether Linux sends a frame by its timers: neighbour discovery, multicast memberships, and redirects, which are rate-limited.
/// The ICMP errors for IPv4 destinations without a route are rate-limited, too, and the limit cannot be set for a namespace.
pub(crate) fn is_unasked(frame: &[u8]) -> bool {
    // On the wire of a VLAN, frames of the port itself have a tag too many here (worker.rs).
    let untagged = frame[12..14] == [0x81, 0];
    let frame = &if untagged { [&frame[..12], &frame[16..]].concat() } else { frame.to_vec() };
    let kind = |at: usize| frame.get(at).copied().unwrap_or(0);
    // An answer to a packet with options has options.
    let icmp = 14 + 4 * usize::from(kind(14) & 15);
    match frame[12..14] {
        [8, 0] if kind(23) == ICMP => kind(22) == 64 && kind(icmp) == 3 && kind(icmp + 1) <= 1,
        [8, 0] => kind(23) == IGMP,
        [0x86, 0xdd] if kind(20) == ICMP6 => (130..=137).contains(&kind(54)),
        [0x86, 0xdd] if kind(20) == 0 && kind(54) == ICMP6 => (130..=143).contains(&kind(62)),
        _ => false,
    }
}

/// Masks what Linux chooses at random: the identification of its own ICMP messages, which leave with TTL 64 (packets of hosts leave
/// with less), and that of IPv6 fragments, which Linux fragments again.
pub(crate) fn masked(mut frame: Frame) -> Frame {
    let bytes = &mut frame.bytes;
    let routers_own = bytes.len() >= 34 && bytes[12..14] == [8, 0] && bytes[22] == 64 && bytes[23] == ICMP;
    if routers_own {
        bytes[18..20].fill(0);
        bytes[24..26].fill(0);
    }
    if bytes.len() >= 62 && bytes[12..14] == [0x86, 0xdd] && bytes[20] == FRAGMENT {
        bytes[58..62].fill(0);
    }
    frame
}
