//! Flows and routes put in by hand.

use crate::{daemon::full, start::no_device};
use shunt_api::{
    Failure, FailureCode, Hop, Proto, RouteChoice, StaticFlow, StaticKey, StaticRemoval, StaticRoute,
    StaticTable, Tuple,
};
use shunt_bpf::{
    DataPlane, Entry, Key,
    abi::{self, Flow, Key4, Key6},
    core::{Ends, translate},
};
use shunt_core::{Core, Link};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    net::IpAddr,
};

/// What was put in, as it was written.
#[derive(Debug, Default)]
pub(crate) struct Statics {
    routes: BTreeMap<String, StaticRoute>,
    flows: HashMap<StaticKey, Put>,
    /// How many flows were ever put in.
    count: u64,
}

#[derive(Debug)]
struct Put {
    number: u64,
    flow: StaticFlow,
    /// Where it is in the data plane; none while a port of it is away.
    placed: Option<Key>,
}

fn wrong(why: impl Into<String>) -> Failure {
    Failure::new(FailureCode::BadRequest, why)
}

fn route_of(flow: &StaticFlow) -> Option<&str> {
    match &flow.route {
        RouteChoice::Named(name) => Some(name),
        RouteChoice::Inline(_) => None,
    }
}

impl Statics {
    /// Adds or replaces everything in the table, or nothing.
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
        // A route that changes takes the flows along that were put on it earlier.
        let moves = |flow: &&StaticFlow| route_of(flow).is_some_and(|route| changed.contains(route));
        let taken_along = self.flows.values().map(|put| &put.flow).filter(moves);
        let flows: Vec<&StaticFlow> = taken_along.chain(&table.flow).collect();
        let compiled =
            flows.iter().map(|flow| compile(flow, &routes, core, plane)).collect::<Result<Vec<_>, _>>()?;
        for (done, (key, entry)) in compiled.iter().enumerate() {
            if let Err(error) = plane.put_flow(key, entry) {
                for (flow, (key, _)) in flows.iter().zip(&compiled[..done]) {
                    self.restore(&flow.key(), key, core, plane);
                }
                return Err(full(&error));
            }
        }
        let placed: HashMap<StaticKey, Key> =
            flows.iter().zip(&compiled).map(|(flow, (key, _))| (flow.key(), *key)).collect();
        self.routes = routes;
        for flow in &table.flow {
            self.count += 1;
            let put =
                Put { number: self.count, flow: flow.clone(), placed: placed.get(&flow.key()).copied() };
            self.flows.insert(flow.key(), put);
        }
        Ok((table.route.len() + table.flow.len()) as u64)
    }

    /// Puts back what was there before an addition that failed.
    fn restore(&self, key: &StaticKey, compiled: &Key, core: &Core, plane: &DataPlane) {
        let before = self.flows.get(key).and_then(|put| compile(&put.flow, &self.routes, core, plane).ok());
        // There was room for it until now.
        let _ = match before {
            Some((key, entry)) => plane.put_flow(&key, &entry),
            None => plane.remove_flow(compiled),
        };
    }

    /// Removes what is named. A route that flows are on stays, and the failure names one of them.
    pub(crate) fn remove(&mut self, what: &StaticRemoval, plane: &DataPlane) -> Result<u64, Failure> {
        let gone: HashSet<StaticKey> = if what.all {
            self.flows.keys().cloned().collect()
        } else {
            what.flow.iter().filter(|key| self.flows.contains_key(key)).cloned().collect()
        };
        let names: HashSet<&str> = what.route.iter().map(String::as_str).collect();
        for (key, put) in &self.flows {
            if let Some(name) = route_of(&put.flow).filter(|name| names.contains(name) && !gone.contains(key))
            {
                return Err(wrong(format!("route `{name}`: flow {key} is on it; remove that first")));
            }
        }
        for key in gone.iter().filter_map(|key| self.flows.get(key)?.placed) {
            plane.remove_flow(&key).map_err(|e| full(&e))?;
        }
        let routes = self.routes.len();
        self.routes.retain(|name, _| !what.all && !what.route.contains(name));
        self.flows.retain(|key, _| !gone.contains(key));
        Ok((gone.len() + routes - self.routes.len()) as u64)
    }

    /// Has the flows follow their ports: to another engine, out of the data plane while a port is away, back when it is
    /// there again.
    pub(crate) fn follow(&mut self, core: &Core, plane: &DataPlane) {
        for (name, put) in &mut self.flows {
            let wanted = compile(&put.flow, &self.routes, core, plane).ok();
            if let Some(key) =
                put.placed.take_if(|key| wanted.as_ref().is_none_or(|(wanted, _)| wanted != key))
            {
                if let Err(error) = plane.remove_flow(&key) {
                    tracing::warn!("flow {name}: {error}");
                }
            }
            let Some((key, entry)) = wanted else { continue };
            if put.placed.is_some()
                && plane.flow(&key).is_ok_and(|have| have.is_some_and(|have| same(&have, &entry)))
            {
                continue;
            }
            match plane.put_flow(&key, &entry) {
                Ok(()) => put.placed = Some(key),
                Err(error) => tracing::warn!("flow {name}: {error}"),
            }
        }
    }

    /// Everything that was put in, flows in the order in which that was done.
    pub(crate) fn table(&self) -> StaticTable {
        let mut flows: Vec<&Put> = self.flows.values().collect();
        flows.sort_unstable_by_key(|put| put.number);
        let flow = flows.into_iter().map(|put| put.flow.clone()).collect();
        StaticTable { route: self.routes.values().cloned().collect(), flow }
    }
}

