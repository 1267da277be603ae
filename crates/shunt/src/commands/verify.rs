//! `shunt verify`: whether the fast path sends what Linux would.

mod view;

use super::{
    arguments::time_within,
    connections::{ConnectionArgs, NamedConnections},
    measure::measure_and_show,
    off::{rules, turn_off, turn_on},
};
use crate::{
    client::control::Client,
    command::{Command, Context},
    output::{Show, write_stderr},
    render::units,
};
use clap::Args;
use hyper::Method;
use nix::unistd::geteuid;
use serde::Serialize;
use shunt_api::{
    Connection, Count, Direction, Engine, EnteringTap, Failure, FailureCode, FlowState, Instance, OffBy,
    OffRule, Selection, Status, TapRequest, Verdict, Verified,
};
use shunt_inspect::verify::{self, Flow, Owner, Request, Taps, VerifyError, Way};
use std::{collections::BTreeSet, time::Duration};

const STARTED: &str = "shunt: verifying; Ctrl-C ends it and shows what was seen\n";
/// The path of the programs that see the frames which XDP forwards.
const TAPS: &str = "/v1/taps";
/// The path of the history, which has the verdicts.
const HISTORY: &str = "/v1/history";
/// How long rates are measured to find the busiest connections, in milliseconds.
const RATE_OVER_MS: u64 = 500;
/// A connection with a rule of its own takes one of the 32 rules of `shunt off`.
const CONNECTIONS: u64 = 16;
/// Six periods of 300 ms still have some packets each.
const SHORTEST: Duration = Duration::from_secs(3);
/// Each period adds to what is remembered of flows and round trips.
const LONGEST: Duration = Duration::from_secs(3600);

/// Compare what the fast path sends with what Linux sends: bytes, order and loss, of live connections.
///
/// Copies packets of the busiest connections as they enter the router and as they leave it; packets of the engine
/// external cannot be observed. These connections take the slow path in every other period, as by `shunt off`; the
/// daemon ends each such period by itself if this command dies. Exit code 0: all equal; 1: packets differ, are lost or
/// out of order; 2: cannot tell, and why.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    connections: ConnectionArgs,
    /// How long to follow packets, 3s to 1h, in at least three periods of each path and a last one of the fast path, in
    /// which the connections come back to it. The command takes a second or two longer, in which it chooses
    /// connections and loads programs. Where packets wait in queues, change or vanish, each period waits up to
    /// a second for them: less than 12s cannot hold these waits, and the command takes as much longer.
    #[arg(long = "for", visible_alias = "time", value_name = "TIME", default_value = "30s",
        value_parser = time_within(SHORTEST, LONGEST))]
    time: Duration,
    /// Follow this many connections, those with the most packets.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=CONNECTIONS))]
    limit: u64,
}

/// A resolved `shunt verify`.
#[derive(Debug)]
pub(crate) struct Verifying {
    which: NamedConnections,
    time: Duration,
    limit: usize,
}

impl Command for VerifyArgs {
    type Plan = Verifying;
    const EXAMPLES: &str = "
        [shunt verify]
        shunt verify # the busiest fast connections, for half a minute
        shunt verify laptop --for 2m # those of a host, by its name in `shunt usage` or an address, for longer
        shunt verify tcp --dport 443 --limit 16 # more connections at once
    ";
    const USES_INSTANCE: bool = true;

    fn resolve(self, _: &Context) -> anyhow::Result<Verifying> {
        let which = self.connections.named()?;
        Ok(Verifying { which, time: self.time, limit: self.limit as usize })
    }

    async fn run(plan: Verifying, context: &Context, show: Show<'_>) -> anyhow::Result<()> {
        if !geteuid().is_root() {
            let why = "shunt verify needs root: it loads programs into the kernel; use sudo";
            return Err(Failure::new(FailureCode::NotRoot, why).into());
        }
        let Verifying { which, time, limit } = plan;
        let selections = which.look_up(&context.client).await?;
        let all: Vec<Connection> =
            context.client.get(&format!("/v1/flows?rate_over_ms={RATE_OVER_MS}")).await?;
        let held = Held::read(&context.client).await?;
        let mut chosen = choose(all, &selections, limit, &held);
        if chosen.connections.is_empty() {
            chosen.doubts.extend(held.is_in_use().then(|| IN_USE.to_owned()));
            if chosen.doubts.is_empty() && !which.are_all() {
                return Err(none_is_fast(which.words()).into());
            }
        }
        let of_each: Vec<Selection> = chosen.connections.iter().map(only).collect();
        let request = Request { flows: flows(&chosen.connections), time, doubts: chosen.doubts };
        let instance = context.instance.clone();
        measure_and_show(show, move |stop| {
            let connections = of_each.len();
            let mut paths = Paths::new(&instance, of_each)?;
            let mut report =
                verify::run(&request, stop, &mut paths, || write_stderr(STARTED)).map_err(failure)?;
            if report.verdict == Verdict::CannotTell {
                report.unknown.extend(paths.captures(&request.flows));
            }
            if connections > 0 {
                paths.note(report.verdict, connections);
            }
            Ok(report)
        })
        .await
    }
}

