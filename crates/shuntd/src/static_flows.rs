//! Static flows and routes: keeps them as they were added, and in the data plane while their ports exist.
//!
//! There may be hundreds of thousands, so all work on them is done in slices, between which the event loop does
//! everything else.

mod entry;
mod job;

use entry::{compile, has_same_action};
use job::Job;
use shunt_api::{Failure, RouteChoice, StaticFlow, StaticKey, StaticRemoval, StaticRoute, StaticTable};
use shunt_bpf::{DataPlane, Key};
use shunt_core::Core;
use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

/// The time that a slice may take.
const SLICE: Duration = Duration::from_millis(2);
/// Flows that are handled between two looks at the clock.
const BETWEEN_LOOKS: usize = 16;

/// The static flows and routes, as they were added, and the work on them that is left to do.
#[derive(Debug, Default)]
pub(crate) struct StaticFlows {
    routes: BTreeMap<String, StaticRoute>,
    /// By the number of their addition, in which order they are listed.
    flows: BTreeMap<u64, Added>,
    numbers: BTreeMap<StaticKey, u64>,
    /// How many flows have been added since the start.
    additions: u64,
    /// The number of the first flow that has not followed the last change of ports; `None` if all have.
    follow_from: Option<u64>,
    /// Requests of clients, oldest first.
    jobs: VecDeque<Job>,
}

#[derive(Debug)]
struct Added {
    flow: StaticFlow,
    /// The flow's key in the data plane; `None` while one of its ports is absent.
    placed: Option<Key>,
}

/// The route that a flow names; `None` if the flow spells its next hop out.
fn route_name(flow: &StaticFlow) -> Option<&str> {
    match &flow.route {
        RouteChoice::Named(name) => Some(name),
        RouteChoice::Inline(_) => None,
    }
}

/// The end of a slice.
struct Slice {
    end: Instant,
    done: usize,
}

impl Slice {
    fn new() -> Self {
        Self { end: Instant::now() + SLICE, done: 0 }
    }

    /// Counts a flow. Returns whether the slice is over.
    fn is_over(&mut self) -> bool {
        self.done += 1;
        self.done.is_multiple_of(BETWEEN_LOOKS) && Instant::now() >= self.end
    }
}

impl StaticFlows {
    /// Adds or replaces all routes and flows of the table, or none of them. The answer is how many the table has.
    pub(crate) fn add(&mut self, table: StaticTable, reply: oneshot::Sender<Result<u64, Failure>>) {
        self.jobs.push_back(Job::add(table, reply));
    }

    /// Removes the named flows and routes. The answer is how many there were, or a failure if a flow that stays uses a
    /// route that is to be removed.
    pub(crate) fn remove(&mut self, removal: StaticRemoval, reply: oneshot::Sender<Result<u64, Failure>>) {
        self.jobs.push_back(Job::remove(removal, reply));
    }

    /// Lists all static routes and flows. Flows are in the order in which they were added.
    pub(crate) fn list(&mut self, reply: oneshot::Sender<StaticTable>) {
        self.jobs.push_back(Job::list(reply));
    }

    /// Makes the data plane's entries follow the ports: updates them when a port changes its engine, removes them while
    /// a port is absent, and puts them back when the port returns.
    pub(crate) fn follow_ports(&mut self) {
        if !self.flows.is_empty() {
            self.follow_from = Some(0);
        }
    }

    /// Whether nothing is left to do.
    pub(crate) fn is_idle(&self) -> bool {
        self.follow_from.is_none() && self.jobs.is_empty()
    }

    /// Whether an entry in the data plane may name a port that has gone.
    pub(crate) fn may_name_ports(&self) -> bool {
        !self.flows.is_empty() || !self.jobs.is_empty()
    }

    /// Returns at once if there is something to do; never otherwise. May be dropped at any time.
    pub(crate) async fn due(&self) {
        if self.is_idle() {
            std::future::pending::<()>().await;
        }
    }

    /// Does a slice of what is left to do: changes of ports first.
    pub(crate) fn work(&mut self, core: &Core, plane: &DataPlane) {
        let mut slice = Slice::new();
        if let Some(from) = self.follow_from {
            self.follow_from = self.follow(from, &mut slice, core, plane);
            return;
        }
        let Some(mut job) = self.jobs.pop_front() else { return };
        if !job.work(self, &mut slice, core, plane) {
            self.jobs.push_front(job);
        }
    }

    /// Returns the number of the flow with which to go on; `None` at the end.
    fn follow(&mut self, from: u64, slice: &mut Slice, core: &Core, plane: &DataPlane) -> Option<u64> {
        let Self { flows, routes, .. } = self;
        for (number, added) in flows.range_mut(from..) {
            if slice.is_over() {
                return Some(*number);
            }
            added.follow(routes, core, plane);
        }
        None
    }

    fn get(&self, key: &StaticKey) -> Option<&Added> {
        self.flows.get(self.numbers.get(key)?)
    }

    fn insert(&mut self, flow: StaticFlow, placed: Option<Key>) {
        self.additions += 1;
        if let Some(former) = self.numbers.insert(flow.key(), self.additions) {
            self.flows.remove(&former);
        }
        self.flows.insert(self.additions, Added { flow, placed });
    }
}

impl Added {
    fn follow(&mut self, routes: &BTreeMap<String, StaticRoute>, core: &Core, plane: &DataPlane) {
        let target = compile(&self.flow, routes, core, plane).ok();
        let is_other = |key: &mut Key| target.as_ref().is_none_or(|(target, _)| target != key);
        if let Some(key) = self.placed.take_if(is_other)
            && let Err(error) = plane.remove_flow(&key)
        {
            let name = self.flow.key();
            tracing::warn!("cannot remove static flow {name} from the flow table: {error}");
        }
        let Some((key, entry)) = target else { return };
        if self.placed.is_some()
            && plane.flow(&key).is_ok_and(|have| have.is_some_and(|have| has_same_action(&have, &entry)))
        {
            return;
        }
        match plane.put_flow(&key, &entry) {
            Ok(()) => self.placed = Some(key),
            Err(error) => {
                let name = self.flow.key();
                tracing::warn!("cannot put static flow {name} into the flow table: {error}");
            }
        }
    }
}
