//! The event loop: one thread, one owner of everything.

mod events;
mod ports;

use crate::{
    connections::View,
    control::{self, Call, Job, Metered},
    ledger::Ledger,
    legacy,
    start::{self, Parts},
    statics::Statics,
    status,
    sweeping::Sweeping,
    tracked::Passed,
    watching::Watching,
    why::{self, Search},
};
use events::told;
use shunt_api::{Config, Failure, FailureCode, Instance, MarkMatch};
use shunt_bpf::{DataPlane, Masked, Ring, abi};
use shunt_core::{Action, Cause, Connection, Core, Event, Hold, Silent, Source};
use shunt_kernel::{Liberal, Linux, Watcher};
use std::{
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{mpsc, oneshot},
    time::{MissedTickBehavior, interval},
};

const TICK: Duration = Duration::from_millis(500);
/// With ticks of half a second, a daemon that hangs is noticed within three seconds.
const HEARTBEAT_MAX: Duration = Duration::from_secs(2);
/// How long a packet that is to prove a flow again may take through Linux. If it does not leave by then, all packets of the
/// flow go to Linux until one does.
const PROOF_GRACE: Duration = Duration::from_millis(500);
/// Requests for BE_LIBERAL are gathered for so long. Connections that end sooner cost nothing.
const GATHER: Duration = Duration::from_millis(5);
/// So many of them are set at once, before changes of the kernel's state have their turn again.
const LIBERAL_AT_ONCE: usize = 128;
/// The same for connections that have fallen silent.
const SILENT_AT_ONCE: usize = 64;

/// Everything that the loop owns.
pub(crate) struct Daemon {
    pub(crate) instance: Instance,
    pub(crate) config: Config,
    pub(crate) plane: DataPlane,
    pub(crate) core: Core,
    pub(crate) epoch_moves: BTreeMap<Cause, u64>,
    /// When the epoch moved, and why.
    pub(crate) last_move: Option<(Instant, Cause)>,
    pub(crate) started: Instant,
    pub(crate) sweeping: Sweeping,
    ledger: Ledger,
    began: Duration,
    pub(crate) missing: Vec<Source>,
    kernel: Linux,
    statics: Statics,
    watching: Watching,
    /// The ruleset, while it is read.
    reading: Option<Reading>,
    /// Devices that have a clsact qdisc because of us.
    clsacts: BTreeSet<u32>,
    /// Devices that could just not be attached to.
    unattached: Vec<u32>,
    wanted: Vec<Connection>,
    silent: Vec<Silent>,
    first: Vec<Action>,
    watcher: Option<Watcher>,
}

/// What will come of a ruleset that is being read.
type Reading = Pin<Box<dyn Future<Output = Event> + Send>>;

enum Next {
    Go,
    Stop(Option<oneshot::Sender<()>>),
}

impl Daemon {
    pub(crate) fn new(instance: Instance, config: Config, parts: Parts) -> Self {
        Self {
            instance,
            config,
            missing: parts.watcher.missing().to_vec(),
            plane: parts.plane,
            core: parts.core,
            epoch_moves: BTreeMap::new(),
            last_move: None,
            started: Instant::now(),
            sweeping: Sweeping::default(),
            ledger: Ledger::default(),
            began: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            kernel: parts.kernel,
            statics: Statics::default(),
            watching: Watching::default(),
            reading: None,
            clsacts: BTreeSet::new(),
            unattached: Vec::new(),
            wanted: Vec::new(),
            silent: Vec::new(),
            first: parts.actions,
            watcher: Some(parts.watcher),
        }
    }

    /// Attaches, then serves until it is told to stop. Everything is detached when this returns.
    pub(crate) async fn run(mut self, listeners: control::Listeners) -> Result<(), Failure> {
        self.configure();
        if let Err(failure) = self.begin() {
            self.leave();
            return Err(failure);
        }
        // Nobody is told that the daemon runs while all learning still waits for these.
        if let Some(reading) = self.reading.take() {
            let read = reading.await;
            self.handle(read);
        }
        let mut legacy = legacy::watch();
        if let Some(read) = legacy.recv().await {
            self.handle(read);
        }
        let (calls, mut calls_rx) = mpsc::channel(16);
        let server = control::start(listeners, calls).map_err(start::internal)?;
        let stopped = self.serve(&mut calls_rx, legacy).await;
        self.leave();
        let ended = stopped.map(|reply| {
            // The client may have gone away; we stop all the same.
            reply.map(|reply| reply.send(()))
        });
        drop(calls_rx);
        server.wait();
        ended.map(drop)
    }

