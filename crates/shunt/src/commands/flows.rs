//! `shunt flows`: lists the connections on the fast path, or adds them up by host.

mod filter;
pub(crate) mod view;

use super::{
    arguments::{SelectionArgs, WHICH, duration, name_of},
    hosts::{Names, totals},
};
use crate::{
    client::candidates,
    command::{Command, Context},
    output::Show,
};
use clap::{Args, ValueEnum};
use clap_complete::engine::ArgValueCandidates;
use filter::{Filter, Order, SortKey};
use shunt_api::{Connection, Engine, FlowState};
use std::time::Duration;

/// Show the connections on the fast path.
#[derive(Debug, Args)]
pub(crate) struct FlowsArgs {
    #[command(flatten)]
    selection: SelectionArgs,
    /// Only connections in this state.
    #[arg(long, help_heading = WHICH, value_parser = name_of::<FlowState>(&["active", "pending", "stale", "retired", "static"]))]
    state: Option<FlowState>,
    /// Only connections that this engine sends.
    #[arg(long, help_heading = WHICH, value_parser = name_of::<Engine>(&["tc", "xdp", "external"]))]
    engine: Option<Engine>,
    /// Only connections whose packets arrive or leave through this device.
    #[arg(long = "dev", alias = "port", value_name = "DEV", help_heading = WHICH, add = ArgValueCandidates::new(candidates::devices))]
    device: Option<String>,
    /// Add the connections up: one line for each host at either end of a connection, with its name from the DHCP leases
    /// of this machine (dnsmasq, odhcpd, ISC dhcpd, Kea) or /etc/hosts.
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
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// The time over which rates are measured, at most 10s; 0s is the time since each flow was learned.
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = rate_time)]
    over: Duration,
}

/// The key by which connections are added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    Host,
}

impl FlowsArgs {
    fn filter(&self) -> Filter {
        Filter {
            selection: self.selection.selection(),
            state: self.state,
            engine: self.engine,
            port: self.device.clone(),
        }
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
        shunt flows -br --dst 198.51.100.0/24 --proto udp # one line for each connection to a network
        shunt flows --dev lan0 --sort packets # connections that arrive or leave by a device
    ";
    const USES_INSTANCE: bool = true;

    fn resolve(self, _: &Context) -> anyhow::Result<Self> {
        Ok(self)
    }

    async fn run(plan: Self, context: &Context, show: Show<'_>) -> anyhow::Result<()> {
        let path = format!("/v1/flows?rate_over_ms={}", plan.over.as_millis());
        let mut connections: Vec<Connection> = context.client.get(&path).await?;
        let filter = plan.filter();
        connections.retain(|connection| filter.matches(connection));
        if let Some(By::Host) = plan.by {
            let mut hosts = totals(&connections, &Names::of_this_machine());
            plan.order().apply_to_hosts(&mut hosts);
            return show(&hosts);
        }
        plan.order().apply(&mut connections);
        show(&connections)
    }
}

fn rate_time(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    if time <= Duration::from_secs(10) { Ok(time) } else { Err("expected 10s or less".to_owned()) }
}

#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests;
