//! Access to the flow tables by the programs of `table.bpf.c`: put, get and remove flows, sweep, heartbeat.

use crate::{
    DataPlane, Error,
    abi::{self, Edit, Key4, Plain, Sweep},
    flows::{Entry, FlowTable, Key},
    heartbeat::Heartbeat,
    maps::{CONTROL_MAP, HINTS, USAGE, read_variable},
    object::{TABLE, program},
};
use libbpf_rs::{MapCore, MapFlags, ProgramInput};
use nix::libc;
use std::{os::fd::AsFd, time::Duration};

/// Names the flow tables in errors.
const TABLE_MAP: &str = "shunt_table";
const EDIT_MAP: &str = "shunt_edit";

impl DataPlane {
    /// Handles for reading the flow tables, also from another thread.
    pub fn flows(&self) -> Result<FlowTable, Error> {
        FlowTable::open(self.control.epochs().clone(), |name| self.maps.get(name))
    }

    /// Calls `visit` for every flow, as [`FlowTable::for_each`] does.
    pub fn for_each_flow(&self, visit: impl FnMut(Key, Entry)) -> Result<(), Error> {
        self.flows()?.for_each(visit)
    }

    /// Calls `visit` for the counters of every expired flow, as [`FlowTable::for_each_expired`] does.
    pub fn for_each_expired(&self, visit: impl FnMut(abi::Tuple, abi::Expired)) -> Result<(), Error> {
        self.flows()?.for_each_expired(visit)
    }

    /// Inserts or replaces a flow.
    ///
    /// # Errors
    /// [`Error::Full`] if no entry is free.
    pub fn put_flow(&self, key: &Key, entry: &Entry) -> Result<(), Error> {
        self.edit(abi::EDIT_PUT, key, entry).map(|_| ())
    }

    /// The flow of a key. None if the table has no such flow.
    pub fn flow(&self, key: &Key) -> Result<Option<Entry>, Error> {
        self.edit(abi::EDIT_GET, key, &Entry::default())
    }

    /// Removes a flow. Removing a flow that is absent is no error.
    pub fn remove_flow(&self, key: &Key) -> Result<(), Error> {
        self.edit(abi::EDIT_REMOVE, key, &Entry::default()).map(|_| ())
    }

    /// The data that ingress and egress recorded for the tuple of `key`, on any port.
    pub fn sighting(&self, key: &Key) -> Result<abi::Sighting, Error> {
        self.run_edit(abi::EDIT_SIGHTING, key, &Entry::default()).map(|edit| edit.sighting)
    }

    fn edit(&self, op: u32, key: &Key, entry: &Entry) -> Result<Option<Entry>, Error> {
        let edit = self.run_edit(op, key, entry)?;
        match -edit.result {
            0 => Ok(Some(Entry { flow: edit.flow, to: edit.to, cold: edit.cold })),
            libc::ENOENT => Ok(None),
            libc::ENOSPC => Err(Error::Full),
            error => {
                let source = libbpf_rs::Error::from_raw_os_error(error);
                Err(Error::Map { map: TABLE_MAP, source })
            }
        }
    }

    /// Runs `shunt_edit_flow`, which reads its request from a map and writes the result there.
    fn run_edit(&self, op: u32, key: &Key, entry: &Entry) -> Result<Edit, Error> {
        let mut request = Edit { op, flow: entry.flow, to: entry.to, ..Edit::default() };
        match key {
            Key::V4(key) => {
                request.family = 4;
                request.key[..size_of::<Key4>()].copy_from_slice(key.bytes());
            }
            Key::V6(key) => {
                request.family = 6;
                request.key.copy_from_slice(key.bytes());
            }
        }
        self.maps.update(EDIT_MAP, &0u32.to_ne_bytes(), request.bytes())?;
        program(&self.table, &TABLE, "shunt_edit_flow")?
            .test_run(ProgramInput::default())
            .map_err(|source| Error::Map { map: TABLE_MAP, source })?;
        read_variable(self.maps.get(EDIT_MAP)?, EDIT_MAP)
    }

    /// Whether the flow tables and their indexes begin on a cache line. If not, forwarding is correct, but slower.
    pub fn tables_are_aligned(&self) -> Result<bool, Error> {
        let mut scratch = [0; 8];
        let input = ProgramInput { context_in: Some(&mut scratch), ..ProgramInput::default() };
        let output = program(&self.table, &TABLE, "shunt_tables_aligned")?.test_run(input);
        let output = output.map_err(|source| Error::Map { map: TABLE_MAP, source })?;
        Ok(output.return_value == 1)
    }

    /// Renews the heartbeat. Without a heartbeat, the programs stop forwarding.
    pub fn beat(&self) -> Result<(), Error> {
        program(&self.table, &TABLE, "shunt_beat")?
            .test_run(ProgramInput::default())
            .map(|_| ())
            .map_err(|source| Error::Map { map: CONTROL_MAP, source })
    }