fn none_is_fast(words: &str) -> Failure {
    let why = format!(
        "no connection of `{words}` is on the fast path; `shunt flows` lists those that are, and `shunt why {words}` says why not"
    );
    Failure::new(FailureCode::NoConnection, why)
}

/// What is said if another run has the connections.
const IN_USE: &str =
    "another `shunt verify` has connections on the slow path now: try again when it has ended";

/// The connections to verify.
struct Chosen {
    connections: Vec<Connection>,
    /// What cannot be observed.
    doubts: Vec<String>,
}

/// A flow that lost its place on the fast path in the last seconds gets it back with its next packets.
const RETURNS_S: u64 = 5;

/// What holds connections on the slow path for as long as it lasts.
#[derive(Debug, Default)]
struct Held {
    /// The ports on which packet sockets capture.
    captured: BTreeSet<String>,
    off: Vec<OffRule>,
}

impl Held {
    async fn read(client: &Client) -> anyhow::Result<Self> {
        Ok(Self { captured: captured(client).await?, off: rules(client).await? })
    }

    /// Whether another run has connections.
    fn is_in_use(&self) -> bool {
        self.off.iter().any(|rule| rule.by == OffBy::Verify)
    }

    /// Whether the owner has turned off the fast path for this connection.
    fn is_off(&self, one: &Connection) -> bool {
        let mut own = self.off.iter().filter(|rule| rule.by == OffBy::Owner);
        own.any(|rule| rule.which.has(one.proto, &[one.orig, one.reply]))
    }

    /// The captured ports of these connections.
    fn captured_of<'c>(&self, connections: impl Iterator<Item = &'c Connection>) -> BTreeSet<String> {
        let ports = connections.flat_map(|one| &one.directions).flat_map(|one| [&one.in_port, &one.out_port]);
        ports.filter(|port| self.captured.contains(*port)).cloned().collect()
    }
}

/// The ports whose flows are slow since a packet socket captures on them.
async fn captured(client: &Client) -> anyhow::Result<BTreeSet<String>> {
    let status: Status = client.get("/v1/status").await?;
    Ok(status.ports.into_iter().filter(|port| port.captured).map(|port| port.name).collect())
}

/// What is said of captures on these ports.
fn captures(ports: &BTreeSet<String>) -> Option<String> {
    let ports: Vec<&str> = ports.iter().map(String::as_str).collect();
    (!ports.is_empty()).then(|| {
        format!(
            "a packet socket (tcpdump, an IDS) captures on {}, so all connections there take the slow path: end the \
             capture, or set `captures = \"ignore\"`",
            ports.join(", ")
        )
    })
}

/// The busiest fast connections of these selections.
fn choose(mut all: Vec<Connection>, selections: &[Selection], limit: usize, held: &Held) -> Chosen {
    let is_selected =
        |one: &Connection| selections.iter().any(|which| which.has(one.proto, &[one.orig, one.reply]));
    all.retain(is_selected);
    let is_active = |direction: &&Direction| direction.state == FlowState::Active;
    let active = || all.iter().flat_map(|one| &one.directions).filter(is_active);
    let others = active().filter(|direction| direction.engine == Engine::External).count();
    let mut doubts = Vec::new();
    if others > 0 {
        let by = "forwarded by the engine external, whose packets cannot be observed";
        doubts.push(format!("{} {by}", units::count(others as u64, "flow")));
    }
    let (observable, slow): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|one| observed(one).next().is_some());
    let mut all = observable;
    if all.is_empty() {
        doubts.extend(why_slow(&slow, held));
    }
    all.sort_by_key(|one| std::cmp::Reverse((one.rate_pps, one.packets)));
    all.truncate(limit);
    Chosen { connections: all, doubts }
}

/// Why none of these connections is on the fast path, if that is known.
fn why_slow(slow: &[Connection], held: &Held) -> Vec<String> {
    let mut why = Vec::new();
    let (off, slow): (Vec<_>, Vec<_>) = slow.iter().partition(|one| held.is_off(one));
    if !off.is_empty() {
        let by = "off by `shunt off`, which lists its rules; `shunt on` removes them";
        why.push(format!("{} {by}", units::count(off.len() as u64, "connection")));
    }
    // Connections that began after a capture have no flow.
    let captured = if off.is_empty() && slow.is_empty() {
        held.captured.clone()
    } else {
        held.captured_of(slow.iter().copied())
    };
    why.extend(captures(&captured));
    let is_back_soon = |one: &&&Connection| {
        let is_learned =
            matches!(one.state, FlowState::Pending | FlowState::Stale) && one.idle_s <= RETURNS_S;
        is_learned && held.captured_of(std::iter::once(**one)).is_empty()
    };
    let back_soon = slow.iter().filter(is_back_soon).count();
    if back_soon > 0 {
        let back = "soon back on the fast path, by the next packets, which prove the flows again: try again in a few seconds";
        why.push(format!("{} {back}", units::count(back_soon as u64, "connection")));
    }
    why
}