    /// Does what the policy wants first.
    fn begin(&mut self) -> Result<(), Failure> {
        for action in std::mem::take(&mut self.first) {
            if let Action::Attach(setting) = &action {
                self.attach(*setting).map_err(|e| start::refused_attach(&self.name(setting.ifindex), &e))?;
            } else {
                self.perform(action);
            }
        }
        Ok(())
    }

    /// Detaches from everything.
    fn leave(self) {
        let Self { plane, mut kernel, clsacts, .. } = self;
        drop(plane);
        for ifindex in clsacts {
            start::remove_clsact(&mut kernel, ifindex);
        }
    }

    fn configure(&self) {
        let control = self.plane.control();
        let flags = if self.config.learn { abi::CONTROL_LEARN } else { 0 }
            | if self.config.udp_unreplied { abi::CONTROL_UDP_UNREPLIED } else { 0 };
        control.set_learning(self.config.udp_packets, self.config.tcp_packets, flags);
        let masked = |mark: Option<MarkMatch>| {
            mark.map(|MarkMatch { value, mask }| Masked { value, mask }).unwrap_or_default()
        };
        control.set_exclusions(masked(self.config.exclude_mark), masked(self.config.exclude_ct_mark));
        control.set_heartbeat_max(HEARTBEAT_MAX);
        self.set_proof();
        control.set_epoch(1);
        self.beat();
    }

    /// A flow must be seen by bridges well within the time after which they forget a station. Of conntrack's times the data
    /// plane takes care.
    fn set_proof(&self) {
        let every =
            self.core.ageing().map_or(self.config.reprove, |after| self.config.reprove.min(after / 3));
        self.plane.control().set_proof(every, every + PROOF_GRACE.min(every));
    }

    async fn serve(
        &mut self,
        calls: &mut mpsc::Receiver<Call>,
        mut legacy: mpsc::Receiver<Event>,
    ) -> Result<Option<oneshot::Sender<()>>, Failure> {
        let mut watcher = self.watcher.take().ok_or_else(|| start::internal("no watcher"))?;
        let mut events = self.plane.events().map_err(start::internal)?;
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut term = signal(SignalKind::terminate()).map_err(start::internal)?;
        let mut int = signal(SignalKind::interrupt()).map_err(start::internal)?;
        let mut gathered: Option<tokio::time::Instant> = None;
        loop {
            let next = tokio::select! {
                biased;
                // These are rare and short, and a storm of changes must not starve the heartbeat.
                _ = ticks.tick() => {
                    self.handle(Event::Tick);
                    self.watching.tell_lost(&self.plane);
                    Next::Go
                }
                _ = term.recv() => Next::Stop(None),
                _ = int.recv() => Next::Stop(None),
                // Changes of the kernel's state come before all else: they end the use of actions that may be wrong. So
                // no arm may wait, or take long.
                changes = watcher.next() => {
                    for event in changes.map_err(start::internal)? {
                        self.handle(event);
                    }
                    Next::Go
                }
                Some(read) = legacy.recv() => {
                    self.handle(read);
                    Next::Go
                }
                ready = wait(events.as_ref()), if gathered.is_none() => {
                    ready.map_err(start::internal)?;
                    gathered = Some(tokio::time::Instant::now() + GATHER);
                    Next::Go
                }
                () = self.watching.unwatched() => {
                    self.watching.end(&self.plane);
                    Next::Go
                }
                () = until(gathered) => {
                    for event in events.as_mut().map(Ring::take).unwrap_or_default() {
                        if let Some(event) = told(&event) {
                            self.handle(event);
                        }
                    }
                    let (liberal_left, silent_left) = (self.set_liberal(), self.keep_silent());
                    gathered = (liberal_left || silent_left).then(tokio::time::Instant::now);
                    Next::Go
                }
                () = self.sweeping.due() => {
                    self.sweeping.go_on(&self.plane, self.config.idle);
                    Next::Go
                }
                read = finished(&mut self.reading) => {
                    self.reading = None;
                    self.handle(read);
                    Next::Go
                }
                call = calls.recv() => match call {
                    Some(call) => self.answer(call),
                    None => Next::Stop(None),
                },
            };
            if let Next::Stop(reply) = next {
                return Ok(reply);
            }
        }
    }

