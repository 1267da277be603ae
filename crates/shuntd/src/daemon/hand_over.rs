//! Hands over to the next daemon: starts it, gives it what it needs, and goes on if it fails.

use super::{Daemon, Ended, blocking::BlockingThread};
use crate::{
    control::NewListeners,
    failures::{failure, internal},
    handover::{
        FromNext, HandedState, News, NextDaemon, Offer, Program, ToNext, differences, fault_point, netns,
    },
    kernel_types::pretends_missing,
    service_manager,
    signals::StopSignals,
    start,
};
use nix::time::{ClockId, clock_gettime};
use serde_json::Value;
use shunt_api::{FailedRestart, Failure, FailureCode, Restart, RestartKind};
use shunt_bpf::LAYOUT;
use shunt_xsk::protocol::RIGHTS_MAX;
use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};
use tokio::time::Instant;

/// Who stops the daemon, for the history.
pub(super) const BY: &str = "`shunt restart`";
/// How long the next daemon may take to load its programs: the verifier is slow on a small board.
const LOADING: Duration = Duration::from_secs(170);
/// How long writing and reading the kept files may take.
const FILES: Duration = Duration::from_secs(60);
/// How long to wait for a moment without changes in progress.
const CALM: Duration = Duration::from_secs(10);
/// How often to look for such a moment.
const LOOK: Duration = Duration::from_millis(20);
/// How long the next daemon may take to accept the state. Nobody writes the heartbeat meanwhile, which is too old after
/// two seconds.
const FROZEN: Duration = Duration::from_secs(1);
/// How long it may take to exchange the programs.
const EXCHANGE: Duration = Duration::from_secs(30);
/// How much longer the exchange may take for each port: an idle machine needs 13 ms for an XDP program.
pub(super) const PER_PORT: Duration = Duration::from_millis(50);

/// The restart in progress, and how the last ones went.
#[derive(Debug, Default)]
pub(super) struct HandOver {
    underway: Option<Underway>,
    failed: Option<FailedRestart>,
    /// How this daemon was started, if by a restart.
    pub(super) start: Option<RestartKind>,
    /// Whether the service manager knows that the service is ready.
    pub(super) reported: bool,
    /// Until when a death of this daemon, which has taken over from the store, would speak against what it has taken.
    pub(super) on_trial_until: Option<Instant>,
    /// The number of hand-overs since the data plane was loaded.
    pub(super) generation: u64,
    /// Since when packets are counted, on the monotonic clock; none if that is not known.
    pub(super) counting_since_ns: Option<u64>,
    /// The control socket, and the listeners on TCP.
    pub(super) listeners: Listening,
    program: Option<Program>,
}

/// Descriptors of the listening sockets.
#[derive(Debug, Default)]
pub(super) struct Listening {
    pub(super) sockets: Vec<OwnedFd>,
    pub(super) metrics: bool,
    pub(super) page: bool,
}

impl Listening {
    /// Follows a reload.
    ///
    /// # Errors
    /// If the process has too many descriptors. Then those of before stay.
    pub(super) fn change(&mut self, new: &NewListeners) -> io::Result<()> {
        let [metrics, page] = new.descriptors()?;
        let mut old = std::mem::take(&mut self.sockets).into_iter();
        let control = old.next();
        let old_metrics = old.by_ref().take(self.metrics.into()).next();
        let old_page = old.next();
        let (metrics, page) = (metrics.unwrap_or(old_metrics), page.unwrap_or(old_page));
        (self.metrics, self.page) = (metrics.is_some(), page.is_some());
        self.sockets = [control, metrics, page].into_iter().flatten().collect();
        Ok(())
    }
}

#[derive(Debug)]
struct Underway {
    next: NextDaemon,
    stage: Stage,
    /// Why the next daemon begins without flows, if it does.
    clean: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The next daemon loads its programs.
    Loading,
    /// Flows cannot be handed over. Checks whether a daemon with the new configuration could start here at all.
    Checking,
    /// It could, so the next daemon is to be told that this one ends.
    Clean,
    /// The kept files are being written and read.
    Files,
    /// Waits for a moment without changes in progress, until then.
    Calming { until: Instant },
}

