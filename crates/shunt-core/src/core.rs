//! The policy: one owner of all state, fed with events.

mod answers;
mod settle;

use crate::{
    Action, BridgeCalls, Cause, Choice, Event, EventSource, ExternalPorts, ExternalState, Netconf, PortView,
    Program, Qdisc, RulesPlace, Scope, Statement, Traffic,
    bridges::Tracking,
    changes::{ChangeDetails, Changes},
    known_macs::KnownMacs,
    network::Network,
    ruleset::Ruleset,
    survey::Surveys,
    turns::Turns,
};
use shunt_api::{CaptureChoice, Proto};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

/// The shortest time between two dumps of the kernel's state.
const RESYNC_GAP: Duration = Duration::from_secs(1);
/// The time between two sweeps of the flow tables.
const SWEEP_GAP: Duration = Duration::from_secs(1);

/// Time in which a driver accepts redirected frames once an XDP program is attached.
const TARGET_TIME: Duration = Duration::from_secs(1);

/// The policy. See [`Core::handle`].
#[derive(Debug, Default)]
pub struct Core {
    pub(crate) choice: Choice,
    pub(crate) network: Network,
    pub(crate) ports: BTreeMap<u32, PortView>,
    /// Devices that could not be attached to. They are tried again when they change or when a port goes.
    refused: BTreeSet<u32>,
    /// Devices for which an instance has no place.
    pub(crate) beyond: BTreeSet<u32>,
    /// Devices on which packet sockets capture; 0 stands for all devices.
    captures: BTreeSet<u32>,
    /// The TCX programs of others on ports and on devices on top of them.
    pub(crate) programs: BTreeSet<Program>,
    /// The devices of the last [`Action::FindPrograms`], and those whose programs were read before.
    program_devices: [BTreeSet<u32>; 2],
    /// The IDs of Shunt's XDP programs.
    own_programs: BTreeSet<u32>,
    /// The sysctls of br_netfilter as last read, `Some(None)` if it is not loaded. `None` before the first read: then
    /// all bridged packets count as tracked.
    bridge_calls: Option<Option<BridgeCalls>>,
    synced_at: Option<Instant>,
    resync_due: bool,
    swept_at: Option<Instant>,
    ruleset: Ruleset,
    /// The last [`Action::Hold`]; `None` before the first one.
    held: Option<Traffic>,
    /// The devices on top of ports, as in the last [`Action::SetUppers`].
    uppers: BTreeMap<u32, BTreeSet<u32>>,
    /// Counts of the kinds of packets that virtual ports receive.
    pub(crate) surveys: Surveys,
    /// Ports whose driver accepts no redirected frames although Shunt's XDP program is attached, and since when.
    awaited_targets: BTreeMap<u32, Instant>,
    /// The last [`Action::Survey`].
    surveying: bool,
    /// What the external engine does.
    external: ExternalState,
    /// The last [`Action::Serve`].
    for_external: ExternalPorts,
    /// Ports that the configuration no longer names, until the ports are planned.
    unchosen: BTreeSet<u32>,
    /// Whether the data plane rests.
    rests: bool,
    /// How often the ports have been planned.
    plans: u64,
    /// What the last changes were about.
    pub(crate) changes: Changes,
    /// When links last went up or down.
    pub(crate) turns: Turns,
    /// The last MACs of neighbours.
    pub(crate) known_macs: KnownMacs,
}

/// The actions that a batch of events requires.
#[derive(Debug, Default)]
struct Steps {
    actions: Vec<Action>,
    /// Actions that come after those about ports.
    later: Vec<Action>,
    /// What the epoch moves for already.
    moved: BTreeSet<(Cause, Scope)>,
    /// The changes whose end is awaited already.
    awaited: BTreeSet<(Cause, Scope)>,
    replan: bool,
    /// The qdiscs before a dump. Events that follow it in the batch may have been told already.
    qdiscs_before: Option<Vec<Qdisc>>,
    find_captures: bool,
    /// NICs whose offloads are not known, since they have appeared after the start.
    new_nics: BTreeSet<u32>,
}

