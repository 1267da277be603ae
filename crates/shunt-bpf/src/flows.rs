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

/// The key of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// IPv4.
    V4(Key4),
    /// IPv6.
    V6(Key6),
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

    /// Calls `visit` with the counters of every expired flow, by tuple: flows that left the table before their connection
    /// ended.
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

    /// Calls `visit` with every flow. A flow that is inserted or removed meanwhile may be missed or seen twice.
    pub fn for_each(&self, mut visit: impl FnMut(Key, Entry)) -> Result<(), Error> {
        let [fresh4, fresh6] = read_variable::<abi::Usage>(&self.usage, USAGE)?.fresh;
        each_entry(&self.v4, fresh4, |bytes, cold| {
            let key = Key4::from_bytes(bytes).filter(|key| key.ifindex != 0).map(Key::V4);
            if let (Some(key), Some(entry)) = (key, entry_of(&bytes[size_of::<Key4>()..], 8, cold)) {
                visit(key, entry);
            }
        })?;
        each_entry(&self.v6, fresh6, |bytes, cold| {
            let key = Key6::from_bytes(bytes).filter(|key| key.ifindex != 0).map(Key::V6);
            if let (Some(key), Some(entry)) = (key, entry_of(&bytes[size_of::<Key6>()..], 32, cold)) {
                visit(key, entry);
            }
        })
    }
}

/// Calls `visit` with both parts of each entry before `fresh`, the first entry that was never used.
fn each_entry(maps: &[MapHandle; 2], fresh: u64, mut visit: impl FnMut(&[u8], &[u8])) -> Result<(), Error> {
    const BATCH: u32 = 1024;
    let [table, cold] = maps;
    let failed = |source| Error::Map { map: "shunt_table", source };
    let entries = table.lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY).map_err(failed)?;
    let colds = cold.lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY).map_err(failed)?;
    let fresh = usize::try_from(fresh).unwrap_or(usize::MAX);
    for ((_, entry), (_, cold)) in entries.zip(colds).take(fresh) {
        visit(&entry, &cold);
    }
    Ok(())
}

fn entry_of(bytes: &[u8], to_bytes: usize, cold: &[u8]) -> Option<Entry> {
    let mut to = [0; 32];
    let at = size_of::<Flow>();
    to[..to_bytes].copy_from_slice(bytes.get(at..at + to_bytes)?);
    Some(Entry { flow: Flow::from_bytes(bytes)?, to, cold: Cold::from_bytes(cold)? })
}
