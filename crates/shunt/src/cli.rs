//! What can be typed.

mod bench;
mod lab;
mod traffic;

use crate::select::{Filter, Order, SortKey};
pub(crate) use bench::{
    BenchCommand, IperfArgs, MatrixArgs, Measuring, NdrArgs, NdrOf, PlaceArgs, RunArgs, RxtxArgs, SizeArgs,
    SweepArgs,
};
use clap::{
    ArgGroup, Args, Parser, Subcommand,
    builder::{PossibleValuesParser, TypedValueParser},
};
use clap_complete::Shell;
pub(crate) use lab::{AgentArgs, CompareArgs, LabCommand, LineArgs, LoadArgs, ReportArgs, ReportForm};
use serde::de::{DeserializeOwned, IntoDeserializer, value::Error as ValueError};
use shunt_api::{
    Engine, EngineChoice, FlowState, Hop, Instance, Network, Proto, RouteChoice, Selection, StaticFlow,
    StaticKey,
};
use shunt_wire::Mac;
use std::{net::SocketAddr, path::PathBuf, time::Duration};
pub(crate) use traffic::GenArgs;

/// A fast path for Linux routers: connections that Linux has accepted pass the network stack.
#[derive(Debug, Parser)]
#[command(name = "shunt", version, disable_help_subcommand = true)]
pub(crate) struct Cli {
    /// Which instance, where several run on this machine.
    #[arg(long, global = true, value_name = "NAME", default_value = "default")]
    pub(crate) instance: Instance,
    /// Print JSON: the same values as the text.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print more; for a failure also what caused it.
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start the daemon and attach it to ports.
    Up(UpArgs),
    /// Stop the daemon and remove everything that it made.
    Down,
    /// Show the ports, their engines, counters and reasons.
    Status,
    /// Show the connections on the fast path.
    Flows(FlowsArgs),
    /// Explain whether connections are fast or slow, since when and why, and what would change it.
    Why(WhyArgs),
    /// Show the kernel's connections as `conntrack -L` does, with what the fast path sent counted too.
    Conntrack(ConntrackArgs),
    /// Show what becomes of flows as it happens: learn, activate, punt, refuse, retire, and moves of the epoch.
    Watch(WatchArgs),
    /// Send every connection back to the slow path, to be learned again.
    Flush,
    /// Flows put in by hand, without connection tracking.
    #[command(subcommand)]
    Flow(FlowCommand),
    /// Calculate what a link can carry at most: packets/s and bit/s of each layer, by encapsulation.
    Line(LineArgs),
    /// Show the load of each CPU, softirqs and interrupts included.
    ///
    /// On each CPU a thread of the class SCHED_IDLE does work whose time is known; what it does not get done is load. It is
    /// calibrated for about a second first, best before the traffic starts. While it runs, CPUs do not sleep, and there is a
    /// control group shunt-load-PID. Speed and memory are in terms of the calibration; meter is how long the thread had the CPU.
    Load(LoadArgs),
    /// Measure what a router can do.
    #[command(subcommand)]
    Bench(Measuring),
    /// What runs on a router while another machine measures it.
    #[command(subcommand)]
    Lab(LabCommand),
    /// Compare two files of results: what is better or worse in B than in A, and what cannot be told apart.
    Compare(CompareArgs),
    /// Send traffic through a router, and account for every packet: loss, duplicates, order, latency.
    Gen(Box<GenArgs>),
    /// Show kept results on one page, to read, print or send.
    Report(ReportArgs),
    /// Print what completes commands and options in a shell.
    ///
    /// For bash, until the shell ends: source <(shunt completions bash)
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Write the manual pages.
    #[command(hide = true)]
    Man {
        /// Where to.
        dir: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// A network device to attach to; may be given several times [default: those that forwarding uses].
    #[arg(long = "port", value_name = "PORT")]
    pub(crate) ports: Vec<String>,
    /// What sends the packets [default: auto].
    #[arg(long, value_parser = one_of::<EngineChoice>(&["auto", "tc", "xdp"]))]
    pub(crate) engine: Option<EngineChoice>,
    /// The configuration file [default: /etc/shunt/shunt.toml].
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Become the daemon instead of starting it in the background.
    #[arg(long)]
    pub(crate) foreground: bool,
}

#[derive(Debug, Args)]
pub(crate) struct EndsArgs {
    /// Only this source, or those of a network such as 192.0.2.0/24. The four filters of addresses and ports match the
    /// original or the reply direction as conntrack prints them.
    #[arg(short, long, value_name = "ADDR[/LEN]")]
    src: Option<Network>,
    /// Only this destination, or those of a network.
    #[arg(short, long, value_name = "ADDR[/LEN]")]
    dst: Option<Network>,
    /// Only this source port.
    #[arg(long, value_name = "PORT")]
    sport: Option<u16>,
    /// Only this destination port.
    #[arg(long, value_name = "PORT")]
    dport: Option<u16>,
    /// Only this protocol.
    #[arg(short, long, value_parser = one_of::<Proto>(&["tcp", "udp"]))]
    proto: Option<Proto>,
}

#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    /// The same as --proto, --src and --dst, in this order: tcp or udp, ADDR, ADDR:PORT, [ADDR6]:PORT or ADDR/LEN.
    #[arg(value_name = "PROTO|SRC|DST", num_args = 0..=3)]
    words: Vec<String>,
    #[command(flatten)]
    ends: EndsArgs,
}

