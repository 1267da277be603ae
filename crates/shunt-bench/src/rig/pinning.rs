//! The CPUs of threads.

use anyhow::Context;
use nix::{
    sched::{CpuSet, sched_setaffinity},
    unistd::Pid,
};
/// Pins a thread, or the calling thread if `id` is 0.
pub fn pin(id: i32, cpu: usize) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    sched_setaffinity(Pid::from_raw(id), &set).with_context(|| format!("pinning thread {id} to CPU {cpu}"))
}
