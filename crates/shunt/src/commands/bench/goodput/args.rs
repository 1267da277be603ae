//! The arguments of `shunt bench matrix` and `shunt bench rxtx`.

use crate::{
    client::candidates,
    commands::{
        arguments::{address, duration, ip_version},
        bench::testbed::{ENGINES, ROUTER},
    },
};
use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use shunt_lab::iperf::Direction;
use shunt_wire::{
    line::{IpVersion, LinkSpeed},
    quantity,
};
use std::{net::IpAddr, path::PathBuf};

/// Without --tx and --rx, a LAN host, a router with a stateful firewall and a WAN host are made in network namespaces,
/// new ones for each engine and round.
#[derive(Debug, Args)]
pub(crate) struct MatrixArgs {
    /// Only this protocol.
    #[arg(short, long, value_name = "tcp|udp", value_parser = ["tcp", "udp"], hide_possible_values = true)]
    pub(super) proto: Option<String>,
    /// Only this IP version.
    #[arg(long, value_name = "4|6", value_parser = ip_version)]
    pub(super) ip: Option<IpVersion>,
    /// Only with (on) or without (off) masquerading of traffic to the WAN.
    #[arg(long, value_name = "on|off", value_parser = on_or_off, conflicts_with = "tx")]
    pub(super) nat: Option<Switch>,
    /// Only with (on) or without (off) a VLAN tag on the LAN.
    #[arg(long, value_name = "on|off", value_parser = on_or_off, conflicts_with = "tx")]
    pub(super) vlan: Option<Switch>,
    /// MTUs of all links of the router in a namespace, separated by commas, 576 to 9000 [default: 1500].
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',', value_parser = mtu, conflicts_with = "tx")]
    pub(super) mtu: Vec<u32>,
    /// Bytes of each write of the sending program, separated by commas, such as 64,512,1k,8k,64k: goodput and CPU load
    /// by the size of writes. A datagram of UDP is one write [default: 128 kB for TCP, what fills the MTU for UDP].
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',', value_parser = write_bytes)]
    pub(super) write: Vec<u32>,
    /// Only this direction: forward is from the LAN to the WAN, reverse is from the WAN to the LAN, duplex is both at
    /// once; may be given several times.
    #[arg(long = "direction", value_name = "forward|reverse|duplex", value_parser = direction)]
    pub(super) directions: Vec<Direction>,
    /// An engine to measure in the router's namespace; slow is Linux alone; external is a process that polls. May be
    /// given several times [default: slow, tc and xdp].
    #[arg(long = "engine", value_name = "slow|tc|xdp|external", value_parser = ENGINES, hide_possible_values = true,
        conflicts_with = "tx")]
    pub(super) engines: Vec<String>,
    /// Number of runs for each combination; at least six are needed to tell a difference [default: 6].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) runs: Option<u32>,
    /// Measure faster and less exactly: one run of 1s each; without VLAN, and with NAT for IPv4 only, unless --vlan or
    /// --nat is given.
    #[arg(long, conflicts_with_all = ["time", "runs"])]
    pub(super) quick: bool,
    #[command(flatten)]
    pub(super) iperf: IperfArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RxtxArgs {
    /// A name for the variant, and the command that makes the difference; an empty command changes nothing. May be
    /// given several times.
    #[arg(long = "variant", value_name = "NAME=COMMAND", required = true, value_parser = variant)]
    pub(super) variants: Vec<(String, String)>,
    /// The rate of UDP, in bit/s of payload.
    #[arg(long, value_name = "RATE", default_value = "100M")]
    pub(super) udp_rate: LinkSpeed,
    /// The IP version.
    #[arg(long, value_name = "4|6", default_value = "4", value_parser = ip_version)]
    pub(super) ip: IpVersion,
    /// The engine in the router's namespace; slow is Linux alone; external is a process that polls
    /// [default: slow].
    #[arg(long, value_name = "slow|tc|xdp|external", value_parser = ENGINES, hide_possible_values = true, conflicts_with = "tx")]
    pub(super) engine: Option<String>,
    /// Number of runs for each variant; at least six are needed to tell a difference [default: 6].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) runs: Option<u32>,
    /// Measure faster and less exactly: runs of 1s.
    #[arg(long, conflicts_with = "time")]
    pub(super) quick: bool,
    #[command(flatten)]
    pub(super) iperf: IperfArgs,
}

