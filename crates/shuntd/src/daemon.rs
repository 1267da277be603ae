//! The event loop: one thread, one owner of everything.

use crate::{
    connections::{self, Sample},
    control::{self, Call},
    start::{self, Parts},
    statics::Statics,
    status,
};
use shunt_api::{Config, Failure, FailureCode, Instance};
use shunt_bpf::{DataPlane, Events, abi, attach::Means};
use shunt_core::{Action, Cause, Connection, Core, Event, PortSetting, Proto, Source};
use shunt_kernel::{Kernel, Liberal, Linux, Watcher};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};
use tokio::{
    net::UnixListener,
    signal::unix::{SignalKind, signal},
    sync::{mpsc, oneshot},
    time::{MissedTickBehavior, interval},
};

const TICK: Duration = Duration::from_millis(500);
/// With ticks of half a second, a daemon that hangs is noticed within three seconds.
const HEARTBEAT_MAX: Duration = Duration::from_secs(2);
/// A proof outlives two packets that were lost on their way to it.
const PROOF_LASTS: u32 = 3;
/// Requests for BE_LIBERAL are gathered for so long. Connections that end sooner cost nothing.
const GATHER: Duration = Duration::from_millis(5);

/// Everything that the loop owns.
pub(crate) struct Daemon {
    pub(crate) instance: Instance,
    pub(crate) config: Config,
    pub(crate) plane: DataPlane,
    pub(crate) core: Core,
    pub(crate) epoch_moves: BTreeMap<Cause, u64>,
    pub(crate) started: Instant,
    pub(crate) swept: abi::Sweep,
    pub(crate) missing: Vec<Source>,
    kernel: Linux,
    statics: Statics,
    /// Devices that have a clsact qdisc because of us.
    clsacts: BTreeSet<u32>,
    wanted: Vec<Connection>,
    first: Vec<Action>,
    watcher: Option<Watcher>,
}

