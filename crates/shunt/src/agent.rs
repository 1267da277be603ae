//! `shunt lab agent`: on the DUT, tells the machine that measures of load and counters. It only reads.

use crate::{agent::token::Token, ends::Ends, say};
use axum::{
    Json, Router,
    extract::{Query, State, rejection::QueryRejection},
    routing::get,
};
use hyper::{Request, body::Incoming, header::AUTHORIZATION};
use serde::Deserialize;
use shunt_api::{Failure, FailureCode};
use shunt_http::{Guests, Refusal, bad, internal, unknown_method, unknown_path};
use shunt_lab::{
    Conditions,
    dut::{About, Counters, Loaded, Mark},
    load::{self, Meter},
    sweep::counters::{Device, Snapshot},
};
use std::{
    collections::VecDeque,
    io,
    net::{IpAddr, SocketAddr},
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

pub(crate) mod remote;
pub(crate) mod token;

/// Moments that are remembered. A client needs its last one.
const MARKS_MAX: usize = 1024;
/// Counters are read by other programs, for one client at a time.
const TURN_TIME: Duration = Duration::from_secs(5);

/// What will be served.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) listen: SocketAddr,
    pub(crate) token: Token,
    /// None: all that are allowed.
    pub(crate) cpus: Option<Vec<usize>>,
}

/// What the paths share.
#[derive(Clone)]
struct Desk {
    about: Arc<About>,
    marks: Arc<Mutex<Marks>>,
    turn: Arc<Semaphore>,
}

/// The meter, and what it had seen at some moments.
struct Marks {
    meter: Meter,
    first: u64,
    kept: VecDeque<load::Mark>,
}

impl Agent {
    /// Until a signal ends it.
    pub(crate) async fn serve(self) -> anyhow::Result<()> {
        // Before the meter, which must be stopped and not cut off, so that it takes its control group along.
        let mut ends = Ends::new()?;
        let listener = TcpListener::bind(self.listen).await.map_err(|error| self.cannot_listen(&error))?;
        let cpus = self.cpus.clone();
        let meter =
            spawn_blocking(move || Meter::start(cpus.as_deref())).await?.map_err(crate::load::failure)?;
        let desk = Desk::of(meter);
        let router = desk.router();
        // Whoever starts it by a script reads the port here.
        say(&format!("listening on {}; Ctrl-C ends it\n", listener.local_addr()?));
        if !self.listen.ip().is_loopback() {
            say("the token crosses the network as it is: use a network of the lab alone, or `ssh -L`\n");
        }
        select! {
            _ = ends.next() => {}
            () = answer(listener, router, self.token) => {}
        }
        Ok(())
    }

    fn cannot_listen(&self, error: &io::Error) -> Failure {
        let address = self.listen;
        match error.kind() {
            io::ErrorKind::AddrInUse => Failure::new(
                FailureCode::AddressInUse,
                format!("{address}: another program listens there; choose another port with --listen"),
            ),
            io::ErrorKind::AddrNotAvailable => Failure::new(
                FailureCode::Usage,
                format!("{address}: no device here has this address; choose another with --listen"),
            ),
            _ => Failure::new(FailureCode::Internal, format!("{address}: {error}")),
        }
    }
}

/// Whoever comes, for ever.
async fn answer(listener: TcpListener, router: Router, token: Token) {
    let mut guests: Guests<IpAddr> = Guests::default();
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let token = token.clone();
                guests.host(peer.ip(), stream, &router, move |request| refused(&token, request));
            }
            // Out of descriptors or memory: without a pause this would be a busy loop.
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
        // Whoever has asked already is heard before the next one comes in.
        yield_now().await;
    }
}

fn refused(token: &Token, request: &Request<Incoming>) -> Option<Failure> {
    let given =
        request.headers().get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    let why = match given {
        Some(given) if token.is(given) => return None,
        Some(_) => "the token is wrong",
        None => "it takes a token: `Authorization: Bearer TOKEN`",
    };
    Some(Failure::new(FailureCode::Unauthorized, why))
}

impl Desk {
    fn of(meter: Meter) -> Self {
        let cpus = meter.calibrations().map(|(cpu, _)| cpu).collect();
        let conditions = Conditions::of_this_machine();
        let about = About { version: env!("CARGO_PKG_VERSION").to_owned(), cpus, conditions };
        Self {
            about: Arc::new(about),
            marks: Arc::new(Mutex::new(Marks::of(meter))),
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
    fn of(meter: Meter) -> Self {
        // One that is started anew gives other numbers, so that none is taken for that of an earlier one.
        let first = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64;
        Self { meter, first, kept: VecDeque::new() }
    }

    fn load_since(&mut self, mark: Option<Mark>) -> Result<Loaded, Refusal> {
        let now = self.meter.mark().map_err(|why| internal(why.to_string()))?;
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
            bad(format!("since: mark {mark} is unknown: the agent was started anew, or {MARKS_MAX} others were given since"))
        })
    }
}

async fn about(State(desk): State<Desk>) -> Json<About> {
    Json((*desk.about).clone())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Since {
    since: Option<Mark>,
}

async fn load_since(
    State(desk): State<Desk>,
    query: Result<Query<Since>, QueryRejection>,
) -> Result<Json<Loaded>, Refusal> {
    let Query(Since { since }) = query.map_err(|why| bad(why.body_text()))?;
    let mut marks = desk.marks.lock().unwrap_or_else(PoisonError::into_inner);
    marks.load_since(since).map(Json)
}

async fn counters(State(desk): State<Desk>) -> Result<Json<Counters>, Refusal> {
    let Ok(Ok(turn)) = timeout(TURN_TIME, desk.turn.acquire_owned()).await else {
        return Err(internal("other clients are reading counters; try again"));
    };
    let read = spawn_blocking(move || {
        // It goes on when the client does not wait for it, and so does its turn.
        let _turn = turn;
        Counters::from(Snapshot::of(&Device::all_here()))
    });
    read.await.map(Json).map_err(|why| internal(why.to_string()))
}

#[cfg(test)]
mod tests;
