//! `shunt flows`: lists the connections on the fast path, or adds them up by host.

mod filter;

use super::{
    arguments::{SelectionArgs, WHICH, duration, name_of},
    hosts::{Names, totals},
};
use crate::{
    client::{candidates, control::Client},
    render::Answer,
};
use clap::{Args, ValueEnum};
use clap_complete::engine::ArgValueCandidates;
use filter::{Filter, Order, SortKey};
use shunt_api::{Connection, Engine, FlowState};
use std::time::Duration;

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
    /// Add the connections up: one line for each host at either end of a connection, with its name from the DHCP leases of this machine
    /// (dnsmasq, odhcpd, ISC dhcpd, Kea) or /etc/hosts.
    #[arg(long, value_enum)]
    by: Option<By>,
    /// The order: largest first; for idle, src and dst smallest first. With --by host, src and dst are both the address.
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

pub(crate) async fn run(typed: FlowsArgs, client: &Client) -> anyhow::Result<Answer> {
    let path = format!("/v1/flows?rate_over_ms={}", typed.over.as_millis());
    let mut connections: Vec<Connection> = client.get(&path).await?;
    let filter = typed.filter();
    connections.retain(|connection| filter.matches(connection));
    if let Some(By::Host) = typed.by {
        let mut hosts = totals(&connections, &Names::of_this_machine());
        typed.order().apply_to_hosts(&mut hosts);
        return Ok(Answer::Hosts(hosts));
    }
    typed.order().apply(&mut connections);
    Ok(Answer::Flows(connections))
}

fn rate_time(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    if time <= Duration::from_secs(10) { Ok(time) } else { Err("expected 10s or less".to_owned()) }
}

#[cfg(test)]
mod tests;
