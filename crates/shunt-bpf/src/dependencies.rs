//! What learned flows depend on, as the programs note it: changes that concern no flow move no epoch.

use crate::{
    DataPlane, Error,
    abi::{self, Change, Plain, Set, SetName},
    maps::{CONTROL_MAP, SETS, UNSTABLE, read_variable},
    object::{TABLE, program},
};
use libbpf_rs::{MapCore, MapFlags, ProgramInput};
use std::net::IpAddr;

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

/// A set of nftables of which all rules that use it look up the same address of packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressSet {
    /// NFPROTO_* of the table.
    pub family: u8,
    /// The name of the table.
    pub table: String,
    /// The name of the set.
    pub name: String,
    /// Whether the address is of IPv6.
    pub v6: bool,
    /// Where in the key the address is.
    pub offset: u8,
    /// The size of the key in bytes.
    pub key_bytes: u8,
    /// Whether the elements are boundaries of intervals.
    pub intervals: bool,
}

impl AddressSet {
    /// The key and value of the map. None if a name is too long.
    fn entry(&self, number: u32) -> Option<(SetName, Set)> {
        let mut name = SetName { family: self.family, ..SetName::default() };
        copy_name(&mut name.table, &self.table)?;
        copy_name(&mut name.set, &self.name)?;
        let set = Set {
            family: if self.v6 { 6 } else { 4 },
            offset: self.offset,
            key_bytes: self.key_bytes,
            flags: if self.intervals { abi::SET_INTERVALS } else { 0 },
            number,
        };
        Some((name, set))
    }
}

/// Copies a name and leaves at least one zero behind it.
fn copy_name(to: &mut [u8], name: &str) -> Option<()> {
    to.split_last_mut()?.1.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
    Some(())
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
        let Some(map) = self.maps.find(UNSTABLE) else { return Ok(Vec::new()) };
        let control: abi::Control = read_variable(self.maps.get(CONTROL_MAP)?, CONTROL_MAP)?;
        let now = control.heartbeat_ticks;
        let read = |key: Vec<u8>| {
            let value = map.lookup(&key, MapFlags::ANY).ok().flatten()?;
            let station = abi::Unstable::from_bytes(&value).filter(|station| station.until_ticks > now)?;
            Some((abi::Mac::from_bytes(&key)?.bytes, station.changes))
        };
        Ok(map.keys().filter_map(read).collect())
    }

    /// Describes the sets of nftables, as the rules were when [`crate::RuleChanges::count`] was `at`. Elements of all
    /// other sets may concern every flow. Without a filter for changes of the ruleset, this does nothing.
    ///
    /// # Errors
    /// If a map cannot be changed.
    pub fn set_address_sets(&mut self, sets: &[AddressSet], at: u32) -> Result<(), Error> {
        if self.maps.find(SETS).is_none() {
            return Ok(());
        }
        // No count that the programs have now: until the map is complete, nothing in it counts.
        self.control.set_sets_at(at.wrapping_sub(1));
        let numbers = 1..=abi::SETS_MAX;
        let entries: Vec<_> =
            sets.iter().zip(numbers).filter_map(|(set, number)| set.entry(number)).collect();
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(table: &str, name: &str) -> AddressSet {
        let (table, name) = (table.to_owned(), name.to_owned());
        AddressSet { family: 1, table, name, v6: true, offset: 4, key_bytes: 20, intervals: true }
    }

    #[test]
    fn a_name_that_does_not_fit_has_no_entry() {
        let (name, described) = set("filter", "blocked").entry(7).unwrap();
        assert_eq!((name.family, &name.table[..7], &name.set[..8]), (1, &b"filter\0"[..], &b"blocked\0"[..]));
        assert_eq!(described, Set { family: 6, offset: 4, key_bytes: 20, flags: 1, number: 7 });
        assert!(set(&"t".repeat(31), &"s".repeat(63)).entry(1).is_some());
        assert!(set(&"t".repeat(32), "s").entry(1).is_none());
        assert!(set("t", &"s".repeat(64)).entry(1).is_none());
    }
}
