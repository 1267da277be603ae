//! The arguments of `shunt bench ndr`.

use crate::commands::{
    arguments::duration,
    bench::{
        testbed::{ENGINES, TestbedArgs},
        traffic::TrafficArgs,
    },
};
use clap::{Args, ValueEnum};
use shunt_gen::FrameSizes;
use shunt_lab::search::simulated::Behaviour;
use std::{path::PathBuf, time::Duration};

/// Without --tx and --rx, a LAN host, a router with a stateful firewall and a WAN host are made in network namespaces,
/// new ones for each search.
#[derive(Debug, Args)]
pub(crate) struct NdrArgs {
    /// Search a simulated router, to try the search: NAME=NUMBER,... with the names capacity_pps, jitter, loss_floor,
    /// bursts_per_s, burst_frames, warm_up_s, collapse and hysteresis. May be given several times; the routers are then
    /// searched in turn.
    #[arg(long, value_name = "BEHAVIOUR", conflicts_with_all = ["engines", "size", "both", "tx", "rx", "speed", "what", "ip", "flows", "nat", "vlan", "tcp"])]
    pub(crate) simulate: Vec<Behaviour>,
    /// What to search for. frames: the rate of frames. connections: the rate of new connections; each packet opens a
    /// connection, which the router in the namespace masquerades and the other host answers; a connection counts if it
    /// was answered and is in conntrack. The router forgets all connections before each trial. tcp-connections: the
    /// same with TCP; a connection counts when all three segments of its handshake have passed. For the number of
    /// connections that the router holds at once, see `shunt bench nat`.
    #[arg(long, value_enum, default_value = "frames")]
    pub(crate) what: NdrTarget,
    /// The lowest load, in frames/s or connections/s.
    #[arg(long, value_name = "PPS", default_value_t = 9001.0)]
    pub(crate) min_load: f64,
    /// The highest load [default: for frames, what the generator sends without a router; for connections, what fits
    /// into nf_conntrack_max in one trial].
    #[arg(long, value_name = "PPS")]
    pub(crate) max_load: Option<f64>,
    /// An engine to measure in the router's namespace; slow is Linux alone; external is a process that polls. May be
    /// given several times [default: slow, tc and xdp].
    #[arg(long = "engine", value_name = "slow|tc|xdp|external", value_parser = ENGINES, hide_possible_values = true)]
    pub(crate) engines: Vec<String>,
    /// Frame size with FCS, 64 to 9018: one size, imix (7 of 64, 4 of 570, 1 of 1518; 78 instead of 64 with --ip 6), or
    /// as 64:7,570:4,1518:1 [default: the least that has room: 64; 78 with --ip 6; 70 with --what tcp-connections].
    #[arg(long)]
    pub(crate) size: Option<FrameSizes>,
    #[command(flatten)]
    pub(crate) traffic: TrafficArgs,
    /// Send in both directions at once.
    #[arg(long)]
    pub(crate) both: bool,
    #[command(flatten)]
    pub(crate) testbed: TestbedArgs,
    /// Number of searches for each engine.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) runs: u32,
    /// Search faster and less exactly: trials of 0.5 s, 2.5 s for each load, bounds within 1 %.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Search for the throughput of RFC 2544 instead: by halving, with one lossless trial of this duration for each
    /// load; RFC 2544 asks for 60s.
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "60s", value_parser = duration, conflicts_with = "quick")]
    pub(crate) rfc2544: Option<Duration>,
    /// Seed of the random numbers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Keep the results in this file, for `shunt compare` and `shunt report`; if the file exists, the runs are added to
    /// it.
    #[arg(long, value_name = "FILE")]
    pub(crate) keep: Option<PathBuf>,
}

/// The quantity that is searched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum NdrTarget {
    Frames,
    Connections,
    TcpConnections,
}
