//! `shunt status`: shows the state of the instance once, or again each second.

pub(crate) mod costs;
pub(crate) mod reasons;
pub(crate) mod savings;
pub(crate) mod screenful;
mod verdict;
pub(crate) mod view;

use crate::{
    client::control::Client,
    command::{Command, Context},
    output::{Screen, Show, write_stderr},
};
use clap::Args;
use screenful::Screenful;
use shunt_api::Status;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use view::StatusLine;

/// Show the ports with their engines, counters and reasons, what the fast path saves, and what Shunt costs.
///
/// What it saves is known with `savings = true` in the configuration: CPU time now and over the last week, with the
/// doubt. -v adds what a packet costs on both paths.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Show the state again each second, until Ctrl-C. On a terminal, the lines that do not fit are left out.
    #[arg(long)]
    watch: bool,
}

const INTERVAL: Duration = Duration::from_secs(1);

impl Command for StatusArgs {
    type Plan = Self;
    const EXAMPLES: &str = "
        [shunt status]
        shunt status # shares, causes, and the counters of each port
        shunt status -br # one line for each port
        shunt status --watch # again each second
        shunt status --json # the same for a program
    ";
    const USES_INSTANCE: bool = true;

    fn resolve(self, _: &Context) -> anyhow::Result<Self> {
        Ok(self)
    }

    async fn run(plan: Self, context: &Context, show: Show<'_>) -> anyhow::Result<()> {
        let client = &context.client;
        let status: Status = client.get("/v1/status").await?;
        if plan.watch { watch(status, client, show).await } else { show(&status) }
    }
}

/// Shows the state until the output is closed. While the daemon does not answer, shows the last state with the failure.
async fn watch(first: Status, client: &Client, show: Show<'_>) -> anyhow::Result<()> {
    let (mut status, mut failure) = (first, None);
    let mut clear = true;
    loop {
        let next = Instant::now() + INTERVAL;
        match Screen::of_stdout() {
            Some(Screen { columns, rows }) => {
                let failure = failure.clone();
                show(&Screenful { status: status.clone(), failure, columns, rows, clear })?;
                clear = false;
            }
            None if failure.is_none() => show(&StatusLine(status.clone()))?,
            None => {}
        }
        sleep_until(next).await;
        match client.get("/v1/status").await {
            Ok(read) => (status, failure) = (read, None),
            Err(error) => {
                let why = error.to_string();
                if failure.is_none() && Screen::of_stdout().is_none() {
                    write_stderr(&format!("shunt: {why}; trying again each second\n"));
                }
                failure = Some(why);
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod sample;
