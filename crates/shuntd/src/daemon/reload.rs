//! Reloads of the configuration: one at a time, prepared by a thread, applied by the event loop.

use super::{Daemon, blocking::BlockingThread};
use crate::{
    config_file::ConfigSource,
    control::NewListeners,
    failures::failure,
    loaded::Loaded,
    log_writer::LogFilter,
    off_rules::unix_time,
    reload::{Apply, Difference, Prepared, Running, names, needs_restart},
    start,
};
use shunt_api::{
    ChangeEffect, Config, ConfigStatus, Failure, FailureCode, Happening, KeyChange, LastReload, Reload,
    ReloadRequest, UnusedKey,
};
use shunt_core::{Action, Cause, Event};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::{mpsc::UnboundedSender, oneshot};

type Reply = oneshot::Sender<Result<Reload, Failure>>;

/// Ticks between two comparisons of the file with what runs: two seconds.
const COMPARE_TICKS: u32 = 4;
/// How long the answer waits for ports that are attached or detached. A held RTNL lock delays these.
const SETTLE: Duration = Duration::from_secs(10);
const COMPARE: &str = "compare-config";
/// Who asks for a reload.
const BY_SIGNAL: &str = "SIGHUP";
const BY_CLIENT: &str = "shunt reload";

/// What the event loop knows of the configuration file.
pub(crate) struct Reloads {
    source: Arc<ConfigSource>,
    /// What the configuration has for `max_flows`.
    max_flows: u32,
    loaded: Loaded,
    log: LogFilter,
    /// Changes what the control socket's thread listens on; `None` until it runs.
    listeners: Option<UnboundedSender<NewListeners>>,
    open: Option<OpenReload>,
    /// A signal has asked for a further reload during this one.
    again: bool,
    difference: Difference,
    ticks: u32,
    last: Option<LastReload>,
}

/// The reload in progress.
struct OpenReload {
    by: &'static str,
    dry_run: bool,
    reply: Option<Reply>,
    /// The answer, once everything is applied, except for ports that are still being changed.
    applied: Option<Reload>,
    /// Ports that could not be attached.
    failures: Vec<String>,
    since: Instant,
}

impl Reloads {
    /// `max_flows` is what the configuration has.
    pub(crate) fn new(source: ConfigSource, config: &Config, max_flows: u32, log: LogFilter) -> Self {
        Self {
            source: Arc::new(source),
            max_flows,
            loaded: Loaded::by(config),
            log,
            listeners: None,
            open: None,
            again: false,
            difference: Difference::default(),
            ticks: 0,
            last: None,
        }
    }

    pub(super) fn set_listeners(&mut self, changes: UnboundedSender<NewListeners>) {
        self.listeners = Some(changes);
    }

    /// Whether a reload is in progress.
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Lets the file be compared although it has not changed: something else has.
    pub(super) fn compare_again(&mut self) {
        self.difference.file = None;
    }

    /// Adds a port that could not be attached to the answer of the reload in progress.
    pub(super) fn note_failure(&mut self, failure: &Failure) {
        if let Some(open) = &mut self.open {
            open.failures.push(failure.message.clone());
        }
    }

    pub(super) fn status(&self) -> ConfigStatus {
        ConfigStatus {
            file: self.source.path().display().to_string(),
            differs: self.difference.keys.clone(),
            unusable: self.difference.unusable.clone(),
            last_reload: self.last.clone(),
        }
    }
}

impl Daemon {
    /// Reloads for a client.
    pub(super) fn reload_for(&mut self, request: ReloadRequest, reply: Reply) {
        let other = match (self.reloads.is_open(), self.hand_over.is_underway()) {
            (true, _) => Some("another reload"),
            (_, true) => Some("a restart"),
            _ => None,
        };
        if let Some(other) = other {
            let why = format!("{other} is in progress; try again when it has ended");
            // Fails if the client has gone away, which does not matter.
            let _ = reply.send(Err(failure(FailureCode::Busy, why)));
            return;
        }
        // A wrong request says nothing about the configuration, so it is not the last reload.
        if let Err(wrong) = self.running().check_file(&request) {
            let _ = reply.send(Err(wrong));
            return;
        }
        self.start_reload(request, BY_CLIENT, Some(reply));
    }

    /// Reloads after a signal; once more after the reload in progress, which may have read the file already.
    pub(super) fn reload_by_signal(&mut self) {
        if self.reloads.is_open() {
            self.reloads.again = true;
        } else if self.hand_over.is_underway() {
            tracing::warn!("{BY_SIGNAL}: the next daemon, which is taking over, has read the configuration");
        } else {
            self.start_reload(ReloadRequest::default(), BY_SIGNAL, None);
        }
    }

    fn start_reload(&mut self, request: ReloadRequest, by: &'static str, reply: Option<Reply>) {
        self.reloads.open = Some(OpenReload {
            by,
            dry_run: request.dry_run,
            reply,
            applied: None,
            failures: Vec::new(),
            since: Instant::now(),
        });
        let running = self.running();
        self.in_background(
            BlockingThread::Files,
            "reload",
            move |kernel| running.prepare(kernel, &request),
            |daemon, prepared| daemon.on_prepared(prepared),
        );
    }

    pub(super) fn running(&self) -> Running {
        let Reloads { source, max_flows, loaded, .. } = &self.reloads;
        Running {
            instance: self.instance.clone(),
            source: Arc::clone(source),
            config: self.config.clone(),
            max_flows: *max_flows,
            loaded: *loaded,
            ports: names(&self.core),
            own_programs: self.plane.xdp_program_ids(),
        }
    }

