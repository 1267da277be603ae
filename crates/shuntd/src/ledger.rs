//! Counts of ports by name, which never go back: a port that comes again goes on where it left.

use shunt_bpf::abi::{Counters, Plain};
use std::collections::BTreeMap;

/// Names of ports that are gone, and still counted. Beyond that the counts of the one longest away are dropped, so that a
/// machine whose devices have ever new names does not fill anybody's memory.
const GONE_MAX: usize = 64;

/// What ports have counted.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    here: BTreeMap<u32, Here>,
    before: BTreeMap<String, Before>,
    /// How many have gone.
    gone: u64,
}

/// A port. What it had counted under another name is not this name's.
#[derive(Debug)]
struct Here {
    name: String,
    from: Counters,
    last: Counters,
}

#[derive(Debug, Default)]
struct Before {
    counted: Counters,
    gone: u64,
}

impl Ledger {
    /// A port has counted so much since it was attached.
    pub(crate) fn see(&mut self, ifindex: u32, name: &str, counted: Counters) {
        let from = match self.here.get(&ifindex) {
            Some(here) if here.name == name => here.from,
            Some(here) => {
                let last = here.last;
                self.close(ifindex);
                last
            }
            None => Counters::default(),
        };
        self.here.insert(ifindex, Here { name: name.to_owned(), from, last: counted });
    }

    /// A port, seen for the last time, is one no more.
    pub(crate) fn close(&mut self, ifindex: u32) {
        let Some(here) = self.here.remove(&ifindex) else { return };
        self.gone += 1;
        let before = self.before.entry(here.name).or_default();
        before.counted.add(&less(&here.last, &here.from));
        before.gone = self.gone;
        if self.before.len() > GONE_MAX {
            let longest = self.before.iter().min_by_key(|(_, before)| before.gone);
            if let Some(name) = longest.map(|(name, _)| name.clone()) {
                self.before.remove(&name);
            }
        }
    }

    /// By name: the ports that are here and those that are gone.
    pub(crate) fn counts(&self) -> BTreeMap<String, Counters> {
        let mut counts: BTreeMap<String, Counters> =
            self.before.iter().map(|(name, before)| (name.clone(), before.counted)).collect();
        for here in self.here.values() {
            counts.entry(here.name.clone()).or_default().add(&less(&here.last, &here.from));
        }
        counts
    }
}

fn less(a: &Counters, b: &Counters) -> Counters {
    let word = |bytes: &[u8]| bytes.try_into().map(u64::from_ne_bytes).unwrap_or_default();
    let pairs = a.bytes().chunks_exact(8).zip(b.bytes().chunks_exact(8));
    let words: Vec<u8> = pairs.flat_map(|(a, b)| word(a).saturating_sub(word(b)).to_ne_bytes()).collect();
    Counters::of(&words).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slow(count: u64) -> Counters {
        Counters { slow_pkts: count, ..Counters::default() }
    }

    fn counts(ledger: &Ledger) -> Vec<(String, u64)> {
        ledger.counts().into_iter().map(|(name, counted)| (name, counted.slow_pkts)).collect()
    }

    #[test]
    fn a_port_that_comes_again_goes_on_where_it_left() {
        let mut ledger = Ledger::default();
        ledger.see(3, "eth0", slow(10));
        ledger.see(3, "eth0", slow(15));
        ledger.close(3);
        assert_eq!(counts(&ledger), [("eth0".to_owned(), 15)]);
        ledger.see(9, "eth0", slow(2));
        assert_eq!(counts(&ledger), [("eth0".to_owned(), 17)]);
    }

    #[test]
    fn names_that_are_swapped_keep_their_counts() {
        let mut ledger = Ledger::default();
        ledger.see(1, "a", slow(100));
        ledger.see(2, "b", slow(1));
        ledger.see(1, "b", slow(101));
        ledger.see(2, "a", slow(3));
        assert_eq!(counts(&ledger), [("a".to_owned(), 102), ("b".to_owned(), 2)]);
    }

    #[test]
    fn ever_new_names_are_not_kept_for_ever() {
        let mut ledger = Ledger::default();
        for n in 0..1000 {
            ledger.see(n, &format!("veth{n}"), slow(1));
            ledger.close(n);
        }
        let counts = counts(&ledger);
        assert_eq!(counts.len(), GONE_MAX);
        assert!(counts.contains(&("veth999".to_owned(), 1)) && !counts.contains(&("veth1".to_owned(), 1)));
    }
}
