//! The flow tables as they are read: whole, a batch of entries at a time.

use crate::{
    Error,
    abi::{self, Cold, Flow, Key4, Key6, Plain},
    plane::{CONTROL, USAGE},
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
    usage: MapHandle,
    past: MapHandle,
}

impl FlowTable {
    pub(crate) fn of<'m>(map: impl Fn(&'static str) -> Result<&'m MapHandle, Error>) -> Result<Self, Error> {
        let own = |name| MapHandle::try_from(map(name)?).map_err(|source| Error::Map { map: name, source });
        Ok(Self {
            v4: [own("shunt_table4")?, own("shunt_cold4")?],
            v6: [own("shunt_table6")?, own("shunt_cold6")?],
            control: own(CONTROL)?,
            usage: own(USAGE)?,
            past: own("shunt_past")?,
        })
    }

    /// The present epoch.
    pub fn epoch(&self) -> Result<u32, Error> {
        Ok(variable::<abi::Control>(&self.control, CONTROL)?.epoch)
    }

    /// What flows had counted that are gone while their connections are not, by direction.
    pub fn each_past(&self, mut see: impl FnMut(abi::Tuple, abi::Past)) -> Result<(), Error> {
        const BATCH: u32 = 4096;
        let past = self.past.lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY);
        for (tuple, counts) in past.map_err(|source| Error::Map { map: "shunt_past", source })? {
            if let (Some(tuple), Some(counts)) = (abi::Tuple::of(&tuple), abi::Past::of(&counts)) {
                see(tuple, counts);
            }
        }
        Ok(())
    }

    /// Shows every flow to `see`. Flows that come or go meanwhile may be missed or seen twice.
    pub fn each(&self, mut see: impl FnMut(Key, Entry)) -> Result<(), Error> {
        let [fresh4, fresh6] = variable::<abi::Usage>(&self.usage, USAGE)?.fresh;
        each_entry(&self.v4, fresh4, |bytes, cold| {
            let key = Key4::of(bytes).filter(|key| key.ifindex != 0).map(Key::V4);
            if let (Some(key), Some(entry)) = (key, entry_of(&bytes[size_of::<Key4>()..], 8, cold)) {
                see(key, entry);
            }
        })?;
        each_entry(&self.v6, fresh6, |bytes, cold| {
            let key = Key6::of(bytes).filter(|key| key.ifindex != 0).map(Key::V6);
            if let (Some(key), Some(entry)) = (key, entry_of(&bytes[size_of::<Key6>()..], 32, cold)) {
                see(key, entry);
            }
        })
    }
}

/// The value of a variable of the programs.
pub(crate) fn variable<T: Plain + Default>(map: &MapHandle, name: &'static str) -> Result<T, Error> {
    let found = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY);
    let found = found.map_err(|source| Error::Map { map: name, source })?;
    Ok(found.as_deref().and_then(T::of).unwrap_or_default())
}

/// The entries before `fresh`, from which on none ever was in use.
fn each_entry(maps: &[MapHandle; 2], fresh: u64, mut see: impl FnMut(&[u8], &[u8])) -> Result<(), Error> {
    const BATCH: u32 = 1024;
    let [table, cold] = maps;
    let failed = |source| Error::Map { map: "shunt_table", source };
    let entries = table.lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY).map_err(failed)?;
    let colds = cold.lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY).map_err(failed)?;
    let fresh = usize::try_from(fresh).unwrap_or(usize::MAX);
    for ((_, entry), (_, cold)) in entries.zip(colds).take(fresh) {
        see(&entry, &cold);
    }
    Ok(())
}

fn entry_of(bytes: &[u8], to_bytes: usize, cold: &[u8]) -> Option<Entry> {
    let mut to = [0; 32];
    let at = size_of::<Flow>();
    to[..to_bytes].copy_from_slice(bytes.get(at..at + to_bytes)?);
    Some(Entry { flow: Flow::of(bytes)?, to, cold: Cold::of(cold)? })
}
