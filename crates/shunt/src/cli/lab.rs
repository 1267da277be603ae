//! What can be typed about the lab, apart from measuring routers.

use super::time;
use clap::{Args, Subcommand, ValueEnum};
use shunt_wire::line::{Encapsulation, IpVersion, L4, LinkSpeed};
use std::{net::SocketAddr, path::PathBuf, time::Duration};

/// Packets over Ethernet of one size; the headers that are not chosen take their usual forms, a row each.
#[derive(Debug, Args)]
pub(crate) struct LineArgs {
    /// The link's speed in bit/s, such as 100M or 2.5G; 64k is the least.
    #[arg(long, value_name = "SPEED", default_value = "1G")]
    pub(crate) speed: LinkSpeed,
    /// The largest IP packet [default: 1500, and 1492 in PPPoE].
    #[arg(long, value_name = "BYTES")]
    pub(crate) mtu: Option<u32>,
    /// The size of the frame with tags and FCS, as RFC 2544 has it, instead of an MTU.
    #[arg(long, value_name = "BYTES", conflicts_with = "mtu")]
    pub(crate) frame: Option<u32>,
    /// Only this version of IP.
    #[arg(long, value_name = "4|6", value_parser = ip_version)]
    ip: Option<IpVersion>,
    /// Only this protocol.
    #[arg(short, long, value_name = "tcp|udp", value_parser = ["tcp", "udp"], hide_possible_values = true)]
    proto: Option<String>,
    /// Only with so many VLAN tags; 2 is QinQ [default: 0 and 1].
    #[arg(long, value_name = "N")]
    tags: Option<u32>,
    /// In PPPoE.
    #[arg(long)]
    pub(crate) pppoe: bool,
    /// What TCP headers have beside their 20 bytes. Linux sends timestamps, which are 12, unless net.ipv4.tcp_timestamps
    /// is 0.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub(crate) tcp_options: u32,
}

#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    /// The time that each line covers.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub(crate) interval: Duration,
    /// End after so many intervals.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Only this CPU; may be given several times [default: all that are allowed].
    #[arg(long = "cpu", value_name = "CPU")]
    pub(crate) cpus: Vec<usize>,
    /// Say how exact it is, by loads of 25, 50 and 75 % that it makes itself.
    #[arg(long, conflicts_with_all = ["interval", "count"])]
    pub(crate) self_test: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// On the DUT: tell the machine that measures of load and counters, until Ctrl-C.
    ///
    /// It measures load as `shunt load` does, and reads the counters of this machine's devices and CPUs in its network namespace. It
    /// changes nothing, but that CPUs do not sleep. Who asks must know the token, which is sent as it is: use a network of the lab's own, or
    /// `ssh -L`. `shunt bench` asks it with --dut-agent.
    Agent(AgentArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// Where it is to be reached; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7411")]
    pub(crate) listen: SocketAddr,
    /// The file of the token, 16 characters or more, for its owner only [default: the variable SHUNT_AGENT_TOKEN].
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Only the load of this CPU; may be given several times [default: all that are allowed].
    #[arg(long = "cpu", value_name = "CPU")]
    pub(crate) cpus: Vec<usize>,
}

/// Runs are compared in pairs, the first of A with the first of B. Those that were made in turn show least of what else changed.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// What it was before.
    pub(crate) a: PathBuf,
    /// What it is now.
    pub(crate) b: PathBuf,
    /// Seed of the bootstrap; the same seed gives the same interval.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// Conditions, readings with what speaks against them, plots, and the files themselves. It needs no network and no script to be read.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Results that were kept.
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Write it to this file [default: standard output].
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// In which form: a page, everything, or a line for each run [default: html].
    #[arg(long, value_enum)]
    pub(crate) format: Option<ReportForm>,
}

/// How a report is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportForm {
    Html,
    Json,
    Csv,
}

impl LineArgs {
    /// Each combination of what was not chosen.
    pub(crate) fn encapsulations(&self) -> Vec<Encapsulation> {
        let tags = self.tags.map_or(vec![0, 1], |tags| vec![tags]);
        let versions = self.ip.map_or(vec![IpVersion::V4, IpVersion::V6], |ip| vec![ip]);
        let protocols = [("udp", L4::Udp), ("tcp", L4::Tcp { options_bytes: self.tcp_options })];
        let mut all = Vec::new();
        for &tags in &tags {
            for &ip in &versions {
                let wanted = |name: &str| self.proto.as_ref().is_none_or(|proto| proto == name);
                for (_, l4) in protocols.iter().filter(|(name, _)| wanted(name)) {
                    all.push(Encapsulation { tags, pppoe: self.pppoe, ip, l4: *l4 });
                }
            }
        }
        all
    }
}

// Shorter ones would show single ticks.
fn interval(text: &str) -> Result<Duration, String> {
    let time = time(text)?;
    if time >= Duration::from_millis(100) { Ok(time) } else { Err("less than 100ms".to_owned()) }
}

pub(super) fn ip_version(text: &str) -> Result<IpVersion, String> {
    match text {
        "4" => Ok(IpVersion::V4),
        "6" => Ok(IpVersion::V6),
        _ => Err("4 or 6".to_owned()),
    }
}
