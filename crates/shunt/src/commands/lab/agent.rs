//! `shunt lab agent`: runs on the DUT and reports CPU load and counters to the measuring machine. It only reads,
//! unless it lends a port to `shunt check`.

mod lending;
mod stdio;

use crate::{
    client::{candidates, token},
    commands::arguments::{endpoint, port_name},
    failure::{load_meter_failed, usage},
    output::write_stderr,
    signals::Signals,
};
use axum::{
    Json, Router,
    extract::{Query, State, rejection::QueryRejection},
    routing::get,
};
use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use nix::unistd::geteuid;
use serde::Deserialize;
use shunt_api::{Failure, FailureCode};
use shunt_http::{Admission, Hosts, Refusal, Token, bad, internal, unknown_method, unknown_path};
use shunt_inspect::check::{LEASE, LentPort};
use shunt_lab::{
    Conditions,
    counters::{Device, Snapshot},
    dut::{About, Counters, Loaded, Mark},
    load::{self, Meter},
};
use std::{
    collections::VecDeque,
    io,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::{
    net::TcpListener,
    select,
    sync::Semaphore,
    task::{spawn_blocking, yield_now},
    time::{sleep, timeout},
};

/// How many marks are remembered, for all clients together. A client needs only its last one.
const MARKS_MAX: usize = 1024;
/// How long a client waits for its turn to read counters. One client reads at a time, because each reading starts
/// programs such as ethtool.
const TURN_TIME: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// Serve one client on standard input and output, until standard input ends.
    #[arg(long, conflicts_with_all = ["listen", "clear_text", "token_file"])]
    stdio: bool,
    /// The address to listen on; port 0 picks a free port.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = endpoint, default_value = "127.0.0.1:7411")]
    listen: SocketAddr,
    /// Allow --listen with an address that is not loopback, although the token and all answers cross the network in
    /// clear text.
    #[arg(long)]
    clear_text: bool,
    /// The file with the token: 16 characters or more, readable by its owner only [default: the variable
    /// SHUNT_AGENT_TOKEN].
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Measure only the load of this CPU; may be given several times [default: all CPUs that this process may use].
    #[arg(long = "cpu", value_name = "CPU")]
    cpus: Vec<usize>,
    /// Lend this port to `shunt check --peer-agent` on another machine instead, for as long as the agent runs.
    #[arg(long, value_name = "PORT", value_parser = port_name, conflicts_with = "cpus", add = ArgValueCandidates::new(candidates::devices))]
    lend: Option<String>,
}

/// A resolved `shunt lab agent`.
#[derive(Debug)]
pub(crate) struct Agent {
    transport: Transport,
    work: Work,
}

/// What the agent does for its clients.
#[derive(Debug)]
enum Work {
    /// Reports load and counters. CPUs: None for all CPUs that this process may use.
    Report { cpus: Option<Vec<usize>> },
    /// Lends a port to checks.
    Lend(Arc<LentPort>),
}

/// How clients reach the agent.
#[derive(Debug)]
enum Transport {
    /// One client, on standard input and output.
    Stdio,
    /// Any client that knows the token.
    Tcp { listen: SocketAddr, token: Token },
}

/// The state that the HTTP handlers share.
#[derive(Clone)]
struct AppState {
    about: Arc<About>,
    marks: Arc<Mutex<Marks>>,
    turn: Arc<Semaphore>,
}

/// The meter and its readings at earlier moments, by consecutive numbers.
struct Marks {
    meter: Meter,
    /// The number of the oldest reading.
    first: u64,
    kept: VecDeque<load::Mark>,
}

impl Agent {
    pub(crate) fn resolve(typed: AgentArgs) -> Result<Self, Failure> {
        let AgentArgs { stdio, listen, clear_text, token_file, cpus, lend } = typed;
        let transport = if stdio {
            Transport::Stdio
        } else if listen.ip().is_loopback() || clear_text {
            Transport::Tcp { listen, token: token::read(token_file.as_deref(), "--token-file")? }
        } else {
            let why = "the token would cross the network in clear text; leave out --listen and measure with \
                       --dut-agent ssh://HOST, or add --clear-text on a network that only the lab uses";
            return Err(usage(format!("--listen {listen}: {why}")));
        };
        let work = match lend {
            Some(name) => Work::Lend(Self::lent_port(&name, (!stdio).then_some(listen))?),
            None => Work::Report { cpus: (!cpus.is_empty()).then_some(cpus) },
        };
        Ok(Self { transport, work })
    }

    fn lent_port(name: &str, listen: Option<SocketAddr>) -> Result<Arc<LentPort>, Failure> {
        if !geteuid().is_root() {
            let why =
                "shunt lab agent --lend needs root: it opens raw sockets and changes settings; use sudo";
            return Err(Failure::new(FailureCode::NotRoot, why));
        }
        let port = LentPort::new(name, LEASE).map_err(|why| Failure::new(FailureCode::PortMissing, why))?;
        match listen.filter(|listen| port.has_address(listen.ip())) {
            Some(listen) => Err(usage(format!(
                "--listen {listen}: the address is that of {name}, and checks take its link down; listen on another device"
            ))),
            None => Ok(Arc::new(port)),
        }
    }

