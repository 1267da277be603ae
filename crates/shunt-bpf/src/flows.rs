//! Reads the flow tables, a batch of entries at a time.

use crate::{
    Error,
    abi::{self, Cold, Flow, Key4, Key6, Plain},
    epochs::Epochs,
    maps::{EXPIRED, USAGE, read_variable},
};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

/// An entry of the flow table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Entry {
    /// The action and its state.
    pub flow: Flow,
    /// The new source and destination address, 4 or 16 bytes each.
    pub to: [u8; 32],
    /// The rarely used part, with the counters of other CPUs.
    pub cold: Cold,
}

impl Entry {
    /// Packets forwarded.
    pub fn pkts(&self) -> u64 {
        self.cold.remote_pkts.wrapping_add(self.flow.pkts.into())
    }

    /// Bytes forwarded, from the L3 header on.
    pub fn bytes(&self) -> u64 {
        self.flow.bytes.wrapping_add(self.cold.remote_bytes)
    }
}

/// The place of an entry in the flow tables, where the entry stays until it is freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryIndex(u32);

/// Set in the places of the IPv6 table.
const IN_V6: u32 = 1 << 31;

/// The key of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// IPv4.
    V4(Key4),
    /// IPv6.
    V6(Key6),
}

impl Key {
    fn ifindex(&self) -> u32 {
        match self {
            Self::V4(key) => key.ifindex,
            Self::V6(key) => key.ifindex,
        }
    }
}

/// Handles of the flow tables, independent of the data plane, so that another thread can read them.
#[derive(Debug)]
pub struct FlowTable {
    v4: [MapHandle; 2],
    v6: [MapHandle; 2],
    usage: MapHandle,
    past: MapHandle,
    epochs: Epochs,
}

impl FlowTable {
    pub(crate) fn open<'m>(
        epochs: Epochs,
        map: impl Fn(&'static str) -> Result<&'m MapHandle, Error>,
    ) -> Result<Self, Error> {
        let own = |name| MapHandle::try_from(map(name)?).map_err(|source| Error::Map { map: name, source });
        Ok(Self {
            v4: [own("shunt_table4")?, own("shunt_cold4")?],
            v6: [own("shunt_table6")?, own("shunt_cold6")?],
            usage: own(USAGE)?,
            past: own(EXPIRED)?,
            epochs,
        })
    }

    /// What tells whether a flow's action is current.
    pub fn epochs(&self) -> &Epochs {
        &self.epochs
    }

