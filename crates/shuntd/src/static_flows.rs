//! Static flows and routes: keeps them as they were added, and in the data plane while their ports exist.

use crate::{failures::table_failure, flow_entry::flow_key};
use shunt_api::{
    Engine, Failure, FailureCode, Proto, RouteChoice, StaticFlow, StaticKey, StaticRemoval, StaticRoute,
    StaticTable, Tuple,
};
use shunt_bpf::{
    DataPlane, Entry, Key,
    abi::{self, Flow},
    core::{Ends, translate},
};
use shunt_core::{CompiledFlow, Core, compile_static_flow};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    net::IpAddr,
};

/// The static flows and routes, as they were added.
#[derive(Debug, Default)]
pub(crate) struct StaticFlows {
    routes: BTreeMap<String, StaticRoute>,
    flows: HashMap<StaticKey, Added>,
    /// How many flows have been added since the start; gives each flow its number.
    additions: u64,
}

#[derive(Debug)]
struct Added {
    /// Flows are listed in the order of these numbers.
    number: u64,
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

impl StaticFlows {
    /// Adds or replaces all routes and flows of the table, or none of them. Returns how many the table has.
    pub(crate) fn add(
        &mut self,
        table: &StaticTable,
        core: &Core,
        plane: &DataPlane,
    ) -> Result<u64, Failure> {
        let mut routes = self.routes.clone();
        let mut changed = HashSet::new();
        for route in &table.route {
            if routes.insert(route.name.clone(), route.clone()).is_some_and(|before| before != *route) {
                changed.insert(route.name.as_str());
            }
        }
        // Earlier flows that use a route which changes are compiled anew.
        let uses_changed = |flow: &&StaticFlow| route_name(flow).is_some_and(|route| changed.contains(route));
        let recompiled = self.flows.values().map(|added| &added.flow).filter(uses_changed);
        let flows: Vec<&StaticFlow> = recompiled.chain(&table.flow).collect();
        let compiled =
            flows.iter().map(|flow| compile(flow, &routes, core, plane)).collect::<Result<Vec<_>, _>>()?;
        for (done, (key, entry)) in compiled.iter().enumerate() {
            if let Err(error) = plane.put_flow(key, entry) {
                for (flow, (key, _)) in flows.iter().zip(&compiled[..done]) {
                    self.restore(&flow.key(), key, core, plane);
                }
                return Err(table_failure(&error));
            }
        }
        let placed: HashMap<StaticKey, Key> =
            flows.iter().zip(&compiled).map(|(flow, (key, _))| (flow.key(), *key)).collect();
        self.routes = routes;
        for flow in &table.flow {
            self.additions += 1;
            let placed = placed.get(&flow.key()).copied();
            self.flows.insert(flow.key(), Added { number: self.additions, flow: flow.clone(), placed });
        }
        Ok((table.route.len() + table.flow.len()) as u64)
    }

    /// Puts back the entry that a failed addition has replaced, or removes the entry if there was none.
    fn restore(&self, key: &StaticKey, compiled: &Key, core: &Core, plane: &DataPlane) {
        let before =
            self.flows.get(key).and_then(|added| compile(&added.flow, &self.routes, core, plane).ok());
        // Cannot fail for want of room: the former entry was in the table until now.
        let _ = match before {
            Some((key, entry)) => plane.put_flow(&key, &entry),
            None => plane.remove_flow(compiled),
        };
    }

    /// Removes the named flows and routes, and returns how many there were. Fails if a flow that stays uses a route
    /// that is to be removed.
    pub(crate) fn remove(&mut self, removal: &StaticRemoval, plane: &DataPlane) -> Result<u64, Failure> {
        let removed: HashSet<StaticKey> = if removal.all {
            self.flows.keys().cloned().collect()
        } else {
            removal.flow.iter().filter(|key| self.flows.contains_key(key)).cloned().collect()
        };
        let routes: HashSet<&str> = removal.route.iter().map(String::as_str).collect();
        for (key, added) in self.flows.iter().filter(|(key, _)| !removed.contains(key)) {
            if let Some(name) = route_name(&added.flow).filter(|name| routes.contains(name)) {
                return Err(Failure::new(
                    FailureCode::BadRequest,
                    format!("route `{name}` is in use by flow {key}; remove the flow first"),
                ));
            }
        }
        for key in removed.iter().filter_map(|key| self.flows.get(key)?.placed) {
            plane.remove_flow(&key).map_err(|e| table_failure(&e))?;
        }
        let routes_before = self.routes.len();
        self.routes.retain(|name, _| !removal.all && !removal.route.contains(name));
        self.flows.retain(|key, _| !removed.contains(key));
        Ok((removed.len() + routes_before - self.routes.len()) as u64)
    }

