//! The maps of the loaded objects, by name, and the names that more than one file uses.

use crate::{Error, abi::Plain};
use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle};
use std::{
    collections::BTreeMap,
    os::fd::{AsFd, BorrowedFd},
};

// A global variable of the programs is a map of one element, named after its section.
/// The map of `struct shunt_control`.
pub const CONTROL_MAP: &str = ".bss.control";
/// The counters of the ports, by slot.
pub(crate) const COUNTERS: &str = "shunt_counters";
/// How often the stations of each group have changed.
pub(crate) const GROUPS: &str = ".bss.groups";
/// Which entries flows have, without a look-up in the index.
pub(crate) const HINTS: &str = ".bss.hints";
pub(crate) const PORT_CACHE: &str = ".bss.port_cache";
pub(crate) const USAGE: &str = ".bss.usage";
/// Counts and TCP positions of flows that have left the table. Memory is allocated per entry.
pub(crate) const EXPIRED: &str = "shunt_expired";

/// The ring of final counters of flows.
pub(crate) const FINALS: &str = "shunt_finals";

/// The filter of what flows depend on.
pub(crate) const MARKS: &str = "shunt_marks";
/// Stations whose changes have ended flows.
pub(crate) const UNSTABLE: &str = "shunt_unstable";
/// The connections that a person has turned off.
pub(crate) const OFF: &str = "shunt_off";
/// The CPU time of packets, by CPU.
pub(crate) const NET_TIMES: &str = "shunt_net_times";
/// The sets of nftables whose elements concern only packets with certain addresses.
pub(crate) const SETS: &str = "shunt_sets";
/// The chains and sets of nftables that forwarded packets may meet.
pub(crate) const PATH: &str = "shunt_path";

/// All maps of the loaded objects. Objects that name the same map share it.
#[derive(Debug, Default)]
pub(crate) struct Maps {
    by_name: BTreeMap<String, MapHandle>,
}

impl Maps {
    /// Further handles of the same maps.
    pub(crate) fn try_clone(&self) -> Result<Self, Error> {
        let clone = |(name, map): (&String, &MapHandle)| Ok((name.clone(), MapHandle::try_from(map)?));
        let by_name: Result<_, libbpf_rs::Error> = self.by_name.iter().map(clone).collect();
        let failed = |source| Error::Map { map: "handles", source };
        Ok(Self { by_name: by_name.map_err(failed)? })
    }

    /// The map of this name, if a loaded object has one.
    pub(crate) fn find(&self, name: &str) -> Option<&MapHandle> {
        self.by_name.get(name)
    }

    /// All maps, by name.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&str, BorrowedFd<'_>)> {
        self.by_name.iter().map(|(name, map)| (name.as_str(), map.as_fd()))
    }

    /// All maps.
    pub(crate) fn all(&self) -> impl Iterator<Item = &MapHandle> {
        self.by_name.values()
    }

    pub(crate) fn get(&self, name: &'static str) -> Result<&MapHandle, Error> {
        self.find(name).ok_or(Error::Missing { object: "loaded", name })
    }

    /// Adds a map. A map of the same name stays.
    pub(crate) fn add(
        &mut self,
        name: String,
        handle: impl FnOnce() -> libbpf_rs::Result<MapHandle>,
    ) -> libbpf_rs::Result<()> {
        if let std::collections::btree_map::Entry::Vacant(place) = self.by_name.entry(name) {
            place.insert(handle()?);
        }
        Ok(())
    }

    pub(crate) fn update(&self, map: &'static str, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.get(map)?.update(key, value, MapFlags::ANY).map_err(|source| Error::Map { map, source })
    }

    /// Deletes a key. Deleting a key that is absent is no error.
    pub(crate) fn delete(&self, map: &'static str, key: &[u8]) -> Result<(), Error> {
        match self.get(map)?.delete(key) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::Map { map, source: e }),
            _ => Ok(()),
        }
    }
}

/// Reads the only element of a map, such as a global variable of the programs.
pub(crate) fn read_variable<T: Plain + Default>(map: &MapHandle, name: &'static str) -> Result<T, Error> {
    let value = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY);
    let value = value.map_err(|source| Error::Map { map: name, source })?;
    Ok(value.as_deref().and_then(T::from_bytes).unwrap_or_default())
}
