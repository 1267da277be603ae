//! Counters of ports by name, which never go back while the daemon runs: a port that comes back continues its old
//! counts.

use std::collections::BTreeMap;

/// Names of absent ports whose counts are kept. Beyond this number the counts of the port that has been absent longest
/// are dropped, so that ever new device names cannot fill the memory of the daemon or of its clients.
const ABSENT_MAX: usize = 64;

/// The counters of all ports, present and absent. A port has `N` counters.
#[derive(Debug)]
pub struct PortCounters<const N: usize> {
    present: BTreeMap<u32, Present<N>>,
    absent: BTreeMap<String, Absent<N>>,
    /// How many ports have gone so far: orders absent ports by the time they went.
    departures: u64,
}

/// A port that is attached.
#[derive(Debug)]
struct Present<const N: usize> {
    name: String,
    /// The counters when the port took this name: earlier counts belong to its former name.
    base: [u64; N],
    last: [u64; N],
}

#[derive(Debug)]
struct Absent<const N: usize> {
    counters: [u64; N],
    departure: u64,
}

impl<const N: usize> Default for PortCounters<N> {
    fn default() -> Self {
        Self { present: BTreeMap::new(), absent: BTreeMap::new(), departures: 0 }
    }
}

impl<const N: usize> PortCounters<N> {
    /// Records what a port has counted since it was attached.
    pub fn record(&mut self, ifindex: u32, name: &str, counters: [u64; N]) {
        let base = match self.present.get(&ifindex) {
            Some(port) if port.name == name => port.base,
            Some(port) => {
                let last = port.last;
                self.remove(ifindex);
                last
            }
            None => [0; N],
        };
        self.present.insert(ifindex, Present { name: name.to_owned(), base, last: counters });
    }

    /// Moves the counts of a port that is being detached to those of absent ports.
    pub fn remove(&mut self, ifindex: u32) {
        let Some(port) = self.present.remove(&ifindex) else { return };
        self.departures += 1;
        let departure = self.departures;
        let absent = self.absent.entry(port.name.clone()).or_insert(Absent { counters: [0; N], departure });
        add(&mut absent.counters, &port.counted());
        absent.departure = departure;
        if self.absent.len() > ABSENT_MAX {
            let longest = self.absent.iter().min_by_key(|(_, absent)| absent.departure);
            if let Some(name) = longest.map(|(name, _)| name.clone()) {
                self.absent.remove(&name);
            }
        }
    }

    /// What each present port has counted since it was attached.
    pub fn attached(&self) -> impl Iterator<Item = [u64; N]> {
        self.present.values().map(|port| port.last)
    }

    /// The counters of present and absent ports, by name.
    pub fn by_name(&self) -> BTreeMap<String, [u64; N]> {
        let mut counters: BTreeMap<String, [u64; N]> =
            self.absent.iter().map(|(name, absent)| (name.clone(), absent.counters)).collect();
        for port in self.present.values() {
            add(counters.entry(port.name.clone()).or_insert([0; N]), &port.counted());
        }
        counters
    }
}

impl<const N: usize> Present<N> {
    /// The port's counts under its present name.
    fn counted(&self) -> [u64; N] {
        std::array::from_fn(|i| self.last[i].saturating_sub(self.base[i]))
    }
}

fn add<const N: usize>(sum: &mut [u64; N], more: &[u64; N]) {
    sum.iter_mut().zip(more).for_each(|(sum, more)| *sum = sum.wrapping_add(*more));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(counters: &PortCounters<1>) -> Vec<(String, u64)> {
        counters.by_name().into_iter().map(|(name, [count])| (name, count)).collect()
    }

    #[test]
    fn a_port_that_comes_back_continues_its_old_counts() {
        let mut counters = PortCounters::default();
        counters.record(3, "eth0", [10]);
        counters.record(3, "eth0", [15]);
        counters.remove(3);
        assert_eq!(counts(&counters), [("eth0".to_owned(), 15)]);
        counters.record(9, "eth0", [2]);
        assert_eq!(counts(&counters), [("eth0".to_owned(), 17)]);
    }

    #[test]
    fn names_that_are_swapped_keep_their_counts() {
        let mut counters = PortCounters::default();
        counters.record(1, "a", [100]);
        counters.record(2, "b", [1]);
        counters.record(1, "b", [101]);
        counters.record(2, "a", [3]);
        assert_eq!(counts(&counters), [("a".to_owned(), 102), ("b".to_owned(), 2)]);
    }

    #[test]
    fn only_the_latest_absent_names_are_kept() {
        let mut counters = PortCounters::default();
        for n in 0..1000 {
            counters.record(n, &format!("veth{n}"), [1]);
            counters.remove(n);
        }
        let counts = counts(&counters);
        assert_eq!(counts.len(), ABSENT_MAX);
        assert!(counts.contains(&("veth999".to_owned(), 1)) && !counts.contains(&("veth1".to_owned(), 1)));
    }
}