#[derive(Debug, Args)]
pub(in super::super) struct RouterArgs {
    /// The device on the LAN side of another router, which is then measured between this device and --rx. Both devices
    /// are moved into namespaces of their own, with their addresses, and are moved back with addresses and routes
    /// afterwards. Do not name a device that you are logged in through.
    #[arg(help_heading = ROUTER, long, value_name = "DEV", requires = "rx", add = ArgValueCandidates::new(candidates::devices))]
    pub(in super::super) tx: Option<String>,
    /// The device on the WAN side of the router.
    #[arg(help_heading = ROUTER, long, value_name = "DEV", requires = "tx", add = ArgValueCandidates::new(candidates::devices))]
    pub(in super::super) rx: Option<String>,
    /// The router's address on the link of --tx; once for each IP version. Leave it out if the router only bridges.
    #[arg(help_heading = ROUTER, long = "gateway", value_name = "ADDRESS", requires = "tx", value_parser = address)]
    pub(in super::super) gateways: Vec<IpAddr>,
    /// The router's address on the link of --rx; once for each IP version.
    #[arg(help_heading = ROUTER, long = "rx-gateway", value_name = "ADDRESS", requires = "rx", value_parser = address)]
    pub(in super::super) rx_gateways: Vec<IpAddr>,
}

#[derive(Debug, Args)]
pub(super) struct IperfArgs {
    #[command(flatten)]
    pub(super) router: RouterArgs,
    /// The router, as ssh://[USER@]HOST[:PORT], reached through another device: ssh starts `shunt lab agent` there,
    /// which reports the CPU load. Or an agent that already runs there, as http://ADDRESS:PORT.
    #[arg(help_heading = ROUTER, long, value_name = "URL", requires = "tx")]
    pub(super) dut_agent: Option<String>,
    /// The file with the token of an agent at http:// [default: the variable SHUNT_AGENT_TOKEN].
    #[arg(help_heading = ROUTER, long, value_name = "FILE", requires = "dut_agent")]
    pub(super) dut_token_file: Option<PathBuf>,
    /// Duration of each run, in whole seconds [default: 2s].
    #[arg(long, visible_alias = "for", value_name = "TIME", value_parser = whole_seconds)]
    pub(super) time: Option<u32>,
    /// The speed of the line, such as 1G: offer no more than it carries, and report shares of it [default: the speed of
    /// the slower of --tx and --rx].
    #[arg(help_heading = ROUTER, long, value_name = "SPEED")]
    pub(super) speed: Option<LinkSpeed>,
    /// Do not measure the CPU load. The threads of the meter keep CPUs and caches busy.
    #[arg(long)]
    pub(super) no_load: bool,
    /// Keep the results in this file, for `shunt compare` and `shunt report`; if the file exists, the runs are added to
    /// it.
    #[arg(long, value_name = "FILE")]
    pub(super) keep: Option<PathBuf>,
}

/// `on` or `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Switch(pub(in super::super) bool);

// iperf3 takes whole seconds only, and 0 means without an end.
pub(in super::super) fn whole_seconds(text: &str) -> Result<u32, String> {
    let time = duration(text)?;
    let seconds =
        u32::try_from(time.as_secs()).ok().filter(|seconds| *seconds > 0 && time.subsec_nanos() == 0);
    seconds.ok_or_else(|| "expected whole seconds, 1s or more (a limit of iperf3)".to_owned())
}

pub(in super::super) fn on_or_off(text: &str) -> Result<Switch, String> {
    match text {
        "on" => Ok(Switch(true)),
        "off" => Ok(Switch(false)),
        _ => Err("expected on or off".to_owned()),
    }
}

/// An MTU of Ethernet, from the least of IPv4 to the largest that the generator's frames fit.
pub(in super::super) fn mtu(text: &str) -> Result<u32, String> {
    bytes_within(text, 576, 9000)
}

/// iperf3 writes at most 1 MiB at once.
fn write_bytes(text: &str) -> Result<u32, String> {
    bytes_within(text, 1, 1 << 20)
}

fn bytes_within(text: &str, least: u32, most: u32) -> Result<u32, String> {
    let bytes = quantity::bytes(text).map_err(|why| why.to_string())?;
    let bytes = u32::try_from(bytes).ok().filter(|bytes| (least..=most).contains(bytes));
    bytes.ok_or_else(|| format!("{text} bytes: {least} to {most} are possible"))
}

pub(in super::super) fn direction(text: &str) -> Result<Direction, String> {
    let all = [Direction::Forward, Direction::Reverse, Direction::Duplex];
    all.into_iter()
        .find(|direction| direction.name() == text)
        .ok_or_else(|| "expected forward, reverse or duplex".to_owned())
}

fn variant(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, command)) if !name.is_empty() => Ok((name.to_owned(), command.trim().to_owned())),
        _ => Err("expected a name, = and a command, such as gro-off='ethtool -K r0 gro off'".to_owned()),
    }
}
