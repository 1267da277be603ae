//! The arguments of `shunt bench nat`.

use crate::commands::bench::testbed::{ENGINES, TestbedArgs};
use clap::{Args, ValueEnum};
use shunt_gen::Sizes;
use shunt_lab::nat::NatMetric;
use shunt_wire::quantity;
use std::{net::Ipv4Addr, path::PathBuf};

/// Without --tx and --rx, a LAN host, a masquerading router and a WAN host are made in network namespaces, new ones for
/// each engine and run.
#[derive(Debug, Args)]
pub(crate) struct NatArgs {
    /// What to measure, separated by commas. rate: the highest rate at which the router establishes connections.
    /// teardown: connections/s when the whole table is emptied at once. capacity: how many connections the router holds
    /// at once. throughput: the highest rate of frames without loss, both ways, for each number of --sessions.
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["rate", "teardown", "capacity", "throughput"])]
    pub(super) what: Vec<NatTarget>,
    /// Number of connections that each trial of rate and teardown opens [default: 100k; 10k with --quick].
    #[arg(long, value_name = "N", value_parser = connection_count)]
    pub(super) connections: Option<u32>,
    /// Numbers of sessions for throughput, separated by commas, up to 4194304 [default: 1k,10k,100k; 1k,10k with
    /// --quick].
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = connection_count)]
    pub(super) sessions: Vec<u32>,
    /// The capacity that the router should have, which is tried first: N and N + 1 connections show it exactly
    /// [default: nf_conntrack_max, if the router is in a namespace].
    #[arg(long, value_name = "N", value_parser = connection_count)]
    pub(super) table: Option<u32>,
    /// Open connections at this rate where no rate is measured, in connections/s [default: half of the rate that was
    /// found, or 20000].
    #[arg(long, value_name = "PPS")]
    pub(super) open_rate: Option<f64>,
    /// The lowest rate to try, in connections/s or frames/s of one direction.
    #[arg(long, value_name = "PPS", default_value_t = 1000.0)]
    pub(super) min_load: f64,
    /// The highest rate to try; no more than the line carries.
    #[arg(long, value_name = "PPS", default_value_t = 2_000_000.0)]
    pub(super) max_load: f64,
    /// An engine to measure in the router's namespace; slow is Linux alone; external is a process that polls. May be
    /// given several times [default: slow, tc and xdp].
    #[arg(long = "engine", value_name = "slow|tc|xdp|external", value_parser = ENGINES, hide_possible_values = true)]
    pub(super) engines: Vec<String>,
    /// Frame size with FCS, 64 to 9018.
    #[arg(long, default_value = "64")]
    pub(super) size: Sizes,
    #[command(flatten)]
    pub(super) testbed: TestbedArgs,
    /// The address that the router translates sources to. Without it, any address but the initiator's counts as
    /// translated.
    #[arg(help_heading = super::super::testbed::ROUTER, long, value_name = "ADDRESS", requires = "tx")]
    pub(super) nat_address: Option<Ipv4Addr>,
    /// The command that deletes all connections of the router and returns when they are gone, such as `ssh root@router
    /// conntrack -F`. The shell runs it on this machine before each trial; teardown measures how long it takes.
    #[arg(help_heading = super::super::testbed::ROUTER, long, value_name = "COMMAND", requires = "tx")]
    pub(super) empty: Option<String>,
    /// Number of runs for each engine.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) runs: u32,
    /// Measure faster and less exactly, in less than a minute: one trial at each rate, bounds within 10 %, trials of
    /// 0.3 s, and a capacity of at most 10000.
    #[arg(long)]
    pub(super) quick: bool,
    /// Seed of the order of ports.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// Keep the results in this file, for `shunt compare` and `shunt report`; if the file exists, the runs are added to
    /// it.
    #[arg(long, value_name = "FILE")]
    pub(super) keep: Option<PathBuf>,
}

/// A quantity to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum NatTarget {
    Rate,
    Teardown,
    Capacity,
    Throughput,
}

impl From<NatTarget> for NatMetric {
    fn from(target: NatTarget) -> Self {
        match target {
            NatTarget::Rate => Self::Establishment,
            NatTarget::Teardown => Self::TearDown,
            NatTarget::Capacity => Self::Capacity,
            NatTarget::Throughput => Self::Throughput,
        }
    }
}

/// A number of connections, such as 5000, 100k or 4M.
pub(crate) fn connection_count(text: &str) -> Result<u32, String> {
    let number = quantity::count(text).map_err(|why| why.to_string())?;
    match u32::try_from(number) {
        Ok(number @ 1..) => Ok(number),
        _ => Err(format!("{number} connections: 1 to {} are possible", u32::MAX)),
    }
}