    fn handle(&mut self, event: Event) {
        tracing::trace!(?event);
        let mut ports_changed = false;
        for action in self.core.handle(Instant::now(), event) {
            ports_changed |= matches!(
                action,
                Action::Attach(_) | Action::Set(_) | Action::Detach { .. } | Action::MoveEpoch(Cause::Link)
            );
            self.perform(action);
        }
        // What follows from these must not be undone by actions from before them.
        for ifindex in std::mem::take(&mut self.unattached) {
            self.handle(Event::AttachFailed { ifindex });
        }
        if ports_changed {
            self.statics.follow(&self.core, &self.plane);
        }
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::MoveEpoch(cause) => self.move_epoch(cause),
            Action::Beat => self.beat(),
            Action::Sweep => {
                self.set_proof();
                self.sweeping.begin(&self.plane, self.config.idle);
            }
            Action::FindCaptures => match self.kernel.captured() {
                Ok(captures) => self.handle(Event::Captures(captures)),
                Err(error) => tracing::debug!("captures cannot be seen: {error}"),
            },
            Action::FindBridgeCalls => {
                let calls = self.kernel.bridge_calls();
                self.handle(Event::BridgeCalls(calls));
            }
            Action::FindPrograms(devices) => {
                let programs = self.programs_on(&devices);
                self.handle(Event::Programs(programs));
            }
            Action::ReadRuleset { after } => self.reading = Some(Box::pin(read_ruleset(after))),
            Action::Hold(Hold { v4, v6 }) => self.plane.control().set_hold(v4, v6),
            Action::SetLiberal(connection) => self.wanted.push(connection),
            Action::KeepSilent(silent) => self.silent.push(silent),
            Action::Resync => match self.kernel.dump() {
                Ok(state) => self.handle(Event::Dump(state)),
                // Nothing is lost by waiting: the overrun has moved the epoch, and this asks again.
                Err(e) => {
                    tracing::warn!("the kernel's state cannot be read: {e}");
                    self.handle(Event::Overrun(Source::Route));
                }
            },
            Action::Attach(setting) => {
                if let Err(error) = self.attach(setting) {
                    tracing::warn!("{}", start::refused_attach(&self.name(setting.ifindex), &error));
                    self.detach(setting.ifindex);
                    self.unattached.push(setting.ifindex);
                }
            }
            Action::Set(setting) => {
                if let Err(error) = self.set(setting) {
                    tracing::warn!("{}", start::refused_attach(&self.name(setting.ifindex), &error));
                }
            }
            Action::Detach { ifindex } => {
                tracing::info!("{}: detaching", self.name(ifindex));
                self.detach(ifindex);
            }
        }
    }

    fn metered(&mut self) -> Metered {
        let ports: Vec<u32> = self.core.ports().map(|(link, _)| link.ifindex).collect();
        for ifindex in ports {
            self.keep_count(ifindex);
        }
        Metered { status: status::of(self), ports: self.ledger.counts(), began: self.began }
    }

    fn beat(&self) {
        if let Err(error) = self.plane.beat() {
            tracing::warn!("no heartbeat, so packets take the slow path: {error}");
        }
    }

    fn move_epoch(&mut self, cause: Cause) {
        let control = self.plane.control();
        control.move_epoch();
        *self.epoch_moves.entry(cause).or_default() += 1;
        self.last_move = Some((Instant::now(), cause));
        self.watching.epoch_moved(control.epoch(), &cause.to_string());
        tracing::debug!("epoch {}: {cause}", control.epoch());
    }

    /// Sets BE_LIBERAL for some of those that want it; whether there are more.
    fn set_liberal(&mut self) -> bool {
        self.wanted.sort_unstable();
        self.wanted.dedup();
        let now: Vec<Connection> = self.wanted.drain(..self.wanted.len().min(LIBERAL_AT_ONCE)).collect();
        for (connection, result) in now.iter().zip(self.kernel.set_be_liberal(&now)) {
            match result {
                Ok(Liberal::Set | Liberal::Gone) => {}
                Err(error) => tracing::debug!("{connection:?} stays slow: {error}"),
            }
        }
        !self.wanted.is_empty()
    }

    /// Tells conntrack of some that have fallen silent; whether there are more.
    fn keep_silent(&mut self) -> bool {
        let some: Vec<Silent> = self.silent.drain(..self.silent.len().min(SILENT_AT_ONCE)).collect();
        if let Err(error) = self.kernel.keep_silent(&some) {
            tracing::debug!("silent connections may be forgotten early: {error}");
        }
        !self.silent.is_empty()
    }

    fn answer(&mut self, call: Call) -> Next {
        match call {
            Call::Status(reply) => {
                self.sweeping.refresh(&self.plane, self.config.idle);
                let _ = reply.send(status::of(self));
            }
            Call::Metrics(reply) => {
                self.sweeping.refresh(&self.plane, self.config.idle);
                let _ = reply.send(self.metered());
            }
            Call::Flows(reply) => {
                let names = self.core.links().map(|link| (link.ifindex, link.name.clone())).collect();
                match View::new(&self.plane, names) {
                    Ok(view) => drop(reply.send(Box::new(view))),
                    Err(error) => tracing::warn!("flows cannot be read: {error}"),
                }
            }
            Call::Find(wanted, reply) => {
                let search = Search::new(&self.plane, wanted);
                let run = move || search?.run();
                drop(reply.send(Job::new(move || run().map_err(start::internal))));
            }
            Call::Explain(asked, reply) => {
                let _ = reply.send(why::explain(self, &asked).map_err(start::internal));
            }
            Call::Conntrack(reply) => {
                let passed = Passed::new(&self.plane);
                let read = move || passed?.table();
                drop(reply.send(Job::new(move || read().map_err(start::internal))));
            }
            Call::Watch(reply) => {
                let _ = reply.send(self.watching.begin(&self.plane).map_err(start::internal));
            }
            Call::Flush(reply) => {
                self.handle(Event::Flush);
                self.sweeping.flush(&self.plane, self.config.idle, reply);
            }
            Call::Stop(reply) => return Next::Stop(Some(reply)),
            Call::AddStatic(table, reply) => {
                let _ = reply.send(self.statics.add(&table, &self.core, &self.plane));
            }
            Call::DelStatic(removal, reply) => {
                let _ = reply.send(self.statics.remove(&removal, &self.plane));
            }
            Call::ListStatic(reply) => {
                let _ = reply.send(self.statics.table());
            }
        }
        Next::Go
    }

    pub(crate) fn name(&self, ifindex: u32) -> String {
        self.core.link_at(ifindex).map_or_else(|| format!("if{ifindex}"), |link| link.name.clone())
    }
}