/// Whether two entries do the same, whatever they have counted.
fn same(a: &Entry, b: &Entry) -> bool {
    let action = |entry: &Entry| Flow { seen_ticks: 0, pkts: 0, bytes: 0, ..entry.flow };
    action(a) == action(b) && a.to == b.to
}

fn port<'c>(core: &'c Core, plane: &DataPlane, name: &str) -> Result<(&'c Link, u16), Failure> {
    let link = core.link(name).ok_or_else(|| wrong(no_device(name)))?;
    let slot = plane
        .slot(link.ifindex)
        .ok_or_else(|| wrong(format!("{name}: not a port of this instance; see `shunt status`")))?;
    Ok((link, slot))
}

fn key_of(key: &StaticKey, core: &Core) -> Option<Key> {
    let ifindex = core.link(&key.in_port)?.ifindex;
    let mut tags = [0; 2];
    for (tag, id) in tags.iter_mut().zip(&key.in_vlans) {
        *tag = abi::TAG_PRESENT | id;
    }
    if key.in_vlans.len() == 2 {
        tags[0] |= abi::TAG_8021AD;
    }
    let l4_proto = match key.proto {
        Proto::Tcp => 6,
        Proto::Udp => 17,
    };
    let (sport_be, dport_be) = (key.sport.to_be_bytes(), key.dport.to_be_bytes());
    match (key.src, key.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let (src_be, dst_be) = (src.octets(), dst.octets());
            Some(Key::V4(Key4 { src_be, dst_be, sport_be, dport_be, ifindex, tags, l4_proto }))
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let (src_be, dst_be) = (src.octets(), dst.octets());
            Some(Key::V6(Key6 { src_be, dst_be, sport_be, dport_be, ifindex, tags, l4_proto }))
        }
        _ => None,
    }
}

fn compile(
    flow: &StaticFlow,
    routes: &BTreeMap<String, StaticRoute>,
    core: &Core,
    plane: &DataPlane,
) -> Result<(Key, Entry), Failure> {
    let hop = match &flow.route {
        RouteChoice::Inline(hop) => hop.clone(),
        RouteChoice::Named(name) => {
            routes.get(name).ok_or_else(|| wrong(format!("flow {}: no route `{name}`", flow.key())))?.hop()
        }
    };
    let (in_link, in_slot) = port(core, plane, &flow.in_port)?;
    let (out_link, out_slot) = port(core, plane, &hop.out_port)?;
    let key =
        key_of(&flow.key(), core).ok_or_else(|| wrong(format!("flow {}: mixed families", flow.key())))?;
    let (v4, new) = (flow.src.is_ipv4(), flow.new_tuple());
    let xdp = core.ports().any(|(link, view)| {
        link.ifindex == out_link.ifindex && view.setting.engine == shunt_api::Engine::Xdp
    });
    let partial = core.ports().any(|(link, view)| link.ifindex == in_link.ifindex && view.setting.partial);
    let action = Flow {
        state: abi::FLOW_ACTIVE,
        flags: abi::FLOW_STATIC
            | if xdp { abi::FLOW_XDP } else { 0 }
            | if partial { abi::FLOW_PARTIAL } else { 0 },
        out_tags: hop.vlans.len() as u8,
        max_l3_bytes: flow.mtu.unwrap_or(u16::try_from(out_link.mtu).unwrap_or(u16::MAX)),
        in_dmac: flow.dmac.unwrap_or(in_link.mac).0,
        l2: l2_of(&hop, out_link, v4),
        out_slot,
        in_slot,
        mark: flow.mark,
        priority: flow.priority,
        ..Flow::default()
    };
    let mut entry = Entry { flow: action, ..Entry::default() };
    if let (Some(old), Some(new)) = (ends(&flow.tuple()), ends(&new)) {
        translate(&old, &new, &mut entry);
    }
    Ok((key, entry))
}

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

/// The L2 header that the flow's packets leave with. Two tags are a service tag around a customer tag.
fn l2_of(hop: &Hop, out: &Link, v4: bool) -> [u8; abi::L2_MAX] {
    let mut header = Vec::with_capacity(abi::L2_MAX);
    header.extend(hop.dmac.0);
    header.extend(hop.smac.unwrap_or(out.mac).0);
    for (n, id) in hop.vlans.iter().enumerate() {
        let outer_of_two = hop.vlans.len() == 2 && n == 0;
        header.extend(if outer_of_two { [0x88, 0xa8] } else { [0x81, 0x00] });
        header.extend(id.to_be_bytes());
    }
    header.extend(if v4 { [0x08, 0x00] } else { [0x86, 0xdd] });
    let mut l2 = [0; abi::L2_MAX];
    l2[..header.len()].copy_from_slice(&header);
    l2
}
