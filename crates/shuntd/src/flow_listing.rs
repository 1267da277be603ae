//! Lists the flow table as connections, on another thread than the event loop's.

use crate::{
    control::{FlowSource, Listing},
    failures::internal,
    flow_engine::PortEngine,
    flow_entry::{entry_state, key_ingress, key_proto, key_tuple, new_tuple, read_clock, vlan_ids},
    place_index::PlaceIndex,
};
use shunt_api::{Connection, Direction, DirectionName, Engine, Failure, Proto, Tuple};
use shunt_bpf::{DataPlane, Entry, EntryIndex, FlowTable, Key, abi};
use shunt_core::{RateBasis, TickClock, join_flows, reversed, set_rates};
use shunt_wire::{Ethernet, Mac, encap};
use std::{
    collections::HashMap,
    iter,
    time::{Duration, Instant},
};

/// How old the clock of a listing may be.
const RENEWAL: Duration = Duration::from_millis(10);

/// The flow table, and what its numbers mean.
#[derive(Debug)]
pub(crate) struct FlowTableReader {
    table: FlowTable,
    /// Device names by ifindex.
    names: HashMap<u32, String>,
    /// The ifindex of the port in each slot.
    slots: HashMap<u16, u32>,
    /// The ports by ifindex.
    ports: HashMap<u32, PortEngine>,
    /// The clock of the data plane, and when it was read.
    first_clock: (TickClock, Instant),
    /// The same at the time to which the listing has come.
    clock: TickClock,
    clock_read: Instant,
    sample: Option<(Instant, Sample)>,
}

/// Flows by their places, ascending.
type Sample = Vec<Sampled>;

/// What a flow had counted. There may be many flows, so this is small.
#[derive(Debug, Clone, Copy)]
struct Sampled {
    place: EntryIndex,
    /// When the flow was first proved: another flow may have the place later.
    learned_ticks: u32,
    pkts: u64,
    bytes: u64,
}

/// A flow that is being listed.
struct FlowRecord {
    proto: Proto,
    /// The original direction of its connection.
    orig: Tuple,
    key: Key,
    entry: Entry,
    /// Packets and bytes since the sample; `None` without a sample, or if the flow came after the sample.
    since_sample: Option<(u64, u64)>,
}

impl FlowTableReader {
    /// Opens the tables. `names` are the devices of this network namespace, and `ports` the ports among them, by
    /// ifindex.
    pub(crate) fn new(
        plane: &DataPlane,
        names: HashMap<u32, String>,
        ports: HashMap<u32, PortEngine>,
    ) -> Result<Self, shunt_bpf::Error> {
        let slots = names.keys().filter_map(|ifindex| Some((plane.slot(*ifindex)?, *ifindex))).collect();
        let (clock, clock_read) = (read_clock(plane)?, Instant::now());
        Ok(Self {
            table: plane.flows()?,
            names,
            ports,
            slots,
            first_clock: (clock, clock_read),
            clock,
            clock_read,
            sample: None,
        })
    }

    fn name(&self, ifindex: u32) -> String {
        self.names.get(&ifindex).cloned().unwrap_or_else(|| format!("if{ifindex}"))
    }

    /// Renews the clock, which decides the states of flows.
    fn renew_clock(&mut self) {
        let (first, read) = self.first_clock;
        self.clock_read = Instant::now();
        self.clock = first.advanced_by(self.clock_read - read);
    }

    /// Reads the flows at some places, and joins them.
    fn connections_at(&mut self, places: &[EntryIndex]) -> Result<Vec<Connection>, shunt_bpf::Error> {
        if self.clock_read.elapsed() >= RENEWAL {
            self.renew_clock();
        }
        let mut flows = Vec::with_capacity(places.len());
        for place in places {
            if let Some((key, entry)) = self.table.at(*place)? {
                let since_sample = self.since_sample(*place, &entry);
                let (proto, orig) = connection_id(&key, &entry);
                flows.push(FlowRecord { proto, orig, key, entry, since_sample });
            }
        }
        Ok(join_flows(flows, |flow| (flow.proto, flow.orig), |flow| self.direction(flow)).collect())
    }

    fn since_sample(&self, place: EntryIndex, entry: &Entry) -> Option<(u64, u64)> {
        let (_, sample) = self.sample.as_ref()?;
        let at = sample.binary_search_by_key(&place, |sampled| sampled.place).ok()?;
        let Sampled { learned_ticks, pkts, bytes, .. } = sample[at];
        (learned_ticks == entry.cold.learned_ticks)
            .then(|| (entry.pkts().saturating_sub(pkts), entry.bytes().saturating_sub(bytes)))
    }