impl Steps {
    fn move_epoch(&mut self, cause: Cause, scope: Scope) {
        if self.moved.contains(&(cause, Scope::Everything)) || !self.moved.insert((cause, scope)) {
            return;
        }
        self.actions.push(match scope {
            Scope::Everything => Action::MoveEpoch(cause),
            scope => Action::MoveEpochFor(cause, scope),
        });
    }

    /// The flows for which the epoch moves already, if these are among them.
    fn covering(&self, cause: Cause, scope: Scope) -> Scope {
        if self.moved.contains(&(cause, Scope::Everything)) { Scope::Everything } else { scope }
    }

    fn await_kernel(&mut self, cause: Cause, scope: Scope) {
        if self.awaited.insert((cause, scope)) {
            self.later.push(Action::AwaitKernel(cause, scope));
        }
    }
}

/// Whether Linux reports the change before it takes effect. A packet in between is still handled the old way although
/// the epoch has moved already, so the epoch must move once more when the change is complete.
fn is_reported_early(event: &Event) -> bool {
    matches!(
        event,
        // IPv4 flushes the routes of an address, and those of a nexthop object, without a message.
        Event::AddressGone { .. } | Event::Nexthop
        // fib_table_delete() sends the message before it removes the route.
        | Event::RouteGone(..)
        // The message that a device goes up or down comes before its nexthops become usable or unusable.
        | Event::Link(_)
    )
}

impl Core {
    /// Creates a policy that knows only the configuration and the IDs of Shunt's XDP programs.
    pub fn new(choice: Choice, own_programs: impl IntoIterator<Item = u32>) -> Self {
        let ruleset = Ruleset::new(choice.limits);
        Self { choice, ruleset, own_programs: own_programs.into_iter().collect(), ..Self::default() }
    }

    /// Adds IDs of Shunt's XDP programs: those of programs that are loaded for one device.
    pub fn add_own_programs(&mut self, ids: impl IntoIterator<Item = u32>) {
        self.own_programs.extend(ids);
    }

    /// Whether an XDP program is Shunt's.
    pub fn is_own_program(&self, id: u32) -> bool {
        self.own_programs.contains(&id)
    }

    /// Handles one event and returns the actions that it requires. `now` is the current time.
    pub fn handle(&mut self, now: Instant, event: Event) -> Vec<Action> {
        self.handle_all(now, [event])
    }

    /// Handles events, oldest first. Ports are planned once for all of them, and the epoch moves once for each cause.
    pub fn handle_all(&mut self, now: Instant, events: impl IntoIterator<Item = Event>) -> Vec<Action> {
        let mut steps = Steps::default();
        for event in events {
            self.handle_one(now, event, &mut steps);
        }
        if let Some(before) = steps.qdiscs_before.take() {
            self.tell_qdiscs_since(&before);
        }
        let Steps { mut actions, later, find_captures, new_nics, .. } = steps;
        if self.network.take_needs_plan() || steps.replan {
            actions.extend(self.settle_ports(now));
        }
        actions.extend(self.update_survey());
        actions.extend(later);
        // Actions that read the kernel lead to further events. They come last, so that no earlier action undoes what
        // follows from those events.
        actions.extend(self.resync(now));
        if find_captures {
            actions.extend(self.find_captures());
        }
        actions.extend(new_nics.into_iter().map(Action::FindOffloads));
        actions
    }