    /// Serves until a signal arrives or, with --stdio, until standard input ends.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        // Installed before the meter starts: a signal must stop the meter, so that it removes its control group.
        let mut signals = Signals::install()?;
        let listener = match &self.transport {
            Transport::Stdio => None,
            Transport::Tcp { listen, .. } => {
                let bound = TcpListener::bind(listen).await;
                Some(bound.map_err(|error| Self::cannot_listen(*listen, &error))?)
            }
        };
        let (router, lent) = match self.work {
            Work::Report { cpus } => {
                let meter = spawn_blocking(move || Meter::start(cpus.as_deref())).await?;
                (AppState::new(meter.map_err(load_meter_failed)?).router(), None)
            }
            Work::Lend(port) => (lending::router(Arc::clone(&port)), Some(port)),
        };
        let (Some(listener), Transport::Tcp { listen, token }) = (listener, self.transport) else {
            let served = select! {
                _ = signals.next() => Ok(()),
                served = stdio::serve(router) => served,
                () = lending::watch(lent.clone()) => Ok(()),
            };
            lending::close(lent).await?;
            return Ok(served?);
        };
        // Scripts read the port from this line.
        write_stderr(&format!("listening on {}; Ctrl-C ends it\n", listener.local_addr()?));
        if !listen.ip().is_loopback() {
            write_stderr("warning: the token and all answers cross the network in clear text\n");
        }
        select! {
            _ = signals.next() => {}
            () = serve(listener, router, token) => {}
            () = lending::watch(lent.clone()) => {}
        }
        lending::close(lent).await
    }

    fn cannot_listen(address: SocketAddr, error: &io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::AddrInUse => Failure::new(
                FailureCode::AddressInUse,
                format!(
                    "{address}: another program listens on this address; choose another port with --listen"
                ),
            ),
            io::ErrorKind::AddrNotAvailable => Failure::new(
                FailureCode::Usage,
                format!(
                    "{address}: no device of this machine has this address; choose another with --listen"
                ),
            ),
            _ => Failure::new(FailureCode::Internal, format!("{address}: {error}")),
        }
    }
}

/// Accepts clients without an end.
async fn serve(listener: TcpListener, router: Router, token: Token) {
    let mut admission: Admission<IpAddr> = Admission::default();
    let hosts = Hosts::new([], "use an address of the DUT, not a name");
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Fails if the client has gone.
                let Ok(own) = stream.local_addr() else { continue };
                let (hosts, token) = (hosts.on_tcp(own.ip()), token.clone());
                admission.serve(peer.ip(), stream, &router, move |request| {
                    hosts.refusal(request).or_else(|| token.refusal(request).map(Refusal::from))
                });
            }
            // Out of file descriptors or memory: pause, to avoid a busy loop.
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
        // Serve requests that have arrived before accepting the next client.
        yield_now().await;
    }
}

impl AppState {
    fn new(meter: Meter) -> Self {
        let cpus = meter.calibrations().map(|(cpu, _)| cpu).collect();
        let conditions = Conditions::of_this_machine();
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let about = About { version, cpus, lends: None, conditions };
        Self {
            about: Arc::new(about),
            marks: Arc::new(Mutex::new(Marks::new(meter))),
            turn: Arc::new(Semaphore::new(1)),
        }
    }

    fn router(&self) -> Router {
        Router::new()
            .route("/v1/agent", get(about))
            .route("/v1/load", get(load_since))
            .route("/v1/counters", get(counters))
            .fallback(unknown_path)
            .method_not_allowed_fallback(unknown_method)
            .with_state(self.clone())
    }
}

impl Marks {
    fn new(meter: Meter) -> Self {
        // Start at the present time, so that a restarted agent does not accept marks of its predecessor.
        let first = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64;
        Self { meter, first, kept: VecDeque::new() }
    }

    fn load_since(&mut self, mark: Option<Mark>) -> Result<Loaded, Refusal> {
        let now = self.meter.mark().map_err(|error| internal(error.to_string()))?;
        let load = mark.map(|mark| self.find(mark).map(|then| self.meter.between(then, &now))).transpose()?;
        if self.kept.len() == MARKS_MAX {
            self.kept.pop_front();
            self.first += 1;
        }
        self.kept.push_back(now);
        Ok(Loaded { mark: Mark(self.first + self.kept.len() as u64 - 1), load })
    }

    fn find(&self, Mark(mark): Mark) -> Result<&load::Mark, Refusal> {
        let at = mark.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.kept.get(at)).ok_or_else(|| {
            bad(format!("since: unknown mark {mark}: the agent was restarted, or has issued more than {MARKS_MAX} marks since"))
        })
    }
}

async fn about(State(state): State<AppState>) -> Json<About> {
    Json((*state.about).clone())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Since {
    since: Option<Mark>,
}

async fn load_since(
    State(state): State<AppState>,
    query: Result<Query<Since>, QueryRejection>,
) -> Result<Json<Loaded>, Refusal> {
    let Query(Since { since }) = query.map_err(|error| bad(error.body_text()))?;
    let mut marks = state.marks.lock().unwrap_or_else(PoisonError::into_inner);
    marks.load_since(since).map(Json)
}

async fn counters(State(state): State<AppState>) -> Result<Json<Counters>, Refusal> {
    let Ok(Ok(turn)) = timeout(TURN_TIME, state.turn.acquire_owned()).await else {
        return Err(internal("other clients are reading counters; try again"));
    };
    let read = spawn_blocking(move || {
        // The reading continues if the client gives up, so the turn ends with the reading.
        let _turn = turn;
        Counters::from(Snapshot::read(&Device::all_here()))
    });
    read.await.map(Json).map_err(|error| internal(error.to_string()))
}

#[cfg(test)]
mod tests;