/// Those of `conntrack -L`: all are of the original direction.
#[derive(Debug, Args)]
pub(crate) struct ConntrackArgs {
    /// Only this source in the original direction, or those of a network.
    #[arg(short, long, value_name = "ADDR[/LEN]")]
    src: Option<Network>,
    /// Only this destination in the original direction, or those of a network.
    #[arg(short, long, value_name = "ADDR[/LEN]")]
    dst: Option<Network>,
    /// Only this source port in the original direction.
    #[arg(long, value_name = "PORT")]
    sport: Option<u16>,
    /// Only this destination port in the original direction.
    #[arg(long, value_name = "PORT")]
    dport: Option<u16>,
    /// Only this protocol, by its name or number.
    #[arg(short, long, value_parser = protocol)]
    pub(crate) proto: Option<u8>,
}

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    pub(crate) ends: EndsArgs,
    /// End after so many events.
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    /// End after this time.
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    pub(crate) during: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct FlowsArgs {
    #[command(flatten)]
    ends: EndsArgs,
    /// Only connections in this state.
    #[arg(long, value_parser = one_of::<FlowState>(&["active", "pending", "stale", "retired", "static"]))]
    state: Option<FlowState>,
    /// Only connections that this engine sends.
    #[arg(long, value_parser = one_of::<Engine>(&["tc", "xdp"]))]
    engine: Option<Engine>,
    /// Only connections that come in or leave by this device.
    #[arg(long, value_name = "PORT")]
    port: Option<String>,
    /// What comes first: the greatest, of idle, src and dst the least.
    #[arg(long, value_enum, default_value = "rate")]
    sort: SortKey,
    /// The other way round.
    #[arg(long)]
    reverse: bool,
    /// Show no more than this many.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Over how long rates are taken, up to 10s; 0s means since each flow was learned.
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = rate_time)]
    pub(crate) over: Duration,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FlowCommand {
    /// Put in one flow: one direction of traffic.
    Add(Box<AddArgs>),
    /// Take out one flow, a route, what a file names, or everything that was put in by hand.
    Del(Box<DelArgs>),
    /// Put in the routes and flows of a file.
    Load {
        /// TOML with [[route]] and [[flow]].
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Show what was put in by hand.
    List,
}

#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    /// Where it comes in.
    #[arg(long, value_name = "PORT")]
    in_port: String,
    /// A VLAN tag it comes in with; twice for QinQ, outermost first.
    #[arg(long = "in-vlan", value_name = "ID")]
    in_vlans: Vec<u16>,
    /// Its protocol.
    #[arg(long, value_parser = one_of::<Proto>(&["tcp", "udp"]))]
    proto: Proto,
    /// Its source as it comes in.
    #[arg(long, value_name = "ADDR:PORT")]
    src: SocketAddr,
    /// Its destination as it comes in.
    #[arg(long, value_name = "ADDR:PORT")]
    dst: SocketAddr,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("egress").required(true).args(["route", "out_port"]))]
