//! `shunt down`: stops the daemon, by force if it does not answer, and removes what it left behind.

use crate::{
    client::{control::Client, instances},
    command::{Command, Context},
    daemon::{self, Program},
    output::Show,
    render::{Format, Text},
};
use clap::Args;
use serde::Serialize;
use shunt_api::{Count, Failure, FailureCode, Instance};
use std::time::Duration;

/// How long a daemon may take to end after it accepted the request, or after SIGKILL.
const EXIT_TIME: Duration = Duration::from_secs(15);
/// How long to wait for the end of a daemon that did not answer the request.
const UNANSWERED_EXIT_TIME: Duration = Duration::from_secs(3);

/// Stop the daemon and remove everything that it created in the kernel.
///
/// The log stays in /run/shunt; the history, the ledger of hosts, costs and rules of `shunt off` stay in
/// /var/lib/shunt. If the instance does not run, there is nothing to do (exit code 0); a name under which none has ever
/// run is refused.
#[derive(Debug, Args)]
pub(crate) struct DownArgs;

/// What was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Stopped {
    /// Whether a daemon ran.
    pub(crate) was_running: bool,
    /// Whether the daemon did not answer and was killed.
    pub(crate) killed: bool,
    /// The process ID of the daemon; none if none ran.
    pub(crate) pid: Option<u32>,
}

impl Text for Stopped {
    fn text(&self, _: Format) -> String {
        let text = match self {
            Self { was_running: false, .. } => "not running, nothing left in the kernel\n",
            Self { killed: true, .. } => "did not answer and was killed, nothing left in the kernel\n",
            _ => "stopped, nothing left in the kernel\n",
        };
        text.to_owned()
    }
}

impl Command for DownArgs {
    type Plan = Program;
    const EXAMPLES: &str = "
        [shunt down]
        shunt down # stop, and leave nothing in the kernel
    ";
    const USES_INSTANCE: bool = true;

    fn resolve(self, _: &Context) -> anyhow::Result<Program> {
        Ok(Program::find()?)
    }

    async fn run(plan: Program, context: &Context, show: Show<'_>) -> anyhow::Result<()> {
        show(&stop(&context.client, &context.instance, &plan).await?)
    }
}

async fn stop(client: &Client, instance: &Instance, program: &Program) -> anyhow::Result<Stopped> {
    let Some(pid) = client.pid().await? else {
        let (runtime, state) = (daemon::runtime_dir(), daemon::state_dir());
        let is_known = instances::has_run(instance, &runtime, &state);
        program.clean_up(instance)?;
        if !is_known {
            return Err(instances::never_ran(instance, &runtime).into());
        }
        return Ok(Stopped { was_running: false, killed: false, pid: None });
    };
    // An error need not be a failure: the end of the daemon may cut its answer off, or another `shunt down` may be
    // first. Success is that the process ends.
    let within = match client.post::<Count>("/v1/stop").await {
        Ok(_) => EXIT_TIME,
        Err(_) => UNANSWERED_EXIT_TIME,
    };
    if daemon::wait_gone(pid, within).await {
        return Ok(Stopped { was_running: true, killed: false, pid: Some(pid) });
    }
    daemon::kill_process(pid);
    if !daemon::wait_gone(pid, EXIT_TIME).await {
        let text = format!(
            "shuntd (pid {pid}) did not exit after SIGKILL: it hangs in the kernel; see `dmesg`, or reboot"
        );
        return Err(Failure::new(FailureCode::Internal, text).into());
    }
    program.clean_up(instance)?;
    Ok(Stopped { was_running: true, killed: true, pid: Some(pid) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_the_fields_of_the_answer() {
        let stopped = Stopped { was_running: true, killed: false, pid: Some(7) };
        let value = serde_json::to_value(stopped).unwrap();
        assert_eq!(value, serde_json::json!({"was_running": true, "killed": false, "pid": 7}));
    }
}
