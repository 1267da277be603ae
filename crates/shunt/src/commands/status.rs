//! `shunt status`: shows the state of the instance once, or again each second.

use crate::{
    client::control::Client,
    output::{Screen, Show, write_stderr},
    render::Answer,
};
use clap::Args;
use shunt_api::Status;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Show the state again each second, until Ctrl-C. On a terminal, the lines that do not fit are left out.
    #[arg(long)]
    watch: bool,
}

const INTERVAL: Duration = Duration::from_secs(1);

pub(crate) async fn run(typed: StatusArgs, client: &Client, show: Show<'_>) -> anyhow::Result<()> {
    let status = client.get("/v1/status").await?;
    if typed.watch { watch(status, client, show).await } else { show(&Answer::Status(status)) }
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
                show(&Answer::Screenful { status: status.clone(), failure, columns, rows, clear })?;
                clear = false;
            }
            None if failure.is_none() => show(&Answer::StatusLine(status.clone()))?,
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
