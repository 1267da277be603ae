//! What can be typed to measure routers.

use super::{lab::ip_version, time};
use clap::{Args, Subcommand, ValueEnum};
use shunt_gen::Sizes;
use shunt_lab::{frame_size::RFC2544_BYTES, iperf::Direction, search::simulated::Behaviour};
use shunt_wire::line::{IpVersion, LinkSpeed};
use std::{net::IpAddr, path::PathBuf, time::Duration};

/// One measurement, or a file of them.
#[derive(Debug, Subcommand)]
pub(crate) enum Measuring {
    #[command(flatten)]
    Once(Box<BenchCommand>),
    /// Measure what a file says, one step after the other: a campaign.
    ///
    /// Each [[step]] of the file names a command as `bench`, and has that command's options as keys, by the same names and with the same
    /// values: `--runs 3` is `runs = 3`, `--both` is `both = true`, and an option that may be given several times takes a list. What is
    /// below [common] is of all steps whose command has such an option, unless a step has it itself. Beside the steps there may be
    /// `output` and `report = false`. The directory has a file of results for each step, and a page of them all. Ctrl-C ends the step
    /// that runs and keeps what was measured; the same command again measures what is missing, and keeps apart what was interrupted.
    Run(RunArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The campaign, in TOML [default: lab/campaigns/default.toml as it was when shunt was built: in namespaces, in 10 minutes].
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Where results go; new, empty, or of the same campaign [default: the file's `output`, or campaign-NAME].
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Make no page of the results.
    #[arg(long)]
    pub(crate) no_report: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Search for the load up to which a router loses nothing (NDR), and no more than 0.5 % (PDR), by MLRsearch (RFC 9971).
    ///
    /// Trials of 1 s, 21 s a load of which half may lose, bounds within 0.5 % of the upper one: the settings of FD.io's CSIT. The first
    /// trial, at the maximum load, is to warm up and not kept. Loads are frames/s of one direction; frames that were not sent count as
    /// lost, but for the last 10 us of a trial; one whose sender was held up at its end counts for less. After the search, latency at 10, 50 and
    /// 90 % of what was found for the last goal.
    Ndr(NdrArgs),
    /// Say how fast a router forwards all that comes (MRR), at each size of frames, and how much their size matters.
    ///
    /// The generator sends as fast as it can, or as the line carries; what counts is what arrives. All sizes are measured with one engine,
    /// then with the next, and so on again for each run.
    Size(SizeArgs),
    /// Send UDP at one rate after the other, and say from which on a router loses, and which counters rise with it.
    ///
    /// Beside each step are the counters that changed: those of `ethtool -S`, pause frames, /proc/net/dev and softnet_stat. A counter
    /// that was seen to wrap at 16 or 32 bits is told so, and what it rose by is known modulo that only.
    Sweep(SweepArgs),
    /// Measure the goodput of TCP and UDP by iperf3, and the CPU load, of each engine: IPv4 and IPv6, with NAT and VLAN and without, each
    /// way and both at once.
    ///
    /// Goodput is payload that arrived. UDP fills frames of an MTU of 1500, and as much is offered as the sender can, or the line of --speed
    /// carries. CPU load is that of this whole machine, which is the hosts too, by the meter of `shunt load`, whose threads take what
    /// nobody else wants; beside it is what /proc/stat says. The engines are measured in turn. What this machine has not, such as VLAN
    /// devices, is named with the reason. Needs iperf3 3.11 or later.
    Matrix(MatrixArgs),
    /// Compare settings: the goodput of TCP each way, and the loss of UDP at a set rate each way, for one variant after the other, in turn.
    ///
    /// Each time a variant is to be measured, a LAN host (lan0), a router (r0 and r1) and a WAN host (wan0) are made anew in namespaces, and
    /// the shell runs the variant's command in that of the router, before `shunt up` if there is an engine. $SHUNT_ROUTER, $SHUNT_LAN and $SHUNT_WAN
    /// name the namespaces, so a host is changed by `ip netns exec $SHUNT_LAN ethtool ...`. Interfaces go with the namespaces; what a command
    /// changes of the machine beyond them, such as a module's parameter, is the caller's to undo. With --tx and --rx it runs on
    /// this machine, and what it changes of the router, by `ssh` or otherwise, stays until the next variant changes it. Gains and losses are told against the
    /// first variant, as `shunt compare` does. Needs iperf3 3.11 or later.
    Rxtx(RxtxArgs),
}

/// Without --tx and --rx, a LAN host, a router with a stateful firewall and a WAN host are made in namespaces, for each engine and round
/// anew.
#[derive(Debug, Args)]
pub(crate) struct MatrixArgs {
    /// Only this protocol.
    #[arg(short, long, value_name = "tcp|udp", value_parser = ["tcp", "udp"], hide_possible_values = true)]
    pub(crate) proto: Option<String>,
    /// Only this version of IP.
    #[arg(long, value_name = "4|6", value_parser = ip_version)]
    pub(crate) ip: Option<IpVersion>,
    /// Only with or without masquerading of what goes to the WAN.
    #[arg(long, value_name = "on|off", value_parser = on_or_off, conflicts_with = "tx")]
    pub(crate) nat: Option<Switch>,
    /// Only with or without a tag on the LAN.
    #[arg(long, value_name = "on|off", value_parser = on_or_off, conflicts_with = "tx")]
    pub(crate) vlan: Option<Switch>,
    /// Only this direction: from the LAN to the WAN, from the WAN to the LAN, or both at once; may be given several times.
    #[arg(long = "direction", value_name = "forward|reverse|duplex", value_parser = direction)]
    pub(crate) directions: Vec<Direction>,
    /// What forwards in the namespace of the router; may be given several times [default: slow, tc and xdp].
    #[arg(long = "engine", value_name = "slow|tc|xdp", value_parser = ["slow", "tc", "xdp"], hide_possible_values = true,
        conflicts_with = "tx")]
    pub(crate) engines: Vec<String>,
    /// How many runs of each [default: 5].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) runs: Option<u32>,
    /// Shorter and less exact: one run of 1s each; no VLAN, and NAT for IPv4 only, unless they are chosen.
    #[arg(long, conflicts_with_all = ["time", "runs"])]
    pub(crate) quick: bool,
    #[command(flatten)]
    pub(crate) iperf: IperfArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RxtxArgs {
    /// A name, and the command that makes the difference; empty for none. May be given several times.
    #[arg(long = "variant", value_name = "NAME=COMMAND", required = true, value_parser = variant)]
    pub(crate) variants: Vec<(String, String)>,
    /// How much UDP is sent, in bit/s of payload.
    #[arg(long, value_name = "RATE", default_value = "100M")]
    pub(crate) udp_rate: LinkSpeed,
    /// The version of IP.
    #[arg(long, value_name = "4|6", default_value = "4", value_parser = ip_version)]
    pub(crate) ip: IpVersion,
    /// What forwards in the namespace of the router [default: slow].
    #[arg(long, value_name = "slow|tc|xdp", value_parser = ["slow", "tc", "xdp"], hide_possible_values = true, conflicts_with = "tx")]
    pub(crate) engine: Option<String>,
    /// How many runs of each; six are needed to tell a difference [default: 6].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) runs: Option<u32>,
    /// Shorter and less exact: runs of 1s.
    #[arg(long, conflicts_with = "time")]
    pub(crate) quick: bool,
    #[command(flatten)]
    pub(crate) iperf: IperfArgs,
}

#[derive(Debug, Args)]
pub(crate) struct IperfArgs {
    /// The device on the LAN's side of another router, which is then measured between it and --rx. Both devices are taken into
    /// namespaces of their own with their addresses, and come back with addresses and routes: not those that you are logged in by.
    #[arg(long, value_name = "PORT", requires = "rx")]
    pub(crate) tx: Option<String>,
    /// The device on its WAN's side.
    #[arg(long, value_name = "PORT", requires = "tx")]
    pub(crate) rx: Option<String>,
    /// The router's address at --tx; once for each version of IP. None where it only bridges.
    #[arg(long = "gateway", value_name = "ADDRESS", requires = "tx")]
    pub(crate) gateways: Vec<IpAddr>,
    /// The router's address at --rx; once for each version of IP.
    #[arg(long = "rx-gateway", value_name = "ADDRESS", requires = "rx")]
    pub(crate) rx_gateways: Vec<IpAddr>,
    /// The router's `shunt lab agent`, as http://ADDRESS:PORT, to be reached by another device: it tells the CPU load.
    #[arg(long, value_name = "URL", requires = "tx")]
    pub(crate) dut_agent: Option<String>,
    /// The file of the agent's token [default: the variable SHUNT_AGENT_TOKEN].
    #[arg(long, value_name = "FILE", requires = "dut_agent")]
    pub(crate) dut_token_file: Option<PathBuf>,
    /// How long each run is, in whole seconds [default: 2s].
    #[arg(long, value_name = "TIME", value_parser = whole_seconds)]
    pub(crate) time: Option<u32>,
    /// Offer no more than a line of this speed carries, such as 1G, and give shares of that [default: the speed of the slower of --tx
    /// and --rx].
    #[arg(long, value_name = "SPEED")]
    pub(crate) speed: Option<LinkSpeed>,
    /// Do not measure the CPU load, whose threads keep caches and CPUs busy.
    #[arg(long)]
    pub(crate) no_load: bool,
    /// Keep the results in this file, which `shunt compare` reads; a file that is there already gets these runs, too.
    #[arg(long, value_name = "FILE")]
    pub(crate) keep: Option<PathBuf>,
}

/// With it, or without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Switch(pub(crate) bool);

#[derive(Debug, Args)]
pub(crate) struct SweepArgs {
    /// The lowest rate, in bit/s of frames with FCS, of each direction.
    #[arg(long, value_name = "RATE", default_value = "50M")]
    pub(crate) from: LinkSpeed,
    /// The highest rate [default: 1000M, or the last step that the line carries].
    #[arg(long, value_name = "RATE")]
    pub(crate) to: Option<LinkSpeed>,
    /// The difference from each rate to the next.
    #[arg(long, value_name = "RATE", default_value = "50M")]
    pub(crate) step: LinkSpeed,
    /// How long each step is [default: 2s].
    #[arg(long, value_name = "TIME", value_parser = time_or_seconds)]
    pub(crate) time: Option<Duration>,
    /// Frame size with FCS: one size, imix, or as 64:7,570:4,1518:1.
    #[arg(long, default_value = "1518")]
    pub(crate) size: Sizes,
    /// Only from --tx to --rx, instead of both directions at once.
    #[arg(long)]
    pub(crate) one_way: bool,
    /// What forwards in the namespace of the router [default: slow].
    #[arg(long = "engine", id = "engines", value_name = "slow|tc|xdp", value_parser = ["slow", "tc", "xdp"], hide_possible_values = true)]
    pub(crate) engine: Option<String>,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// One more device of this machine whose counters are read; may be given several times.
    #[arg(long, value_name = "PORT")]
    pub(crate) watch: Vec<String>,
    /// Shorter and less exact: steps of 0.5s.
    #[arg(long, conflicts_with = "time")]
    pub(crate) quick: bool,
    /// Keep the results in this file, which `shunt compare` reads; a file that is there already gets these runs, too.
    #[arg(long, value_name = "FILE")]
    pub(crate) keep: Option<PathBuf>,
}

/// Without --tx and --rx, a LAN host, a router with a stateful firewall and a WAN host are made in namespaces.
#[derive(Debug, Args)]
pub(crate) struct PlaceArgs {
    /// The device that sends, to measure what is between it and --rx, instead of a router in a namespace between two hosts.
    #[arg(long, value_name = "PORT", requires = "rx", conflicts_with = "engines")]
    pub(crate) tx: Option<String>,
    /// The device that receives.
    #[arg(long, value_name = "PORT", requires = "tx")]
    pub(crate) rx: Option<String>,
    /// The router's address at --tx. Without it frames are for the MAC of --rx.
    #[arg(long, value_name = "ADDRESS", requires = "tx")]
    pub(crate) gateway: Option<IpAddr>,
    /// The router's address at --rx, for what is sent there.
    #[arg(long, value_name = "ADDRESS", requires = "rx")]
    pub(crate) rx_gateway: Option<IpAddr>,
    /// The link's speed, such as 1G, where the device does not know it: no more is offered.
    #[arg(long, value_name = "SPEED")]
    pub(crate) speed: Option<LinkSpeed>,
    /// The router's `shunt lab agent`, as http://ADDRESS:PORT: its load is measured too, and `sweep` reads its counters.
    #[arg(long, value_name = "URL", requires = "tx")]
    pub(crate) dut_agent: Option<String>,
    /// The file of the agent's token [default: the variable SHUNT_AGENT_TOKEN].
    #[arg(long, value_name = "FILE", requires = "dut_agent")]
    pub(crate) dut_token_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct SizeArgs {
    /// Frame size with FCS; may be several, with commas between them.
    #[arg(long = "size", value_name = "BYTES", value_delimiter = ',', default_values_t = RFC2544_BYTES,
        value_parser = clap::value_parser!(u32).range(64..=9018))]
    pub(crate) sizes: Vec<u32>,
    /// What forwards in the namespace of the router; may be given several times [default: slow, tc and xdp].
    #[arg(long = "engine", value_name = "slow|tc|xdp", value_parser = ["slow", "tc", "xdp"], hide_possible_values = true)]
    pub(crate) engines: Vec<String>,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// Both directions at once; rates are their sum.
    #[arg(long)]
    pub(crate) both: bool,
    /// How long each run is [default: 2s].
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) time: Option<Duration>,
    /// How many runs of each [default: 5].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) runs: Option<u32>,
    /// Shorter and less exact: two runs of 0.5s each.
    #[arg(long, conflicts_with_all = ["time", "runs"])]
    pub(crate) quick: bool,
    /// Keep the results in this file, which `shunt compare` reads; a file that is there already gets these runs, too.
    #[arg(long, value_name = "FILE")]
    pub(crate) keep: Option<PathBuf>,
}