/// Why the event loop ends in favour of another daemon.
#[derive(Debug)]
pub(super) enum Leaving {
    /// The next daemon owns the data plane.
    HandedOver(NextDaemon),
    /// The next daemon begins without flows, when this one has ended.
    Clean(NextDaemon),
}

impl HandOver {
    pub(super) fn new(program: Option<Program>) -> Self {
        Self { program, counting_since_ns: Some(monotonic_ns()), ..Self::default() }
    }

    /// Waits for news of the next daemon; forever if there is none. May be dropped at any time.
    pub(super) async fn news(&self) -> News {
        match &self.underway {
            Some(underway) => underway.next.news().await,
            None => std::future::pending().await,
        }
    }

    /// Seconds over which packets were counted.
    pub(super) fn counted_s(&self) -> Option<u64> {
        self.counting_since_ns.map(|since| monotonic_ns().saturating_sub(since) / 1_000_000_000)
    }

    /// How far the restart is.
    pub(super) fn progress(&self) -> Restart {
        Restart {
            pid: std::process::id(),
            next: self.underway.as_ref().map(|underway| underway.next.pid()),
            failed: self.failed.clone(),
            start: self.start.clone(),
        }
    }

    /// Whether a next daemon is getting ready.
    pub(super) fn is_underway(&self) -> bool {
        self.underway.is_some()
    }

    /// The program of this process, if it must stay when another daemon has followed it.
    pub(super) fn watched_program(&mut self) -> Option<Program> {
        self.program.take().filter(Program::is_watched)
    }

    fn is_checking(&self) -> bool {
        self.underway.as_ref().is_some_and(|underway| underway.stage == Stage::Checking)
    }

    /// Ends the next daemon, because this one stops.
    pub(super) fn cancel(&mut self) {
        if let Some(underway) = self.underway.take()
            && let Err(error) = underway.next.end()
        {
            tracing::warn!("cannot end the next daemon: {error}");
        }
    }

    fn set_stage(&mut self, stage: Stage, within: Duration) {
        if let Some(underway) = &mut self.underway {
            underway.stage = stage;
            underway.next.deadline = Instant::now() + within;
        }
    }
}

impl Daemon {
    /// Starts the next daemon, unless one is getting ready already.
    pub(super) fn restart(&mut self) -> Result<Restart, Failure> {
        if self.reloads.is_open() {
            let why = "a reload is in progress; try again when it has ended";
            return Err(failure(FailureCode::Busy, why));
        }
        self.end_taps(|_| ());
        let underway = &mut self.hand_over;
        if underway.underway.is_none() {
            let program = underway.program.as_ref();
            let program = program.ok_or_else(|| internal("the path of this program is not known"))?;
            let next = NextDaemon::start(program, Instant::now() + LOADING).map_err(|error| {
                internal(format!("cannot start the next daemon, {error}; the running one goes on"))
            })?;
            tracing::info!("restart: the next daemon, pid {}, is getting ready", next.pid());
            underway.failed = None;
            underway.underway = Some(Underway { next, stage: Stage::Loading, clean: None });
        }
        Ok(underway.progress())
    }

