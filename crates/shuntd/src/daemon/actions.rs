//! Hands events to the policy and performs the actions that it returns.

use super::Daemon;
use shunt_api::SlowCause;
use shunt_bpf::Dependency;
use shunt_core::{Action, Cause, ChangeDetails, Event, Scope, Sessions};
use std::time::Instant;

impl Daemon {
    pub(super) fn handle(&mut self, event: Event) {
        self.handle_all(vec![event]);
    }

    pub(super) fn handle_all(&mut self, events: Vec<Event>) {
        tracing::trace!(?events);
        let mut ports_changed = false;
        let actions = self.core.handle_all(Instant::now(), events);
        let links_changed = self.note_links();
        for action in actions {
            ports_changed |= matches!(
                action,
                Action::Attach(_) | Action::Set(_) | Action::Detach { .. } | Action::MoveEpoch(Cause::Link)
            );
            self.perform(action);
        }
        if links_changed {
            self.forget_hosts();
        }
        self.note_told();
        self.note_beyond();
        if ports_changed {
            self.static_flows.follow_ports();
        }
        self.after_changes();
    }

    /// Logs for which devices there is no place.
    fn note_beyond(&mut self) {
        let beyond = self.core.beyond_cause();
        if let Some(SlowCause { what, remedy }) = beyond.as_ref().filter(|_| beyond != self.beyond) {
            tracing::warn!("{what}; {remedy}");
        }
        self.beyond = beyond;
    }

    /// Tells the policy which changes of ports have failed. Not while a batch of actions is performed: an earlier
    /// action must not undo what follows from these events.
    pub(super) fn after_changes(&mut self) {
        let failed = std::mem::take(&mut self.unattached).into_iter();
        let mut events: Vec<Event> = failed.map(|ifindex| Event::AttachFailed { ifindex }).collect();
        events.append(&mut self.xdp_refusals);
        if !events.is_empty() {
            self.handle_all(events);
            self.static_flows.follow_ports();
        }
    }

    pub(super) fn perform(&mut self, action: Action) {
        match action {
            Action::MoveEpoch(cause) => {
                self.plane.control().move_epoch();
                let changes = self.core.take_changes(cause, Scope::Everything);
                self.count_move(cause, changes);
            }
            Action::MoveEpochFor(cause, scope) => self.move_epoch_for(cause, scope),
            Action::Beat => self.beat(),
            Action::Sweep => {
                self.write_proof_interval();
                self.sweeper.begin(&self.plane, self.config.idle);
            }
            Action::FindCaptures => self.find_captures(),
            Action::FindOffloads(ifindex) => self.find_offloads(ifindex),
            Action::Survey(on) => self.plane.control().set_survey(on),
            Action::FindSurveyed => {
                let surveyed = self.surveyed();
                self.handle(Event::Surveyed(surveyed));
            }
            Action::FindBridgeCalls => {
                let calls = self.kernel.bridge_calls();
                self.handle(Event::BridgeCalls(calls));
            }
            Action::FindSessions => {
                let devices = self.kernel.session_devices();
                self.handle(Event::Sessions(Sessions { devices, below: self.plane.sessions() }));
            }
            Action::FindPrograms(devices) => self.find_programs(devices),
            Action::AwaitKernel(cause, scope) => self.await_kernel(cause, scope),
            Action::ReadRuleset { after } => {
                self.ruleset_reader.start(after, self.plane.control().rule_changes())
            }
            Action::Hold(held) => self.hold(held),
            Action::SetUppers(uppers) => {
                if let Err(error) = self.plane.set_uppers(&uppers) {
                    tracing::warn!(
                        "cannot tell the data plane which devices are on top of ports: {error}; packets that come in \
                         by such devices stay on the slow path"
                    );
                }
            }
            Action::Serve(ports) => self.serve_externally(ports),
            Action::SetLiberal(connection) => self.liberal_requests.push(connection),
            Action::KeepSilent(silent) => self.silent.push(silent),
            Action::Correct(correction) => self.corrections.push(correction),
            Action::Resync => self.resync(),
            Action::Attach(setting) | Action::Set(setting) => self.change_port(setting.ifindex, action),
            Action::Detach { ifindex } => self.change_port(ifindex, action),
        }
    }

    /// Moves the epoch if a flow may depend on what has changed, by the same test as the filters of the sockets.
    fn move_epoch_for(&mut self, cause: Cause, scope: Scope) {
        let dependency = match scope {
            Scope::Everything => None,
            Scope::Prefix { addr, len } => Some(Dependency::Prefix { addr, len }),
            Scope::Station(mac) => Some(Dependency::Station(mac.0)),
        };
        match dependency.map(|dependency| self.plane.note_change(dependency)) {
            // The filter of the socket may have moved it, before the daemon heard of the change.
            Some(Ok(false)) if self.plane.control().epoch() == self.counted_epoch => {
                self.core.pass_changes(cause, scope);
            }
            Some(Ok(_)) => {
                let changes = self.core.take_changes(cause, scope);
                self.count_move(cause, changes);
            }
            Some(Err(error)) => {
                tracing::debug!("cannot tell which flows a change concerns: {error}");
                self.plane.control().move_epoch();
                let changes = self.core.take_changes(cause, scope);
                self.count_move(cause, changes);
            }
            None => self.perform(Action::MoveEpoch(cause)),
        }
    }

    /// Counts a move of the epoch, and notes the changes that it is for; none if they follow from others.
    pub(super) fn count_move(&mut self, cause: Cause, changes: Vec<ChangeDetails>) {
        let epoch = self.plane.control().epoch();
        self.counted_epoch = epoch;
        *self.epoch_moves.entry(cause).or_default() += 1;
        self.last_move = Some((Instant::now(), cause));
        for change in changes {
            self.note_move(cause, change);
        }
        self.trace_stream.send_epoch(epoch, &cause.to_string());
        tracing::debug!("epoch {epoch}: {cause}");
    }
}
