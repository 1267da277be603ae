//! Does what was planned: the only step with effects.

use crate::{
    cli::Cli,
    client::Client,
    daemon::{self, Program, Started},
    plan::{Plan, Step},
    render::{Answer, Stopped},
};
use anyhow::Context;
use clap::CommandFactory;
use hyper::Method;
use serde::Serialize;
use shunt_api::{Connection, Count, Failure, FailureCode, Instance, StaticRemoval, StaticTable, Status};
use std::{ffi::OsString, time::Duration};
use tokio::time::{Instant, sleep};

/// Loading programs takes seconds on a small board.
const START_TIME: Duration = Duration::from_secs(60);
/// How long a daemon that listens may give no sensible answer, before it is taken for a wrong one.
const TROUBLE_TIME: Duration = Duration::from_secs(5);
const END_TIME: Duration = Duration::from_secs(15);
/// For one that was asked to stop in vain.
const UNANSWERED_TIME: Duration = Duration::from_secs(3);
/// The daemon does nothing else while it carries out one request, and must not seem to hang.
const FLOWS_PER_REQUEST: usize = 512;

pub(crate) fn perform(plan: Plan) -> anyhow::Result<Answer> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(perform_step(plan))
}

async fn perform_step(Plan { instance, step }: Plan) -> anyhow::Result<Answer> {
    let client = Client::new(&instance);
    Ok(match step {
        Step::Start { program, args, foreground: true } => return Err(program.become_it(&args)),
        Step::Start { program, args, foreground: false } => {
            start(&client, &instance, &program, &args).await?
        }
        Step::Stop { program } => Answer::Stopped(stop(&client, &instance, &program).await?),
        Step::Status => Answer::Status(client.get("/v1/status").await?),
        Step::Flows { filter, order, over } => {
            let path = format!("/v1/flows?rate_over_ms={}", over.as_millis());
            let mut connections: Vec<Connection> = client.get(&path).await?;
            connections.retain(|connection| filter.matches(connection));
            order.apply(&mut connections);
            Answer::Flows(connections)
        }
        Step::Flush => Answer::Flushed(client.post("/v1/flush").await?),
        Step::Add(table) => Answer::Added(add(&client, table).await?),
        Step::Remove(removal) => Answer::Removed(remove(&client, removal).await?),
        Step::List => Answer::Statics(client.get("/v1/static").await?),
        Step::Man { dir } => {
            clap_mangen::generate_to(Cli::command(), &dir).with_context(|| dir.display().to_string())?;
            Answer::Written(dir)
        }
    })
}

async fn start(
    client: &Client,
    instance: &Instance,
    program: &Program,
    args: &[OsString],
) -> anyhow::Result<Answer> {
    let mut started = program.start(instance, args)?;
    let status = wait_answering(client, &mut started).await?;
    Ok(Answer::Started { status, log: started.log().to_path_buf() })
}

async fn wait_answering(client: &Client, started: &mut Started) -> anyhow::Result<Status> {
    let deadline = Instant::now() + START_TIME;
    let mut trouble = None;
    loop {
        if let Some(failure) = started.failure()? {
            return Err(failure.into());
        }
        // Another daemon may answer, of which ours is about to complain.
        if client.pid().await? == Some(started.pid()) {
            match client.get::<Status>("/v1/status").await {
                Ok(status) => return Ok(status),
                // One that fails closes its socket first, and says why a moment later.
                Err(error) if trouble.get_or_insert_with(Instant::now).elapsed() > TROUBLE_TIME => {
                    return Err(error);
                }
                Err(_) => {}
            }
        }
        if Instant::now() >= deadline {
            started.end();
            let text = format!(
                "shuntd did not come up within {} s and was told to end; see {}",
                START_TIME.as_secs(),
                started.log().display()
            );
            return Err(Failure::new(FailureCode::Internal, text).into());
        }
        sleep(daemon::GLANCE).await;
    }
}

async fn stop(client: &Client, instance: &Instance, program: &Program) -> anyhow::Result<Stopped> {
    let Some(pid) = client.pid().await? else {
        program.clean_up(instance)?;
        return Ok(Stopped { was_running: false, killed: false, pid: None });
    };
    // What counts is that the process ends: an answer may be cut off by the end, or another `shunt down` may be first.
    let within = match client.post::<Count>("/v1/stop").await {
        Ok(_) => END_TIME,
        Err(_) => UNANSWERED_TIME,
    };
    if daemon::wait_gone(pid, within).await {
        return Ok(Stopped { was_running: true, killed: false, pid: Some(pid) });
    }
    daemon::force_end(pid);
    if !daemon::wait_gone(pid, END_TIME).await {
        let text = format!("shuntd (pid {pid}) does not end, not even by SIGKILL; the kernel holds it");
        return Err(Failure::new(FailureCode::Internal, text).into());
    }
    program.clean_up(instance)?;
    Ok(Stopped { was_running: true, killed: true, pid: Some(pid) })
}

/// The routes first, since the flows name them.
async fn add(client: &Client, StaticTable { route, flow }: StaticTable) -> anyhow::Result<Count> {
    let mut parts = Vec::new();
    if !route.is_empty() || flow.is_empty() {
        parts.push(StaticTable { route, ..StaticTable::default() });
    }
    parts.extend(
        flow.chunks(FLOWS_PER_REQUEST)
            .map(|flow| StaticTable { flow: flow.to_vec(), ..StaticTable::default() }),
    );
    send_all(client, Method::POST, &parts).await
}

/// The routes last, since no flow may name them then.
async fn remove(client: &Client, StaticRemoval { all, flow, route }: StaticRemoval) -> anyhow::Result<Count> {
    let mut parts: Vec<StaticRemoval> = flow
        .chunks(FLOWS_PER_REQUEST)
        .map(|flow| StaticRemoval { flow: flow.to_vec(), ..StaticRemoval::default() })
        .collect();
    if all || !route.is_empty() || flow.is_empty() {
        parts.push(StaticRemoval { all, route, ..StaticRemoval::default() });
    }
    send_all(client, Method::DELETE, &parts).await
}

async fn send_all(client: &Client, method: Method, parts: &[impl Serialize]) -> anyhow::Result<Count> {
    let mut count = 0;
    for part in parts {
        count += client.send::<Count>(method.clone(), "/v1/static", part).await?.count;
    }
    Ok(Count { count })
}