    /// What renews the heartbeat, for another thread.
    ///
    /// # Errors
    /// If the process has too many descriptors.
    pub fn heartbeat(&self) -> Result<Heartbeat, Error> {
        let program = program(&self.table, &TABLE, "shunt_beat")?;
        program.as_fd().try_clone_to_owned().map(Heartbeat::by).map_err(Error::Descriptor)
    }

    /// Sweeps the tables inside the kernel: retires flows that were idle for `idle` (all learned flows if `all`), and
    /// removes flows that were retired long enough ago.
    pub fn sweep(&self, idle: Duration, all: bool) -> Result<Sweep, Error> {
        self.sweep_part(idle, all, 0, u32::MAX)
    }

    /// Sweeps `entries` entries beginning with `from`, out of [`DataPlane::entries`]. With `entries` 0, only the clock
    /// in the result is filled in.
    pub fn sweep_part(&self, idle: Duration, all: bool, from: u32, entries: u32) -> Result<Sweep, Error> {
        let failed = |source| Error::Map { map: TABLE_MAP, source };
        let idle_ticks = self.control.ticks(idle);
        let request = Sweep { idle_ticks, all: u32::from(all), from, entries, ..Sweep::default() };
        let mut context = request.bytes().to_vec();
        let program = program(&self.table, &TABLE, "shunt_sweep_flows")?;
        loop {
            let input = ProgramInput { context_in: Some(&mut context), ..ProgramInput::default() };
            program.test_run(input).map_err(failed)?;
            let sweep = Sweep::from_bytes(&context).unwrap_or_default();
            if sweep.entries == 0 {
                return Ok(sweep);
            }
        }
    }

    /// The number of entries in both tables together.
    pub fn entries(&self) -> u32 {
        self.size.max_flows.saturating_mul(2)
    }

    /// The number of entries in both tables together that have ever been used; those of the whole tables if it is
    /// unknown.
    pub fn used_entries(&self) -> u32 {
        let [v4, v6] = self.fresh();
        v4.saturating_add(v6)
    }

    /// The first entry from `from` on, out of those of both tables together, that has ever been used; None if there is
    /// none.
    pub fn next_used(&self, from: u32) -> Option<u32> {
        next_used(from, self.size.max_flows, self.fresh())
    }

    /// For each family, the first entry that was never used.
    fn fresh(&self) -> [u32; 2] {
        let most = self.size.max_flows;
        let fresh = self.usage().map(|usage| usage.fresh).unwrap_or([u64::MAX; 2]);
        fresh.map(|fresh| u32::try_from(fresh).unwrap_or(most).min(most))
    }

    /// The hints by which programs find flows, as slots of the index.
    ///
    /// # Errors
    /// If the map cannot be read.
    pub fn hints(&self) -> Result<Vec<u32>, Error> {
        let failed = |source| Error::Map { map: HINTS, source };
        let value = self.maps.get(HINTS)?.lookup(&[0; 4], MapFlags::ANY).map_err(failed)?;
        let hint = |bytes: &[u8]| bytes.try_into().map(u32::from_ne_bytes).unwrap_or_default();
        Ok(value.unwrap_or_default().chunks_exact(4).map(hint).collect())
    }

    /// Overwrites the hints. Whatever they are, programs handle all packets alike, but not equally fast.
    ///
    /// # Errors
    /// If the map cannot be written.
    pub fn set_hints(&self, hints: &[u32]) -> Result<(), Error> {
        let failed = |source| Error::Map { map: HINTS, source };
        let value: Vec<u8> = hints.iter().flat_map(|hint| hint.to_ne_bytes()).collect();
        self.maps.get(HINTS)?.update(&[0; 4], &value, MapFlags::ANY).map_err(failed)
    }

    /// Entries in use and records lost, as the programs count them.
    pub fn usage(&self) -> Result<abi::Usage, Error> {
        read_variable(self.maps.get(USAGE)?, USAGE)
    }
}

/// The entries of IPv6 come after all those of IPv4.
fn next_used(from: u32, each: u32, [v4, v6]: [u32; 2]) -> Option<u32> {
    if from < v4 {
        return Some(from);
    }
    let from = from.max(each);
    (from - each < v6).then_some(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_leaves_out_entries_that_were_never_used() {
        let next = |from| next_used(from, 1000, [10, 3]);
        assert_eq!((next(0), next(9), next(10), next(999)), (Some(0), Some(9), Some(1000), Some(1000)));
        assert_eq!((next(1002), next(1003), next(2000)), (Some(1002), None, None));
        assert_eq!(next_used(0, 1000, [0, 0]), None);
    }
}