    /// Takes the next step. Returns why the event loop must end, if it must.
    pub(super) async fn on_hand_over(&mut self, news: News) -> Option<Leaving> {
        let stage = self.hand_over.underway.as_ref()?.stage;
        match (news, stage) {
            (News::Said(FromNext::Hello { layout, config, netns }), Stage::Loading) => {
                self.offer(layout, &config, netns);
            }
            (News::Late, Stage::Clean) => return self.begin_clean(),
            (News::Said(FromNext::Ready), Stage::Loading) => self.settle(),
            (News::Said(FromNext::Loaded), Stage::Files) => {
                let until = Instant::now() + CALM;
                self.hand_over.set_stage(Stage::Calming { until }, Duration::ZERO);
            }
            (News::Late, Stage::Calming { until }) => return self.look_for_calm(until).await,
            (News::Said(FromNext::Failed(why)), _) => self.go_on(why),
            (News::Said(_), _) => self.go_on(internal("the next daemon sent an unexpected message")),
            (News::Gone(why), _) => self.go_on(internal(format!("the next daemon: {why}"))),
            (News::Late, _) => self.go_on(internal("the next daemon does not get ready; see the log")),
        }
        None
    }

    /// Answers what must agree.
    fn offer(&mut self, theirs: u64, config: &BTreeMap<String, Value>, space: u64) {
        if let Some(why) = self.clean_because(theirs, config, space) {
            return self.check_clean_start(why);
        }
        let (names, maps): (Vec<String>, Vec<BorrowedFd<'_>>) =
            self.plane.handed_maps().map(|(name, map)| (name.to_owned(), map)).unzip();
        let offer = ToNext::Offer(Box::new(Offer {
            maps: names,
            max_flows: self.config.max_flows,
            seed: self.plane.seed(),
            programs: self.plane.xdp_program_ids(),
            findings: self.core.findings(),
        }));
        let Some(underway) = &self.hand_over.underway else { return };
        let sent = underway.next.channel.send(&offer, &maps);
        fault_point("former-offered");
        if let Err(error) = sent {
            self.go_on(internal(format!("cannot offer the maps to the next daemon: {error}")));
        }
    }

    /// Checks what the next daemon can check only after this one has ended, which must not end for nothing.
    fn check_clean_start(&mut self, why: String) {
        tracing::info!("restart: flows are not handed over: {why}");
        if let Some(underway) = &mut self.hand_over.underway {
            underway.clean = Some(why);
        }
        self.hand_over.set_stage(Stage::Checking, LOADING);
        let running = self.running();
        self.in_background(
            BlockingThread::Files,
            "check-restart",
            move |kernel| running.check_start(kernel),
            |daemon, checked| match checked {
                // The next daemon may have died meanwhile, and another one may be getting ready.
                _ if !daemon.hand_over.is_checking() => {}
                Ok(()) => daemon.hand_over.set_stage(Stage::Clean, Duration::ZERO),
                Err(why) => daemon.go_on(why),
            },
        );
    }

    fn begin_clean(&mut self) -> Option<Leaving> {
        let mut underway = self.hand_over.underway.take()?;
        let why = underway.clean.take()?;
        match underway.next.channel.send(&ToNext::Clean { why }, &[]) {
            Ok(()) => Some(Leaving::Clean(underway.next)),
            Err(error) => {
                self.hand_over.underway = Some(underway);
                self.go_on(internal(format!("cannot answer the next daemon: {error}")));
                None
            }
        }
    }

    /// Why the next daemon cannot take flows over; `None` if it can.
    fn clean_because(&self, theirs: u64, config: &BTreeMap<String, Value>, space: u64) -> Option<String> {
        if theirs != LAYOUT {
            return Some("the new version keeps flows in another layout".to_owned());
        }
        let differ = differences(&self.config, config);
        if !differ.is_empty() {
            return Some(format!("the configuration differs: {}", differ.join(", ")));
        }
        if netns().ok() != Some(space) {
            return Some("the next daemon runs in another network namespace".to_owned());
        }
        if self.config.uses_external() {
            return Some("the external engine is in use, which is not handed over".to_owned());
        }
        self.static_flows
            .may_name_ports()
            .then(|| "there are static flows, which a restart loses: add them again".to_owned())
    }

    /// Has the files written that the next daemon reads. Everything goes on meanwhile, but for the ledger of hosts.
    fn settle(&mut self) {
        self.hand_over.set_stage(Stage::Files, FILES);
        self.end_recording(BY);
        let count_rest = self.end_usage(true);
        let write = move |_: &mut shunt_kernel::Linux| {
            if let Some(count_rest) = count_rest {
                count_rest();
            }
        };
        self.in_background(BlockingThread::Files, "hand-over", write, |daemon, ()| daemon.settled());
    }

    fn settled(&mut self) {
        let Some(underway) = self.hand_over.underway.as_ref() else {
            // The next daemon has failed meanwhile.
            return self.count_again();
        };
        let sent = underway.next.channel.send(&ToNext::Settled, &[]);
        fault_point("former-settled");
        if let Err(error) = sent {
            self.go_on(internal(format!("cannot tell the next daemon to read files: {error}")));
        }
    }

    /// Hands over, unless something is being changed. To be called when nothing else is to be done: all changes that
    /// the kernel has reported have been handled.
    async fn look_for_calm(&mut self, until: Instant) -> Option<Leaving> {
        if let Some(busy) = self.busy_with() {
            if Instant::now() >= until {
                let why = format!("no moment to hand over: {busy}; try again");
                self.go_on(failure(FailureCode::Internal, why));
            } else {
                self.hand_over.set_stage(Stage::Calming { until }, LOOK);
            }
            return None;
        }
        match self.freeze().await {
            Ok(()) => {
                fault_point("former-gone");
                Some(Leaving::HandedOver(self.hand_over.underway.take()?.next))
            }
            Err(error) => {
                self.go_on(internal(format!("the next daemon has not taken over: {error}")));
                None
            }
        }
    }

    /// What keeps the daemon from handing over now.
    fn busy_with(&self) -> Option<&'static str> {
        [
            (!self.pending_ports.is_idle(), "a port is being changed"),
            (!self.kernel_reads.are_settled(), "the kernel's state is being read"),
            (!self.blocking.as_ref().is_some_and(|calls| calls.are_idle()), "a system call is in progress"),
            (!self.unattached.is_empty() || !self.xdp_refusals.is_empty(), "a port is being changed"),
            (!self.liberal_requests.is_empty() || !self.silent.is_empty(), "conntrack is being updated"),
            (self.corrections.due().is_some(), "conntrack is being corrected"),
            (self.plane.handed_ports().is_none(), "a port is being attached"),
            (!self.rest.is_awake(), "hooks are being put back"),
        ]
        .into_iter()
        .find_map(|(is_busy, what)| is_busy.then_some(what))
    }

