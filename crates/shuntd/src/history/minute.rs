//! A minute of traffic.

use shunt_api::HistoryTable;
use shunt_bpf::abi::{Counters, REASONS, ReasonKind};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The reasons that a minute keeps.
const REASONS_MAX: usize = 3;

/// What a device has received and sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DeviceCounts {
    pub(crate) in_bytes: u64,
    pub(crate) in_pkts: u64,
    pub(crate) out_bytes: u64,
    pub(crate) out_pkts: u64,
}

/// What was counted within a minute, or a part of one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counted {
    pub(crate) seconds: f64,
    /// By all ports together.
    pub(crate) counters: Counters,
    /// By the devices of ports.
    pub(crate) devices: BTreeMap<String, DeviceCounts>,
    /// Core seconds that the fast path has saved; `None` if nobody can tell.
    pub(crate) saved_core_s: Option<f64>,
}

/// A minute, as it is kept.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Minute {
    pub(super) seconds: f64,
    pub(super) fast: u64,
    pub(super) slow: u64,
    pub(super) dropped: u64,
    pub(super) saved_core_s: Option<f64>,
    /// All ports together.
    pub(super) all: DeviceCounts,
    pub(super) ports: Box<[(Arc<str>, DeviceCounts)]>,
    /// Numbers of reasons, with their packets.
    pub(super) reasons: Box<[(u8, u64)]>,
}

/// The names of the ports of the last day, each once.
#[derive(Debug, Default)]
pub(super) struct PortNames(BTreeSet<Arc<str>>);

impl DeviceCounts {
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            in_bytes: self.in_bytes.saturating_add(other.in_bytes),
            in_pkts: self.in_pkts.saturating_add(other.in_pkts),
            out_bytes: self.out_bytes.saturating_add(other.out_bytes),
            out_pkts: self.out_pkts.saturating_add(other.out_pkts),
        }
    }

    /// What was counted since an earlier reading. A device that counts from zero again, since it was made again, has
    /// counted all of it since.
    pub(crate) fn since(self, earlier: Self) -> Self {
        let began_again = self.in_bytes < earlier.in_bytes
            || self.in_pkts < earlier.in_pkts
            || self.out_bytes < earlier.out_bytes
            || self.out_pkts < earlier.out_pkts;
        if began_again {
            return self;
        }
        Self {
            in_bytes: self.in_bytes - earlier.in_bytes,
            in_pkts: self.in_pkts - earlier.in_pkts,
            out_bytes: self.out_bytes - earlier.out_bytes,
            out_pkts: self.out_pkts - earlier.out_pkts,
        }
    }
}

impl Minute {
    pub(super) fn new(counted: &Counted, names: &mut PortNames) -> Self {
        let Counted { seconds, counters, devices, saved_core_s } = counted;
        let mut reasons: Vec<(u8, u64)> = REASONS
            .iter()
            .filter(|reason| reason.kind == ReasonKind::Punt)
            .filter_map(|reason| Some((u8::try_from(reason.number).ok()?, counters.reasons[reason.number])))
            .filter(|(_, packets)| *packets > 0)
            .collect();
        reasons.sort_by_key(|(_, packets)| Reverse(*packets));
        reasons.truncate(REASONS_MAX);
        let mut busiest: Vec<_> = devices.iter().collect();
        busiest.sort_by_key(|(_, counts)| Reverse(counts.in_bytes.saturating_add(counts.out_bytes)));
        busiest.truncate(HistoryTable::PORTS_MAX);
        let ports = busiest.into_iter().map(|(name, counts)| (names.get(name), *counts));
        Self {
            seconds: *seconds,
            fast: counters.xdp_pkts + counters.tc_pkts + counters.external_pkts,
            slow: counters.slow_pkts,
            dropped: counters.dropped_pkts,
            saved_core_s: *saved_core_s,
            all: devices.values().copied().fold(DeviceCounts::default(), DeviceCounts::plus),
            ports: ports.collect(),
            reasons: reasons.into(),
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        // The counts of the Arc that a minute is in.
        let counts = 2 * size_of::<usize>();
        counts
            + size_of::<Self>()
            + self.ports.len() * size_of::<(Arc<str>, DeviceCounts)>()
            + self.reasons.len() * size_of::<(u8, u64)>()
    }
}

impl PortNames {
    /// The shared form of a name.
    pub(super) fn get(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.0.get(name) {
            return Arc::clone(known);
        }
        // Names of devices that no minute has any more.
        self.0.retain(|known| Arc::strong_count(known) > 1);
        let name = Arc::<str>::from(name);
        self.0.insert(Arc::clone(&name));
        name
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.0.iter().map(|name| size_of::<Arc<str>>() + 2 * size_of::<usize>() + name.len()).sum()
    }
}