/// Rates need a second look after a while.
struct SecondLook {
    before: Sample,
    since: Instant,
    reply: oneshot::Sender<Vec<shunt_api::Connection>>,
}

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
            started: Instant::now(),
            swept: abi::Sweep::default(),
            kernel: parts.kernel,
            statics: Statics::default(),
            clsacts: BTreeSet::new(),
            wanted: Vec::new(),
            first: parts.actions,
            watcher: Some(parts.watcher),
        }
    }

    /// Attaches, then serves until it is told to stop. Everything is detached when this returns.
    pub(crate) async fn run(mut self, listener: UnixListener) -> Result<(), Failure> {
        self.configure();
        if let Err(failure) = self.begin() {
            self.leave();
            return Err(failure);
        }
        let (calls, mut calls_rx) = mpsc::channel(16);
        let server = tokio::spawn(control::serve(listener, calls));
        let stopped = self.serve(&mut calls_rx).await;
        self.leave();
        let ended = stopped.map(|reply| {
            // The client may have gone away; we stop all the same.
            reply.map(|reply| reply.send(()))
        });
        drop(calls_rx);
        let _ = server.await;
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
        control.set_heartbeat_max(HEARTBEAT_MAX);
        self.set_proof();
        control.set_epoch(1);
        self.beat();
    }

    /// A flow must be seen by conntrack well within the time after which conntrack forgets it.
    fn set_proof(&self) {
        let every = match self.kernel.conntrack_timeouts() {
            Ok(timeouts) => self.config.reprove.min(timeouts.shortest() / 3),
            Err(_) => self.config.reprove,
        };
        self.plane.control().set_proof(every, every * PROOF_LASTS);
    }

    async fn serve(
        &mut self,
        calls: &mut mpsc::Receiver<Call>,
    ) -> Result<Option<oneshot::Sender<()>>, Failure> {
        let mut watcher = self.watcher.take().ok_or_else(|| start::internal("no watcher"))?;
        let mut events = self.plane.events().map_err(start::internal)?;
        let (later, mut second_looks) = mpsc::channel(16);
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut term = signal(SignalKind::terminate()).map_err(start::internal)?;
        let mut int = signal(SignalKind::interrupt()).map_err(start::internal)?;
        loop {
            let next = tokio::select! {
                // Changes of the kernel's state come first: they end the use of actions that may be wrong.
                biased;
                changes = watcher.next() => {
                    for event in changes.map_err(start::internal)? {
                        self.handle(event);
                    }
                    Next::Go
                }
                _ = term.recv() => Next::Stop(None),
                _ = int.recv() => Next::Stop(None),
                _ = ticks.tick() => {
                    self.handle(Event::Tick);
                    Next::Go
                }
                ready = wait(events.as_ref()) => {
                    ready.map_err(start::internal)?;
                    tokio::time::sleep(GATHER).await;
                    for event in events.as_mut().map(Events::take).unwrap_or_default() {
                        if let Some(connection) = connection_of(&event) {
                            self.handle(Event::WantLiberal(connection));
                        }
                    }
                    self.set_liberal();
                    Next::Go
                }
                Some(look) = second_looks.recv() => {
                    self.answer_second_look(look);
                    Next::Go
                }
                call = calls.recv() => match call {
                    Some(call) => self.answer(call, &later),
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
                self.sweep(false);
            }
            Action::SetLiberal(connection) => self.wanted.push(connection),
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
                    self.handle(Event::AttachFailed { ifindex: setting.ifindex });
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

    fn detach(&mut self, ifindex: u32) {
        if let Err(error) = self.plane.detach(ifindex) {
            tracing::warn!("device {ifindex}: {error}");
        }
        if self.clsacts.remove(&ifindex) {
            start::remove_clsact(&mut self.kernel, ifindex);
        }
    }

    fn beat(&self) {
        if let Err(error) = self.plane.beat() {
            tracing::warn!("no heartbeat, so packets take the slow path: {error}");
        }
    }

    fn move_epoch(&mut self, cause: Cause) {
        let control = self.plane.control();
        // 0 marks retired actions.
        control.set_epoch(control.epoch().checked_add(1).unwrap_or(1));
        *self.epoch_moves.entry(cause).or_default() += 1;
        tracing::debug!("epoch {}: {cause}", control.epoch());
    }

    fn attach(&mut self, setting: PortSetting) -> Result<(), shunt_bpf::Error> {
        let name = self.name(setting.ifindex);
        // One that is there already is somebody else's, and stays.
        let there = self.kernel.has_clsact(setting.ifindex).unwrap_or(true);
        let attached = self.plane.attach(setting.ifindex, flags(setting), !pretends_missing("tcx"));
        if !there && !matches!(attached, Ok(Means::Tcx)) {
            self.clsacts.insert(setting.ifindex);
        }
        let means = attached?;
        self.plane.set_xdp(setting.ifindex, setting.xdp_in)?;
        tracing::info!("{name}: attached by {means}, engine {}", setting.engine);
        Ok(())
    }

    fn set(&mut self, setting: PortSetting) -> Result<(), shunt_bpf::Error> {
        self.plane.set_flags(setting.ifindex, flags(setting))?;
        self.plane.set_xdp(setting.ifindex, setting.xdp_in)?;
        tracing::info!("{}: engine {}", self.name(setting.ifindex), setting.engine);
        Ok(())
    }

    fn sweep(&mut self, all: bool) {
        match self.plane.sweep(self.config.idle, all) {
            Ok(found) => self.swept = found,
            Err(error) => tracing::warn!("flows cannot be swept: {error}"),
        }
    }

    fn set_liberal(&mut self) {
        let mut wanted = std::mem::take(&mut self.wanted);
        wanted.sort_unstable();
        wanted.dedup();
        for (connection, result) in wanted.iter().zip(self.kernel.set_be_liberal(&wanted)) {
            match result {
                Ok(Liberal::Set | Liberal::Gone) => {}
                Err(error) => tracing::debug!("{connection:?} stays slow: {error}"),
            }
        }
    }

    fn answer(&mut self, call: Call, later: &mpsc::Sender<SecondLook>) -> Next {
        match call {
            Call::Status(reply) => {
                self.sweep(false);
                let _ = reply.send(status::of(self));
            }
            Call::Flows { rate_over, reply } => {
                let before = connections::sample(&self.plane);
                let look = SecondLook { before, since: Instant::now(), reply };
                let later = later.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(rate_over).await;
                    let _ = later.send(look).await;
                });
            }
            Call::Flush(reply) => {
                let before = self.swept_now();
                self.handle(Event::Flush);
                self.sweep(true);
                let _ = reply.send(u64::from(before.active) + u64::from(before.pending));
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

    fn swept_now(&mut self) -> abi::Sweep {
        self.sweep(false);
        self.swept
    }

    fn answer_second_look(&self, look: SecondLook) {
        let name = |ifindex| self.name(ifindex);
        // A sweep tells what time it is for the data plane.
        let now = self.plane.sweep(self.config.idle, false).map(|found| found.now_ticks).unwrap_or_default();
        let list = connections::list(&self.plane, &look.before, look.since.elapsed(), now, &name);
        let _ = look.reply.send(list);
    }

    pub(crate) fn name(&self, ifindex: u32) -> String {
        self.core.link_at(ifindex).map_or_else(|| format!("if{ifindex}"), |link| link.name.clone())
    }
}

/// Waits for events of the data plane; forever where nothing is learned.
async fn wait(events: Option<&Events>) -> std::io::Result<()> {
    match events {
        Some(events) => events.wait().await,
        None => std::future::pending().await,
    }
}

fn flags(setting: PortSetting) -> u16 {
    let mut flags = 0;
    if setting.engine == shunt_api::Engine::Xdp {
        flags |= abi::PORT_XDP_OUT;
    }
    if setting.partial {
        flags |= abi::PORT_PARTIAL;
    }
    flags
}

/// Lets tests walk the fallback on a newer kernel.
fn pretends_missing(feature: &str) -> bool {
    std::env::var("SHUNT_PRETEND_MISSING").is_ok_and(|list| list.split(',').any(|name| name == feature))
}

fn connection_of(event: &abi::Event) -> Option<Connection> {
    if event.kind != abi::EVENT_WANT_LIBERAL {
        return None;
    }
    let addr = |bytes: [u8; 16]| -> IpAddr {
        if event.family == 4 {
            <[u8; 4]>::try_from(&bytes[..4]).map(IpAddr::from).unwrap_or(IpAddr::from(bytes))
        } else {
            IpAddr::from(bytes)
        }
    };
    Some(Connection {
        proto: Proto::Tcp,
        src: SocketAddr::new(addr(event.src_be), u16::from_be_bytes(event.sport_be)),
        dst: SocketAddr::new(addr(event.dst_be), u16::from_be_bytes(event.dport_be)),
    })
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
