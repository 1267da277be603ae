//! The arguments of `shunt bench tcp`.

use crate::commands::{
    arguments::{duration, ip_version, time_from},
    bench::{
        goodput::args::{Switch, on_or_off},
        testbed::{ENGINES, TestbedArgs},
    },
};
use clap::Args;
use shunt_gen::tcp::ByteRange;
use shunt_wire::{line::IpVersion, quantity};
use std::{path::PathBuf, time::Duration};

/// Without --tx and --rx, a LAN host, a router that drops packets which conntrack finds invalid, and a WAN host are
/// made in network namespaces, new ones for each engine and run.
#[derive(Debug, Args)]
pub(crate) struct TcpArgs {
    /// Number of connections, such as 500 or 10k.
    #[arg(long, value_name = "N", default_value = "1000", value_parser = connections)]
    pub(super) connections: u32,
    /// Connections opened per second, such as 500/s.
    #[arg(long, value_name = "N/s", default_value = "500/s", value_parser = per_second)]
    pub(super) rate: f64,
    /// Bytes of each request: one size, or 100..2k for a random size between two. At least 8.
    #[arg(long, value_name = "BYTES", default_value = "200")]
    pub(super) request: ByteRange,
    /// Bytes of each response: one size, or 1k..100k for a random size between two. At least 8.
    #[arg(long, value_name = "BYTES", default_value = "10k")]
    pub(super) response: ByteRange,
    /// Number of requests on each connection; each is sent when the response to the last one is complete.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) exchanges: u32,
    /// Pause of the client between a response and the next request.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration)]
    pub(super) think: Duration,
    /// Give a connection up if nothing was acknowledged for this long.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time_from(Duration::from_millis(1)))]
    pub(super) patience: Duration,
    /// The IP version.
    #[arg(long, value_name = "4|6", default_value = "4", value_parser = ip_version)]
    pub(super) ip: IpVersion,
    /// Whether the router in a namespace masquerades connections to the WAN [default: off].
    #[arg(long, value_name = "on|off", value_parser = on_or_off, num_args = 0..=1, default_missing_value = "on",
        conflicts_with = "tx")]
    pub(super) nat: Option<Switch>,
    /// An engine to measure in the router's namespace; slow is Linux alone; external is a process that polls. May be
    /// given several times [default: slow, tc and xdp].
    #[arg(long = "engine", value_name = "slow|tc|xdp|external", value_parser = ENGINES, hide_possible_values = true)]
    pub(super) engines: Vec<String>,
    #[command(flatten)]
    pub(super) testbed: TestbedArgs,
    /// Number of runs for each engine.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) runs: u32,
    /// Seed of sizes and sequence numbers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// Keep the results in this file, for `shunt compare` and `shunt report`; if the file exists, the runs are added to
    /// it.
    #[arg(long, value_name = "FILE")]
    pub(super) keep: Option<PathBuf>,
}

fn connections(text: &str) -> Result<u32, String> {
    let number = quantity::count(text).map_err(|why| why.to_string())?;
    match u32::try_from(number) {
        Ok(number @ 1..) => Ok(number),
        _ => {
            Err(format!("{number} connections: 1 to {} are possible", shunt_gen::tcp::Fleet::CONNECTIONS_MAX))
        }
    }
}

fn per_second(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix("/s").unwrap_or(text);
    let (number, factor) = number.strip_suffix('k').map_or((number, 1.0), |number| (number, 1000.0));
    let number = number.parse().ok().map(|number: f64| number * factor);
    let possible = number.filter(|number| number.is_finite() && (1e-3..=1e7).contains(number));
    possible.ok_or_else(|| "expected connections/s above 0, such as 500/s".to_owned())
}
