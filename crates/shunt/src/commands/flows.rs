//! `shunt flows`: lists the connections, fast and slow, or adds them up by host.

mod filter;
pub(crate) mod view;

use super::{
    arguments::{at_least_one, name_of, time_within},
    connections::{ConnectionArgs, WHICH},
    hosts::{KnownHosts, totals},
    listed::{UNCOUNTED, listed},
};
use crate::{
    client::{candidates, control::Client},
    command::{Command, Context},
    failure::usage,
    output::{Show, write_stderr},
};
use clap::{Args, ValueEnum};
use clap_complete::engine::ArgValueCandidates;
use filter::{Filter, Order, SortKey};
use shunt_api::{Connection, Engine, Failure, FlowState, Selection, SlowTable, Status};
use std::time::Duration;

/// Show the connections: those on the fast path, and those whose packets Linux forwards (slow).
///
/// A connection with one fast direction is listed once, with the state of each. Each slow direction has its reason and
/// what to do, or "cannot-tell" if the connection has gone meanwhile. Where tc sends packets although a port has
/// another engine, the line of the direction says why.
///
/// Slow connections are those that conntrack knows and that had packets while the rates were measured. Their rates
/// need conntrack's counters (sysctl net.netfilter.nf_conntrack_acct); without them, all are shown, without rates.
#[derive(Debug, Args)]
pub(crate) struct FlowsArgs {
    #[command(flatten)]
    connections: ConnectionArgs,
    /// Only connections in this state; slow are those without a flow.
    #[arg(long, help_heading = WHICH, value_parser = name_of::<FlowState>(&["slow", "active", "pending", "stale", "retired", "static"]))]
    state: Option<FlowState>,
    /// Only connections that this engine sends.
    #[arg(long, help_heading = WHICH, value_parser = name_of::<Engine>(&["tc", "xdp", "external"]))]
    engine: Option<Engine>,
    /// Only connections on the fast path whose packets arrive or leave through this device. Of slow connections, the
    /// devices are not known.
    #[arg(long = "dev", alias = "port", value_name = "DEV", help_heading = WHICH, add = ArgValueCandidates::new(candidates::devices))]
    device: Option<String>,
    /// Add the connections up: one line for each address at either end of a connection, with the name that `shunt
    /// usage` has for the host: from the DHCP leases of this machine (dnsmasq, odhcpd, ISC dhcpd, Kea) or /etc/hosts.
    #[arg(long, value_enum)]
    by: Option<By>,
    /// The order: largest first; for idle, src and dst smallest first. With --by host, src and dst are both the
    /// address.
    #[arg(long, value_enum, default_value = "rate")]
    sort: SortKey,
    /// Reverse the order.
    #[arg(long)]
    reverse: bool,
    /// Show at most this many connections or hosts.
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    limit: Option<usize>,
    /// The time over which rates are measured, at most 10s; 0s is the time since each flow was learned.
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = time_within(Duration::ZERO, Duration::from_secs(10)))]
    over: Duration,
}

/// How long the rates of slow connections are measured with --over 0s.
const SLOW_RATE_TIME: Duration = Duration::from_millis(200);

/// The key by which connections are added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    Host,
}

impl FlowsArgs {
    /// The filter for these connections: those of each address of a host.
    fn filter(&self, selections: Vec<Selection>) -> Filter {
        Filter { selections, state: self.state, engine: self.engine, port: self.device.clone() }
    }

    fn order(&self) -> Order {
        Order { key: self.sort, reverse: self.reverse, limit: self.limit }
    }
}

impl Command for FlowsArgs {
    type Plan = Self;
    const EXAMPLES: &str = "
        [shunt flows]
        shunt flows --limit 10 # the ten fastest connections
        shunt flows --by host # who uses the line
        shunt flows --host laptop # the connections of a host, by its name in `shunt usage` or an address
        shunt flows --state slow # the connections that Linux forwards
        shunt flows -br --dst 198.51.100.0/24 --proto udp # one line for each connection to a network
        shunt flows --dev lan0 --sort packets # connections that arrive or leave by a device
    ";
    const USES_INSTANCE: bool = true;

    fn resolve(self, _: &Context) -> anyhow::Result<Self> {
        Ok(self)
    }

    async fn run(plan: Self, context: &Context, show: Show<'_>) -> anyhow::Result<()> {
        let filter = plan.filter(plan.connections.named()?.look_up(&context.client).await?);
        let (fast, slow) = tokio::try_join!(
            read(&context.client, &filter, plan.over),
            read_slow(
                &context.client,
                &filter,
                plan.over,
                if plan.by.is_some() { 0 } else { SlowTable::MOST }
            )
        )?;
        note_omissions(&slow);
        let mut connections = listed(fast, slow);
        let there_are_some = !connections.is_empty();
        connections.retain(|connection| filter.matches(connection));
        if let Some(device) = plan.device.as_ref().filter(|_| connections.is_empty()) {
            let status: Status = context.client.get("/v1/status").await?;
            must_be_port(device, status.ports.iter().map(|port| port.name.as_str()))?;
        }
        if there_are_some && connections.is_empty() && !context.json {
            write_stderr("no connection matches; without the filters, there are some\n");
        }
        if let Some(By::Host) = plan.by {
            let mut hosts = totals(&connections, &KnownHosts::read(&context.client).await.names());
            plan.order().apply_to_hosts(&mut hosts);
            return show(&hosts);
        }
        plan.order().apply(&mut connections);
        show(&connections)
    }
}

/// Refuses a device through which no packet can pass on the fast path.
fn must_be_port<'p>(device: &str, mut ports: impl Iterator<Item = &'p str> + Clone) -> Result<(), Failure> {
    let names: Vec<&str> = ports.clone().collect();
    if ports.any(|port| port == device) {
        return Ok(());
    }
    let ports = if names.is_empty() { "has no port".to_owned() } else { format!("has {}", names.join(", ")) };
    let l4_port = match device.parse::<u16>() {
        Ok(port) => format!("; a TCP or UDP port is --dport {port} or --sport {port}"),
        Err(_) => String::new(),
    };
    Err(usage(format!("--dev: {device} is no port of this instance, which {ports}{l4_port}")))
}

async fn read(client: &Client, filter: &Filter, over: Duration) -> anyhow::Result<Vec<Connection>> {
    if !filter.allows_fast() {
        return Ok(Vec::new());
    }
    client.get(&format!("/v1/flows?rate_over_ms={}", over.as_millis())).await
}

/// `because` is the number of connections whose reasons are wanted.
async fn read_slow(
    client: &Client,
    filter: &Filter,
    over: Duration,
    because: usize,
) -> anyhow::Result<SlowTable> {
    if !filter.allows_slow() {
        return Ok(SlowTable { counted: true, ..SlowTable::default() });
    }
    // Conntrack knows no age of most connections, so there is no rate over their life.
    let over = if over.is_zero() { SLOW_RATE_TIME } else { over };
    client.get(&format!("/v1/slow?rate_over_ms={}&because={because}", over.as_millis())).await
}

/// What the list of slow connections lacks, on standard error.
fn note_omissions(slow: &SlowTable) {
    if !slow.counted && !slow.connections.is_empty() {
        write_stderr(UNCOUNTED);
    }
    if slow.more > 0 {
        write_stderr(&format!("{} more slow connections are left out\n", slow.more));
    }
}

#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests;