/// The directions whose packets can be observed: those that tc or XDP forwards.
fn observed(connection: &Connection) -> impl Iterator<Item = &Direction> {
    let all = connection.directions.iter();
    all.filter(|direction| direction.state == FlowState::Active && direction.engine != Engine::External)
}

/// The directions to observe.
fn flows(connections: &[Connection]) -> Vec<Flow> {
    let directions = connections.iter().enumerate().flat_map(|(number, connection)| {
        observed(connection).map(move |direction| Flow {
            connection: number,
            proto: connection.proto,
            in_port: direction.in_port.clone(),
            out_port: direction.out_port.clone(),
            enters: direction.tuple,
            leaves: direction.new,
            engine: direction.engine,
        })
    });
    directions.collect()
}

/// The selection of this connection alone.
fn only(connection: &Connection) -> Selection {
    let tuple = connection.orig;
    Selection {
        src: Some(tuple.src.into()),
        dst: Some(tuple.dst.into()),
        sport: Some(tuple.sport),
        dport: Some(tuple.dport),
        proto: Some(connection.proto),
    }
}

/// Asks the daemon for what ends by itself: moves connections to the slow path and back by rules of `shunt off`, and
/// attaches programs.
struct Paths {
    client: Client,
    runtime: tokio::runtime::Runtime,
    rules: Vec<Selection>,
    /// The path of the connections.
    now: Way,
}

impl Paths {
    fn new(instance: &Instance, rules: Vec<Selection>) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { client: Client::new(instance), runtime, rules, now: Way::Fast })
    }

    /// Notes the verdict in the history.
    fn note(&self, verdict: Verdict, connections: usize) {
        let verified = Verified { verdict, connections: u16::try_from(connections).unwrap_or(u16::MAX) };
        if let Err(why) = self.ask(Method::POST, HISTORY, &verified) {
            write_stderr(&format!("shunt: the verdict is not in the history: {why}\n"));
        }
    }

    /// The captures that keep some of these flows slow. A daemon that does not answer tells of none.
    fn captures(&self, flows: &[Flow]) -> Option<String> {
        let captured = self.runtime.block_on(captured(&self.client)).ok()?;
        let is_of_flows =
            |port: &String| flows.iter().any(|one| [&one.in_port, &one.out_port].contains(&port));
        captures(&captured.into_iter().filter(is_of_flows).collect())
    }

    fn ask<B: Serialize + Sync>(&self, method: Method, path: &str, body: &B) -> Result<(), String> {
        let answer = self.runtime.block_on(self.client.send::<Count>(method, path, body));
        answer.map(drop).map_err(|error| format!("{error:#}"))
    }
}

impl Owner for Paths {
    /// Moves all connections, also after a failure for one of them. Returns the first failure.
    fn switch(&mut self, way: Way, time: Duration) -> Result<(), String> {
        if self.now == way {
            return Ok(());
        }
        self.now = way;
        let Self { client, runtime, rules, .. } = self;
        let move_which = |which: &Selection| runtime.block_on(move_one(client, which.clone(), way, time));
        let moved: Vec<anyhow::Result<()>> = rules.iter().map(move_which).collect();
        moved.into_iter().collect::<anyhow::Result<()>>().map_err(|error| format!("{error:#}"))
    }

    fn attach(&mut self, taps: &Taps, time: Duration) -> Result<(), String> {
        let tap = |(ifindex, instead_of): (&u32, &u32)| EnteringTap {
            ifindex: *ifindex,
            program: taps.entering,
            instead_of: *instead_of,
        };
        let entering = taps.ports.iter().map(tap).collect();
        let request = TapRequest { leaving: taps.leaving, entering, for_s: time.as_secs() + 1 };
        self.ask(Method::POST, TAPS, &request)
    }

    fn detach(&mut self) -> Result<(), String> {
        self.ask(Method::DELETE, TAPS, &())
    }
}

/// Adds the rule of a connection, which ends by itself after this time, or removes it.
async fn move_one(client: &Client, which: Selection, way: Way, time: Duration) -> anyhow::Result<()> {
    match way {
        Way::Slow => turn_off(client, which, time, OffBy::Verify).await,
        Way::Fast => turn_on(client, which).await,
    }
}

fn failure(error: VerifyError) -> Failure {
    let code = match &error {
        VerifyError::NotAllowed(_) => FailureCode::NotRoot,
        VerifyError::Programs(_) => FailureCode::KernelTooOld,
        _ => FailureCode::Internal,
    };
    Failure::new(code, error.to_string())
}

#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests;
