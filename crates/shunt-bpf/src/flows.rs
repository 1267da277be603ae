//! The flow tables as they are read: whole, a batch of buckets at a time.

use crate::{
    Error,
    abi::{self, Cold, Flow, Key4, Key6, Plain},
    plane::CONTROL,
};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

/// A flow as it is kept: its action, the addresses it translates to, and the rest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Entry {
    /// The action and the counts.
    pub flow: Flow,
    /// New source and then new destination address: 4 or 16 bytes each.
    pub to: [u8; 32],
    /// Counts of other CPUs, and the time of learning.
    pub cold: Cold,
}

impl Entry {
    /// Packets forwarded.
    pub fn pkts(&self) -> u64 {
        self.flow.pkts.wrapping_add(self.cold.away_pkts)
    }

    /// Bytes forwarded, from the L3 header on.
    pub fn bytes(&self) -> u64 {
        self.flow.bytes.wrapping_add(self.cold.away_bytes)
    }
}

/// What a flow is found by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// IPv4.
    V4(Key4),
    /// IPv6.
    V6(Key6),
}

/// Handles of its own on the flow tables, so that another thread than the data plane's can read them.
#[derive(Debug)]
pub struct FlowTable {
    v4: [MapHandle; 2],
    v6: [MapHandle; 2],
    control: MapHandle,
    past: MapHandle,
}

impl FlowTable {
    pub(crate) fn of<'m>(map: impl Fn(&'static str) -> Result<&'m MapHandle, Error>) -> Result<Self, Error> {
        let own = |name| MapHandle::try_from(map(name)?).map_err(|source| Error::Map { map: name, source });
        Ok(Self {
            v4: [own("shunt_table4")?, own("shunt_cold4")?],
            v6: [own("shunt_table6")?, own("shunt_cold6")?],
            control: own(CONTROL)?,
            past: own("shunt_past")?,
        })
    }

    /// The present epoch.
    pub fn epoch(&self) -> Result<u32, Error> {
        let failed = |source| Error::Map { map: CONTROL, source };
        let control = self.control.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).map_err(failed)?;
        Ok(control.as_deref().and_then(abi::Control::of).unwrap_or_default().epoch)
    }

    /// What flows had counted that are gone while their connections are not, by direction.
    pub fn each_past(&self, mut see: impl FnMut(abi::Tuple, abi::Past)) -> Result<(), Error> {
        const BATCH: u32 = 4096;
        let past = self.past.lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY);
        for (keys, values) in past.map_err(|source| Error::Map { map: "shunt_past", source })? {
            let keys = keys.chunks_exact(size_of::<abi::Tuple>()).map(abi::Tuple::of);
            let values = values.chunks_exact(size_of::<abi::Past>()).map(abi::Past::of);
            for (tuple, counts) in keys.zip(values) {
                if let (Some(tuple), Some(counts)) = (tuple, counts) {
                    see(tuple, counts);
                }
            }
        }
        Ok(())
    }

    /// Shows every flow to `see`. Flows that come or go meanwhile may be missed or seen twice.
    pub fn each(&self, mut see: impl FnMut(Key, Entry)) -> Result<(), Error> {
        each_entry(&self.v4, abi::ENTRY4, |bytes, cold| {
            let key = Key4::of(bytes).filter(|key| key.ifindex != 0).map(Key::V4);
            if let (Some(key), Some(entry)) = (key, entry_of(&bytes[size_of::<Key4>()..], 8, cold)) {
                see(key, entry);
            }
        })?;
        each_entry(&self.v6, abi::ENTRY6, |bytes, cold| {
            let key = Key6::of(bytes).filter(|key| key.ifindex != 0).map(Key::V6);
            if let (Some(key), Some(entry)) = (key, entry_of(&bytes[size_of::<Key6>()..], 32, cold)) {
                see(key, entry);
            }
        })
    }
}

fn each_entry(maps: &[MapHandle; 2], size: usize, mut see: impl FnMut(&[u8], &[u8])) -> Result<(), Error> {
    const BATCH: u32 = 256;
    let [table, cold] = maps;
    let failed = |source| Error::Map { map: "shunt_table", source };
    let entries = table.lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY).map_err(failed)?;
    let colds = cold.lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY).map_err(failed)?;
    for ((_, entries), (_, colds)) in entries.zip(colds) {
        for (entry, cold) in entries.chunks_exact(size).zip(colds.chunks_exact(size_of::<Cold>())) {
            see(entry, cold);
        }
    }
    Ok(())
}

fn entry_of(bytes: &[u8], to_bytes: usize, cold: &[u8]) -> Option<Entry> {
    let mut to = [0; 32];
    let at = size_of::<Flow>();
    to[..to_bytes].copy_from_slice(bytes.get(at..at + to_bytes)?);
    Some(Entry { flow: Flow::of(bytes)?, to, cold: Cold::of(cold)? })
}
