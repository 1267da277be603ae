//! The data plane's counters of ports, as [`shunt_core::PortCounters`] keeps them.

use shunt_bpf::abi::{Counters, Plain};
use std::collections::BTreeMap;

const WORDS: usize = size_of::<Counters>() / size_of::<u64>();

/// The counters of all ports, present and absent.
#[derive(Debug, Default)]
pub(crate) struct PortCounters(shunt_core::PortCounters<WORDS>);

impl PortCounters {
    /// Records what a port has counted since it was attached.
    pub(crate) fn record(&mut self, ifindex: u32, name: &str, counters: &Counters) {
        self.0.record(ifindex, name, to_words(counters));
    }

    /// Moves the counts of a port that is being detached to those of absent ports.
    pub(crate) fn remove(&mut self, ifindex: u32) {
        self.0.remove(ifindex);
    }

    /// What each present port has counted since it was attached, by an earlier daemon perhaps.
    pub(crate) fn attached(&self) -> impl Iterator<Item = Counters> {
        self.0.attached().map(from_words)
    }

    /// The counters of present and absent ports, by name.
    pub(crate) fn by_name(&self) -> BTreeMap<String, Counters> {
        self.0.by_name().into_iter().map(|(name, words)| (name, from_words(words))).collect()
    }
}

fn to_words(counters: &Counters) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(counters.bytes().chunks_exact(size_of::<u64>())) {
        *word = bytes.try_into().map(u64::from_ne_bytes).unwrap_or_default();
    }
    words
}

fn from_words(words: [u64; WORDS]) -> Counters {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    Counters::from_bytes(&bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_survive_the_way_through_words() {
        let mut counters = Counters { xdp_pkts: 1, retired: 2, ..Counters::default() };
        counters.reasons[63] = u64::MAX;
        assert_eq!(from_words(to_words(&counters)), counters);
    }
}
