//! The arguments of `shunt bench card`.

use crate::commands::bench::{
    nat::connection_count,
    testbed::{ENGINES, ROUTER, TestbedArgs},
};
use clap::Args;
use std::{net::Ipv4Addr, path::PathBuf};

/// Without --tx and --rx, a LAN host, a router with a stateful firewall and a WAN host are made in network namespaces,
/// new ones for each figure and round. The router masquerades while connections are measured.
#[derive(Debug, Args)]
pub(crate) struct CardArgs {
    /// An engine to measure in the router's namespace; slow is Linux alone; external is a process that polls. May be
    /// given several times; each takes as long as the first [default: slow].
    #[arg(long = "engine", value_name = "slow|tc|xdp|external", value_parser = ENGINES, hide_possible_values = true)]
    pub(super) engines: Vec<String>,
    #[command(flatten)]
    pub(super) testbed: TestbedArgs,
    /// The address that the router translates sources to. Without it, any address but the initiator's counts as
    /// translated.
    #[arg(help_heading = ROUTER, long, value_name = "ADDRESS", requires = "tx")]
    pub(super) nat_address: Option<Ipv4Addr>,
    /// The command that deletes all connections of the router and returns when they are gone, such as `ssh root@router
    /// conntrack -F`. The shell runs it on this machine before each trial. Without it, connections are not measured.
    #[arg(help_heading = ROUTER, long, value_name = "COMMAND", requires = "tx")]
    pub(super) empty: Option<String>,
    /// Search for the number of connections that the router holds; this number is tried first. Without it, the card
    /// shows whether the router holds 20000 (5000 with --quick).
    #[arg(long, value_name = "N", value_parser = connection_count)]
    pub(super) table: Option<u32>,
    /// Number of rounds, however long they take; `shunt compare` needs at least six [default: 6, or as many as fit into
    /// 5 minutes for each engine; 2 with --quick].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) rounds: Option<u32>,
    /// Measure faster and less exactly, in about a minute for each engine: shorter trials, wider bounds and two rounds.
    #[arg(long)]
    pub(super) quick: bool,
    /// Seed of the order of ports.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// Keep the results in this file, for `shunt compare` and `shunt report`; if the file exists, the rounds are added
    /// to it [default: router-card.json, or the first of router-card-2.json, router-card-3.json, ... that is free].
    #[arg(long, value_name = "FILE")]
    pub(super) keep: Option<PathBuf>,
    /// Write the page to this file [default: the name of the results with .html].
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
}
