//! The tables of the external engine: its loop in memory, the whole path between veths, its queues, and its ways to
//! wait.

use super::{BULK, MODES, QUEUES};
use crate::table_cells::{reading, with_range};
use shunt_lab::Results;
use std::fmt::Write;

/// Flows and order of their packets, and the reading.
const MEMORY: [(&str, &str); 6] = [
    ("1,000, in turn", "mpps_memory_1k"),
    ("1,000, random", "mpps_memory_1k_random"),
    ("100,000, in turn", "mpps_memory_100k"),
    ("100,000, random", "mpps_memory_100k_random"),
    ("1,000,000, random", "mpps_memory_1m_random"),
    ("none: frames of a VLAN that is copied (`external_copy_vlan`)", "mpps_memory_copied"),
];

pub fn memory(results: &Results) -> anyhow::Result<String> {
    let mut text = "| flows | Mpps of one core |\n| --- | ---: |\n".to_owned();
    for (what, name) in MEMORY {
        writeln!(text, "| {what} | {} |", with_range(results, name, 1.0, 1)?)?;
    }
    Ok(text)
}

pub fn path(results: &Results) -> anyhow::Result<String> {
    let mut text = "| router | 64 bytes, kpps | 1518 bytes, kpps |\n| --- | ---: | ---: |\n".to_owned();
    for (router, engine) in [("Linux alone", "slow"), ("tc", "tc"), ("xdp", "xdp"), ("external", "external")]
    {
        let cell = |bytes| with_range(results, &format!("{engine} {bytes}"), 1e-3, 0);
        writeln!(text, "| {router} | {} | {} |", cell(64)?, cell(1518)?)?;
    }
    Ok(text)
}

pub fn queues(results: &Results) -> anyhow::Result<String> {
    let mut text = "| at 20 Mbit/s | error of the rate | p50 alone, us | p99 alone, us | p50 under overload, us | p99 under overload, us | \
        probes lost of 800 |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n"
        .to_owned();
    for (queue, _) in QUEUES {
        write!(text, "| {queue} | {:+.2} %", reading(results, &format!("rate error {queue}"))?.value)?;
        for time in ["p50 alone", "p99 alone", "p50 under overload", "p99 under overload"] {
            write!(text, " | {}", with_range(results, &format!("probe {time} {queue}"), 1.0, 0)?)?;
        }
        let lost = reading(results, &format!("probes lost under overload {queue}"))?.value;
        writeln!(text, " | {lost:.0} |")?;
    }
    Ok(text)
}

pub fn waits(results: &Results) -> anyhow::Result<String> {
    let mut text = "| `external_wait` | load | CPU of the engine | p50, us | p99, us |\n| --- | --- | ---: | ---: | ---: |\n".to_owned();
    for (mode, (load, _)) in MODES.into_iter().flat_map(|mode| BULK.map(|bulk| (mode, bulk))) {
        let of = |what: &str, digits| with_range(results, &format!("{what} {mode} {load}"), 1.0, digits);
        writeln!(
            text,
            "| {mode} | {load} | {} % | {} | {} |",
            of("CPU", 1)?,
            of("probe p50", 0)?,
            of("probe p99", 0)?
        )?;
    }
    Ok(text)
}