    fn handle_one(&mut self, now: Instant, event: Event, steps: &mut Steps) {
        match event {
            Event::Dump(state) => self.adopt(now, state, steps),
            Event::Overrun(source) => {
                if source == EventSource::Nftables {
                    steps.actions.extend(self.rules_changed(now));
                }
                steps.move_epoch(Cause::Overrun, Scope::Everything);
                self.resync_due = true;
            }
            Event::WantLiberal(connection) if connection.proto == Proto::Tcp => {
                steps.actions.push(Action::SetLiberal(connection));
            }
            Event::WantLiberal(_) => {}
            Event::Silent(silent) => steps.actions.push(Action::KeepSilent(silent)),
            Event::Tick => {
                let actions = self.tick(now, steps);
                steps.actions.extend(actions);
            }
            Event::Correct(correction) => steps.actions.push(Action::Correct(correction)),
            Event::Captures(captures) => {
                steps.replan |= self.captures != captures;
                self.captures = captures;
            }
            Event::Programs(programs) => {
                steps.replan |= self.programs != programs;
                let [asked, known] = &mut self.program_devices;
                let before = std::mem::replace(known, asked.clone());
                self.tell_programs(&programs, &before);
                self.programs = programs;
            }
            Event::External(state) => {
                steps.replan |= self.external != state;
                self.external = state;
            }
            Event::Surveyed(counts) => steps.replan |= self.surveys.counted(now, &counts),
            Event::Rests(rests) => {
                steps.replan |= self.rests != rests;
                self.rests = rests;
            }
            Event::Chosen(choice) => self.choose(choice, steps),
            Event::BridgeCalls(calls) => steps.replan |= self.bridge_calls.replace(calls) != Some(calls),
            Event::Rules => steps.actions.extend(self.rules_changed(now)),
            Event::RulesAt(place) => steps.actions.extend(self.rules_changed_at(now, place)),
            Event::RulesetPath(path) => self.ruleset.set_path(path),
            Event::RulesetRead(statements) => self.ruleset_read(now, Ok(statements), steps),
            Event::RulesetUnread(why) => self.ruleset_read(now, Err(why), steps),
            Event::LegacyRead(statements) => steps.actions.extend(self.legacy_read(Ok(statements))),
            Event::LegacyUnread(why) => steps.actions.extend(self.legacy_read(Err(why))),
            Event::AttachFailed { ifindex } => {
                self.refused.insert(ifindex);
                self.ports.remove(&ifindex);
                // A bridge that the device belongs to now has a port that Shunt does not watch.
                steps.replan = true;
            }
            event => {
                if let Event::Link(link) = &event {
                    steps.replan |= self.refused.remove(&link.ifindex);
                    // Most captures make their device promiscuous, which is reported as a change of the link.
                    steps.find_captures = true;
                    if link.bus.is_some() && self.network.merges(link.ifindex).is_none() {
                        steps.new_nics.insert(link.ifindex);
                    }
                }
                // The event does not say whether the filter was added or removed, nor whether the device has others.
                self.resync_due |= matches!(event, Event::Filter { .. });
                if let Event::Link(link) = &event
                    && let Some(before) = self.network.links.get(&link.ifindex).cloned()
                {
                    self.follow_link(now, &before, link);
                }
                match &event {
                    Event::Qdisc(qdisc) if steps.qdiscs_before.is_none() => self.tell_qdisc(qdisc, false),
                    Event::QdiscGone(qdisc) if steps.qdiscs_before.is_none() => self.tell_qdisc(qdisc, true),
                    Event::Neighbour { ifindex, addr, mac: Some(mac) } => {
                        self.tell_neighbour(*ifindex, *addr, *mac);
                    }
                    _ => {}
                }
                // Before the device is forgotten.
                let told = self.told(now, &event);
                if event.is_default_route() {
                    told.iter().for_each(|change| self.changes.note_default_route(change.clone()));
                }
                if let Some((cause, scope)) = self.network.apply(&event) {
                    self.note_move(&event, (cause, steps.covering(cause, scope)), told, steps);
                    steps.move_epoch(cause, scope);
                    if is_reported_early(&event) {
                        steps.await_kernel(cause, scope);
                    }
                }
            }
        }
    }

