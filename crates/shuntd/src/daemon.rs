//! The daemon: one thread owns everything and runs the event loop.

mod actions;
mod attachments;
mod beats;
mod blocking;
mod calls;
mod conntrack_updates;
mod data_plane_events;
mod explain;
mod external;
mod hand_over;
mod kernel_state;
mod recorder;
mod reload;
mod rest;
mod ruleset_reader;
mod settings;
mod status;
mod store;
mod take_over;
mod taps;
mod turn;
mod usage;
mod xdp_form;

use crate::{
    control::{self, Call},
    correction_queue::CorrectionQueue,
    descriptor_store::Store,
    failures::internal,
    handover::{NextDaemon, Program, fault_point},
    iptables_poll::{self, LegacyRead},
    off_rules::{OffRules, unix_time},
    port_counters::PortCounters,
    priority::Priority,
    rtnl_barrier,
    service_manager::{self, ServiceManager},
    signals::StopSignals,
    start::{self, Parts},
    static_flows::StaticFlows,
    step_meter::{StepMeter, next_step},
    sweep::Sweeper,
    trace_stream::TraceStream,
    usage::KeptLedger,
};
pub(crate) use reload::Reloads;

use attachments::{Clsacts, PendingPorts};
use blocking::BlockingCalls;
use data_plane_events::DataPlaneEvents;
use external::ExternalEngine;
use hand_over::{HandOver, Leaving, Listening, pass_on};
use kernel_state::KernelReads;
use recorder::Recorder;
use rest::Rest;
use ruleset_reader::RulesetReader;
use shunt_api::{Config, Failure, Instance, NotKept, RestartKind, SlowCause};
use shunt_bpf::DataPlane;
use shunt_core::{Action, Cause, Connection, Core, Event, EventSource, TrackedDirection};
use shunt_kernel::{Linux, NetlinkSubscription};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, IsTerminal},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use take_over::Inherited;
use taps::Taps;
use tokio::{
    signal::unix::Signal as Signals,
    sync::{mpsc, oneshot},
    time::{MissedTickBehavior, interval, sleep_until},
};
use turn::Turn;
use usage::HostLedger;
use xdp_form::XdpForms;

pub(crate) use take_over::{Prepared, prepare, resume};

const TICK: Duration = Duration::from_millis(500);

/// How a daemon has ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// It was stopped, and has detached everything.
    Stopped,
    /// The next daemon has taken over everything, and the control socket. With a program, this process must stay.
    Left(Option<Program>),
    /// It has detached everything, and the next daemon starts when its channel is closed. With a program, this process
    /// must stay.
    Replaced(NextDaemon, Option<Program>),
}

/// Why the event loop has ended.
#[derive(Debug)]
enum Stopped {
    /// By a client, who waits for an answer, or because clients cannot reach the daemon.
    By(Option<oneshot::Sender<()>>),
    /// By a signal to end.
    BySignal,
    /// Because of the next daemon.
    Left(Leaving),
}

