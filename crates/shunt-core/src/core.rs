//! The one owner of the daemon's state.

use crate::{Action, Cause, Choice, Event, PortView, network::Network};
use shunt_api::Proto;
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
    /// Devices that could not be attached to; tried again when they change.
    refused: BTreeSet<u32>,
    drivers: BTreeMap<u32, String>,
    /// Ids of our own XDP programs.
    own_programs: BTreeSet<u32>,
    synced_at: Option<Instant>,
    resync_due: bool,
    swept_at: Option<Instant>,
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
            Event::Overrun(_) => {
                let mut actions = vec![Action::MoveEpoch(Cause::Overrun)];
                self.resync_due = true;
                actions.extend(self.resync(now));
                actions
            }
            Event::WantLiberal(connection) if connection.proto == Proto::Tcp => {
                vec![Action::SetLiberal(connection)]
            }
            Event::WantLiberal(_) => Vec::new(),
            Event::Tick => self.tick(now),
            Event::AttachFailed { ifindex } => {
                self.refused.insert(ifindex);
                self.ports.remove(&ifindex);
                Vec::new()
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
                actions
            }
        }
    }

    /// The name of a device's driver, where that matters for checksums.
    pub fn set_driver(&mut self, ifindex: u32, driver: String) {
        self.drivers.insert(ifindex, driver);
    }

    /// The ports, by ifindex.
    pub fn ports(&self) -> impl Iterator<Item = (&crate::Link, &PortView)> {
        self.ports.iter().filter_map(|(ifindex, view)| Some((self.network.links.get(ifindex)?, view)))
    }

    /// What XDP can do with a device: run native programs, take redirected frames. None where nobody said.
    pub fn xdp(&self, ifindex: u32) -> Option<(bool, bool)> {
        self.network.xdp.get(&ifindex).copied()
    }

    /// A device by its name.
    pub fn link(&self, name: &str) -> Option<&crate::Link> {
        self.network.links.values().find(|link| link.name == name)
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
        self.settle()
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
        actions
    }

    /// The steps from the ports as they are to the ports as they should be; none when they agree.
    fn settle(&mut self) -> Vec<Action> {
        let own = &self.own_programs;
        let mut want =
            self.choice.plan(&self.network, &self.drivers, &|prog| own.contains(&prog), &self.ports);
        want.retain(|ifindex, _| !self.refused.contains(ifindex));
        let mut actions = Vec::new();
        for ifindex in self.ports.keys().filter(|ifindex| !want.contains_key(ifindex)) {
            actions.push(Action::Detach { ifindex: *ifindex });
        }
        let mut moved = !actions.is_empty();
        for (ifindex, view) in &want {
            match self.ports.get(ifindex) {
                None => actions.push(Action::Attach(view.setting)),
                Some(have) if have.setting != view.setting => {
                    actions.push(Action::Set(view.setting));
                    moved |= have.setting.engine != view.setting.engine;
                }
                Some(_) => {}
            }
        }
        if moved {
            actions.push(Action::MoveEpoch(Cause::Engine));
        }
        self.ports = want;
        actions
    }
}

#[cfg(test)]
mod tests;