    /// Notes what an event is about that moves the epoch.
    fn note_move(
        &mut self,
        event: &Event,
        moves: (Cause, Scope),
        told: Option<ChangeDetails>,
        steps: &Steps,
    ) {
        match event {
            Event::Finished(..) => self.changes.finish(moves),
            // The first change of a default route is the one that moves the epoch.
            _ if event.is_default_route() && steps.moved.contains(&moves) => {}
            Event::Netconf(Netconf::Changed(sysctl)) => {
                let change = told.unwrap_or_default();
                self.changes.note_sysctl(moves, change, |of| sysctl.words_of(of));
            }
            event => self.changes.note(moves, told, is_reported_early(event)),
        }
    }

    /// Follows another configuration.
    fn choose(&mut self, choice: Choice, steps: &mut Steps) {
        if choice == self.choice {
            return;
        }
        if choice.ports != self.choice.ports && !choice.ports.is_empty() {
            let is_named = |ifindex: &u32| {
                self.network.links.get(ifindex).is_some_and(|link| choice.ports.contains(&link.name))
            };
            self.unchosen = self.ports.keys().copied().filter(|ifindex| !is_named(ifindex)).collect();
            self.refused.clear();
        }
        if choice.captures == CaptureChoice::Ignore {
            self.captures.clear();
        }
        self.ruleset.set_limits(choice.limits);
        self.choice = choice;
        steps.find_captures = true;
        steps.replan = true;
    }

    fn adopt(&mut self, now: Instant, state: Vec<Event>, steps: &mut Steps) {
        let before = std::mem::take(&mut self.network);
        for event in &state {
            // The state of a dump is not a change.
            let _ = self.network.apply(event);
        }
        for (ifindex, addr, mac) in self.network.neighbours().collect::<Vec<_>>() {
            self.tell_neighbour(ifindex, addr, mac);
        }
        // If the dump already has the effect of an event that is still to come, that event will change nothing. So the
        // difference to the former state must move the epoch.
        if self.synced_at.replace(now).is_some() {
            steps.qdiscs_before = Some(before.qdiscs().cloned().collect());
            for cause in self.network.difference(&before) {
                self.note_difference(now, cause, &before);
                steps.move_epoch(cause, Scope::Everything);
            }
        }
        self.network.keep_findings(before);
        self.refused.clear();
        steps.replan = true;
        if self.ruleset.is_new() {
            steps.actions.extend(self.rules_changed(now));
        }
    }

    /// Until the changed rules have been read, any of them may have a statement that must see every packet, so nothing
    /// is learned.
    fn rules_changed(&mut self, now: Instant) -> Vec<Action> {
        let read = self.ruleset.handle_change(now).map(|after| Action::ReadRuleset { after });
        self.update_hold().into_iter().chain(read).collect()
    }

    /// Rules that no forwarded packet meets are read, too, but nothing has to wait for that.
    fn rules_changed_at(&mut self, now: Instant, place: RulesPlace) -> Vec<Action> {
        let read = self.ruleset.handle_change_at(now, place).map(|after| Action::ReadRuleset { after });
        self.update_hold().into_iter().chain(read).collect()
    }

    fn ruleset_read(&mut self, now: Instant, result: Result<Vec<Statement>, String>, steps: &mut Steps) {
        steps.later.extend(self.ruleset.handle_read(now, result).map(|after| Action::ReadRuleset { after }));
        steps.replan = true;
    }

    /// Unlike nftables, legacy iptables has no generation event that moves the epoch.
    fn legacy_read(&mut self, result: Result<Vec<Statement>, String>) -> Vec<Action> {
        let changed = self.ruleset.handle_legacy_read(result);
        let mut actions = self.update_hold();
        let moved = Action::MoveEpoch(Cause::Ruleset);
        if changed && !actions.contains(&moved) {
            actions.push(moved);
        }
        actions
    }