    fn rate_basis(&self, since_sample: Option<(u64, u64)>) -> RateBasis {
        match (since_sample, &self.sample) {
            (Some((packets, bytes)), Some((at, _))) => {
                RateBasis::Sample { packets, bytes, over: self.clock_read.saturating_duration_since(*at) }
            }
            (None, Some(_)) => RateBasis::AfterSample,
            (_, None) => RateBasis::Lifetime,
        }
    }

    fn direction(&self, record: &FlowRecord) -> Direction {
        let FlowRecord { key, entry, .. } = record;
        let (flow, clock) = (&entry.flow, self.clock);
        let (ifindex, tags) = key_ingress(key);
        let out = header_out(flow);
        let out_port = self.slots.get(&flow.out_slot).copied().unwrap_or(0);
        let [receives, sends] = [ifindex, out_port].map(|port| self.ports.get(&port));
        let mut direction = Direction {
            dir: if flow.flags & abi::FLOW_REPLY != 0 { DirectionName::Reply } else { DirectionName::Orig },
            in_port: self.name(ifindex),
            in_vlans: vlan_ids(&tags),
            tuple: key_tuple(key),
            out_port: self.name(out_port),
            out_vlans: out.iter().flat_map(|out| &out.tags).map(|tag| tag.vid).collect(),
            new: new_tuple(key, entry),
            // No frame is sent to this MAC.
            in_dmac: Some(Mac(flow.in_dmac)).filter(|mac| *mac != Mac::default()),
            out_smac: out.as_ref().map(|out| out.source),
            out_dmac: out.map(|out| out.destination),
            mark: flow.mark,
            priority: flow.priority,
            max_l3_bytes: u32::from(flow.max_l3_bytes),
            state: entry_state(flow, self.table.epochs()).flow_state(clock),
            engine: receives.map_or(Engine::Tc, |port| port.engine_of_flow(flow.flags)),
            engine_reason: receives
                .zip(sends)
                .and_then(|(receives, sends)| receives.why_tc(sends, flow.flags)),
            packets: entry.pkts(),
            bytes: entry.bytes(),
            rate_bps: 0,
            rate_pps: 0,
            age_s: clock.seconds_since(entry.cold.learned_ticks),
            idle_s: clock.seconds_since(flow.seen_ticks),
        };
        set_rates(&mut direction, self.rate_basis(record.since_sample));
        direction
    }
}

impl FlowSource for FlowTableReader {
    fn sample(&mut self) {
        let mut sample = Sample::new();
        let read = self.table.for_each_place(|place, _, entry| {
            let (pkts, bytes) = (entry.pkts(), entry.bytes());
            sample.push(Sampled { place, learned_ticks: entry.cold.learned_ticks, pkts, bytes });
        });
        if let Err(error) = read {
            tracing::warn!("cannot read the flow table: {error}");
        }
        self.sample = Some((Instant::now(), sample));
    }

    fn list(mut self: Box<Self>) -> Result<Listing, Failure> {
        let places = PlaceIndex::new(&self.table, |key, entry| Some(connection_id(key, entry)));
        let mut groups = places.map_err(internal)?.into_groups();
        self.renew_clock();
        let mut read = Vec::new().into_iter();
        Ok(Box::new(iter::from_fn(move || {
            loop {
                if let Some(connection) = read.next() {
                    return Some(Ok(connection));
                }
                match self.connections_at(&groups.next()?) {
                    Ok(connections) => read = connections.into_iter(),
                    Err(error) => return Some(Err(internal(error))),
                }
            }
        })))
    }
}

/// The Ethernet header that packets leave with; `None` if they leave without one.
fn header_out(flow: &abi::Flow) -> Option<Ethernet> {
    let tags = usize::from(flow.out_tags);
    let header = flow.l2.get(..encap::header_bytes(tags))?;
    Ethernet::parse(header).map(|(ethernet, _)| ethernet)
}

/// The protocol and the original direction of a flow's connection.
fn connection_id(key: &Key, entry: &Entry) -> (Proto, Tuple) {
    let is_reply = entry.flow.flags & abi::FLOW_REPLY != 0;
    let orig = if is_reply { reversed(new_tuple(key, entry)) } else { key_tuple(key) };
    (key_proto(key), orig)
}
