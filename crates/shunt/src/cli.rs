//! What can be typed.

use crate::select::{Filter, Network, Order, SortKey};
use clap::{
    ArgGroup, Args, Parser, Subcommand,
    builder::{PossibleValuesParser, TypedValueParser},
};
use serde::de::{DeserializeOwned, IntoDeserializer, value::Error as ValueError};
use shunt_api::{Engine, EngineChoice, FlowState, Hop, Instance, Proto, RouteChoice, StaticFlow, StaticKey};
use shunt_wire::Mac;
use std::{net::SocketAddr, path::PathBuf, time::Duration};

/// A fast path for Linux routers: connections that Linux has accepted pass the network stack.
#[derive(Debug, Parser)]
#[command(name = "shunt", version, disable_help_subcommand = true)]
pub(crate) struct Cli {
    /// Which of several Shunts on this machine.
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
    /// Send every connection back to the slow path, to be learned again.
    Flush,
    /// Flows put in by hand, without connection tracking.
    #[command(subcommand)]
    Flow(FlowCommand),
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
pub(crate) struct FlowsArgs {
    /// Only this source, or those of a network such as 192.0.2.0/24. The four filters of addresses and ports match the
    /// original or the reply direction as conntrack prints them.
    #[arg(long, value_name = "ADDR[/LEN]")]
    src: Option<Network>,
    /// Only this destination, or those of a network.
    #[arg(long, value_name = "ADDR[/LEN]")]
    dst: Option<Network>,
    /// Only this source port.
    #[arg(long, value_name = "PORT")]
    sport: Option<u16>,
    /// Only this destination port.
    #[arg(long, value_name = "PORT")]
    dport: Option<u16>,
    /// Only this protocol.
    #[arg(long, value_parser = one_of::<Proto>(&["tcp", "udp"]))]
    proto: Option<Proto>,
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

impl FlowsArgs {
    pub(crate) fn filter(&self) -> Filter {
        Filter {
            src: self.src,
            dst: self.dst,
            sport: self.sport,
            dport: self.dport,
            proto: self.proto,
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

fn rate_time(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|_| "write it as 500ms or 2s".to_owned())?;
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
