//! `shunt flow`: flows that are added by hand instead of learned.

pub(crate) mod view;

use super::arguments::{bytes, name_of, packet_endpoint};
use crate::{
    client::{candidates, control::Client},
    command::{Command, Context},
    failure::{bad_file, unreadable, usage},
    output::Show,
    render::Counted,
};
use clap::{ArgGroup, Args, Subcommand};
use clap_complete::engine::ArgValueCandidates;
use hyper::Method;
use serde::Serialize;
use shunt_api::{
    Count, Failure, FailureCode, Hop, Proto, RouteChoice, StaticFlow, StaticKey, StaticRemoval, StaticTable,
};
use shunt_wire::Mac;
use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

/// The daemon carries out a request as a whole or not at all, and takes requests of 4 MiB. A larger file is sent in
/// parts.
const FLOWS_PER_REQUEST: usize = 4096;

/// Manage flows that are added by hand, without connection tracking.
#[derive(Debug, Args)]
pub(crate) struct FlowArgs {
    #[command(subcommand)]
    command: FlowCommand,
}

#[derive(Debug, Subcommand)]
enum FlowCommand {
    /// Add one flow: one direction of traffic.
    Add(Box<AddArgs>),
    /// Remove one flow, a route, the flows and routes of a file, or everything that was added by hand.
    Del(Box<DelArgs>),
    /// Add the routes and flows of a file.
    Load {
        /// A TOML file with [[route]] and [[flow]]; docs/guide/static-flows.md has its keys.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Show the flows and routes that were added by hand.
    #[command(visible_alias = "show")]
    List,
}

#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    /// The port where the packets arrive.
    #[arg(long, value_name = "PORT", add = ArgValueCandidates::new(candidates::devices))]
    in_port: String,
    /// A VLAN tag of the arriving packets; give it twice for QinQ, outermost first.
    #[arg(long = "in-vlan", value_name = "ID")]
    in_vlans: Vec<u16>,
    /// The protocol.
    #[arg(long, value_parser = name_of::<Proto>(&["tcp", "udp"]))]
    proto: Proto,
    /// The source of the arriving packets, before any translation.
    #[arg(long, value_name = "ADDR:PORT", value_parser = packet_endpoint)]
    src: SocketAddr,
    /// The destination of the arriving packets, before any translation.
    #[arg(long, value_name = "ADDR:PORT", value_parser = packet_endpoint)]
    dst: SocketAddr,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("egress").required(true).args(["route", "out_port"]))]
pub(crate) struct AddArgs {
    #[command(flatten)]
    key: KeyArgs,
    /// The destination MAC that the arriving packets must have [default: the MAC of the port].
    #[arg(long, value_name = "MAC")]
    dmac: Option<Mac>,
    /// Rewrite the source to this address and port.
    #[arg(long, value_name = "ADDR:PORT", value_parser = packet_endpoint)]
    snat: Option<SocketAddr>,
    /// Rewrite the destination to this address and port.
    #[arg(long, value_name = "ADDR:PORT", value_parser = packet_endpoint)]
    dnat: Option<SocketAddr>,
    /// Send by the route with this name, which `shunt flow load` added.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["out_port", "next_hop", "smac", "vlans"])]
    route: Option<String>,
    /// Send through this port.
    #[arg(long, value_name = "PORT", requires = "next_hop", add = ArgValueCandidates::new(candidates::devices))]
    out_port: Option<String>,
    /// The MAC of the next hop.
    #[arg(long, value_name = "MAC", requires = "out_port")]
    next_hop: Option<Mac>,
    /// The source MAC of the sent packets [default: the MAC of the port].
    #[arg(long, value_name = "MAC", requires = "out_port")]
    smac: Option<Mac>,
    /// A VLAN tag of the sent packets; give it twice for QinQ, outermost first.
    #[arg(long = "vlan", value_name = "ID", requires = "out_port")]
    vlans: Vec<u16>,
    /// The skb mark of the sent packets, decimal or with 0x.
    #[arg(long, default_value_t = 0, value_parser = number)]
    mark: u32,
    /// The skb priority of the sent packets: a number, or a tc class such as 1:10.
    #[arg(long, default_value_t = 0, value_parser = class)]
    priority: u32,
    /// The largest L3 packet; larger packets take the slow path [default: the MTU of the egress port].
    #[arg(long, value_name = "BYTES", value_parser = mtu)]
    mtu: Option<u16>,
}