/// Without --tx and --rx, a LAN host, a router with a stateful firewall and a WAN host are made in namespaces, for each search anew.
#[derive(Debug, Args)]
pub(crate) struct NdrArgs {
    /// A router that does not exist, to try the search: NAME=NUMBER,... of capacity_pps, jitter, loss_floor, bursts_per_s, burst_frames,
    /// warm_up_s, collapse and hysteresis; may be given several times, and these are then searched in turn.
    #[arg(long, value_name = "BEHAVIOUR", conflicts_with_all = ["engines", "size", "both", "tx", "rx", "speed", "what"])]
    pub(crate) simulate: Vec<Behaviour>,
    /// What is searched for. Connections: each packet is of a new connection, which our own router masquerades and the other host
    /// answers; what is answered and tracked by conntrack counts. Before each trial the router forgets all. Tcp-connections: the same by
    /// TCP, of which a connection counts when all three segments of its handshake have passed. Concurrent: how many
    /// such connections it holds at once: a second packet over each of them must pass as the same connection.
    #[arg(long, value_enum, default_value = "frames")]
    pub(crate) what: NdrOf,
    /// The least load, in frames/s or connections/s, or the least number of concurrent connections.
    #[arg(long, value_name = "PPS", default_value_t = 9001.0)]
    pub(crate) min_load: f64,
    /// The greatest load [default: of frames what the generator sends with nothing in between; of connections what fits into
    /// nf_conntrack_max in a trial; concurrent nf_conntrack_max].
    #[arg(long, value_name = "PPS")]
    pub(crate) max_load: Option<f64>,
    /// Begin concurrent connections at this rate, which must be below the one that --what connections finds.
    #[arg(long, value_name = "PPS", default_value_t = 20_000.0)]
    pub(crate) open_rate: f64,
    /// What forwards in the namespace of the router; may be given several times [default: slow, tc and xdp].
    #[arg(long = "engine", value_name = "slow|tc|xdp", value_parser = ["slow", "tc", "xdp"], hide_possible_values = true)]
    pub(crate) engines: Vec<String>,
    /// Frame size with FCS, 64 to 9018: one size, imix (7 of 64, 4 of 570, 1 of 1518), or as 64:7,570:4,1518:1.
    #[arg(long, default_value = "64", default_value_if("what", "tcp-connections", "70"))]
    pub(crate) size: Sizes,
    /// Both directions at once.
    #[arg(long)]
    pub(crate) both: bool,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// How many searches of each.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) runs: u32,
    /// Shorter and less exact: trials of 0.5 s, 2.5 s for each load, bounds within 1 %. Of concurrent connections 65536 at most, bounds
    /// within 10 %.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Search for the throughput of RFC 2544 instead: by halving, with lossless trials of this length; RFC 2544 wants 60s.
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "60s", value_parser = time, conflicts_with = "quick")]
    pub(crate) rfc2544: Option<Duration>,
    /// Seed of what happens by chance.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Keep the results in this file, which `shunt compare` reads; a file that is there already gets these runs, too.
    #[arg(long, value_name = "FILE")]
    pub(crate) keep: Option<PathBuf>,
}

