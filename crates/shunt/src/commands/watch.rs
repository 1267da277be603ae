//! `shunt watch`: shows events as the daemon reports them.

use super::arguments::{SelectionArgs, duration};
use crate::{
    client::control::Client,
    output::{Show, write_stderr},
    render::Answer,
};
use clap::Args;
use shunt_api::{Failure, FailureCode};
use std::time::Duration;
use tokio::time::timeout;

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    selection: SelectionArgs,
    /// End after this many events.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// End after this time.
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    during: Option<Duration>,
}

/// Shows events until the count or the time is reached, or without an end if neither was given.
pub(crate) async fn run(typed: WatchArgs, client: &Client, show: Show<'_>) -> anyhow::Result<()> {
    let WatchArgs { selection, count, during } = typed;
    let path = format!("/v1/watch?{}", selection.selection().query());
    let mut events = client.lines(&path).await?;
    // On standard error, which has no events. From here on no event is missed.
    write_stderr("watching; Ctrl-C ends it\n");
    let watching = async {
        for _ in 0..count.unwrap_or(u64::MAX) {
            match events.next().await? {
                Some(event) => show(&Answer::Event(event))?,
                None => return Err(Failure::new(FailureCode::NotRunning, "the daemon has ended").into()),
            }
        }
        Ok(())
    };
    match during {
        Some(during) => timeout(during, watching).await.unwrap_or(Ok(())),
        None => watching.await,
    }
}
