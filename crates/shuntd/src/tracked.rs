//! Conntrack's table with what went past it.

use crate::{
    connections::{proto_of, tuple_of, tuple_of_trace},
    reasons,
};
use shunt_api::{Counted, Proto, Tracked, TrackedTable, Tuple};
use shunt_bpf::{DataPlane, FlowTable, abi};
use std::{collections::HashMap, error::Error};

type Counts = HashMap<(Proto, Tuple), Counted>;

/// What went past conntrack, to be read on another thread than the loop's.
#[derive(Debug)]
pub(crate) struct Passed {
    table: FlowTable,
}

impl Passed {
    pub(crate) fn new(plane: &DataPlane) -> Result<Self, shunt_bpf::Error> {
        Ok(Self { table: plane.flows()? })
    }

    /// The whole table. Takes as long as it is large.
    pub(crate) fn table(&self) -> Result<TrackedTable, Box<dyn Error + Send + Sync>> {
        let mut entries = shunt_kernel::tracked()?;
        let fast = self.fast()?;
        entries.iter_mut().for_each(|entry| add(entry, &fast));
        Ok(TrackedTable { counted: shunt_kernel::conntrack_counts(), entries })
    }

    /// By tuple. What a flow has counted moves from the table to the past ones when the flow goes: read before and after,
    /// so that it is in one of the two sums, and the greater sum has it.
    fn fast(&self) -> Result<Counts, shunt_bpf::Error> {
        let mut counts = self.past()?;
        self.table.each(|key, entry| {
            // Its connection has ended; one of the same tuple is another one. So it is where conntrack has never seen it.
            let gone = entry.flow.epoch == abi::EPOCH_RETIRED
                && reasons::name(entry.flow.retired_why) == Some("conntrack-gone")
                || entry.flow.flags & abi::FLOW_UNTRACKED != 0;
            if !gone {
                let count = counts.entry((proto_of(&key), tuple_of(&key))).or_default();
                *count = count.plus(Counted { packets: entry.pkts(), bytes: entry.bytes() });
            }
        })?;
        for (tuple, past) in self.past()? {
            let count = counts.entry(tuple).or_default();
            if past.packets > count.packets {
                *count = past;
            }
        }
        Ok(counts)
    }

    fn past(&self) -> Result<Counts, shunt_bpf::Error> {
        let mut counts = Counts::new();
        self.table.each_past(|tuple, past| {
            let proto = if tuple.l4_proto == 6 { Proto::Tcp } else { Proto::Udp };
            let counted = Counted { packets: past.pkts, bytes: past.bytes };
            counts.insert((proto, tuple_of_trace(&tuple)), counted);
        })?;
        Ok(counts)
    }
}

/// Flows are of the default zone, as all that is learned.
fn add(entry: &mut Tracked, fast: &Counts) {
    let Some(proto) = entry.proto().filter(|_| entry.zone.is_none()) else { return };
    for direction in [&mut entry.orig, &mut entry.reply] {
        if let Some(passed) = fast.get(&(proto, direction.tuple())).filter(|_| direction.zone.is_none()) {
            direction.fast = *passed;
            direction.count = direction.count.map(|count| count.plus(*passed));
        }
    }
}