    /// Hands the state over, and the ownership. From the state on, this daemon does nothing; the heartbeat that it
    /// writes before lasts two seconds.
    async fn freeze(&mut self) -> io::Result<()> {
        self.unwatch();
        self.beat();
        let since_ns = monotonic_ns();
        let ports = self.plane.handed_ports().ok_or_else(|| io::Error::other("a port is being attached"))?;
        let listening = &self.hand_over.listeners;
        let sockets = listening.sockets.iter().map(AsFd::as_fd);
        let mut handles: Vec<BorrowedFd<'_>> =
            sockets.chain(ports.iter().flat_map(|(_, links)| links.iter().copied())).collect();
        if pretends_missing("hand-over-link") {
            handles.pop();
        }
        let (handles, more) = handles.split_at(handles.len().min(RIGHTS_MAX));
        let more = more.chunks(RIGHTS_MAX);
        let state = ToNext::State(Box::new(HandedState {
            generation: self.hand_over.generation + 1,
            counting_since_ns: self.hand_over.counting_since_ns,
            since_ns,
            more: more.len(),
            metrics: listening.metrics,
            page: listening.page,
            ports: ports.iter().map(|(port, _)| (*port).into()).collect(),
            clsacts: self.clsacts.list(),
            off: self.off_rules.kept(),
            legacy_rules: self.legacy_rules,
            stored: self.store.as_ref().map(|store| store.held().clone()).unwrap_or_default(),
        }));
        let next = self.hand_over.underway.as_ref().map(|underway| &underway.next);
        let channel = &next.ok_or_else(|| io::Error::other("there is none"))?.channel;
        channel.send(&state, handles)?;
        more.into_iter().try_for_each(|handles| channel.send(&ToNext::More, handles))?;
        fault_point("former-frozen");
        match channel.expect(FROZEN).await? {
            (FromNext::Commit, _) => {}
            (FromNext::Failed(why), _) => return Err(io::Error::other(why.message)),
            _ => return Err(io::Error::other("it sent an unexpected message")),
        }
        channel.send(&ToNext::Go, &[])
    }