pub(crate) struct AddArgs {
    #[command(flatten)]
    key: KeyArgs,
    /// The MAC it must be sent to [default: the port's own].
    #[arg(long, value_name = "MAC")]
    dmac: Option<Mac>,
    /// The source it leaves with.
    #[arg(long, value_name = "ADDR:PORT")]
    snat: Option<SocketAddr>,
    /// The destination it leaves with.
    #[arg(long, value_name = "ADDR:PORT")]
    dnat: Option<SocketAddr>,
    /// The route it takes, by the name it was loaded with.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["out_port", "next_hop", "smac", "vlans"])]
    route: Option<String>,
    /// Where it leaves.
    #[arg(long, value_name = "PORT", requires = "next_hop")]
    out_port: Option<String>,
    /// The next hop's MAC.
    #[arg(long, value_name = "MAC", requires = "out_port")]
    next_hop: Option<Mac>,
    /// The source MAC it leaves with [default: the port's own].
    #[arg(long, value_name = "MAC", requires = "out_port")]
    smac: Option<Mac>,
    /// A VLAN tag it leaves with; twice for QinQ, outermost first.
    #[arg(long = "vlan", value_name = "ID", requires = "out_port")]
    vlans: Vec<u16>,
    /// Its mark.
    #[arg(long, default_value_t = 0, value_parser = number)]
    mark: u32,
    /// Its priority, as a number or as a class such as 1:10.
    #[arg(long, default_value_t = 0, value_parser = class)]
    priority: u32,
    /// The largest L3 packet [default: the MTU of the port it leaves by].
    #[arg(long, value_name = "BYTES")]
    mtu: Option<u16>,
}

// Its key is optional as a whole, which clap cannot say of flattened arguments.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).args(["in_port", "route", "file", "all"]))]
pub(crate) struct DelArgs {
    /// Where the flow comes in.
    #[arg(long, value_name = "PORT", requires_all = ["proto", "src", "dst"])]
    in_port: Option<String>,
    /// A VLAN tag it comes in with; twice for QinQ, outermost first.
    #[arg(long = "in-vlan", value_name = "ID", requires = "in_port")]
    in_vlans: Vec<u16>,
    /// Its protocol.
    #[arg(long, requires = "in_port", value_parser = one_of::<Proto>(&["tcp", "udp"]))]
    proto: Option<Proto>,
    /// Its source as it comes in.
    #[arg(long, value_name = "ADDR:PORT", requires = "in_port")]
    src: Option<SocketAddr>,
    /// Its destination as it comes in.
    #[arg(long, value_name = "ADDR:PORT", requires = "in_port")]
    dst: Option<SocketAddr>,
    /// The route of this name.
    #[arg(long, value_name = "NAME")]
    pub(crate) route: Option<String>,
    /// The routes and flows of this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Everything that was put in by hand.
    #[arg(long)]
    pub(crate) all: bool,
}

impl EndsArgs {
    pub(crate) fn selection(&self) -> Selection {
        let Self { src, dst, sport, dport, proto } = *self;
        Selection { src, dst, sport, dport, proto }
    }
}

impl WhyArgs {
    pub(crate) fn selection(&self) -> Result<Selection, String> {
        let mut wanted = self.ends.selection();
        let mut words = self.words.as_slice();
        if let [first, rest @ ..] = words {
            let named = [Proto::Tcp, Proto::Udp].into_iter().find(|proto| proto.to_string() == *first);
            if let Some(proto) = named {
                wanted.proto = Some(proto);
                words = rest;
            }
        }
        for (n, word) in words.iter().enumerate() {
            let (network, port) = end(word)?;
            match n {
                0 => (wanted.src, wanted.sport) = (Some(network), port.or(wanted.sport)),
                1 => (wanted.dst, wanted.dport) = (Some(network), port.or(wanted.dport)),
                _ => return Err(format!("`{word}`: there are two ends, and tcp or udp stands before them")),
            }
        }
        Ok(wanted)
    }
}

