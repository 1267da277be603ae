//! The one owner of the daemon's state.

use crate::{
    Action, BridgeCalls, Cause, Choice, Event, Hold, PortView, Program, Source, Statement, bridges::Tracking,
    network::Network, ports, ruleset::Ruleset,
};
use shunt_api::{CaptureChoice, Proto, RulesetStatus};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

/// Between two reads of the whole state.
const RESYNC_GAP: Duration = Duration::from_secs(1);
/// Between two walks over the flow tables.
const SWEEP_GAP: Duration = Duration::from_secs(1);

/// The policy. See [`Core::handle`].
#[derive(Debug, Default)]
pub struct Core {
    choice: Choice,
    network: Network,
    ports: BTreeMap<u32, PortView>,
    /// Devices that could not be attached to; tried again when they change, or a port goes.
    refused: BTreeSet<u32>,
    /// Devices on which somebody captures; 0 is all.
    captures: BTreeSet<u32>,
    /// TCX programs of others.
    programs: BTreeSet<Program>,
    /// Ids of our own XDP programs.
    own_programs: BTreeSet<u32>,
    /// What the sysctls of br_netfilter said last. Until they are known, bridges call for everything.
    bridge_calls: Option<Option<BridgeCalls>>,
    synced_at: Option<Instant>,
    resync_due: bool,
    swept_at: Option<Instant>,
    ruleset: Ruleset,
    /// What the data plane was told last.
    held: Option<Hold>,
}

impl Core {
    /// A policy that knows nothing yet but what the operator chose, and which XDP programs are our own.
    pub fn new(choice: Choice, own_programs: impl IntoIterator<Item = u32>) -> Self {
        Self { choice, own_programs: own_programs.into_iter().collect(), ..Self::default() }
    }

    /// What to do, now that `event` has happened.
    pub fn handle(&mut self, now: Instant, event: Event) -> Vec<Action> {
        match event {
            Event::Dump(state) => self.adopt(now, state),
            Event::Overrun(source) => {
                let mut actions = Vec::new();
                if source == Source::Nftables {
                    actions.extend(self.rules_changed(now));
                }
                actions.push(Action::MoveEpoch(Cause::Overrun));
                self.resync_due = true;
                actions.extend(self.resync(now));
                actions
            }
            Event::WantLiberal(connection) if connection.proto == Proto::Tcp => {
                vec![Action::SetLiberal(connection)]
            }
            Event::WantLiberal(_) => Vec::new(),
            Event::Silent(silent) => vec![Action::KeepSilent(silent)],
            Event::Tick => self.tick(now),
            Event::Captures(captures) => {
                self.captures = captures;
                self.settle()
            }
            Event::Programs(programs) => {
                self.programs = programs;
                self.settle()
            }
            Event::BridgeCalls(calls) => {
                self.bridge_calls = Some(calls);
                self.settle()
            }
            Event::Rules => self.rules_changed(now),
            Event::RulesetRead(statements) => self.ruleset_read(now, Ok(statements)),
            Event::RulesetUnread(why) => self.ruleset_read(now, Err(why)),
            Event::LegacyRead(statements) => self.legacy_read(Ok(statements)),
            Event::LegacyUnread(why) => self.legacy_read(Err(why)),
            Event::AttachFailed { ifindex } => {
                self.refused.insert(ifindex);
                self.ports.remove(&ifindex);
                // The bridge that it is a port of has one now that is not seen.
                self.settle()
            }
            other => {
                if let Event::Link(link) = &other {
                    self.refused.remove(&link.ifindex);
                }
                let mut actions: Vec<Action> =
                    self.network.learn(&other).map(Action::MoveEpoch).into_iter().collect();
                actions.extend(self.settle());
                // It does not say whether the device has other filters, nor whether this one came or went.
                if matches!(other, Event::Filter { .. }) {
                    self.resync_due = true;
                    actions.extend(self.resync(now));
                }
                // Most captures make their device promiscuous, and that is told as a change of the link.
                if matches!(other, Event::Link(_)) {
                    actions.extend(self.find_captures());
                }
                actions
            }
        }
    }

    /// The ports, by ifindex.
    pub fn ports(&self) -> impl Iterator<Item = (&crate::Link, &PortView)> {
        self.ports.iter().filter_map(|(ifindex, view)| Some((self.network.links.get(ifindex)?, view)))
    }

    /// What XDP can do with a device: run native programs, take redirected frames. None where nobody said.
    pub fn xdp(&self, ifindex: u32) -> Option<(bool, bool)> {
        self.network.xdp.get(&ifindex).copied()
    }

    /// How long the bridges of the ports know a silent station at least, where they have to see it.
    pub fn ageing(&self) -> Option<Duration> {
        self.network.ageing(self.ports.keys().copied())
    }

    /// All devices.
    pub fn links(&self) -> impl Iterator<Item = &crate::Link> {
        self.network.links.values()
    }

    /// What the firewall's rules mean for the fast path.
    pub fn ruleset(&self) -> RulesetStatus {
        self.ruleset.view(&self.network, &self.ports)
    }

    /// A device by its name.
    pub fn link(&self, name: &str) -> Option<&crate::Link> {
        self.network.links.values().find(|link| link.name == name)
    }