    fn on_prepared(&mut self, prepared: Result<Prepared, Failure>) {
        match prepared {
            Ok(Prepared { answer, apply: Some(apply) }) => {
                self.apply_config(apply);
                if let Some(open) = &mut self.reloads.open {
                    open.applied = Some(answer);
                }
                self.settle_reload();
            }
            Ok(Prepared { answer, apply: None }) => self.end_reload(needs_restart(&answer), Ok(answer)),
            Err(failure) => self.end_reload(Some(failure.message.clone()), Err(failure)),
        }
    }

    /// Answers once the ports are as the new configuration wants them. To be called at each tick, and after each
    /// change.
    pub(super) fn settle_reload(&mut self) {
        let is_settled = self.pending_ports.are_settled() && self.external.is_settled();
        let Some(open) = &mut self.reloads.open else { return };
        if !is_settled && open.since.elapsed() < SETTLE {
            return;
        }
        let Some(mut answer) = open.applied.take() else { return };
        answer.failures.append(&mut open.failures);
        answer.unused_queues = self.unused_queues();
        if !is_settled {
            answer.failures.push("ports are still being changed; see the log".to_owned());
        }
        self.end_reload(None, Ok(answer));
    }

    fn end_reload(&mut self, refused: Option<String>, answer: Result<Reload, Failure>) {
        let Some(OpenReload { by, dry_run, reply, .. }) = self.reloads.open.take() else { return };
        match (&refused, &answer) {
            _ if dry_run => {}
            (Some(why), _) => {
                tracing::warn!("{by}: the configuration stays as it was: {why}");
                self.note_reload(by, Vec::new(), Some(why.clone()));
            }
            (None, Ok(answer)) => {
                let (left, applied): (Vec<&KeyChange>, Vec<&KeyChange>) =
                    answer.changes.iter().partition(|change| change.effect == ChangeEffect::Restart);
                let names =
                    |changes: Vec<&KeyChange>| changes.iter().map(|change| change.key.clone()).collect();
                let keys: Vec<String> = names(applied);
                let what = if keys.is_empty() { "nothing changed".to_owned() } else { keys.join(", ") };
                tracing::info!("{by}: the configuration was read again: {what}");
                // Until the file is compared again.
                self.reloads.difference = Difference { keys: names(left), ..Difference::default() };
                self.note_reload(by, keys, None);
                // The next tick may see another reload's ports already.
                self.record_ports();
            }
            (None, Err(_)) => {}
        }
        if let Some(reply) = reply {
            // Fails if the client has gone away, which does not matter.
            let _ = reply.send(answer);
        }
        if std::mem::take(&mut self.reloads.again) {
            self.start_reload(ReloadRequest::default(), BY_SIGNAL, None);
        }
    }

    fn note_reload(&mut self, by: &str, keys: Vec<String>, refused: Option<String>) {
        let by = by.to_owned();
        self.note(match &refused {
            None => Happening::Reloaded { by: by.clone(), keys: keys.clone() },
            Some(why) => Happening::ReloadRefused { by: by.clone(), why: why.clone() },
        });
        self.reloads.last = Some(LastReload { at: unix_time(), by, keys, refused });
    }

    /// Runs another configuration from now on.
    fn apply_config(&mut self, apply: Apply) {
        let Apply { config, max_flows, listeners } = apply;
        let old = std::mem::replace(&mut self.config, config);
        self.reloads.max_flows = max_flows;
        self.reloads.log.set(self.config.log);
        self.write_rules();
        self.write_proof_interval();
        let new = &self.config;
        let proofs = |config: &Config| (config.exclude_mark, config.exclude_ct_mark, config.udp_unreplied);
        let process =
            |config: &Config| (config.external_core, config.external_wait, config.external_copy_vlan);
        let (relearn, other_process) = (proofs(&old) != proofs(new), process(&old) != process(new));
        let other_queues = old.qos != new.qos;
        if relearn {
            self.perform(Action::MoveEpoch(Cause::Config));
        }
        self.handle(Event::Chosen(start::choice(&self.config)));
        if other_process {
            self.restart_external();
        }
        if other_queues {
            self.send_qos();
            self.note_queues(&old.qos, "a reload");
            self.warn_of_unused_queues();
        }
        self.warn_of_unused_keys();
        if let Err(error) = self.hand_over.listeners.change(&listeners) {
            tracing::warn!("a restart will not take over the new listeners: {error}");
        }
        // Fails if the thread has ended: then the daemon ends, too.
        if let Some(changes) = &self.reloads.listeners {
            let _ = changes.send(listeners);
        }
    }

    /// Warns of keys that have no effect.
    pub(super) fn warn_of_unused_keys(&self) {
        for UnusedKey { key, why, remedy } in self.config.unused_keys() {
            tracing::warn!("{key} has no effect: {why}; {remedy}");
        }
    }

    /// Compares the file with what runs, every few seconds, for `shunt status`.
    pub(super) fn compare_config(&mut self) {
        self.reloads.ticks += 1;
        if !self.reloads.ticks.is_multiple_of(COMPARE_TICKS)
            || self.reloads.open.is_some()
            || self.is_open(BlockingThread::Files, COMPARE)
        {
            return;
        }
        let (running, before) = (self.running(), self.reloads.difference.clone());
        self.in_background(
            BlockingThread::Files,
            COMPARE,
            move |_| (running.compare(&before), before),
            |daemon, (difference, before)| {
                // Otherwise something has changed meanwhile.
                if daemon.reloads.open.is_none() && daemon.reloads.difference == before {
                    daemon.reloads.difference = difference;
                }
            },
        );
    }
}
