//! `shunt top`: connections, hosts, ports and reasons by rate, on a terminal or once.

mod history;
mod keys;
mod sample;
mod session;
pub(crate) mod view;

use super::{
    arguments::{SHORTEST_INTERVAL, time_within},
    hosts::KnownHosts,
};
use crate::{
    client::control::{Client, across_restarts},
    command::{Command, Context},
    failure::usage,
    output::{Screen, Show},
};
use clap::Args;
use history::History;
use sample::Sample;
use shunt_api::SlowTable;
use std::time::Duration;
use tokio::time::sleep;
use view::Top;

const LONGEST_INTERVAL: Duration = Duration::from_secs(60);

/// Show connections, hosts, ports and reasons for slow packets by rate, on the whole terminal.
///
/// Names of hosts are those of `shunt usage`: from DHCP leases of this machine (dnsmasq, odhcpd, ISC dhcpd, Kea) and
/// /etc/hosts; a host that has a lease for IPv4 only has its name for IPv6, too. Keys: 1 to 5 or Tab choose a pane, the
/// arrows a row, Enter opens it, s sorts, / filters, ? lists all keys, q quits. The screen uses only the colours of the
/// terminal, and none if NO_COLOR is set.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Print the state once, as text or JSON, and end: for scripts, pipes and terminals without a cursor.
    #[arg(long)]
    once: bool,
    /// The time between two samples, which rates are measured over, from 100ms to 1m.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time_within(SHORTEST_INTERVAL, LONGEST_INTERVAL))]
    interval: Duration,
    /// Print at most this many connections and hosts.
    #[arg(long, value_name = "N", default_value = "20", requires = "once")]
    limit: usize,
}

impl Command for TopArgs {
    type Plan = Self;
    const EXAMPLES: &str = "
        [shunt top]
        shunt top # the live screen; q ends it
        shunt top --once # one sample, as text
    ";
    const USES_INSTANCE: bool = true;

    /// Checks that the terminal can show the screen, if a screen is wanted.
    fn resolve(self, context: &Context) -> anyhow::Result<Self> {
        if self.once {
            return Ok(self);
        }
        if context.json {
            return Err(usage("--json needs --once").into());
        }
        match Screen::of_stdout() {
            Some(_) => Ok(self),
            None => Err(usage(
                "standard output is not a terminal that can move its cursor (a pipe, a file, or TERM=dumb); \
                 print the state once with `shunt top --once`",
            )
            .into()),
        }
    }

    async fn run(plan: Self, context: &Context, show: Show<'_>) -> anyhow::Result<()> {
        let Self { once, interval, limit } = plan;
        if !once {
            return session::run(&context.client, interval).await;
        }
        let mut top = measure(&context.client, interval, limit.min(SlowTable::MOST)).await?;
        top.connections.truncate(limit);
        top.hosts.truncate(limit);
        show(&top)
    }
}

/// Takes samples until two of them are of the same daemon.
async fn measure(client: &Client, interval: Duration, explained: usize) -> anyhow::Result<Top> {
    let mut history = History::default();
    let names = KnownHosts::read(client).await.names();
    let mut sample = Sample::take(client, explained).await?;
    loop {
        if let Some(top) = history.add(sample, &names) {
            return Ok(top);
        }
        sleep(interval).await;
        sample = across_restarts(async || Sample::take(client, explained).await).await?;
    }
}

#[cfg(test)]
mod tests;
