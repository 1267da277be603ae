//! The kernel threads that poll a device, and their CPU time.
//!
//! With `threaded` set, a device is polled by its own kernel threads and nowhere else. The run time of these threads is
//! the CPU time that the router spends on its packets, without any other work of the machine.

use anyhow::{Context, bail, ensure};
use nix::{
    sched::{CpuSet, sched_setaffinity},
    unistd::Pid,
};
use serde::Serialize;
use shunt_testkit::NetNs;
use std::{collections::BTreeSet, fs, process::Command};

/// The polling threads of one device.
#[derive(Debug, Clone)]
pub struct PollThreads {
    ids: Vec<i32>,
}

/// The scheduler's account of some threads, summed up since their start.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct RunTime {
    /// Time on a CPU, in ns.
    pub ran_ns: u64,
    /// Time spent ready and waiting for a CPU, in ns.
    pub waited_ns: u64,
    /// Number of times that the threads were put on a CPU.
    pub slices: u64,
}

impl PollThreads {
    /// Switches a device to polling threads, and pins them to `cpu`. Attaching an XDP program may replace the threads:
    /// call this again afterwards.
    pub fn start(netns: &NetNs, ifname: &str, cpu: usize) -> anyhow::Result<Self> {
        let file = format!("/sys/class/net/{ifname}/threaded");
        netns.try_run(&format!("echo 0 > {file}"))?;
        let before = ids_of(ifname)?;
        netns.try_run(&format!("echo 1 > {file}"))?;
        let ids: Vec<i32> = ids_of(ifname)?.difference(&before).copied().collect();
        ensure!(!ids.is_empty(), "{ifname} has no polling thread; it needs NAPI (GRO or an XDP program)");
        for id in &ids {
            pin(*id, cpu)?;
        }
        Ok(Self { ids })
    }

    /// Gives the threads priority over all ordinary threads of their CPU.
    pub fn go_first(&self) -> anyhow::Result<()> {
        self.ids.iter().try_for_each(|id| go_first(*id))
    }

    /// CPU time of the threads so far.
    pub fn run_time(&self) -> anyhow::Result<RunTime> {
        self.ids
            .iter()
            .try_fold(RunTime::default(), |sum, id| Ok(sum + thread_run_time(&format!("/proc/{id}"))?))
    }
}

impl RunTime {
    /// The difference to an earlier reading.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            ran_ns: self.ran_ns.saturating_sub(earlier.ran_ns),
            waited_ns: self.waited_ns.saturating_sub(earlier.waited_ns),
            slices: self.slices.saturating_sub(earlier.slices),
        }
    }
}

impl std::ops::Add for RunTime {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            ran_ns: self.ran_ns + other.ran_ns,
            waited_ns: self.waited_ns + other.waited_ns,
            slices: self.slices + other.slices,
        }
    }
}

/// CPU time of all threads of a process.
pub fn process_run_time(pid: u32) -> anyhow::Result<RunTime> {
    let tasks = format!("/proc/{pid}/task");
    let mut sum = RunTime::default();
    for entry in fs::read_dir(&tasks).with_context(|| tasks.clone())? {
        sum = sum + thread_run_time(&entry?.path().to_string_lossy())?;
    }
    Ok(sum)
}

/// CPU time of the calling thread.
pub fn own_run_time() -> anyhow::Result<RunTime> {
    thread_run_time("/proc/thread-self")
}

/// Pins a thread, or the calling thread if `id` is 0.
pub fn pin(id: i32, cpu: usize) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    sched_setaffinity(Pid::from_raw(id), &set).with_context(|| format!("pinning thread {id} to CPU {cpu}"))
}

/// Gives a thread priority over all ordinary threads (SCHED_FIFO). Threads that it starts are ordinary.
pub fn go_first(id: i32) -> anyhow::Result<()> {
    let id = id.to_string();
    let output = Command::new("chrt").args(["--reset-on-fork", "--fifo", "--pid", "1", &id]).output()?;
    if !output.status.success() {
        bail!("chrt: thread {id}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

fn thread_run_time(directory: &str) -> anyhow::Result<RunTime> {
    let path = format!("{directory}/schedstat");
    let text = fs::read_to_string(&path).with_context(|| path.clone())?;
    let numbers: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    match numbers[..] {
        [ran_ns, waited_ns, slices] => Ok(RunTime { ran_ns, waited_ns, slices }),
        _ => bail!("{path}: expected three numbers, found `{}`", text.trim()),
    }
}

fn ids_of(ifname: &str) -> anyhow::Result<BTreeSet<i32>> {
    // The kernel names these threads napi/<device>-<napi id>, cut to 15 bytes.
    let prefix = format!("napi/{ifname}-");
    let mut ids = BTreeSet::new();
    for entry in fs::read_dir("/proc")? {
        let Some(id) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process may end while /proc is read.
        let name = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
        if name.starts_with(&prefix) {
            ids.insert(id);
        }
    }
    Ok(ids)
}
