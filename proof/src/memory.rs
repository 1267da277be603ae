//! Shared memory, as weakly ordered as arm64's. A store may become visible later than stores that follow it in the
//! program. A load may return an earlier value, back to the last full barrier, the last value that the CPU saw of the
//! same word, or the load that gave the address, whichever is the latest.
//!
//! Not modelled: loads that are performed after stores that follow them in the program.

use std::collections::BTreeMap;

/// A point in time: the number of stores that have become visible.
pub type Time = u32;

/// A store that other CPUs do not see yet.
#[derive(Debug, Clone, Copy)]
struct Pending {
    word: u64,
    mask: u64,
    value: u64,
}

/// The memory as seen by one CPU.
#[derive(Debug, Default, Clone)]
struct View {
    /// No load returns a value from before this time.
    barrier: Time,
    /// The same for single words.
    seen: BTreeMap<u64, Time>,
    /// Late stores, in program order.
    pending: Vec<Pending>,
}

/// The memory. Words have eight bytes.
#[derive(Debug, Clone)]
pub struct Memory {
    now: Time,
    /// All values of a word, and when each became visible. Absent words were never written and are 0.
    words: BTreeMap<u64, Vec<(Time, u64)>>,
    views: Vec<View>,
}

impl Memory {
    /// Memory of zeros, for this many CPUs.
    pub fn new(cpus: usize) -> Self {
        Self { now: 0, words: BTreeMap::new(), views: vec![View::default(); cpus] }
    }

    /// The values that a load of a word may return, and when each became visible, the current one first. `since` is the
    /// time of the load that gave the address.
    pub fn versions(&self, cpu: usize, word: u64, since: Time) -> Vec<(Time, u64)> {
        let view = &self.views[cpu];
        let from = view.barrier.max(since).max(view.seen.get(&word).copied().unwrap_or(0));
        let own = |value: u64| {
            let pending = view.pending.iter().filter(|store| store.word == word);
            pending.fold(value, |value, store| value & !store.mask | store.value & store.mask)
        };
        let Some(versions) = self.words.get(&word) else { return vec![(from, own(0))] };
        let mut out: Vec<(Time, u64)> = Vec::new();
        for &(at, value) in versions.iter().rev() {
            out.push((at.max(from), own(value)));
            if at <= from {
                return out;
            }
        }
        out.push((from, own(0)));
        out
    }

    /// Records that a CPU saw a value: it will not see older values of that word.
    pub fn saw(&mut self, cpu: usize, word: u64, at: Time) {
        let seen = self.views[cpu].seen.entry(word).or_default();
        *seen = at.max(*seen);
    }

    /// Stores part of a word. Other CPUs see a `late` store at the CPU's next barrier only.
    pub fn store(&mut self, cpu: usize, word: u64, mask: u64, value: u64, late: bool) {
        let behind = self.views[cpu].pending.iter().any(|store| store.word == word);
        if late || behind {
            self.views[cpu].pending.push(Pending { word, mask, value });
        } else {
            self.commit(cpu, Pending { word, mask, value });
        }
    }

    fn commit(&mut self, cpu: usize, store: Pending) {
        self.now += 1;
        let versions = self.words.entry(store.word).or_default();
        let old = versions.last().map_or(0, |version| version.1);
        versions.push((self.now, old & !store.mask | store.value & store.mask));
        self.saw(cpu, store.word, self.now);
    }

    /// A full barrier: all stores of the CPU become visible, and later loads return no older values.
    pub fn barrier(&mut self, cpu: usize) {
        for store in std::mem::take(&mut self.views[cpu].pending) {
            self.commit(cpu, store);
        }
        self.views[cpu].barrier = self.now;
    }

    /// Makes the CPU's stores to one word visible, as an atomic operation without a barrier does.
    pub fn flush_word(&mut self, cpu: usize, word: u64) {
        let (mine, others) =
            std::mem::take(&mut self.views[cpu].pending).into_iter().partition(|store| store.word == word);
        self.views[cpu].pending = others;
        let mine: Vec<Pending> = mine;
        mine.into_iter().for_each(|store| self.commit(cpu, store));
    }

    /// Makes every CPU see the current values, and drops all earlier ones.
    pub fn forget_history(&mut self) {
        (0..self.views.len()).for_each(|cpu| self.barrier(cpu));
        for view in &mut self.views {
            view.barrier = self.now;
            view.seen.clear();
        }
        for versions in self.words.values_mut() {
            versions.drain(..versions.len() - 1);
        }
    }

    /// The current value of a word.
    pub fn latest(&self, word: u64) -> u64 {
        self.words.get(&word).and_then(|versions| versions.last()).map_or(0, |version| version.1)
    }
}