    /// Updates the traffic from which nothing is learned, if it has changed.
    fn update_hold(&mut self) -> Vec<Action> {
        let hold = self.ruleset.hold(&self.network, &self.ports);
        let Some(before) = self.held.replace(hold) else { return vec![Action::Hold(hold)] };
        if hold == before {
            return Vec::new();
        }
        let mut actions = vec![Action::Hold(hold)];
        // Flows learned before must end too. After a change of rules, the generation event does that.
        if self.ruleset.is_known() && !before.contains(hold) {
            actions.push(Action::MoveEpoch(Cause::Ruleset));
        }
        actions
    }

    fn resync(&mut self, now: Instant) -> Option<Action> {
        let due = self.resync_due && self.synced_at.is_none_or(|at| now.duration_since(at) >= RESYNC_GAP);
        due.then(|| {
            self.resync_due = false;
            self.synced_at = Some(now);
            Action::Resync
        })
    }

    fn tick(&mut self, now: Instant, steps: &mut Steps) -> Vec<Action> {
        let mut actions = vec![Action::Beat];
        steps.replan |= self.surveys.tick(now);
        steps.replan |= self.await_targets(now);
        if self.surveys.is_running() {
            actions.push(Action::FindSurveyed);
        }
        if self.swept_at.is_none_or(|at| now.duration_since(at) >= SWEEP_GAP) {
            self.swept_at = Some(now);
            actions.push(Action::Sweep);
        }
        actions.extend(self.resync(now));
        // The kernel sends no events about packet sockets, TCX programs, sessions and the sysctls of br_netfilter.
        actions.extend(self.find_captures());
        let devices = self.network.stacks(self.ports.keys().copied());
        self.program_devices[0].clone_from(&devices);
        actions.push(Action::FindPrograms(devices));
        if self.network.has_bridges() {
            actions.push(Action::FindBridgeCalls);
        }
        if self.network.has_ppp() {
            actions.push(Action::FindSessions);
        }
        actions
    }

    /// Gives up on drivers that accept no redirected frames some time after Shunt's XDP program was attached. Returns
    /// whether ports must be planned again.
    fn await_targets(&mut self, now: Instant) -> bool {
        let is_waiting = |ifindex: &u32| {
            let link = self.network.links.get(ifindex);
            let is_ours = |prog| self.own_programs.contains(&prog);
            let attached = link.and_then(|link| link.xdp_prog).is_some_and(is_ours);
            attached && self.network.xdp.get(ifindex).is_some_and(|xdp| !xdp.target)
        };
        let is_veth = |ifindex: &u32| {
            self.network.links.get(ifindex).is_some_and(|link| link.kind.as_deref() == Some("veth"))
        };
        let waiting: BTreeSet<u32> =
            self.ports.keys().copied().filter(|on| is_waiting(on) && !is_veth(on)).collect();
        self.awaited_targets.retain(|ifindex, _| waiting.contains(ifindex));
        let mut changed = false;
        for ifindex in waiting {
            let since = *self.awaited_targets.entry(ifindex).or_insert(now);
            if now.duration_since(since) >= TARGET_TIME {
                changed |= self.network.no_targets.insert(ifindex);
            }
        }
        changed
    }

    /// Begins or ends the survey in the data plane.
    fn update_survey(&mut self) -> Option<Action> {
        let runs = self.surveys.is_running();
        (runs != self.surveying).then(|| {
            self.surveying = runs;
            Action::Survey(runs)
        })
    }

    fn tracking(&self) -> Tracking {
        let all = Some(BridgeCalls { v4: true, v6: true });
        Tracking { rules: self.ruleset.tracks_bridges(), calls: self.bridge_calls.unwrap_or(all) }
    }

    fn find_captures(&self) -> Option<Action> {
        (self.choice.captures == CaptureChoice::Slow).then_some(Action::FindCaptures)
    }
}

#[cfg(test)]
pub(crate) mod tests;
