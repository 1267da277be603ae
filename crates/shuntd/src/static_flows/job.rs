//! Requests of clients about static flows, done in slices.

use super::{Slice, StaticFlows, entry::compile, route_name};
use crate::failures::table_failure;
use shunt_api::{Failure, FailureCode, StaticFlow, StaticKey, StaticRemoval, StaticRoute, StaticTable};
use shunt_bpf::{DataPlane, Entry, Key};
use shunt_core::Core;
use std::{
    collections::{BTreeMap, BTreeSet},
    vec,
};
use tokio::sync::oneshot;

type Reply = oneshot::Sender<Result<u64, Failure>>;

/// A request, and how far it is.
#[derive(Debug)]
pub(super) enum Job {
    Add(Box<Addition>),
    Remove(Box<Removal>),
    List { table: StaticTable, from: u64, reply: Option<oneshot::Sender<StaticTable>> },
}

/// The addition of a table: checks all flows, puts them into the data plane, then keeps them. If a flow cannot be put
/// there, the flows before it are restored.
#[derive(Debug)]
pub(super) struct Addition {
    table: StaticTable,
    /// The routes as they will be; `None` before the first slice.
    routes: Option<BTreeMap<String, StaticRoute>>,
    changed: BTreeSet<String>,
    /// The number of the first earlier flow whose new route is not checked.
    check_from: Option<u64>,
    compiled: Vec<(Key, Entry)>,
    /// How many of these are in the data plane.
    put: usize,
    failure: Option<Failure>,
    /// The flows that are to be kept, once all are in the data plane.
    kept: Option<vec::IntoIter<StaticFlow>>,
    /// Whether the flows have begun to follow the ports and the changed routes, which is done before this goes on.
    follows: bool,
    count: u64,
    reply: Option<Reply>,
}

#[derive(Debug)]
pub(super) struct Removal {
    what: StaticRemoval,
    /// How many of the named flows have been looked up.
    looked_up: usize,
    removed: BTreeSet<StaticKey>,
    /// The number of the first flow whose route is not checked.
    check_from: Option<u64>,
    count: u64,
    reply: Option<Reply>,
}

impl Job {
    pub(super) fn add(table: StaticTable, reply: Reply) -> Self {
        let count = (table.route.len() + table.flow.len()) as u64;
        Self::Add(Box::new(Addition {
            table,
            routes: None,
            changed: BTreeSet::new(),
            check_from: None,
            compiled: Vec::new(),
            put: 0,
            failure: None,
            kept: None,
            follows: false,
            count,
            reply: Some(reply),
        }))
    }

    pub(super) fn remove(what: StaticRemoval, reply: Reply) -> Self {
        let check_from = (!what.route.is_empty() && !what.all).then_some(0);
        Self::Remove(Box::new(Removal {
            what,
            looked_up: 0,
            removed: BTreeSet::new(),
            check_from,
            count: 0,
            reply: Some(reply),
        }))
    }

    pub(super) fn list(reply: oneshot::Sender<StaticTable>) -> Self {
        Self::List { table: StaticTable::default(), from: 0, reply: Some(reply) }
    }

    /// Does a slice. Returns whether the request is answered.
    pub(super) fn work(
        &mut self,
        flows: &mut StaticFlows,
        slice: &mut Slice,
        core: &Core,
        plane: &DataPlane,
    ) -> bool {
        match self {
            Self::Add(addition) => match addition.work(flows, slice, core, plane) {
                true => answer(&mut addition.reply, addition.failure.take().map_or(Ok(addition.count), Err)),
                false => false,
            },
            Self::Remove(removal) => match removal.work(flows, slice, plane) {
                Ok(false) => false,
                Ok(true) => answer(&mut removal.reply, Ok(removal.count)),
                Err(failure) => answer(&mut removal.reply, Err(failure)),
            },
            Self::List { table, from, reply } => {
                for (number, added) in flows.flows.range(*from..) {
                    if slice.is_over() {
                        *from = *number;
                        return false;
                    }
                    table.flow.push(added.flow.clone());
                }
                table.route = flows.routes.values().cloned().collect();
                reply.take().is_none_or(|reply| {
                    // Fails if the client has gone away, which does not matter.
                    let _ = reply.send(std::mem::take(table));
                    true
                })
            }
        }
    }
}

/// Ignores that the client has gone away.
fn answer(reply: &mut Option<Reply>, result: Result<u64, Failure>) -> bool {
    if let Some(reply) = reply.take() {
        let _ = reply.send(result);
    }
    true
}

impl Addition {
    /// Returns whether all is done, or undone.
    fn work(&mut self, flows: &mut StaticFlows, slice: &mut Slice, core: &Core, plane: &DataPlane) -> bool {
        if self.failure.is_none() {
            match self.advance(flows, slice, core, plane) {
                Ok(done) => return done,
                Err(failure) => self.failure = Some(failure),
            }
        }
        self.undo(flows, slice, core, plane)
    }

