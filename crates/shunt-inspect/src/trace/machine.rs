//! What this machine says about itself: its reasons for drops, drops by full queues of CPUs, the XDP programs of its
//! ports, the network namespace.
#![allow(unsafe_code, reason = "asks the kernel which programs a port has")]

use libbpf_rs::{
    btf::{Btf, types::Enum},
    query::{ProgInfoIter, ProgInfoQueryOptions},
};
use shunt_lab::counters::{Snapshot, changes};
use std::{collections::BTreeMap, fs, io, os::unix::fs::MetadataExt};

/// The names of the kernel's reasons for a drop, by number. Linux 7 lists those of qdiscs apart.
pub(crate) fn drop_reasons() -> BTreeMap<u32, String> {
    let Ok(kernel) = Btf::from_vmlinux() else { return BTreeMap::new() };
    let mut all = BTreeMap::new();
    for list in ["qdisc_drop_reason", "skb_drop_reason"] {
        let Some(reasons) = kernel.type_by_name::<Enum<'_>>(list) else { continue };
        all.extend(reasons.iter().filter_map(|reason| {
            let name = reason.name?.to_str()?;
            let short = name.strip_prefix("SKB_DROP_REASON_").unwrap_or(name);
            Some((u32::try_from(reason.value).ok()?, short.to_owned()))
        }));
    }
    all
}

/// Whether the calling thread's network namespace has tables of iptables, by the list of their names.
pub(super) fn has_legacy_tables(names: &str) -> bool {
    fs::read_to_string(format!("/proc/thread-self/net/{names}")).is_ok_and(|text| !text.is_empty())
}

/// Packets that were dropped since a snapshot because the queue of a CPU was full, by CPU.
pub(super) fn full_queues(since: Snapshot) -> BTreeMap<u32, u64> {
    let all = changes(&[since, Snapshot::read(&[])]);
    let dropped = all.iter().flatten().filter(|change| change.counter == "dropped");
    dropped.filter_map(|one| Some((one.device.strip_prefix("cpu")?.parse().ok()?, one.rise))).collect()
}

/// The native XDP programs of these ports: id and name.
pub(crate) fn xdp_programs(ports: &[u32]) -> BTreeMap<u32, String> {
    let ids: Vec<u32> = ports.iter().filter_map(|port| xdp_program(*port)).collect();
    let all = ProgInfoIter::with_query_opts(ProgInfoQueryOptions::default());
    all.filter(|program| ids.contains(&program.id))
        .map(|program| (program.id, program.name.to_string_lossy().into_owned()))
        .collect()
}

/// The id of a port's XDP program.
pub(crate) fn xdp_program(port: u32) -> Option<u32> {
    let mut id = 0;
    // SAFETY: the number is written to, and outlives the call.
    let error = unsafe { libbpf_sys::bpf_xdp_query_id(i32::try_from(port).ok()?, 0, &raw mut id) };
    (error == 0 && id != 0).then_some(id)
}

/// The number of the calling thread's network namespace.
pub(crate) fn netns() -> io::Result<u32> {
    // The kernel numbers namespaces with 32 bits.
    Ok(fs::metadata("/proc/thread-self/ns/net")?.ino() as u32)
}