    /// Goes on after the next daemon has failed.
    fn go_on(&mut self, why: Failure) {
        let Some(Underway { next, stage, .. }) = self.hand_over.underway.take() else { return };
        tracing::warn!("restart: {why}; this daemon goes on");
        self.hand_over.failed = Some(FailedRestart { pid: next.pid(), why });
        let has_written = matches!(stage, Stage::Files | Stage::Calming { .. });
        if has_written {
            self.resume_recording();
        }
        // The files are being written otherwise.
        if has_written && self.usage.is_none() && !self.is_open(BlockingThread::Files, "hand-over") {
            self.count_again();
        }
        let end = move |_: &mut shunt_kernel::Linux| next.end();
        self.in_background(BlockingThread::Processes, "next-daemon", end, |_, ended| {
            if let Err(error) = ended {
                tracing::warn!("cannot end the next daemon: {error}");
            }
        });
    }

    /// Counts for hosts again, after the ledger was written for a daemon that has failed.
    fn count_again(&mut self) {
        let (instance, wanted) = (self.instance.clone(), self.config.usage);
        let load = move |_: &mut shunt_kernel::Linux| wanted.then(|| start::kept_ledger(&instance));
        self.in_background(BlockingThread::Files, "read-usage", load, |daemon, ledger| {
            if let Err(why) = daemon.start_usage(ledger) {
                tracing::warn!("what hosts use is not counted: {why}");
            }
        });
    }

    /// Ends after the next daemon has got the ownership: leaves everything to it, or, if it fails, detaches everything.
    pub(super) async fn leave(mut self, next: NextDaemon, stopping: StopSignals) -> Result<Ended, Failure> {
        let ports = u32::try_from(self.core.ports().count()).unwrap_or(u32::MAX);
        let outcome = next.channel.expect(EXCHANGE + PER_PORT * ports).await;
        let pid = next.pid();
        let why = match outcome {
            Ok((FromNext::Done, _)) => {
                service_manager::is_now(pid);
                tracing::info!("restart: pid {pid} has taken over");
                let stays = self.hand_over.watched_program();
                self.plane.leave();
                pass_on(stopping, &next).await;
                return Ok(Ended::Left(stays));
            }
            Ok((FromNext::Failed(why), _)) => why.message,
            Ok(_) => "it sent an unexpected message".to_owned(),
            Err(error) => error.to_string(),
        };
        // Before anything is detached: there must be one owner.
        if let Err(error) = next.end() {
            tracing::warn!("cannot end the next daemon: {error}");
        }
        self.undo_attachments();
        Err(internal(format!(
            "the next daemon (pid {pid}) failed while it took over: {why}; all packets take the slow path"
        )))
    }
}

/// Passes on a signal to end that came while this daemon handed over: the next one must end instead. Later ones wait
/// for the process that stays.
pub(super) async fn pass_on(mut stopping: StopSignals, next: &NextDaemon) {
    let passed_on = match stopping.hold().await {
        Ok(Some(signal)) => {
            tracing::info!("restart: {signal} came meanwhile; passing it on to pid {}", next.pid());
            next.pass_on(signal)
        }
        Ok(None) => Ok(()),
        Err(error) => Err(error),
    };
    if let Err(error) = passed_on {
        tracing::warn!("cannot pass a signal on to the next daemon: {error}");
    }
}

/// Nanoseconds of the monotonic clock, which all processes share.
pub(super) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}
