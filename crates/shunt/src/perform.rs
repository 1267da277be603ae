//! Does what was planned: the only step with effects.

use crate::{
    bench::Setting,
    cli::Cli,
    client::Client,
    daemon::{self, Program, Started},
    ends::{Ends, cut_short},
    load, man,
    plan::{Plan, Step, bad_file},
    progress::Bar,
    render::{self, Answer, Stopped},
    report::Reporting,
    say,
};
use anyhow::Context;
use clap::CommandFactory;
use hyper::Method;
use serde::Serialize;
use shunt_api::{
    Connection, Count, Explanation, Failure, FailureCode, Instance, Selection, StaticRemoval, StaticTable,
    Status, Tracked, TrackedTable,
};
use shunt_lab::traffic;
use shunt_lab::{Comparison, Conditions};
use std::{
    convert::Infallible,
    ffi::OsString,
    fs,
    future::pending,
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::time::{Instant, sleep, timeout};

/// A daemon that takes longer to come up is told of: loading programs takes its time on a small board.
const START_TIME: Duration = Duration::from_secs(15);
/// Less than what a question gives up after: one that loads programs listens already, and answers when it is done.
const LOADING_TIME: Duration = Duration::from_secs(20);
/// How long a daemon that listens may give no sensible answer, before it is taken for a wrong one.
const TROUBLE_TIME: Duration = Duration::from_secs(5);
const END_TIME: Duration = Duration::from_secs(15);
/// For one that was asked to stop in vain.
const UNANSWERED_TIME: Duration = Duration::from_secs(3);
/// The daemon does nothing else while it carries out one request, and must not seem to hang.
const FLOWS_PER_REQUEST: usize = 512;

/// Where answers go. Most steps have one.
pub(crate) type Show<'s> = &'s mut dyn FnMut(&Answer) -> anyhow::Result<()>;

pub(crate) fn perform(plan: Plan, show: Show) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(perform_step(plan, show))
}

async fn perform_step(Plan { instance, step }: Plan, show: Show<'_>) -> anyhow::Result<()> {
    let client = Client::new(&instance);
    let answer = match step {
        Step::Watch { wanted, count, during } => return watch(&client, &wanted, count, during, show).await,
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
        Step::Why { wanted } => Answer::Why(why(&client, &wanted).await?),
        Step::Conntrack { ends, protocol } => Answer::Tracked(conntrack(&client, &ends, protocol).await?),
        Step::Flush => Answer::Flushed(client.post("/v1/flush").await?),
        Step::Add(table) => Answer::Added(add(&client, table).await?),
        Step::Remove(removal) => Answer::Removed(remove(&client, removal).await?),
        Step::List => Answer::Statics(client.get("/v1/static").await?),
        Step::Load { cpus, interval, count } => return load::watch(cpus, interval, count, show).await,
        Step::LoadSelfTest { cpus } => {
            let test = move |stop: &Arc<AtomicBool>| load::self_test(cpus.as_deref(), stop);
            return measure(show, move |stop| Ok(Answer::LoadSelfTest(test(stop)?))).await;
        }
        Step::Line(line) => {
            line.left_out.iter().for_each(|why| say(&format!("left out: {why}\n")));
            Answer::Line(line)
        }
        Step::Bench(bench) => {
            return measure(show, move |stop| setting(stop, |setting| bench.perform(setting))).await;
        }
        Step::Agent(agent) => return agent.serve().await,
        Step::Campaign(campaign) => return campaign.perform(show).await,
        Step::Compare { a, b, seed } => Answer::Compared(Comparison::of((&a.0, &a.1), (&b.0, &b.1), seed)),
        Step::Gen(traffic) => {
            let report = move |stop: &Arc<AtomicBool>| setting(stop, |setting| traffic.perform(setting));
            return measure(show, move |stop| Ok(Answer::Traffic(Box::new(report(stop)?)))).await;
        }
        Step::Report(Reporting { report, form, to: None }) => Answer::Report(Box::new(report), form),
        Step::Report(Reporting { report, form, to: Some(path) }) => {
            let whole = render::report(&report, form)?;
            fs::write(&path, whole).map_err(|error| bad_file(&path, &error.to_string()))?;
            Answer::Reported { path, files: report.files.len() }
        }
        Step::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "shunt", &mut script);
            Answer::Completions(String::from_utf8(script)?)
        }
        Step::Man { dir } => {
            man::write(Cli::command(), &dir).with_context(|| dir.display().to_string())?;
            Answer::Written(dir)
        }
    };
    show(&answer)?;
    answer.failure().map_or(Ok(()), |failure| Err(failure.into()))
}

/// Shows what was measured, all of it or what there is when a signal comes.
async fn measure(
    show: Show<'_>,
    work: impl FnOnce(&Arc<AtomicBool>) -> anyhow::Result<Answer> + Send + 'static,
) -> anyhow::Result<()> {
    let mut stoppable = Stoppable::new()?;
    let measured = stoppable.run(work).await;
    let answer = measured.map_err(|why| match stoppable.ended_by {
        Some(by) => Failure::new(by, why.to_string()).into(),
        None => why,
    })?;
    show(&answer)?;
    let failure = stoppable.ended_by.map(cut_short).or_else(|| answer.failure());
    failure.map_or(Ok(()), |failure| Err(failure.into()))
}

/// Shows how far it has come.
fn setting<T>(
    stop: &Arc<AtomicBool>,
    measure: impl FnOnce(Setting) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let bar = Bar::new();
    measure(Setting { stop, conditions: Conditions::of_this_machine(), show: &mut |at| bar.show(&at) })
}

