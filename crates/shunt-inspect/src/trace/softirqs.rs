//! What softirqs of each CPU did, and when.

use super::abi::{TRACE_FOREIGN, TraceSwitch};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// The names of softirqs by number, as /proc/softirqs has them.
const VECTORS: [&str; 10] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];

/// The work of a softirq.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SoftirqWork {
    /// Its name in /proc/softirqs, such as `NET_RX`.
    pub vector: String,
    /// The device from which most of its packets came; None if no device had most.
    pub device: Option<String>,
    /// Whether the device belongs to another network namespace than the one that is traced.
    pub foreign: bool,
}

#[derive(Debug)]
struct Softirq {
    from_ns: u64,
    to_ns: u64,
    work: SoftirqWork,
}

/// Softirqs by CPU, in the order of time. Those of one CPU do not overlap.
#[derive(Debug, Default)]
pub(super) struct Softirqs(BTreeMap<u32, Vec<Softirq>>);

impl Softirqs {
    /// Adds a softirq that ended after those that were added before.
    pub(super) fn add(&mut self, event: &TraceSwitch) {
        let end = event.device.iter().position(|byte| *byte == 0).unwrap_or(event.device.len());
        let vector = VECTORS.get(event.vector as usize);
        let work = SoftirqWork {
            vector: vector.map_or_else(|| format!("softirq {}", event.vector), |name| (*name).to_owned()),
            device: (end > 0).then(|| String::from_utf8_lossy(&event.device[..end]).into_owned()),
            foreign: event.flags & TRACE_FOREIGN != 0,
        };
        let (from_ns, to_ns) = (event.at_ns.saturating_sub(event.took_ns), event.at_ns);
        self.0.entry(event.cpu).or_default().push(Softirq { from_ns, to_ns, work });
    }

    /// The work of a CPU's softirqs in this time, and how long each took.
    pub(super) fn between(&self, cpu: u32, from_ns: u64, to_ns: u64) -> BTreeMap<&SoftirqWork, u64> {
        let all = self.0.get(&cpu).map_or(&[][..], Vec::as_slice);
        let mut times = BTreeMap::new();
        for one in during(all, |one| (one.from_ns, one.to_ns), from_ns, to_ns) {
            let (from, to) = (one.from_ns.max(from_ns), one.to_ns.min(to_ns));
            *times.entry(&one.work).or_default() += to.saturating_sub(from);
        }
        times
    }
}

/// The work that took at least half of this time.
pub(super) fn most(times: impl IntoIterator<Item = (Option<SoftirqWork>, u64)>) -> Option<SoftirqWork> {
    let mut all: BTreeMap<Option<SoftirqWork>, u64> = BTreeMap::new();
    times.into_iter().for_each(|(work, ns)| *all.entry(work).or_default() += ns);
    let sum: u64 = all.values().sum();
    all.into_iter().find(|(_, ns)| 2 * ns >= sum).and_then(|(work, _)| work)
}

/// Those of these times that overlap this one. They are in order, and do not overlap each other.
pub(super) fn during<T>(all: &[T], ends: impl Fn(&T) -> (u64, u64), from_ns: u64, to_ns: u64) -> &[T] {
    let first = all.partition_point(|one| ends(one).1 <= from_ns);
    let later = &all[first..];
    &later[..later.partition_point(|one| ends(one).0 < to_ns)]
}

impl fmt::Display for SoftirqWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.vector)?;
        match (&self.device, self.foreign) {
            (None, _) => Ok(()),
            (Some(device), false) => write!(f, ", most packets from {device}"),
            (Some(device), true) => write!(f, ", most packets from {device} of another network namespace"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_overlaps_a_time_belongs_to_it() {
        let all: Vec<(u64, u64)> = (0..100).map(|n| (n * 10, n * 10 + 5)).collect();
        let of = |from, to| during(&all, |one| *one, from, to).to_vec();
        assert_eq!(of(20, 25), [(20, 25)]);
        assert_eq!(of(24, 31), [(20, 25), (30, 35)]);
        assert_eq!(of(25, 30), []);
        assert_eq!((of(0, u64::MAX).len(), of(5000, 6000).len()), (100, 0));
    }

    #[test]
    fn work_is_named_only_if_it_took_half_of_the_time() {
        let event = |at_ns, took_ns, vector, device: &[u8], flags| {
            let mut event = TraceSwitch { at_ns, took_ns, vector, flags, cpu: 1, ..TraceSwitch::default() };
            event.device[..device.len()].copy_from_slice(device);
            event
        };
        let mut all = Softirqs::default();
        all.add(&event(1000, 500, 3, b"eth1", 0));
        all.add(&event(2000, 500, 3, b"eth1", TRACE_FOREIGN));
        all.add(&event(3000, 100, 1, b"", 0));
        all.add(&event(4000, 100, 99, b"", 0));
        let texts: Vec<String> = all.between(1, 0, 5000).keys().map(ToString::to_string).collect();
        let foreign = "NET_RX, most packets from eth1 of another network namespace";
        assert_eq!(texts, ["NET_RX, most packets from eth1", foreign, "TIMER", "softirq 99"]);
        assert!(all.between(0, 0, 5000).is_empty());
        let most_of =
            |from, to| most(all.between(1, from, to).into_iter().map(|(work, ns)| (Some(work.clone()), ns)));
        assert_eq!(most_of(0, 5000), None);
        assert_eq!(most_of(0, 1600).unwrap().to_string(), texts[0]);
        assert_eq!(most_of(1600, 5000).unwrap().to_string(), foreign);
        assert_eq!(most([(None, 60), (most_of(0, 1600), 40)]), None);
    }
}