    /// Makes the data plane's entries follow the ports: updates them when a port changes its engine, removes them while a
    /// port is absent, and puts them back when the port returns.
    pub(crate) fn follow_ports(&mut self, core: &Core, plane: &DataPlane) {
        for (name, added) in &mut self.flows {
            let target = compile(&added.flow, &self.routes, core, plane).ok();
            if let Some(key) =
                added.placed.take_if(|key| target.as_ref().is_none_or(|(target, _)| target != key))
            {
                if let Err(error) = plane.remove_flow(&key) {
                    tracing::warn!("cannot remove static flow {name} from the flow table: {error}");
                }
            }
            let Some((key, entry)) = target else { continue };
            if added.placed.is_some()
                && plane.flow(&key).is_ok_and(|have| have.is_some_and(|have| has_same_action(&have, &entry)))
            {
                continue;
            }
            match plane.put_flow(&key, &entry) {
                Ok(()) => added.placed = Some(key),
                Err(error) => tracing::warn!("cannot put static flow {name} into the flow table: {error}"),
            }
        }
    }

    /// All static routes and flows. Flows are in the order in which they were added.
    pub(crate) fn table(&self) -> StaticTable {
        let mut flows: Vec<&Added> = self.flows.values().collect();
        flows.sort_unstable_by_key(|added| added.number);
        let flow = flows.into_iter().map(|added| added.flow.clone()).collect();
        StaticTable { route: self.routes.values().cloned().collect(), flow }
    }
}

/// Whether two entries do the same to packets, whatever they have counted.
fn has_same_action(a: &Entry, b: &Entry) -> bool {
    let action = |entry: &Entry| Flow { seen_ticks: 0, pkts: 0, bytes: 0, tcp_position: 0, ..entry.flow };
    action(a) == action(b) && a.to == b.to
}

fn compile(
    flow: &StaticFlow,
    routes: &BTreeMap<String, StaticRoute>,
    core: &Core,
    plane: &DataPlane,
) -> Result<(Key, Entry), Failure> {
    let compiled = compile_static_flow(flow, routes, core, |ifindex| plane.slot(ifindex))?;
    Ok((table_key(flow, compiled.in_ifindex), table_entry(flow, &compiled)))
}

/// The key of a flow whose addresses are of one family.
fn table_key(flow: &StaticFlow, ifindex: u32) -> Key {
    let mut tags = [0; 2];
    for (tag, id) in tags.iter_mut().zip(&flow.in_vlans) {
        *tag = abi::TAG_PRESENT | id;
    }
    if flow.in_vlans.len() == 2 {
        tags[0] |= abi::TAG_8021AD;
    }
    let l4_proto = match flow.proto {
        Proto::Tcp => 6,
        Proto::Udp => 17,
    };
    flow_key(&flow.tuple(), ifindex, tags, l4_proto)
}

fn table_entry(flow: &StaticFlow, compiled: &CompiledFlow) -> Entry {
    let mut l2 = [0; abi::L2_MAX];
    l2[..compiled.l2.len()].copy_from_slice(&compiled.l2);
    let action = Flow {
        state: abi::FLOW_ACTIVE,
        flags: abi::FLOW_STATIC
            | if compiled.engine == Engine::Tc { 0 } else { abi::FLOW_XDP }
            | if compiled.partial { abi::FLOW_PARTIAL } else { 0 },
        out_tags: compiled.out_tags,
        max_l3_bytes: compiled.max_l3_bytes,
        in_dmac: compiled.in_dmac.0,
        l2,
        out_slot: compiled.out_slot,
        in_slot: compiled.in_slot,
        mark: flow.mark,
        priority: flow.priority,
        ..Flow::default()
    };
    let mut entry = Entry { flow: action, ..Entry::default() };
    if let (Some(old), Some(new)) = (ends(&flow.tuple()), ends(&compiled.new)) {
        translate(&old, &new, &mut entry);
    }
    entry
}

/// Addresses and ports in the order of the packet headers; `None` if the addresses are of two families.
fn ends(tuple: &Tuple) -> Option<Ends> {
    let ports = [tuple.sport.to_be_bytes(), tuple.dport.to_be_bytes()].concat();
    match (tuple.src, tuple.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let bytes = [&src.octets()[..], &dst.octets(), &ports].concat();
            bytes.try_into().ok().map(Ends::V4)
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let bytes = [&src.octets()[..], &dst.octets(), &ports].concat();
            bytes.try_into().ok().map(Ends::V6)
        }
        _ => None,
    }
}