/// Everything that the event loop owns.
pub(crate) struct Daemon {
    instance: Instance,
    config: Config,
    plane: DataPlane,
    core: Core,
    /// How often the epoch has moved, by cause.
    epoch_moves: BTreeMap<Cause, u64>,
    /// The epoch when a move was last counted.
    counted_epoch: u32,
    /// Stands for the rules of legacy iptables that the policy knows; `None` if it knows none.
    legacy_rules: Option<u64>,
    /// When the epoch last moved, and why; `None` if it has not moved yet.
    last_move: Option<(Instant, Cause)>,
    /// When a capture, a filter or a rule that blocked learning has last ended.
    unblocked: Option<Instant>,
    started: Instant,
    /// When the daemon started, since 1970.
    started_at: Duration,
    /// The kernel's sources of changes that this kernel lacks.
    missing: Vec<EventSource>,
    sweeper: Sweeper,
    port_counters: PortCounters,
    /// For system calls before the event loop runs, and after it.
    kernel: Linux,
    /// Makes the system calls that may wait; `None` unless the event loop runs.
    blocking: Option<BlockingCalls>,
    kernel_reads: KernelReads,
    steps: StepMeter,
    static_flows: StaticFlows,
    off_rules: OffRules,
    /// Files that could not be written, by the name of the call.
    not_kept: BTreeMap<&'static str, NotKept>,
    recorder: Recorder,
    /// The ledger that was kept, until counting starts.
    kept_ledger: Option<KeptLedger>,
    /// What hosts use; `None` if it is off.
    usage: Option<HostLedger>,
    trace_stream: TraceStream,
    ruleset_reader: RulesetReader,
    external: ExternalEngine,
    /// Devices whose clsact qdisc this daemon has created.
    clsacts: Clsacts,
    reloads: Reloads,
    pending_ports: PendingPorts,
    hand_over: HandOver,
    /// The service manager's descriptors; `None` if it keeps none.
    store: Option<Store>,
    /// What the daemon before this one has attached.
    inherited: Inherited,
    xdp_forms: XdpForms,
    rest: Rest,
    taps: Taps,
    /// Why a port could not be attached to before the event loop runs.
    first_failure: Option<Failure>,
    /// Devices that the actions in progress could not attach to.
    unattached: Vec<u32>,
    /// What the log says of devices for which there is no place.
    beyond: Option<SlowCause>,
    /// Ports whose driver refused the XDP program, not yet reported to the policy.
    xdp_refusals: Vec<Event>,
    /// Connections that wait for BE_LIBERAL.
    liberal_requests: Vec<Connection>,
    /// Connections that have fallen silent, not yet reported to conntrack.
    silent: Vec<TrackedDirection>,
    corrections: CorrectionQueue,
    /// The policy's actions to perform before the loop starts.
    first_actions: Vec<Action>,
    subscription: Option<NetlinkSubscription>,
    /// Sends changes to the thread that waits for the RTNL lock and then sends an [`Event::Finished`]; `None` until the
    /// loop starts.
    rtnl_barrier: Option<std::sync::mpsc::Sender<rtnl_barrier::Change>>,
    priority: Priority,
}

impl Daemon {
    pub(crate) fn new(
        instance: Instance,
        config: Config,
        parts: Parts,
        priority: Priority,
        reloads: Reloads,
    ) -> Self {
        Self {
            instance,
            config,
            missing: parts.subscription.missing().to_vec(),
            counted_epoch: 0,
            legacy_rules: None,
            plane: parts.plane,
            core: parts.core,
            epoch_moves: BTreeMap::new(),
            last_move: None,
            unblocked: None,
            started: Instant::now(),
            started_at: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            sweeper: Sweeper::default(),
            port_counters: PortCounters::default(),
            kernel: parts.kernel,
            blocking: None,
            kernel_reads: KernelReads::default(),
            steps: StepMeter::default(),
            static_flows: StaticFlows::default(),
            off_rules: parts.kept.off_rules,
            not_kept: BTreeMap::new(),
            recorder: Recorder::new(parts.kept.history, parts.kept.savings),
            kept_ledger: parts.kept.ledger,
            usage: None,
            trace_stream: TraceStream::default(),
            ruleset_reader: RulesetReader::default(),
            external: ExternalEngine::default(),
            clsacts: Clsacts::default(),
            reloads,
            pending_ports: PendingPorts::default(),
            hand_over: HandOver::new(Program::of_this_process().ok()),
            store: None,
            inherited: Inherited::default(),
            xdp_forms: XdpForms::default(),
            rest: Rest::default(),
            taps: Taps::default(),
            first_failure: None,
            unattached: Vec::new(),
            beyond: None,
            xdp_refusals: Vec::new(),
            liberal_requests: Vec::new(),
            silent: Vec::new(),
            corrections: CorrectionQueue::default(),
            first_actions: parts.actions,
            subscription: Some(parts.subscription),
            rtnl_barrier: None,
            priority,
        }
    }

