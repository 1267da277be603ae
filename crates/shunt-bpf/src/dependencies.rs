//! What learned flows depend on, as the programs note it: changes that concern no flow move no epoch.

use crate::{
    DataPlane, Error,
    abi::{self, Change, Plain, RulesName, Set},
    maps::{CONTROL_MAP, PATH, SETS, UNSTABLE, read_variable},
    object::{TABLE, program},
};
use libbpf_rs::{MapCore, MapFlags, ProgramInput};
use std::{collections::BTreeSet, net::IpAddr};

/// Something that flows may depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dependency {
    /// Addresses of packets, before or after translation.
    Prefix {
        /// An address of the prefix.
        addr: IpAddr,
        /// The length of the prefix.
        len: u8,
    },
    /// The MAC of a neighbour that packets are sent to, or of a sender.
    Station([u8; 6]),
}

/// The changes of a station with flows that the programs have counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StationChanges {
    /// Its MAC.
    pub mac: [u8; 6],
    /// When the first of the counted changes was seen, in the ticks of the programs. They count from 1 again after ten
    /// seconds.
    pub since_ticks: u64,
    /// The number of changes since then.
    pub changes: u32,
    /// Whether nothing is learned from its packets.
    pub is_unstable: bool,
}

impl RulesName {
    /// The name of a chain in a table of this family (`NFPROTO_*`). None if a name is too long.
    pub fn of_chain(family: u8, table: &str, chain: &str) -> Option<Self> {
        let mut name = Self { family, ..Self::default() };
        // At least one zero is left behind each.
        name.table.split_last_mut()?.1.get_mut(..table.len())?.copy_from_slice(table.as_bytes());
        name.name.split_last_mut()?.1.get_mut(..chain.len())?.copy_from_slice(chain.as_bytes());
        Some(name)
    }

    /// The name of a set, likewise.
    pub fn of_set(family: u8, table: &str, set: &str) -> Option<Self> {
        Some(Self { is_set: 1, ..Self::of_chain(family, table, set)? })
    }
}

impl DataPlane {
    /// Records that something has changed. If a learned flow may depend on it, moves the epoch and returns true.
    ///
    /// # Errors
    /// If the kernel does not run the program.
    pub fn note_change(&self, changed: Dependency) -> Result<bool, Error> {
        let mut change = Change::default();
        match changed {
            Dependency::Prefix { addr: IpAddr::V4(addr), len } => {
                (change.family, change.prefix_len) = (4, len.into());
                change.address[..4].copy_from_slice(&addr.octets());
            }
            Dependency::Prefix { addr: IpAddr::V6(addr), len } => {
                (change.family, change.prefix_len) = (6, len.into());
                change.address = addr.octets();
            }
            Dependency::Station(mac) => change.address[..6].copy_from_slice(&mac),
        }
        let mut context = change.bytes().to_vec();
        let input = ProgramInput { context_in: Some(&mut context), ..ProgramInput::default() };
        program(&self.table, &TABLE, "shunt_note")?
            .test_run(input)
            .map_err(|source| Error::Map { map: CONTROL_MAP, source })?;
        Ok(Change::from_bytes(&context).is_none_or(|change| change.moved != 0))
    }

    /// The stations that keep changing, so that nothing is learned from their packets: the MAC, and the number of
    /// changes that were counted.
    ///
    /// # Errors
    /// If the map cannot be read.
    pub fn unstable_stations(&self) -> Result<Vec<([u8; 6], u32)>, Error> {
        let all = self.station_changes()?.into_iter().filter(|station| station.is_unstable);
        Ok(all.map(|station| (station.mac, station.changes)).collect())
    }