async fn read_ruleset(after: Duration) -> Event {
    tokio::time::sleep(after).await;
    match shunt_kernel::read_ruleset().await {
        Ok(statements) => Event::RulesetRead(statements),
        Err(error) => {
            tracing::warn!("the ruleset cannot be read, so nothing is learned: {error}");
            Event::RulesetUnread(error.to_string())
        }
    }
}

/// What has come of reading the ruleset; waits forever where nobody reads.
async fn finished(reading: &mut Option<Reading>) -> Event {
    match reading {
        Some(reading) => reading.await,
        None => std::future::pending().await,
    }
}

/// Waits for events of the data plane; forever where nothing is learned.
async fn wait(events: Option<&Ring<abi::Event>>) -> std::io::Result<()> {
    match events {
        Some(events) => events.wait().await,
        None => std::future::pending().await,
    }
}

/// Waits for that time; forever where there is none.
async fn until(time: Option<tokio::time::Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Lets tests walk the fallback on a newer kernel.
pub(crate) fn pretends_missing(feature: &str) -> bool {
    std::env::var("SHUNT_PRETEND_MISSING").is_ok_and(|list| list.split(',').any(|name| name == feature))
}

/// A table that is full is no failure of the daemon, but of the request.
pub(crate) fn full(error: &shunt_bpf::Error) -> Failure {
    match error {
        shunt_bpf::Error::Full => Failure::new(
            FailureCode::TableFull,
            "the flow table is full; raise max_flows in the configuration",
        ),
        _ => start::internal(error),
    }
}
