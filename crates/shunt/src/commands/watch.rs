//! `shunt watch`: shows events as the daemon reports them, and goes on with the next daemon after a restart.

pub(crate) mod view;

use super::{arguments::time_within, connections::ConnectionArgs};
use crate::{
    client::control::{Client, across_restarts, has_ended},
    command::{Command, Context},
    output::{Show, write_stderr},
};
use clap::Args;
use shunt_api::{Failure, FailureCode, OffRule, Restart, Selection, WatchEvent};
use std::time::Duration;
use tokio::time::timeout;
use view::Followed;

const SHORTEST: Duration = Duration::from_millis(1);
/// As for `shunt off`.
const LONGEST: Duration = Duration::from_secs(OffRule::LONGEST_S);

/// Show events of flows as they happen: learn, activate, punt, refuse, retire, and moves of the epoch; and the end of
/// each connection, with all packets that it had, fast and slow.
///
/// After `shunt restart`, the events are those of the next daemon; a line `restart` is where the others end. The
/// command ends five seconds after the last daemon of the instance.
#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    connections: ConnectionArgs,
    /// End after this many events.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after this time, 1ms to 365d.
    #[arg(long = "for", visible_alias = "time", value_name = "TIME", value_parser = time_within(SHORTEST, LONGEST))]
    during: Option<Duration>,
}

impl Command for WatchArgs {
    type Plan = Self;
    const EXAMPLES: &str = "
        [shunt watch]
        shunt watch # all events, until Ctrl-C
        shunt watch --host laptop # those of a host, by its name in `shunt usage` or an address
        shunt watch --dst 198.51.100.7 --for 10s # those to an address, for ten seconds
    ";
    const USES_INSTANCE: bool = true;

    fn resolve(self, _: &Context) -> anyhow::Result<Self> {
        Ok(self)
    }

    /// Shows events until the count or the time is reached, or without an end if neither was given.
    async fn run(plan: Self, context: &Context, show: Show<'_>) -> anyhow::Result<()> {
        let Self { connections, count, during } = plan;
        let selections = connections.named()?.look_up(&context.client).await?;
        let watching = watch(&context.client, &selections, count.unwrap_or(u64::MAX), show);
        match during {
            Some(during) => timeout(during, watching).await.unwrap_or(Ok(())),
            None => watching.await,
        }
    }
}

async fn watch(client: &Client, selections: &[Selection], count: u64, show: Show<'_>) -> anyhow::Result<()> {
    // The daemon takes one selection; for the addresses of a host, the events are selected here.
    let query = if let [one] = selections { one.query() } else { String::new() };
    let path = &format!("/v1/watch?{query}");
    let mut events = client.lines(path).await?;
    let mut pid = progress(client).await?.pid;
    // On standard error, which has no events. From here on no event is missed.
    write_stderr("watching; Ctrl-C ends it\n");
    let mut left = count;
    while left > 0 {
        match events.next().await {
            Ok(Some::<WatchEvent>(event)) => {
                if selections.iter().any(|which| event.is_selected(which)) {
                    show(&event)?;
                    left -= 1;
                }
                continue;
            }
            Ok(None) => {}
            Err(error) if has_ended(&error) => {}
            Err(error) => return Err(error),
        }
        // No event of the next daemon is missed from here on.
        let next = across_restarts(async || Ok((client.lines(path).await?, progress(client).await?))).await;
        let ended = Failure::new(FailureCode::NotRunning, "the daemon has ended");
        let (following, next) = next.map_err(|error| error.context(ended))?;
        if next.pid == pid {
            let why = "the daemon closed the stream, because this command read nothing for 30 s";
            return Err(Failure::new(FailureCode::Internal, why).into());
        }
        (events, pid) = (following, next.pid);
        show(&Followed::now(next))?;
    }
    Ok(())
}

/// The daemon that answers, and how it was started.
async fn progress(client: &Client) -> anyhow::Result<Restart> {
    client.get("/v1/restart").await
}