    fn advance(
        &mut self,
        flows: &mut StaticFlows,
        slice: &mut Slice,
        core: &Core,
        plane: &DataPlane,
    ) -> Result<bool, Failure> {
        if self.routes.is_none() {
            self.set_routes(flows);
        }
        if !(self.check_earlier(flows, slice, core, plane)? && self.compile(slice, core, plane)?) {
            return Ok(false);
        }
        while let Some((key, entry)) = self.compiled.get(self.put).filter(|_| self.kept.is_none()) {
            if slice.is_over() {
                return Ok(false);
            }
            plane.put_flow(key, entry).map_err(|error| table_failure(&error))?;
            self.put += 1;
        }
        if self.kept.is_none() {
            flows.routes = self.routes.clone().unwrap_or_default();
            self.kept = Some(std::mem::take(&mut self.table.flow).into_iter());
        }
        let kept = self.kept.iter_mut().flatten().zip(&self.compiled[self.compiled.len() - self.put..]);
        for (flow, (key, _)) in kept {
            flows.insert(flow, Some(*key));
            self.put -= 1;
            if slice.is_over() {
                return Ok(false);
            }
        }
        // Ports may have changed meanwhile, and earlier flows may use a route that has.
        if !self.follows {
            self.follows = true;
            flows.follow_ports();
            return Ok(false);
        }
        Ok(true)
    }

    fn set_routes(&mut self, flows: &StaticFlows) {
        let mut routes = flows.routes.clone();
        for route in &self.table.route {
            if routes.insert(route.name.clone(), route.clone()).is_some_and(|before| before != *route) {
                self.changed.insert(route.name.clone());
            }
        }
        self.check_from = (!self.changed.is_empty()).then_some(0);
        self.routes = Some(routes);
    }

    /// Checks the earlier flows that use a route which changes. Returns whether all are checked.
    fn check_earlier(
        &mut self,
        flows: &StaticFlows,
        slice: &mut Slice,
        core: &Core,
        plane: &DataPlane,
    ) -> Result<bool, Failure> {
        let (Some(from), Some(routes)) = (self.check_from, &self.routes) else { return Ok(true) };
        for (number, added) in flows.flows.range(from..) {
            if slice.is_over() {
                self.check_from = Some(*number);
                return Ok(false);
            }
            if route_name(&added.flow).is_some_and(|route| self.changed.contains(route)) {
                compile(&added.flow, routes, core, plane)?;
            }
        }
        self.check_from = None;
        Ok(true)
    }

    /// Returns whether all flows are compiled.
    fn compile(&mut self, slice: &mut Slice, core: &Core, plane: &DataPlane) -> Result<bool, Failure> {
        let Some(routes) = &self.routes else { return Ok(true) };
        while let Some(flow) = self.table.flow.get(self.compiled.len()) {
            if slice.is_over() {
                return Ok(false);
            }
            self.compiled.push(compile(flow, routes, core, plane)?);
        }
        Ok(true)
    }

    /// Puts back the entries that have been replaced, and removes those that had no predecessor. Returns whether all is
    /// undone.
    fn undo(&mut self, flows: &StaticFlows, slice: &mut Slice, core: &Core, plane: &DataPlane) -> bool {
        while self.put > 0 {
            if slice.is_over() {
                return false;
            }
            self.put -= 1;
            let (Some(flow), Some((key, _))) = (self.table.flow.get(self.put), self.compiled.get(self.put))
            else {
                continue;
            };
            let before = flows
                .get(&flow.key())
                .and_then(|added| compile(&added.flow, &flows.routes, core, plane).ok());
            // Cannot fail for want of room: the former entry was in the table until now.
            let _ = match before {
                Some((key, entry)) => plane.put_flow(&key, &entry),
                None => plane.remove_flow(key),
            };
        }
        true
    }
}

impl Removal {
    /// Returns whether all is done.
    fn work(
        &mut self,
        flows: &mut StaticFlows,
        slice: &mut Slice,
        plane: &DataPlane,
    ) -> Result<bool, Failure> {
        while let Some(key) = self.what.flow.get(self.looked_up).filter(|_| !self.what.all) {
            if slice.is_over() {
                return Ok(false);
            }
            if flows.numbers.contains_key(key) {
                self.removed.insert(key.clone());
            }
            self.looked_up += 1;
        }
        if !self.check_routes(flows, slice)? {
            return Ok(false);
        }
        while let Some(key) = self.next(flows) {
            if let Some(number) = flows.numbers.remove(&key) {
                let placed = flows.flows.remove(&number).and_then(|added| added.placed);
                self.count += 1;
                if let Some(key) = placed {
                    plane.remove_flow(&key).map_err(|error| table_failure(&error))?;
                }
            }
            if slice.is_over() {
                return Ok(false);
            }
        }
        let before = flows.routes.len();
        flows.routes.retain(|name, _| !self.what.all && !self.what.route.contains(name));
        self.count += (before - flows.routes.len()) as u64;
        Ok(true)
    }

    /// The next flow to remove.
    fn next(&mut self, flows: &StaticFlows) -> Option<StaticKey> {
        if self.what.all {
            return flows.numbers.keys().next().cloned();
        }
        self.removed.pop_first()
    }

    /// Fails if a flow that stays uses a route that goes. Returns whether all flows are checked.
    fn check_routes(&mut self, flows: &StaticFlows, slice: &mut Slice) -> Result<bool, Failure> {
        let Some(from) = self.check_from else { return Ok(true) };
        for (number, added) in flows.flows.range(from..) {
            if slice.is_over() {
                self.check_from = Some(*number);
                return Ok(false);
            }
            let used =
                route_name(&added.flow).filter(|name| self.what.route.iter().any(|route| route == name));
            if let Some(name) = used.filter(|_| !self.removed.contains(&added.flow.key())) {
                return Err(Failure::new(
                    FailureCode::BadRequest,
                    format!("route `{name}` is in use by flow {}; remove the flow first", added.flow.key()),
                ));
            }
        }
        self.check_from = None;
        Ok(true)
    }
}
