//! `shunt` without a command: what to do next on this machine.

use crate::{
    client::control::Client,
    daemon::Program,
    render::{Answer, Next},
};
use shunt_api::{Failure, FailureCode, Instance};

/// The most ports that an example names.
const PORTS_SHOWN: usize = 2;

pub(crate) async fn run(client: &Client, instance: &Instance) -> anyhow::Result<Answer> {
    let next = match client.get("/v1/status").await {
        Ok(status) => Next::Running(Box::new(status)),
        Err(error) if is_not_running(&error) => {
            Next::Stopped { instance: instance.to_string(), ports: ports() }
        }
        Err(error) => return Err(error),
    };
    Ok(Answer::Next(next))
}

fn is_not_running(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Failure>().is_some_and(|failure| failure.code == FailureCode::NotRunning)
}

/// The devices that the daemon would choose, as an example; empty if there are none, or without the daemon's program.
fn ports() -> Vec<String> {
    let found = Program::find().map_err(anyhow::Error::from);
    let mut ports: Vec<String> =
        found.and_then(|program| program.ask("--list-ports", &[])).unwrap_or_default();
    ports.truncate(PORTS_SHOWN);
    ports
}
