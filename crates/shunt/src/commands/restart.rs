//! `shunt restart`: starts the next daemon, which takes over without a gap.

use crate::{
    client::control::{Client, is_not_running},
    command::{Command, Context},
    daemon::{POLL_INTERVAL, runtime_dir, wait_gone},
    output::Show,
    render::{Format, Text},
};
use clap::Args;
use serde::Serialize;
use shunt_api::{Failure, FailureCode, Instance, Restart, RestartKind};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long a restart may take: the daemon gives up on the next one earlier, and a clean start loads programs, too.
const RESTART_TIME: Duration = Duration::from_secs(400);

/// Restart the daemon, for example after an upgrade; flows stay fast, and no packet is lost.
///
/// The next daemon loads its programs while the running one works, then takes over flows, counters and attachments. If
/// it fails, the running one goes on. If it cannot take flows over, because the new version keeps them in another
/// layout or the configuration differs, it starts without flows, and this command says why.
#[derive(Debug, Args)]
pub(crate) struct RestartArgs;

/// What became of the restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Restarted {
    /// The process ID of the daemon.
    pub(crate) pid: u32,
    /// What became of the flows.
    #[serde(flatten)]
    pub(crate) start: RestartKind,
}

impl Text for Restarted {
    fn text(&self, _: Format) -> String {
        match &self.start {
            RestartKind::TakenOver { gap_ms } => {
                format!("restarted: pid {} has taken over flows and ports in {gap_ms} ms\n", self.pid)
            }
            RestartKind::Clean { why } => {
                format!(
                    "restarted: pid {} has started without flows, which are learned again: {why}\n",
                    self.pid
                )
            }
        }
    }
}

impl Command for RestartArgs {
    type Plan = ();
    const EXAMPLES: &str = "
        [shunt restart]
        shunt restart # after an upgrade: the new version takes over, and connections stay fast
    ";
    const USES_INSTANCE: bool = true;

    fn resolve(self, _: &Context) -> anyhow::Result<()> {
        Ok(())
    }

    async fn run((): (), context: &Context, show: Show<'_>) -> anyhow::Result<()> {
        show(&restart(&context.client, &context.instance).await?)
    }
}

async fn restart(client: &Client, instance: &Instance) -> anyhow::Result<Restarted> {
    let was_running = client.pid().await?.is_some();
    let begun: Restart = match client.post("/v1/restart").await {
        Ok(begun) => begun,
        // It has ended before its answer was on its way.
        Err(error) if was_running && (is_not_running(&error) || client.pid().await?.is_none()) => {
            return Err(all_slow(instance).into());
        }
        Err(error) => return Err(without_restart(error)),
    };
    let next = begun.next.ok_or_else(|| failed("the daemon has started no other one"))?;
    let deadline = Instant::now() + RESTART_TIME;
    while Instant::now() < deadline {
        sleep(POLL_INTERVAL).await;
        let has_ended = wait_gone(next, Duration::ZERO).await;
        match client.get::<Restart>("/v1/restart").await {
            Ok(Restart { pid, start: Some(start), .. }) if pid == next => {
                return Ok(Restarted { pid, start });
            }
            Ok(Restart { failed: Some(failed), .. }) if failed.pid == next => {
                let Failure { code, message } = failed.why;
                return Err(Failure::new(code, format!("{message}; the running daemon goes on")).into());
            }
            Ok(Restart { next: Some(underway), .. }) if underway == next => {}
            Ok(Restart { pid, .. }) if has_ended => {
                return Err(failed(&format!("the next daemon has ended; pid {pid} goes on")).into());
            }
            Err(_) if has_ended => return Err(all_slow(instance).into()),
            // Nobody answers for a moment.
            Ok(_) | Err(_) => {}
        }
    }
    Err(failed(&format!("the next daemon is not ready after {} s", RESTART_TIME.as_secs())).into())
}

fn all_slow(instance: &Instance) -> Failure {
    failed(&format!(
        "no daemon runs any more, and all packets take the slow path; see the log {} or `journalctl`, and start it \
         with `shunt up --instance {instance}`",
        instance.log_path(&runtime_dir()).display()
    ))
}

fn failed(why: &str) -> Failure {
    Failure::new(FailureCode::Internal, why)
}

/// A daemon of an earlier version has no such request.
fn without_restart(error: anyhow::Error) -> anyhow::Error {
    let is_unknown = error.downcast_ref::<Failure>().is_some_and(|why| why.code == FailureCode::BadRequest);
    if !is_unknown {
        return error;
    }
    let why = "the running daemon is of a version that cannot hand over; use `systemctl restart`, or `shunt down` and \
               `shunt up`";
    error.context(Failure::new(FailureCode::BadRequest, why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::TEXT;

    #[test]
    fn text_and_json_say_what_became_of_the_flows() {
        let kept = Restarted { pid: 7, start: RestartKind::TakenOver { gap_ms: 12 } };
        assert_eq!(kept.text(TEXT), "restarted: pid 7 has taken over flows and ports in 12 ms\n");
        let value = serde_json::to_value(&kept).unwrap();
        assert_eq!(value, serde_json::json!({"pid": 7, "kind": "taken-over", "gap_ms": 12}));
        let clean = Restarted { pid: 8, start: RestartKind::Clean { why: "x".to_owned() } };
        assert!(clean.text(TEXT).ends_with("learned again: x\n"));
        let value = serde_json::to_value(&clean).unwrap();
        assert_eq!(value, serde_json::json!({"pid": 8, "kind": "clean", "why": "x"}));
    }
}
