//! Answers `shunt conntrack`: conntrack's table, with the packets that the fast path has forwarded added to its counts.

use crate::{
    control::TrackedEntries,
    failures::internal,
    flow_entry::{expired_tuple, key_proto, key_tuple},
    place_index::PlaceIndex,
    reasons,
};
use shunt_api::{Counted, Failure, Proto, Tracked, Tuple};
use shunt_bpf::{DataPlane, Entry, Error, FlowTable, Key, abi};

/// Reads both tables, on another thread than the event loop's.
#[derive(Debug)]
pub(crate) struct ConntrackReader {
    table: FlowTable,
}

impl ConntrackReader {
    pub(crate) fn new(plane: &DataPlane) -> Result<Self, Error> {
        Ok(Self { table: plane.flows()? })
    }

    /// Reads where the flows are, and conntrack's entries as the caller asks for them.
    pub(crate) fn read(self) -> Result<TrackedEntries, Failure> {
        let fast = FastCounts::new(self.table).map_err(internal)?;
        let entries = shunt_kernel::conntrack_table().map_err(internal)?.map(move |entry| {
            let mut entry = entry.map_err(internal)?;
            fast.add_to(&mut entry).map_err(internal)?;
            Ok(entry)
        });
        Ok(TrackedEntries { counted: shunt_kernel::conntrack_accounting(), entries: Box::new(entries) })
    }
}

/// Packets and bytes that the fast path has forwarded, by tuple.
struct FastCounts {
    table: FlowTable,
    flows: PlaceIndex,
    /// Whether a flow had expired when `flows` had been read. One that expires later is among them.
    had_expired: bool,
}

impl FastCounts {
    fn new(table: FlowTable) -> Result<Self, Error> {
        let flows = PlaceIndex::new(&table, counts_for)?;
        let had_expired = table.has_expired()?;
        Ok(Self { table, flows, had_expired })
    }

    /// When a flow leaves the table, its counts move to the counters of expired flows. These are read before and after
    /// the table, so that at least one of the two sums has the counts; the greater sum is right.
    fn of(&self, proto: Proto, tuple: Tuple) -> Result<Counted, Error> {
        let mut places = self.flows.find(&(proto, tuple)).peekable();
        if places.peek().is_none() && !self.had_expired {
            return Ok(Counted::default());
        }
        let mut count = self.expired(proto, &tuple)?;
        for place in places {
            if let Some((key, entry)) = self.table.at(place)?
                && counts_for(&key, &entry) == Some((proto, tuple))
            {
                count = count.plus(Counted { packets: entry.pkts(), bytes: entry.bytes() });
            }
        }
        let after = self.expired(proto, &tuple)?;
        Ok(if after.packets > count.packets { after } else { count })
    }

    fn expired(&self, proto: Proto, tuple: &Tuple) -> Result<Counted, Error> {
        let expired = self.table.expired(&expired_tuple(proto, tuple))?;
        Ok(expired.map(|past| Counted { packets: past.pkts, bytes: past.bytes }).unwrap_or_default())
    }

    /// Adds the fast path's counts to an entry of the default zone: nothing is learned from other zones.
    fn add_to(&self, entry: &mut Tracked) -> Result<(), Error> {
        let Some(proto) = entry.proto().filter(|_| entry.zone.is_none()) else { return Ok(()) };
        for direction in [&mut entry.orig, &mut entry.reply] {
            if direction.zone.is_none() {
                direction.fast = self.of(proto, direction.tuple())?;
                direction.count = direction.count.map(|count| count.plus(direction.fast));
            }
        }
        Ok(())
    }
}

/// The protocol and the tuple of the conntrack entry that a flow's packets belong to. If conntrack has forgotten the
/// connection, an entry with the same tuple is another connection's. If it never tracked the connection, it has no
/// entry.
fn counts_for(key: &Key, entry: &Entry) -> Option<(Proto, Tuple)> {
    let is_other = entry.flow.retired_why().and_then(reasons::name) == Some("conntrack-gone")
        || entry.flow.flags & abi::FLOW_UNTRACKED != 0;
    (!is_other).then(|| (key_proto(key), key_tuple(key)))
}