    /// Calls `visit` with the counters of every expired flow, by tuple: flows that left the table before their
    /// connection ended.
    pub fn for_each_expired(&self, mut visit: impl FnMut(abi::Tuple, abi::Expired)) -> Result<(), Error> {
        const BATCH: u32 = 4096;
        let past = self.past.lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY);
        for (tuple, counts) in past.map_err(|source| Error::Map { map: EXPIRED, source })? {
            if let (Some(tuple), Some(counts)) =
                (abi::Tuple::from_bytes(&tuple), abi::Expired::from_bytes(&counts))
            {
                visit(tuple, counts);
            }
        }
        Ok(())
    }

    /// Whether there may be counters of expired flows.
    pub fn has_expired(&self) -> Result<bool, Error> {
        Ok(read_variable::<abi::Usage>(&self.usage, USAGE)?.expired > 0)
    }

    /// The counters of an expired flow; `None` if none of this tuple has expired.
    pub fn expired(&self, tuple: &abi::Tuple) -> Result<Option<abi::Expired>, Error> {
        let found = self.past.lookup(tuple.bytes(), MapFlags::ANY);
        let found = found.map_err(|source| Error::Map { map: EXPIRED, source })?;
        Ok(found.as_deref().and_then(abi::Expired::from_bytes))
    }

    /// Calls `visit` with every flow. A flow that is inserted or removed meanwhile may be missed or seen twice.
    pub fn for_each(&self, mut visit: impl FnMut(Key, Entry)) -> Result<(), Error> {
        self.for_each_place(|_, key, entry| visit(key, entry))
    }

    /// As [`FlowTable::for_each`], with the place of each flow. Places ascend.
    pub fn for_each_place(&self, mut visit: impl FnMut(EntryIndex, Key, Entry)) -> Result<(), Error> {
        self.for_each_used(|place, key, entry| {
            if key.ifindex() != 0 {
                visit(place, key, entry);
            }
        })
    }

    /// Calls `visit` with every flow that has counted a packet, and with those that have left the table and whose
    /// entries are not yet freed. The keys of the latter have the ifindex 0.
    pub fn for_each_counted(&self, mut visit: impl FnMut(Key, Entry)) -> Result<(), Error> {
        self.for_each_used(|_, key, entry| {
            if entry.pkts() != 0 && entry.flow.state != 0 {
                visit(key, entry);
            }
        })
    }

    fn for_each_used(&self, mut visit: impl FnMut(EntryIndex, Key, Entry)) -> Result<(), Error> {
        let [fresh4, fresh6] = read_variable::<abi::Usage>(&self.usage, USAGE)?.fresh;
        for (maps, fresh, family) in [(&self.v4, fresh4, 0), (&self.v6, fresh6, IN_V6)] {
            each_entry(maps, fresh, |at, bytes, cold| {
                let place = EntryIndex(at | family);
                if let Some((key, entry)) = place.parse(bytes, cold) {
                    visit(place, key, entry);
                }
            })?;
        }
        Ok(())
    }

    /// The flow at a place; `None` if there is none now.
    pub fn at(&self, place: EntryIndex) -> Result<Option<(Key, Entry)>, Error> {
        let [table, cold] = if place.is_v6() { &self.v6 } else { &self.v4 };
        let at = (place.0 & !IN_V6).to_ne_bytes();
        let read = |map: &MapHandle| map.lookup(&at, MapFlags::ANY).map_err(table_failure);
        let found = read(table)?.zip(read(cold)?).and_then(|(bytes, cold)| place.parse(&bytes, &cold));
        Ok(found.filter(|(key, _)| key.ifindex() != 0))
    }
}

impl EntryIndex {
    fn is_v6(self) -> bool {
        self.0 & IN_V6 != 0
    }

    /// The flow of both parts of an entry at this place; without an ifindex if it is not in the table.
    fn parse(self, bytes: &[u8], cold: &[u8]) -> Option<(Key, Entry)> {
        if self.is_v6() {
            let key = Key6::from_bytes(bytes)?;
            Some((Key::V6(key), entry_of(bytes.get(size_of::<Key6>()..)?, 32, cold)?))
        } else {
            let key = Key4::from_bytes(bytes)?;
            Some((Key::V4(key), entry_of(bytes.get(size_of::<Key4>()..)?, 8, cold)?))
        }
    }
}

fn table_failure(source: libbpf_rs::Error) -> Error {
    Error::Map { map: "shunt_table", source }
}

/// Calls `visit` with the index and both parts of each entry before `fresh`, the first entry that was never used.
fn each_entry(
    maps: &[MapHandle; 2],
    fresh: u64,
    mut visit: impl FnMut(u32, &[u8], &[u8]),
) -> Result<(), Error> {
    const BATCH: u32 = 1024;
    let [table, cold] = maps;
    let entries = table.lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY).map_err(table_failure)?;
    let colds = cold.lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY).map_err(table_failure)?;
    let fresh = u32::try_from(fresh).unwrap_or(u32::MAX);
    for (at, ((_, entry), (_, cold))) in (0..fresh).zip(entries.zip(colds)) {
        visit(at, &entry, &cold);
    }
    Ok(())
}

fn entry_of(bytes: &[u8], to_bytes: usize, cold: &[u8]) -> Option<Entry> {
    let mut to = [0; 32];
    let at = size_of::<Flow>();
    to[..to_bytes].copy_from_slice(bytes.get(at..at + to_bytes)?);
    Some(Entry { flow: Flow::from_bytes(bytes)?, to, cold: Cold::from_bytes(cold)? })
}