    /// Says that the daemon was started by a restart that could not keep flows.
    pub(crate) fn started_clean(mut self, why: String) -> Self {
        self.hand_over.start = Some(RestartKind::Clean { why });
        self
    }

    /// Lets the service manager keep descriptors. It has those that are named `held` already.
    pub(crate) fn with_store(mut self, held: BTreeSet<String>) -> Self {
        self.store = Store::open(held, None);
        self
    }

    /// Attaches to the ports, then serves until a signal or a client stops the daemon, or another one takes over.
    /// Everything is detached on return, unless the next daemon has it.
    pub(crate) async fn run(
        mut self,
        listeners: control::Listeners,
        (stopping, hangup): (StopSignals, Signals),
    ) -> Result<Ended, Failure> {
        self.write_settings();
        if !self.off_rules.is_empty() {
            self.plane.set_off(&self.off_rules.matches()).map_err(internal)?;
        }
        self.counted_epoch = self.plane.control().epoch();
        let kept_ledger = self.kept_ledger.take();
        self.start_usage(kept_ledger)?;
        if let Err(failure) = self.perform_first_actions() {
            self.undo_attachments();
            return Err(failure);
        }
        // The control socket opens only after the first rulesets have been read: nothing is learned before.
        if self.ruleset_reader.is_reading() {
            let read = self.ruleset_reader.result().await;
            self.on_ruleset(read);
        }
        let mut iptables = iptables_poll::start();
        if let Some(read) = iptables.recv().await {
            self.on_legacy_rules(read);
        }
        self.await_external().await;
        self.warn_of_unused_queues();
        self.warn_of_unused_keys();
        self.run_attached(listeners, iptables, (stopping, hangup)).await
    }

    /// Serves. The ports are attached.
    async fn run_attached(
        mut self,
        listeners: control::Listeners,
        iptables: mpsc::Receiver<LegacyRead>,
        (mut stopping, hangup): (StopSignals, Signals),
    ) -> Result<Ended, Failure> {
        let (metrics, page) = listeners.on_tcp();
        let sockets = listeners.descriptors().map_err(internal)?;
        self.hand_over.listeners = Listening { sockets, metrics, page };
        let (calls, mut calls_rx) = mpsc::channel(16);
        let server = control::start(listeners, calls).map_err(internal)?;
        self.reloads.set_listeners(server.changes());
        // A client who stops the daemon wants everything detached. A signal may be the service manager's restart.
        let mut may_stay = false;
        let (stopped, next) = match self.serve(&mut calls_rx, iptables, (&mut stopping, hangup)).await {
            Ok(Stopped::Left(Leaving::HandedOver(next))) => {
                drop(calls_rx);
                let ended = self.leave(next, stopping).await;
                server.wait();
                return ended;
            }
            Ok(Stopped::Left(Leaving::Clean(next))) => (Ok(None), Some(next)),
            Ok(Stopped::By(reply)) => (Ok(reply), None),
            Ok(Stopped::BySignal) => {
                may_stay = true;
                (Ok(None), None)
            }
            Err(failure) => (Err(failure), None),
        };
        self.hand_over.cancel();
        self.external.stop().await;
        if let Some(blocking) = self.blocking.take() {
            blocking.end();
        }
        let stays = self.hand_over.watched_program();
        let stays_attached = may_stay && self.can_leave_to_store();
        let count_rest = self.end_usage(stays_attached);
        if stays_attached {
            self.leave_to_store();
        } else {
            self.undo_attachments();
        }
        if let Some(count_rest) = count_rest {
            count_rest();
        }
        let ended = stopped.map(|reply| {
            // Fails if the client has gone away, which does not matter.
            reply.map(|reply| reply.send(()))
        });
        drop(calls_rx);
        server.wait();
        if let Some(next) = &next {
            fault_point("former-detached");
            pass_on(stopping, next).await;
        }
        ended.map(|_| match next {
            Some(next) => {
                service_manager::is_now(next.pid());
                Ended::Replaced(next, stays)
            }
            None => Ended::Stopped,
        })
    }

