//! `shunt` without a command: what to do next on this machine.

pub(crate) mod view;

use crate::{
    client::control::is_not_running,
    command::{Command, Context},
    daemon::Program,
    output::Show,
};
use view::Next;

/// No arguments: what `shunt` says without a command.
#[derive(Debug)]
pub(crate) struct NextArgs;

impl Command for NextArgs {
    type Plan = ();
    const EXAMPLES: &str = "
        [shunt]
        shunt probe # what this machine allows; attaches nothing
        shunt up # start on all ports that forward
        shunt why --dst 198.51.100.7 # why the connections to a host are fast or slow
    ";
    const USES_INSTANCE: bool = true;

    fn resolve(self, _: &Context) -> anyhow::Result<()> {
        Ok(())
    }

    async fn run((): (), context: &Context, show: Show<'_>) -> anyhow::Result<()> {
        let Context { client, instance, .. } = context;
        let next = match client.get("/v1/status").await {
            Ok(status) => Next::Running(Box::new(status)),
            Err(error) if is_not_running(&error) => {
                Next::Stopped { instance: instance.to_string(), ports: ports() }
            }
            Err(error) => return Err(error),
        };
        show(&next)
    }
}

/// The devices that the daemon would choose; empty if there are none, or without the daemon's program.
fn ports() -> Vec<String> {
    let found = Program::find().map_err(anyhow::Error::from);
    found.and_then(|program| program.ask("--list-ports", &[])).unwrap_or_default()
}