impl ConntrackArgs {
    pub(crate) fn ends(&self) -> Selection {
        let Self { src, dst, sport, dport, .. } = *self;
        Selection { src, dst, sport, dport, proto: None }
    }
}

impl FlowsArgs {
    pub(crate) fn filter(&self) -> Filter {
        Filter {
            ends: self.ends.selection(),
            state: self.state,
            engine: self.engine,
            port: self.port.clone(),
        }
    }

    pub(crate) fn order(&self) -> Order {
        Order { key: self.sort, reverse: self.reverse, limit: self.limit }
    }
}

impl KeyArgs {
    pub(crate) fn key(&self) -> StaticKey {
        StaticKey {
            in_port: self.in_port.clone(),
            in_vlans: self.in_vlans.clone(),
            proto: self.proto,
            src: self.src.ip(),
            sport: self.src.port(),
            dst: self.dst.ip(),
            dport: self.dst.port(),
        }
    }
}

impl DelArgs {
    pub(crate) fn key(&self) -> Option<StaticKey> {
        let key = KeyArgs {
            in_port: self.in_port.clone()?,
            in_vlans: self.in_vlans.clone(),
            proto: self.proto?,
            src: self.src?,
            dst: self.dst?,
        };
        Some(key.key())
    }
}

impl AddArgs {
    pub(crate) fn flow(&self) -> StaticFlow {
        let StaticKey { in_port, in_vlans, proto, src, sport, dst, dport } = self.key.key();
        let route = match (&self.route, &self.out_port, self.next_hop) {
            (None, Some(out_port), Some(dmac)) => RouteChoice::Inline(Hop {
                out_port: out_port.clone(),
                dmac,
                smac: self.smac,
                vlans: self.vlans.clone(),
            }),
            (name, ..) => RouteChoice::Named(name.clone().unwrap_or_default()),
        };
        let Self { dmac, snat, dnat, mark, priority, mtu, .. } = *self;
        StaticFlow {
            in_port,
            in_vlans,
            proto,
            src,
            sport,
            dst,
            dport,
            dmac,
            snat,
            dnat,
            route,
            mark,
            priority,
            mtu,
        }
    }
}

/// A name of a message's enum, offered as the messages spell it.
fn one_of<T>(names: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: DeserializeOwned + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(names)
        .try_map(|name| T::deserialize(IntoDeserializer::<ValueError>::into_deserializer(name)))
}

/// An address or a network, or an address and a port.
fn end(word: &str) -> Result<(Network, Option<u16>), String> {
    match word.parse::<SocketAddr>() {
        Ok(both) => Ok((both.ip().into(), Some(both.port()))),
        Err(_) => Ok((word.parse()?, None)),
    }
}

fn protocol(name: &str) -> Result<u8, String> {
    match crate::render::protocol_number(name) {
        Some(number) => Ok(number),
        None => {
            name.parse().map_err(|_| "not a protocol that conntrack has a name for, nor a number".to_owned())
        }
    }
}

fn time(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_| "write it as 500ms or 2s".to_owned())
}

fn rate_time(text: &str) -> Result<Duration, String> {
    let time = time(text)?;
    if time <= Duration::from_secs(10) { Ok(time) } else { Err("more than 10s".to_owned()) }
}

fn number(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "not a number of 32 bits, decimal or with 0x".to_owned())
}

// tc writes the handles of classes in hexadecimal.
fn class(text: &str) -> Result<u32, String> {
    let Some((major, minor)) = text.split_once(':') else { return number(text) };
    let half = |digits| u16::from_str_radix(digits, 16).map_err(|_| "not a class such as 1:10".to_owned());
    Ok(u32::from(half(major)?) << 16 | u32::from(half(minor)?))
}

#[cfg(test)]
mod tests;