    /// Performs what the policy wants first. Unlike later, a port that cannot be attached to is an error.
    fn perform_first_actions(&mut self) -> Result<(), Failure> {
        for action in std::mem::take(&mut self.first_actions) {
            self.perform(action);
            if let Some(failure) = self.first_failure.take() {
                return Err(failure);
            }
        }
        self.after_changes();
        Ok(())
    }

    /// Detaches from all ports and removes the qdiscs that this daemon has created.
    fn undo_attachments(self) {
        let Self { plane, mut kernel, clsacts, store, .. } = self;
        drop(plane);
        for ifindex in clsacts.take() {
            start::remove_clsact(&mut kernel, ifindex);
        }
        Self::clear_store(store);
    }

    /// The event loop. Returns why it has ended.
    async fn serve(
        &mut self,
        calls: &mut mpsc::Receiver<Call>,
        mut iptables: mpsc::Receiver<LegacyRead>,
        (stopping, mut hangup): (&mut StopSignals, Signals),
    ) -> Result<Stopped, Failure> {
        let mut subscription =
            self.subscription.take().ok_or_else(|| internal("serve() was called twice"))?;
        if let Err(error) = self.store_hooks(&subscription) {
            tracing::warn!("changes that come while no daemon runs may take two seconds: {error}");
        }
        let mut data_plane = DataPlaneEvents::new(self.plane.events().map_err(internal)?);
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut service_manager =
            if self.hand_over.reported { ServiceManager::served() } else { ServiceManager::ready() };
        let (rtnl_barrier, mut finished) = rtnl_barrier::start();
        self.rtnl_barrier = Some(rtnl_barrier);
        self.blocking = Some(BlockingCalls::start().map_err(internal)?);
        self.begin_recording();
        self.update_store();
        let (reply, by, is_signal) = loop {
            let corrections_due = self.corrections_due();
            let (turn, start) = next_step(async {
                tokio::select! {
                    // Arms are polled in this order. Ticks and signals are rare and short, and a storm of changes must
                    // not starve the heartbeat. Then come changes of kernel state, before everything else: they end the
                    // use of actions that may be wrong. So no arm may wait or take long.
                    biased;
                    _ = ticks.tick() => Turn::Tick,
                    _ = stopping.next() => Turn::Signal,
                    _ = hangup.recv() => Turn::Hangup,
                    changes = subscription.next() => Turn::KernelChanges(changes),
                    Some(done) = finished.recv() => Turn::Finished(done),
                    done = BlockingCalls::next(&mut self.blocking) => Turn::Done(done),
                    Some(read) = iptables.recv() => Turn::LegacyRules(read),
                    () = self.trace_stream.unwatched() => Turn::Unwatched,
                    ready = data_plane.ready() => Turn::DataPlane(ready),
                    news = self.external.news() => Turn::External(news),
                    () = until(corrections_due) => Turn::Corrections,
                    () = self.sweeper.due() => Turn::Sweep,
                    read = self.ruleset_reader.result() => Turn::Ruleset(read),
                    call = calls.recv() => call.map_or(Turn::NoCalls, Turn::Call),
                    () = self.static_flows.due() => Turn::StaticFlows,
                    // Last: a hand-over begins when nothing else is to be done.
                    news = self.hand_over.news() => Turn::HandOver(news),
                }
            })
            .await;
            let name = turn.name();
            match turn {
                Turn::Tick => self.on_tick(&mut service_manager),
                Turn::Signal => break (None, "a signal", true),
                // The terminal of a daemon in the foreground was closed.
                Turn::Hangup if io::stderr().is_terminal() => break (None, "the end of its terminal", false),
                Turn::Hangup => self.reload_by_signal(),
                Turn::NoCalls => break (None, "the end of its control socket", false),
                Turn::KernelChanges(changes) => {
                    let changes = changes.map_err(internal)?;
                    if changes.contains(&Event::Ruleset) {
                        self.recorder.set_changed_rules(subscription.take_changed_rules());
                    }
                    self.on_kernel_changes(changes);
                }
                Turn::Finished(done) => self.on_finished(done),
                Turn::Done(done) => self.on_done(done),
                Turn::LegacyRules(read) => self.on_legacy_rules(read),
                Turn::Unwatched => self.unwatch(),
                Turn::DataPlane(ready) => {
                    ready.map_err(internal)?;
                    self.on_data_plane_events(&mut data_plane);
                }
                Turn::External(news) => self.on_external(news),
                Turn::Corrections => self.correct_conntrack(),
                Turn::Sweep => self.sweeper.sweep_part(&self.plane, self.config.idle),
                Turn::StaticFlows => self.work_on_static_flows(),
                Turn::Ruleset(read) => self.on_ruleset(read),
                Turn::HandOver(news) => {
                    if let Some(leaving) = self.on_hand_over(news).await {
                        if matches!(leaving, Leaving::Clean(_)) {
                            self.end_recording(hand_over::BY);
                        }
                        return Ok(Stopped::Left(leaving));
                    }
                }
                Turn::Call(Call::Stop(reply)) => break (Some(reply), "`shunt down`", false),
                Turn::Call(call) => self.answer(call),
            }
            self.steps.record(name, start);
        };
        service_manager.stopping();
        self.end_recording(by);
        Ok(if is_signal { Stopped::BySignal } else { Stopped::By(reply) })
    }