    /// Why a device can be no port, and what to name instead; none of one that can.
    pub fn unfit(&self, link: &crate::Link) -> Option<String> {
        ports::unfit(&self.network, link)
    }

    /// A device by its number.
    pub fn link_at(&self, ifindex: u32) -> Option<&crate::Link> {
        self.network.links.get(&ifindex)
    }

    fn adopt(&mut self, now: Instant, state: Vec<Event>) -> Vec<Action> {
        self.network = Network::default();
        for event in &state {
            // What is there is no change.
            let _ = self.network.learn(event);
        }
        self.synced_at = Some(now);
        self.refused.clear();
        let mut actions = if self.ruleset.is_new() { self.rules_changed(now) } else { Vec::new() };
        actions.extend(self.settle());
        actions
    }

    /// Until the rules have been read, one of them may be of the kind that must see every packet: so nothing is learned.
    fn rules_changed(&mut self, now: Instant) -> Vec<Action> {
        let read = self.ruleset.changed(now).map(|after| Action::ReadRuleset { after });
        self.hold().into_iter().chain(read).collect()
    }

    fn ruleset_read(&mut self, now: Instant, result: Result<Vec<Statement>, String>) -> Vec<Action> {
        let again = self.ruleset.read(now, result).map(|after| Action::ReadRuleset { after });
        self.settle().into_iter().chain(again).collect()
    }

    /// It has no generation that would have moved the epoch.
    fn legacy_read(&mut self, result: Result<Vec<Statement>, String>) -> Vec<Action> {
        let changed = self.ruleset.legacy_read(result);
        let mut actions = self.hold();
        let moved = Action::MoveEpoch(Cause::Ruleset);
        if changed && !actions.contains(&moved) {
            actions.push(moved);
        }
        actions
    }

    /// Tells what must not be learned, where that is news.
    fn hold(&mut self) -> Vec<Action> {
        let want = self.ruleset.hold(&self.network, &self.ports);
        let Some(before) = self.held.replace(want) else { return vec![Action::Hold(want)] };
        if want == before {
            return Vec::new();
        }
        let mut actions = vec![Action::Hold(want)];
        // What was learned before must end, too. A change of rules has its generation for that.
        if self.ruleset.is_known() && want.exceeds(before) {
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

    fn tick(&mut self, now: Instant) -> Vec<Action> {
        let mut actions = vec![Action::Beat];
        if self.swept_at.is_none_or(|at| now.duration_since(at) >= SWEEP_GAP) {
            self.swept_at = Some(now);
            actions.push(Action::Sweep);
        }
        actions.extend(self.resync(now));
        // Nobody tells of packet sockets, nor of TCX programs.
        actions.extend(self.find_captures());
        actions.push(Action::FindPrograms(self.network.stacks(self.ports.keys().copied())));
        // Nor of these sysctls.
        if self.network.has_bridges() {
            actions.push(Action::FindBridgeCalls);
        }
        actions
    }

    fn tracking(&self) -> Tracking {
        let all = Some(BridgeCalls { v4: true, v6: true });
        Tracking { rules: self.ruleset.tracks_bridges(), calls: self.bridge_calls.unwrap_or(all) }
    }

    fn find_captures(&self) -> Option<Action> {
        (self.choice.captures == CaptureChoice::Slow).then_some(Action::FindCaptures)
    }

    /// The steps from the ports as they are to the ports as they should be; none when they agree.
    fn settle(&mut self) -> Vec<Action> {
        let own = &self.own_programs;
        let mut want = self.choice.plan(
            &self.network,
            &self.captures,
            &self.programs,
            &|prog| own.contains(&prog),
            &self.ports,
        );
        let gone: Vec<u32> =
            self.ports.keys().copied().filter(|ifindex| !want.contains_key(ifindex)).collect();
        if !gone.is_empty() {
            // There may be room for them now.
            self.refused.clear();
        }
        want.retain(|ifindex, _| !self.refused.contains(ifindex));
        let (seen, tracking) = (self.network.stacks(want.keys().copied()), self.tracking());
        for (ifindex, view) in &mut want {
            view.setting.bridged = self.network.bridged(*ifindex, &seen, tracking);
        }
        let mut actions: Vec<Action> = gone.into_iter().map(|ifindex| Action::Detach { ifindex }).collect();
        let mut moved = (!actions.is_empty()).then_some(Cause::Engine);
        for (ifindex, view) in &want {
            match self.ports.get(ifindex) {
                None => actions.push(Action::Attach(view.setting)),
                Some(have) if have.setting != view.setting => {
                    actions.push(Action::Set(view.setting));
                    if have.setting.engine != view.setting.engine {
                        moved = Some(Cause::Engine);
                    } else if view.setting.captured && !have.setting.captured {
                        moved = moved.or(Some(Cause::Capture));
                    } else if view.setting.filtered && !have.setting.filtered
                        || view.setting.filtered_out && !have.setting.filtered_out
                    {
                        moved = moved.or(Some(Cause::Filter));
                    } else if view.setting.bridged != have.setting.bridged {
                        moved = moved.or(Some(Cause::Bridge));
                    }
                }
                Some(_) => {}
            }
        }
        // After the settings: what is learned from now on knows them.
        actions.extend(moved.map(Action::MoveEpoch));
        self.ports = want;
        actions.extend(self.hold());
        actions
    }
}

#[cfg(test)]
pub(crate) mod tests;
