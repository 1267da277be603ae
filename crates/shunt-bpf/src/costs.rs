//! What the fast path costs: run times of the programs, and the memory of the maps.

use crate::{
    DataPlane,
    attach::{self, Hook},
    maps::MARKS,
    object::{INDEXES, TABLES},
};
use libbpf_rs::MapCore;
use std::{
    fs, io,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
    thread::sleep,
    time::{Duration, Instant},
};

/// Measures the programs of a data plane that see packets. It is independent of the data plane, so that a thread that
/// may wait can use it.
#[derive(Debug)]
pub struct ProgramMeter(Vec<u32>);

/// What a program did while it was measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramRuns {
    /// The name.
    pub name: String,
    /// How often it ran.
    pub runs: u64,
    /// The CPU time of all runs. One of the two readings of the clock that measure a run is in it.
    pub time: Duration,
}

impl ProgramMeter {
    /// Lets the kernel count the runs and run times of programs for a while, and returns those of this data plane, with
    /// the time over which they were counted. The kernel counts for all programs of the machine: two readings of the
    /// clock for each run. Waits.
    ///
    /// # Errors
    /// If the kernel cannot count.
    pub fn measure(&self, during: Duration) -> io::Result<(Vec<ProgramRuns>, Duration)> {
        let counting = count_run_times()?;
        let start = Instant::now();
        let before = self.counts();
        sleep(during);
        let after = self.counts();
        let took = start.elapsed();
        drop(counting);
        let difference = |(id, runs, ns): &(u32, u64, u64)| {
            let (_, runs_before, ns_before) = before.iter().find(|(before, ..)| before == id)?;
            let name = attach::program_name(*id)?;
            let time = Duration::from_nanos(ns.saturating_sub(*ns_before));
            Some(ProgramRuns { name, runs: runs.saturating_sub(*runs_before), time })
        };
        Ok((after.iter().filter_map(difference).collect(), took))
    }

    /// Id, runs and nanoseconds of each program that is still loaded.
    fn counts(&self) -> Vec<(u32, u64, u64)> {
        let counts = |id: &u32| {
            let (runs, ns) = attach::program_runs(*id)?;
            Some((*id, runs, ns))
        };
        self.0.iter().filter_map(counts).collect()
    }
}

/// Lets the kernel count until the descriptor is closed.
fn count_run_times() -> io::Result<OwnedFd> {
    // SAFETY: the call takes a number, and returns a descriptor that nobody else owns, or an error.
    let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: as above.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl DataPlane {
    /// A meter of the programs that see packets, as they are attached now.
    pub fn program_meter(&self) -> ProgramMeter {
        let ids = self.tc.all_loaded().filter_map(attach::program_id);
        let egress = self.program_fd(Hook::Egress).and_then(attach::program_id);
        let mut ids: Vec<u32> = ids.chain(egress).chain(self.xdp_program_ids()).collect();
        ids.sort_unstable();
        ids.dedup();
        ProgramMeter(ids)
    }

    /// The memory of all maps, as the kernel accounts for it, in bytes.
    pub fn map_bytes(&self) -> u64 {
        let bytes = |fd: i32| {
            let info = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
            let line = info.lines().find_map(|line| line.strip_prefix("memlock:"))?;
            line.trim().parse::<u64>().ok()
        };
        self.maps.all().filter_map(|map| bytes(map.as_fd().as_raw_fd())).sum()
    }

    /// The memory of each flow that the table has room for, of both address families together, in bytes: entries, index
    /// and the filter of dependencies, in use or not.
    pub fn flow_bytes(&self) -> u64 {
        let tables = TABLES.into_iter().chain(INDEXES).chain([MARKS]);
        let bytes = |name| {
            let map = self.maps.find(name)?;
            Some(u64::from(map.value_size().next_multiple_of(8)) * u64::from(map.max_entries()))
        };
        tables.filter_map(bytes).sum::<u64>() / u64::from(self.size.max_flows.max(1))
    }
}