    fn on_tick(&mut self, service_manager: &mut ServiceManager) {
        self.priority.renew();
        self.check_kernel_reads();
        self.handle(Event::Tick);
        if self.off_rules.expire(unix_time())
            && let Err(error) = self.enforce_off()
        {
            tracing::warn!("a rule of `shunt off` has ended, but its connections stay slow: {error}");
        }
        self.record_tick();
        self.settle_reload();
        self.compare_config();
        self.expire_taps();
        self.review_xdp_forms();
        self.review_rest();
        self.update_usage();
        self.trace_stream.report_lost(&self.plane);
        self.update_store();
        service_manager.tick();
    }

    /// Lets the rules of `shunt off` take effect: the programs learn nothing from the connections that they name, and
    /// every flow is proved again, or refused, by its next packet.
    fn enforce_off(&mut self) -> Result<(), shunt_bpf::Error> {
        self.record_off();
        self.plane.set_off(&self.off_rules.matches())?;
        self.handle(Event::Off);
        Ok(())
    }

    fn on_kernel_changes(&mut self, changes: Vec<Event>) {
        self.kernel_reads.note(&changes);
        self.handle_all(changes);
        self.priority.spend();
    }

    /// Hands the rules of legacy iptables to the policy.
    fn on_legacy_rules(&mut self, read: LegacyRead) {
        let LegacyRead { event, digest, changed } = read;
        self.legacy_rules = digest;
        let words = format!("rules of `{}` changed", changed.join("`, `"));
        self.recorder.set_changed_rules((!changed.is_empty()).then_some(words));
        self.handle(event);
        self.recorder.set_changed_rules(None);
        self.record_hold();
    }

    fn work_on_static_flows(&mut self) {
        if self.static_flows.may_name_ports() {
            self.spoil_store("there are static flows, which a restart loses: add them again");
        }
        self.static_flows.work(&self.core, &self.plane);
        if self.static_flows.is_idle() {
            self.plane.release_slots();
        }
        self.priority.spend();
    }

    /// Ends what is done for the clients of `shunt watch`, of whom the last one has gone.
    fn unwatch(&mut self) {
        self.trace_stream.end(&self.plane);
        self.usage.iter().for_each(|usage| usage.watch(None));
    }

    /// The name of a device; `if7` for device 7 if the device is unknown.
    pub(crate) fn name(&self, ifindex: u32) -> String {
        self.core.link_at(ifindex).map_or_else(|| format!("if{ifindex}"), |link| link.name.clone())
    }
}

/// Waits until `time`; forever if there is none.
async fn until(time: Option<tokio::time::Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