// KeyArgs cannot be flattened here: the key is optional as a whole, which clap cannot express.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).args(["in_port", "route", "file", "all"]))]
pub(crate) struct DelArgs {
    /// The port where the packets of the flow arrive.
    #[arg(long, value_name = "PORT", requires_all = ["proto", "src", "dst"],
        add = ArgValueCandidates::new(candidates::devices))]
    in_port: Option<String>,
    /// A VLAN tag of the arriving packets; give it twice for QinQ, outermost first.
    #[arg(long = "in-vlan", value_name = "ID", requires = "in_port")]
    in_vlans: Vec<u16>,
    /// The protocol.
    #[arg(long, requires = "in_port", value_parser = name_of::<Proto>(&["tcp", "udp"]))]
    proto: Option<Proto>,
    /// The source of the arriving packets, before any translation.
    #[arg(long, value_name = "ADDR:PORT", value_parser = packet_endpoint, requires = "in_port")]
    src: Option<SocketAddr>,
    /// The destination of the arriving packets, before any translation.
    #[arg(long, value_name = "ADDR:PORT", value_parser = packet_endpoint, requires = "in_port")]
    dst: Option<SocketAddr>,
    /// Remove the route with this name.
    #[arg(long, value_name = "NAME")]
    route: Option<String>,
    /// Remove the routes and flows of this file.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Remove everything that was added by hand.
    #[arg(long)]
    all: bool,
}

/// A resolved `shunt flow`.
#[derive(Debug)]
pub(crate) enum Change {
    /// What was typed, or what a file has.
    Add {
        table: StaticTable,
        file: Option<PathBuf>,
    },
    Remove(StaticRemoval),
    List,
}

impl Command for FlowArgs {
    type Plan = Change;
    const EXAMPLES: &str = "
        [shunt flow]
        shunt flow load flows.toml # add the flows and routes of a file
        shunt flow show # what was added
        [shunt flow add]
        shunt flow add --in-port lan0 --proto udp --src 192.0.2.1:5000 --dst 198.51.100.7:5000 --out-port wan0 --next-hop 02:00:00:00:00:01 # one direction of a UDP stream
        [shunt flow del]
        shunt flow del --all # everything that was added by hand
        shunt flow del --file flows.toml # what a file added
        [shunt flow load]
        shunt flow load flows.toml # the routes and flows of a file
        [shunt flow list]
        shunt flow show # flows and routes that were added by hand
    ";
    const USES_INSTANCE: bool = true;

    fn resolve(self, _: &Context) -> anyhow::Result<Change> {
        Ok(Change::resolve(&self.command)?)
    }

    async fn run(plan: Change, context: &Context, show: Show<'_>) -> anyhow::Result<()> {
        let client = &context.client;
        let answer = match plan {
            Change::Add { table, file } => {
                let added = add(client, table).await.map_err(|error| in_file(error, file.as_deref()))?;
                Counted::new(added, "entry", |entries| format!("{entries} added"))
            }
            Change::Remove(removal) => {
                let what = named(&removal);
                let removed = remove(client, removal).await?;
                if let Some(what) = what.filter(|_| removed.count == 0) {
                    let why = format!(
                        "there is no {what}; `shunt flow show` lists the routes and flows that there are"
                    );
                    return Err(Failure::new(FailureCode::NoConnection, why).into());
                }
                Counted::new(removed, "entry", |entries| format!("{entries} removed"))
            }
            Change::List => return show(&client.get::<StaticTable>("/v1/static").await?),
        };
        show(&answer)
    }
}

impl Change {
    fn resolve(typed: &FlowCommand) -> Result<Self, Failure> {
        Ok(match typed {
            FlowCommand::Add(add) => {
                let table = StaticTable { route: Vec::new(), flow: vec![add.flow()] };
                table.check().map_err(|failure| usage(failure.message))?;
                Self::Add { table, file: None }
            }
            FlowCommand::Del(del) => Self::Remove(del.removal()?),
            FlowCommand::Load { file } => Self::Add { table: read_table(file)?, file: Some(file.clone()) },
            FlowCommand::List => Self::List,
        })
    }
}