/// Tells measurements when they are to end: at the first signal.
pub(crate) struct Stoppable {
    stop: Arc<AtomicBool>,
    ends: Ends,
    ended_by: Option<FailureCode>,
}

impl Stoppable {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { stop: Arc::default(), ends: Ends::new()?, ended_by: None })
    }

    /// The signal, if there was one.
    pub(crate) fn ended_by(&self) -> Option<FailureCode> {
        self.ended_by
    }

    pub(crate) async fn run<T: Send + 'static>(
        &mut self,
        measure: impl FnOnce(&Arc<AtomicBool>) -> anyhow::Result<T> + Send + 'static,
    ) -> anyhow::Result<T> {
        let Self { stop, ends, ended_by } = self;
        let seen = stop.clone();
        let mut measuring = tokio::task::spawn_blocking(move || measure(&seen));
        loop {
            tokio::select! {
                measured = &mut measuring => return measured?,
                by = ends.next() => {
                    ended_by.get_or_insert(by);
                    stop.store(true, Ordering::Relaxed);
                }
            }
        }
    }
}

/// In the words of the command.
pub(crate) fn told(error: traffic::Error) -> Failure {
    let code = match &error {
        traffic::Error::Dut(failure) => return failure.clone(),
        traffic::Error::NotRoot => FailureCode::NotRoot,
        traffic::Error::NoDevice(_) => FailureCode::PortMissing,
        traffic::Error::Busy(_) => FailureCode::PortBusy,
        traffic::Error::Asked(_) => FailureCode::Usage,
        _ => FailureCode::Internal,
    };
    Failure::new(code, error.to_string())
}

async fn why(client: &Client, wanted: &Selection) -> anyhow::Result<Explanation> {
    let explanation: Explanation = client.get(&format!("/v1/why?{}", wanted.query())).await?;
    if explanation.connections.is_empty() {
        let why = "no such connection: neither conntrack nor Shunt has seen it";
        return Err(Failure::new(FailureCode::NoConnection, why).into());
    }
    Ok(explanation)
}

async fn conntrack(client: &Client, ends: &Selection, protocol: Option<u8>) -> anyhow::Result<Vec<Tracked>> {
    let TrackedTable { counted, mut entries } = client.get("/v1/conntrack").await?;
    if !counted {
        say("Linux does not count: sysctl -w net.netfilter.nf_conntrack_acct=1\n");
    }
    entries.retain(|entry| {
        ends.has_ends(&entry.orig.tuple()) && protocol.is_none_or(|number| entry.protocol == number)
    });
    Ok(entries)
}

/// Shows events as they come, so many or for so long.
async fn watch(
    client: &Client,
    wanted: &Selection,
    count: Option<u64>,
    during: Option<Duration>,
    show: Show<'_>,
) -> anyhow::Result<()> {
    let path = format!("/v1/watch?{}", wanted.query());
    let mut events = client.lines(&path).await?;
    // Not among the events: whoever starts traffic now will see it.
    say("watching; Ctrl-C ends it\n");
    let watching = async {
        for _ in 0..count.unwrap_or(u64::MAX) {
            match events.next().await? {
                Some(event) => show(&Answer::Event(event))?,
                None => return Err(Failure::new(FailureCode::NotRunning, "the daemon has ended").into()),
            }
        }
        Ok(())
    };
    match during {
        // That the time is over is how it is to end.
        Some(during) => timeout(during, watching).await.unwrap_or(Ok(())),
        None => watching.await,
    }
}

async fn start(
    client: &Client,
    instance: &Instance,
    program: &Program,
    args: &[OsString],
) -> anyhow::Result<Answer> {
    let mut started = program.start(instance, args)?;
    let (pid, log) = (started.pid(), started.log().to_path_buf());
    let status = tokio::select! {
        status = wait_answering(client, &mut started) => status?,
        never = tell_of_slowness(pid, &log) => match never {},
    };
    Ok(Answer::Started { status, log })
}

async fn tell_of_slowness(pid: u32, log: &Path) -> Infallible {
    sleep(START_TIME).await;
    say(&format!("shuntd (pid {pid}) is still coming up; its log: {}\n", log.display()));
    pending().await
}

/// What a daemon that was started is heard to say.
enum Heard {
    Status(Box<Status>),
    /// It is loading its programs, or another daemon answers, of which ours is about to complain.
    Nothing,
    Trouble(anyhow::Error),
}

async fn listen(client: &Client, pid: u32) -> Heard {
    match client.pid().await {
        Ok(Some(answering)) if answering == pid => {}
        Ok(_) => return Heard::Nothing,
        Err(error) => return Heard::Trouble(error),
    }
    match timeout(LOADING_TIME, client.get("/v1/status")).await {
        Ok(Ok(status)) => Heard::Status(Box::new(status)),
        Ok(Err(error)) => Heard::Trouble(error),
        Err(_) => Heard::Nothing,
    }
}

/// For as long as the daemon lives: the kernel's verifier is slow on some machines, and only the daemon knows what it fails of.
async fn wait_answering(client: &Client, started: &mut Started) -> anyhow::Result<Status> {
    let mut trouble = None;
    loop {
        if let Some(failure) = started.failure()? {
            return Err(failure.into());
        }
        match listen(client, started.pid()).await {
            Heard::Status(status) => return Ok(*status),
            Heard::Nothing => trouble = None,
            // One that fails closes its socket first, and says why a moment later.
            Heard::Trouble(error) => {
                if trouble.get_or_insert_with(Instant::now).elapsed() > TROUBLE_TIME {
                    return Err(error);
                }
            }
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
