//! `shunt watch`: shows events as the daemon reports them.

pub(crate) mod view;

use super::arguments::{SelectionArgs, duration, time_within};
use crate::{
    command::{Command, Context},
    output::{Show, write_stderr},
};
use clap::Args;
use shunt_api::{Failure, FailureCode, OffRule, WatchEvent};
use std::time::Duration;
use tokio::time::timeout;

const SHORTEST: Duration = Duration::from_millis(1);
/// As for `shunt off`.
const LONGEST: Duration = Duration::from_secs(OffRule::LONGEST_S);

/// Show events of flows as they happen: learn, activate, punt, refuse, retire, and moves of the epoch; and the end of
/// each connection, with all packets that it had, fast and slow.
#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    selection: SelectionArgs,
    /// End after this many events.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after this time, 1ms to 365d.
    #[arg(long = "for", value_name = "TIME", value_parser = time_within(duration, SHORTEST, LONGEST))]
    during: Option<Duration>,
}

impl Command for WatchArgs {
    type Plan = Self;
    const EXAMPLES: &str = "
        [shunt watch]
        shunt watch # all events, until Ctrl-C
        shunt watch --dst 198.51.100.7 --for 10s # those of a host, for ten seconds
    ";
    const USES_INSTANCE: bool = true;

    fn resolve(self, _: &Context) -> anyhow::Result<Self> {
        Ok(self)
    }

    /// Shows events until the count or the time is reached, or without an end if neither was given.
    async fn run(plan: Self, context: &Context, show: Show<'_>) -> anyhow::Result<()> {
        let Self { selection, count, during } = plan;
        let path = format!("/v1/watch?{}", selection.selection().query());
        let mut events = context.client.lines(&path).await?;
        // On standard error, which has no events. From here on no event is missed.
        write_stderr("watching; Ctrl-C ends it\n");
        let watching = async {
            for _ in 0..count.unwrap_or(u64::MAX) {
                match events.next().await? {
                    Some::<WatchEvent>(event) => show(&event)?,
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
}