    /// The stations with flows that have changed.
    ///
    /// # Errors
    /// If the map cannot be read.
    pub fn station_changes(&self) -> Result<Vec<StationChanges>, Error> {
        let Some(map) = self.maps.find(UNSTABLE) else { return Ok(Vec::new()) };
        let control: abi::Control = read_variable(self.maps.get(CONTROL_MAP)?, CONTROL_MAP)?;
        let now = control.heartbeat_ticks;
        let read = |key: Vec<u8>| {
            let value = map.lookup(&key, MapFlags::ANY).ok().flatten()?;
            let station = abi::Unstable::from_bytes(&value)?;
            Some(StationChanges {
                mac: abi::Mac::from_bytes(&key)?.bytes,
                since_ticks: station.since_ticks,
                changes: station.changes,
                is_unstable: station.until_ticks > now,
            })
        };
        Ok(map.keys().filter_map(read).collect())
    }

    /// Describes the sets of nftables of which all rules that use it look up the same address of packets, as the rules
    /// were when [`crate::RuleChanges::count`] was `at`. Each gets a number. Elements of all other sets may concern
    /// every flow. Without a filter for changes of the ruleset, this does nothing.
    ///
    /// # Errors
    /// If a map cannot be changed.
    pub fn set_address_sets(
        &mut self,
        sets: impl Iterator<Item = (RulesName, Set)>,
        at: u32,
    ) -> Result<(), Error> {
        if self.maps.find(SETS).is_none() {
            return Ok(());
        }
        // No count that the programs have now: until the map is complete, nothing in it counts.
        self.control.set_sets_at(at.wrapping_sub(1));
        let numbers = 1..=abi::SETS_MAX;
        let numbered = |((name, set), number)| (name, Set { number, ..set });
        let entries: Vec<_> = sets.zip(numbers).map(numbered).collect();
        let mut gone = std::mem::take(&mut self.sets);
        for (name, _) in &entries {
            gone.remove(name.bytes());
        }
        for name in gone {
            self.maps.delete(SETS, &name)?;
        }
        for (name, set) in entries {
            self.maps.update(SETS, name.bytes(), set.bytes())?;
            self.sets.insert(name.bytes().to_vec());
        }
        self.control.set_sets_at(at);
        Ok(())
    }

    /// Lists the chains and sets that forwarded packets may meet, as the rules were when [`crate::RuleChanges::count`]
    /// was `at`. Changes of other rules concern no flow. Without a list, or with one that is too long, every change may
    /// concern every flow. Without a filter for changes of the ruleset, this does nothing.
    ///
    /// # Errors
    /// If a map cannot be changed.
    pub fn set_rules_path(
        &mut self,
        names: Option<impl Iterator<Item = RulesName>>,
        at: u32,
    ) -> Result<(), Error> {
        if self.maps.find(PATH).is_none() {
            return Ok(());
        }
        let path = names.map(|names| names.map(|name| name.bytes().to_vec()).collect::<BTreeSet<_>>());
        let Some(path) = path.filter(|path| path.len() <= abi::PATH_MAX as usize) else {
            self.control.set_path_at(None);
            return Ok(());
        };
        if path != self.path {
            // Until the map is complete, nothing in it counts.
            self.control.set_path_at(None);
            // After a failure, the map may have names that are not noted, but has all that are.
            for name in self.path.difference(&path).cloned().collect::<Vec<_>>() {
                self.path.remove(&name);
                self.maps.delete(PATH, &name)?;
            }
            for name in path.difference(&self.path).cloned().collect::<Vec<_>>() {
                self.maps.update(PATH, &name, &[1])?;
                self.path.insert(name);
            }
        }
        self.control.set_path_at(Some(at));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_does_not_fit_is_none() {
        let name = RulesName::of_set(1, "filter", "blocked").unwrap();
        assert_eq!((name.family, name.is_set, &name.table[..7]), (1, 1, &b"filter\0"[..]));
        assert_eq!(&name.name[..8], b"blocked\0");
        assert!(RulesName::of_chain(1, &"t".repeat(31), &"s".repeat(63)).is_some());
        assert!(RulesName::of_chain(1, &"t".repeat(32), "s").is_none());
        assert!(RulesName::of_set(1, "t", &"s".repeat(64)).is_none());
    }
}
