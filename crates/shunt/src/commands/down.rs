//! `shunt down`: stops the daemon, by force if it does not answer, and removes what it left behind.

use crate::{
    client::{candidates::running_instances, control::Client},
    command::{Command, Context},
    daemon::{self, Program},
    output::Show,
    render::{Format, Text},
};
use clap::Args;
use serde::Serialize;
use shunt_api::{Count, Failure, FailureCode, Instance};
use std::{path::Path, time::Duration};

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
        let is_known = has_run(instance, &runtime, &state);
        program.clean_up(instance)?;
        if !is_known {
            return Err(never_ran(instance, &runtime).into());
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

/// Whether the instance has left a file, or is the one that runs without a name.
fn has_run(instance: &Instance, runtime: &Path, state: &Path) -> bool {
    let files = [
        instance.socket_path(runtime),
        instance.log_path(runtime),
        instance.socket_path(runtime).with_extension("lock"),
        instance.history_path(state),
        instance.usage_path(state),
        instance.off_path(state),
        instance.savings_path(state),
    ];
    *instance == Instance::default() || files.iter().any(|file| file.exists())
}

/// A name that is perhaps mistyped: the failure has those of the instances that run.
fn never_ran(instance: &Instance, runtime: &Path) -> Failure {
    let running: Vec<String> =
        running_instances(runtime).into_iter().map(|name| format!("`{name}`")).collect();
    let running = match running.as_slice() {
        [] => "no instance runs here".to_owned(),
        names => format!("here runs {}", names.join(", ")),
    };
    let why = format!("instance `{instance}` has never run on this machine: check its name; {running}");
    Failure::new(FailureCode::NotRunning, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_that_never_ran_is_told_from_one_that_has_ended() {
        let directory = tempfile::tempdir().unwrap();
        let (runtime, state) = (directory.path().join("run"), directory.path().join("state"));
        [&runtime, &state].into_iter().for_each(|path| std::fs::create_dir(path).unwrap());
        let lab: Instance = "lab".parse().unwrap();
        assert!(!has_run(&lab, &runtime, &state) && has_run(&Instance::default(), &runtime, &state));
        let said = never_ran(&lab, &runtime);
        assert_eq!(said.code, FailureCode::NotRunning);
        assert!(said.message.ends_with("check its name; no instance runs here"), "{said}");
        std::fs::write(runtime.join("wan2.sock"), "").unwrap();
        assert!(never_ran(&lab, &runtime).message.ends_with("here runs `wan2`"));
        std::fs::write(state.join("lab.history"), "").unwrap();
        assert!(has_run(&lab, &runtime, &state));
    }

    #[test]
    fn json_has_the_fields_of_the_answer() {
        let stopped = Stopped { was_running: true, killed: false, pid: Some(7) };
        let value = serde_json::to_value(stopped).unwrap();
        assert_eq!(value, serde_json::json!({"was_running": true, "killed": false, "pid": 7}));
    }
}
