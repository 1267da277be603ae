//! Compares a packet that entered with the one that left, and what the two paths do to the headers of a flow.

use super::{
    fault::{Fault, Way},
    segment::{Segment, Treated},
};
use std::{collections::BTreeMap, net::IpAddr};

/// Packets with the same fault that are kept for a flow.
pub(crate) const EXAMPLES: usize = 2;
/// The ECN bits that a queue may set.
const CONGESTION: u8 = 3;
/// A packet with more differing bytes, in a thousand, is another packet.
const CHANGED_MOST: usize = 125;

/// What a path does to the headers of a flow's packets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Treatment {
    pub(crate) l2: Vec<u8>,
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) sport: u16,
    pub(crate) dport: u16,
    /// By how much TTL or hop limit falls.
    pub(crate) ttl_step: i16,
    /// None if it stays.
    pub(crate) dscp: Option<u8>,
}

/// A treatment that was seen.
#[derive(Debug, Clone)]
pub(crate) struct SeenTreatment {
    pub(crate) packets: BTreeMap<Way, u64>,
    /// The first packet, as it left.
    pub(crate) left: Segment,
}

/// The name of a field, and how to print it.
type Field<'f> = (&'static str, &'f dyn Fn(&Treatment) -> String);

/// All treatments of a flow.
#[derive(Debug, Default)]
pub(crate) struct Treatments(BTreeMap<Treatment, SeenTreatment>);

/// Kinds of treatments beyond which a flow's further ones are not kept.
const TREATMENTS: usize = 64;

impl Treatments {
    pub(crate) fn add(&mut self, way: Way, entered: &Segment, left: &Segment) {
        let treatment = Treatment::of(&entered.treated, &left.treated);
        if self.0.len() >= TREATMENTS && !self.0.contains_key(&treatment) {
            return;
        }
        let seen = self
            .0
            .entry(treatment)
            .or_insert_with(|| SeenTreatment { packets: BTreeMap::new(), left: left.clone() });
        *seen.packets.entry(way).or_default() += 1;
    }

    /// What Linux did to most packets; None if it forwarded none.
    pub(crate) fn by_linux(&self) -> Option<&Treatment> {
        let slow = self.0.iter().filter_map(|(one, seen)| Some((seen.packets.get(&Way::Slow)?, one)));
        slow.max_by_key(|(packets, _)| **packets).map(|(_, one)| one)
    }

    /// What only the fast path did, and to how many packets.
    pub(crate) fn only_fast(&self) -> impl Iterator<Item = (&Treatment, &SeenTreatment, u64)> {
        let is_only_fast = |seen: &SeenTreatment| !seen.packets.contains_key(&Way::Slow);
        let all = self.0.iter().filter(move |(_, seen)| is_only_fast(seen));
        all.filter_map(|(one, seen)| Some((one, seen, *seen.packets.get(&Way::Fast)?)))
    }
}

impl Treatment {
    fn of(entered: &Treated, left: &Treated) -> Self {
        Self {
            l2: left.l2.clone(),
            src: left.src,
            dst: left.dst,
            sport: left.sport,
            dport: left.dport,
            ttl_step: i16::from(entered.ttl) - i16::from(left.ttl),
            dscp: (entered.dscp != left.dscp).then_some(left.dscp),
        }
    }

    /// The fields that differ: name, this one's value, and the other one's.
    pub(crate) fn differences(&self, other: &Self) -> Vec<(&'static str, String, String)> {
        let mac = |l2: &[u8], at: usize| hex(l2.get(at..at + 6).unwrap_or_default(), ":");
        let both: [Field<'_>; 9] = [
            ("destination MAC", &|one| mac(&one.l2, 0)),
            ("source MAC", &|one| mac(&one.l2, 6)),
            ("tags and EtherType", &|one| hex(one.l2.get(12..).unwrap_or_default(), "")),
            ("source address", &|one| one.src.to_string()),
            ("destination address", &|one| one.dst.to_string()),
            ("source port", &|one| one.sport.to_string()),
            ("destination port", &|one| one.dport.to_string()),
            ("TTL change", &|one| (-one.ttl_step).to_string()),
            ("DSCP", &|one| one.dscp.map_or("kept".to_owned(), |dscp| format!("set to {dscp}"))),
        ];
        let values = both.map(|(name, value)| (name, value(self), value(other)));
        values.into_iter().filter(|(_, this, other)| this != other).collect()
    }
}

/// What is wrong with a packet that left, apart from the fields of [`Treatment`]. `kept` is known to be equal.
pub(crate) fn fault(entered: &Segment, left: &Segment) -> Option<Fault> {
    let is_single = !entered.is_part && !left.is_part;
    let ecn = (entered.treated.ecn, left.treated.ecn);
    match () {
        () if entered.kept != left.kept || is_single && entered.exact != left.exact => Some(Fault::Bytes),
        () if ecn.0 != ecn.1 && (ecn.0 == 0 || ecn.1 != CONGESTION) => Some(Fault::Bytes),
        () if entered.is_ip_sum_good && !left.is_ip_sum_good => Some(Fault::Checksum),
        // A sum that was wrong, or that nothing computed, says nothing.
        () if entered.is_l4_sum_good != Some(false) && left.is_l4_sum_good == Some(false) => {
            Some(Fault::Checksum)
        }
        () => None,
    }
}

/// Whether a packet that left is one that entered, with changed bytes, rather than another one.
pub(crate) fn is_changed(entered: &Segment, left: &Segment) -> bool {
    let differing = differing(&entered.kept, &left.kept).len();
    entered.kept.len() == left.kept.len() && differing * 1000 <= entered.kept.len() * CHANGED_MOST
}

/// Offsets of the bytes that differ.
pub(crate) fn differing(entered: &[u8], left: &[u8]) -> Vec<usize> {
    entered.iter().zip(left).enumerate().filter(|(_, (a, b))| a != b).map(|(at, _)| at).collect()
}

/// Bytes in hexadecimal, with this between them.
pub(crate) fn hex(bytes: &[u8], between: &str) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(between)
}

#[cfg(test)]
mod tests;