/// What a router is to do as often as it can.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum NdrOf {
    Frames,
    Connections,
    TcpConnections,
    Concurrent,
}

// As iperf has it.
fn time_or_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.map_or_else(|| time(text), Ok)
}

// iperf3 knows no parts of a second, and takes 0 for no end.
fn whole_seconds(text: &str) -> Result<u32, String> {
    let time = time_or_seconds(text)?;
    let seconds =
        u32::try_from(time.as_secs()).ok().filter(|seconds| *seconds > 0 && time.subsec_nanos() == 0);
    seconds.ok_or_else(|| "iperf3 knows whole seconds only, from 1s on".to_owned())
}

fn on_or_off(text: &str) -> Result<Switch, String> {
    match text {
        "on" => Ok(Switch(true)),
        "off" => Ok(Switch(false)),
        _ => Err("on or off".to_owned()),
    }
}

fn direction(text: &str) -> Result<Direction, String> {
    let all = [Direction::Forward, Direction::Reverse, Direction::Duplex];
    all.into_iter()
        .find(|direction| direction.name() == text)
        .ok_or_else(|| "forward, reverse or duplex".to_owned())
}

fn variant(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, command)) if !name.is_empty() => Ok((name.to_owned(), command.trim().to_owned())),
        _ => Err("a name, = and a command, such as gro-off='ethtool -K r0 gro off'".to_owned()),
    }
}
