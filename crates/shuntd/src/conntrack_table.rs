//! Answers `shunt conntrack`: conntrack's table, with the packets that the fast path has forwarded added to its counts.

use crate::{
    flow_entry::{key_proto, key_tuple, trace_proto, trace_tuple},
    reasons,
};
use shunt_api::{Counted, Proto, Tracked, TrackedTable, Tuple};
use shunt_bpf::{DataPlane, FlowTable, abi};
use std::{collections::HashMap, error::Error};

type Counts = HashMap<(Proto, Tuple), Counted>;

/// Reads both tables, on another thread than the event loop's.
#[derive(Debug)]
pub(crate) struct ConntrackReader {
    table: FlowTable,
}

impl ConntrackReader {
    pub(crate) fn new(plane: &DataPlane) -> Result<Self, shunt_bpf::Error> {
        Ok(Self { table: plane.flows()? })
    }

    /// Reads the whole table: takes as long as the table is large.
    pub(crate) fn read(&self) -> Result<TrackedTable, Box<dyn Error + Send + Sync>> {
        let mut entries = shunt_kernel::conntrack_table()?;
        let fast = self.fast_counts()?;
        entries.iter_mut().for_each(|entry| add_fast_counts(entry, &fast));
        Ok(TrackedTable { counted: shunt_kernel::conntrack_accounting(), entries })
    }

    /// Packets and bytes that the fast path has forwarded, by tuple. When a flow leaves the table, its counts move to
    /// the counters of expired flows. These are read before and after the table, so that at least one of the two sums
    /// has the counts; the greater sum is right.
    fn fast_counts(&self) -> Result<Counts, shunt_bpf::Error> {
        let mut counts = self.expired_counts()?;
        self.table.for_each(|key, entry| {
            // If conntrack has forgotten the connection, an entry with the same tuple is another connection's. If it
            // never tracked the connection, it has no entry.
            let is_other = entry.flow.retired_why().and_then(reasons::name) == Some("conntrack-gone")
                || entry.flow.flags & abi::FLOW_UNTRACKED != 0;
            if !is_other {
                let count = counts.entry((key_proto(&key), key_tuple(&key))).or_default();
                *count = count.plus(Counted { packets: entry.pkts(), bytes: entry.bytes() });
            }
        })?;
        for (tuple, expired) in self.expired_counts()? {
            let count = counts.entry(tuple).or_default();
            if expired.packets > count.packets {
                *count = expired;
            }
        }
        Ok(counts)
    }

    fn expired_counts(&self) -> Result<Counts, shunt_bpf::Error> {
        let mut counts = Counts::new();
        self.table.for_each_expired(|tuple, past| {
            let counted = Counted { packets: past.pkts, bytes: past.bytes };
            counts.insert((trace_proto(&tuple), trace_tuple(&tuple)), counted);
        })?;
        Ok(counts)
    }
}

/// Adds the fast path's counts to an entry of the default zone: nothing is learned from other zones.
fn add_fast_counts(entry: &mut Tracked, fast: &Counts) {
    let Some(proto) = entry.proto().filter(|_| entry.zone.is_none()) else { return };
    for direction in [&mut entry.orig, &mut entry.reply] {
        if let Some(counted) = fast.get(&(proto, direction.tuple())).filter(|_| direction.zone.is_none()) {
            direction.fast = *counted;
            direction.count = direction.count.map(|count| count.plus(*counted));
        }
    }
}
