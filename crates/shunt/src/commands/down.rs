//! `shunt down`: stops the daemon, by force if it does not answer, and removes what it left behind.

use crate::{
    client::control::Client,
    daemon::{self, Program},
    render::{Answer, Stopped},
};
use shunt_api::{Count, Failure, FailureCode, Instance};
use std::time::Duration;

/// How long a daemon may take to end after it accepted the request, or after SIGKILL.
const EXIT_TIME: Duration = Duration::from_secs(15);
/// How long to wait for the end of a daemon that did not answer the request.
const UNANSWERED_EXIT_TIME: Duration = Duration::from_secs(3);

pub(crate) async fn run(client: &Client, instance: &Instance, program: &Program) -> anyhow::Result<Answer> {
    stop(client, instance, program).await.map(Answer::Stopped)
}

async fn stop(client: &Client, instance: &Instance, program: &Program) -> anyhow::Result<Stopped> {
    let Some(pid) = client.pid().await? else {
        program.clean_up(instance)?;
        return Ok(Stopped { was_running: false, killed: false, pid: None });
    };
    // An error need not be a failure: the end of the daemon may cut its answer off, or another `shunt down` may be first.
    // Success is that the process ends.
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
