//! `shunt why`: explains why connections are fast or slow.

pub(crate) mod view;

use super::arguments::ConnectionArgs;
use crate::{
    client::control::Client,
    command::{Command, Context},
    output::Show,
};
use clap::Args;
use shunt_api::{Explained, Explanation, Failure, FailureCode, Selection};

/// Explain whether connections are fast or slow, why, since when, and what would change that.
#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    #[command(flatten)]
    connections: ConnectionArgs,
}

impl Command for WhyArgs {
    type Plan = Selection;
    const EXAMPLES: &str = "
        [shunt why]
        shunt why 192.168.1.2 # all connections of a host
        shunt why tcp 192.168.1.2:40000 198.51.100.7:443 # one connection
        shunt why --dport 5201 # connections to a port
    ";
    const USES_INSTANCE: bool = true;

    fn resolve(self, _: &Context) -> anyhow::Result<Selection> {
        Ok(self.connections.selection()?)
    }

    async fn run(plan: Selection, context: &Context, show: Show<'_>) -> anyhow::Result<()> {
        show(&explain(&plan, &context.client).await?)
    }
}

/// The answer of the daemon, which knows at least one such connection.
pub(super) async fn explain(selection: &Selection, client: &Client) -> anyhow::Result<Explanation> {
    let mut explanation: Explanation = client.get(&format!("/v1/why?{}", selection.query())).await?;
    if explanation.connections.is_empty() {
        let why = "no such connection: neither conntrack nor Shunt has seen it";
        return Err(Failure::new(FailureCode::NoConnection, why).into());
    }
    explanation.connections.sort_by_key(has_ended);
    Ok(explanation)
}

/// Whether a TCP connection ends or has ended. Nobody asks about it, so it comes last.
fn has_ended(connection: &Explained) -> bool {
    let ending = ["FIN_WAIT", "CLOSE_WAIT", "LAST_ACK", "TIME_WAIT", "CLOSE"];
    connection.state.as_deref().is_some_and(|state| ending.contains(&state))
}

#[cfg(test)]
pub(crate) mod sample;