impl KeyArgs {
    fn key(&self) -> StaticKey {
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

impl AddArgs {
    fn flow(&self) -> StaticFlow {
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

impl DelArgs {
    fn key(&self) -> Option<StaticKey> {
        let key = KeyArgs {
            in_port: self.in_port.clone()?,
            in_vlans: self.in_vlans.clone(),
            proto: self.proto?,
            src: self.src?,
            dst: self.dst?,
        };
        Some(key.key())
    }

    fn removal(&self) -> Result<StaticRemoval, Failure> {
        let mut removal = StaticRemoval { all: self.all, ..StaticRemoval::default() };
        removal.flow.extend(self.key());
        removal.route.extend(self.route.clone());
        if let Some(file) = &self.file {
            let table = read_table(file)?;
            removal.flow.extend(table.flow.iter().map(|flow| flow.key()));
            removal.route.extend(table.route.into_iter().map(|route| route.name));
        }
        Ok(removal)
    }
}

/// What the daemon refuses, with the file that has it.
fn in_file(error: anyhow::Error, file: Option<&Path>) -> anyhow::Error {
    match (error.downcast::<Failure>(), file) {
        (Ok(mut failure), Some(file)) => {
            failure.message = format!("{}: {}", file.display(), failure.message);
            failure.into()
        }
        (Ok(failure), None) => failure.into(),
        (Err(other), _) => other,
    }
}

/// What is to be removed, in words; None if that is whatever there is.
fn named(removal: &StaticRemoval) -> Option<String> {
    match (removal.flow.as_slice(), removal.route.as_slice()) {
        _ if removal.all => None,
        ([], []) => None,
        ([], [route]) => Some(format!("route `{route}`")),
        ([flow], []) => Some(format!("flow {flow}")),
        (..) => Some("flow or route of this file".to_owned()),
    }
}

fn read_table(path: &Path) -> Result<StaticTable, Failure> {
    let text = fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
    StaticTable::parse(&text).map_err(|why| bad_file(path, why))
}

/// Sends the routes with the first flows, since flows name them.
async fn add(client: &Client, StaticTable { route, mut flow }: StaticTable) -> anyhow::Result<Count> {
    let further = flow.split_off(flow.len().min(FLOWS_PER_REQUEST));
    let mut parts = vec![StaticTable { route, flow }];
    let chunks = further.chunks(FLOWS_PER_REQUEST);
    parts.extend(chunks.map(|flow| StaticTable { flow: flow.to_vec(), ..StaticTable::default() }));
    send_all(client, Method::POST, &parts).await
}

/// Sends the routes last: a route can be removed only when no flow names it.
async fn remove(client: &Client, StaticRemoval { all, flow, route }: StaticRemoval) -> anyhow::Result<Count> {
    let mut parts: Vec<StaticRemoval> = flow
        .chunks(FLOWS_PER_REQUEST)
        .map(|flow| StaticRemoval { flow: flow.to_vec(), ..StaticRemoval::default() })
        .collect();
    if all || !route.is_empty() || flow.is_empty() {
        parts.push(StaticRemoval { all, route, ..StaticRemoval::default() });
    }
    send_all(client, Method::DELETE, &parts).await
}

async fn send_all(client: &Client, method: Method, parts: &[impl Serialize]) -> anyhow::Result<Count> {
    let mut count = 0;
    for part in parts {
        count += client.send::<Count>(method.clone(), "/v1/static", part).await?.count;
    }
    Ok(Count { count })
}

fn mtu(text: &str) -> Result<u16, String> {
    let bytes = bytes(text)?;
    u16::try_from(bytes).map_err(|_| format!("{bytes} bytes: an IP packet has at most {}", u16::MAX))
}

fn number(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "expected a number of 32 bits, decimal or with 0x".to_owned())
}

// tc writes the handles of classes in hexadecimal.
fn class(text: &str) -> Result<u32, String> {
    let Some((major, minor)) = text.split_once(':') else { return number(text) };
    let half =
        |digits| u16::from_str_radix(digits, 16).map_err(|_| "expected a class such as 1:10".to_owned());
    Ok(u32::from(half(major)?) << 16 | u32::from(half(minor)?))
}

#[cfg(test)]
mod tests;
