//! From the flow tables to connections as people know them: both directions together, as conntrack prints them.

use crate::control::{FlowSource, Listing};
use shunt_api::{Connection, Direction, DirectionName, Engine, Family, FlowState, Proto, Tuple};
use shunt_bpf::{
    DataPlane, Entry, FlowTable, Key,
    abi::{self, Plain},
};
use shunt_wire::Mac;
use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    net::IpAddr,
    time::{Duration, Instant},
};

/// The flow tables and what their numbers mean, to be read on another thread than the loop's.
#[derive(Debug)]
pub(crate) struct View {
    table: FlowTable,
    /// By ifindex.
    names: HashMap<u32, String>,
    /// The ifindex of each slot.
    slots: HashMap<u16, u32>,
    clock: Clock,
    sampled: Option<(Instant, Sample)>,
}

/// What flows had counted, by a hash of the key and the time of the first proof.
type Sample = HashMap<(u64, u32), (u64, u64)>;

/// A flow as it is kept until it is shown.
struct Seen {
    proto: Proto,
    /// The original direction of the connection.
    orig: Tuple,
    key: Key,
    entry: Entry,
    /// Packets and bytes since the sample; none without one.
    since: Option<(u64, u64)>,
}

impl View {
    pub(crate) fn new(plane: &DataPlane, names: HashMap<u32, String>) -> Result<Self, shunt_bpf::Error> {
        let slots = names.keys().filter_map(|ifindex| Some((plane.slot(*ifindex)?, *ifindex))).collect();
        let clock = Clock::of(plane)?;
        Ok(Self { table: plane.flows()?, names, slots, clock, sampled: None })
    }

    fn name(&self, ifindex: u32) -> String {
        self.names.get(&ifindex).cloned().unwrap_or_else(|| format!("if{ifindex}"))
    }

    fn rates(&self, direction: &mut Direction, since: Option<(u64, u64)>) {
        let (pkts, bytes, over) = match (since, &self.sampled) {
            (Some((pkts, bytes)), Some((at, _))) => {
                (pkts, bytes, self.clock.read.saturating_duration_since(*at))
            }
            // Over its life.
            (_, None) => (direction.packets, direction.bytes, Duration::from_secs(direction.age_s)),
            // It came after the sample.
            (None, Some(_)) => (0, 0, Duration::ZERO),
        };
        direction.rate_pps = per_second(pkts, over);
        direction.rate_bps = per_second(bytes.saturating_mul(8), over);
    }

    fn read(&mut self) -> Vec<Seen> {
        let ticks = self.clock.read.elapsed().as_secs_f64() * f64::from(self.clock.ticks_per_s);
        self.clock =
            Clock { now: self.clock.now.wrapping_add(ticks as u32), read: Instant::now(), ..self.clock };
        let mut seen = Vec::new();
        let read = self.table.each(|key, entry| {
            let before = self.sampled.as_ref().and_then(|(_, sample)| sample.get(&sampled_as(&key, &entry)));
            let since = before.map(|(pkts, bytes)| {
                (entry.pkts().saturating_sub(*pkts), entry.bytes().saturating_sub(*bytes))
            });
            let (tuple, reply) = (tuple_of(&key), entry.flow.flags & abi::FLOW_REPLY != 0);
            let orig = if reply { turned(new_of(&key, &entry)) } else { tuple };
            seen.push(Seen { proto: proto_of(&key), orig, key, entry, since });
        });
        match read.and_then(|()| self.table.epoch()) {
            Ok(epoch) => self.clock.epoch = epoch,
            Err(error) => tracing::warn!("flows cannot be read: {error}"),
        }
        seen
    }

    fn connection(&self, flows: &[Seen]) -> Option<Connection> {
        let first = flows.first()?;
        let mut directions: Vec<Direction> = flows.iter().map(|seen| direction_of(seen, self)).collect();
        directions.sort_by_key(|direction| direction.dir);
        let shown = &directions[0];
        let other = turned(shown.new);
        let (orig, reply) =
            if shown.dir == DirectionName::Orig { (shown.tuple, other) } else { (other, shown.tuple) };
        let mut connection = Connection {
            family: if orig.src.is_ipv4() { Family::V4 } else { Family::V6 },
            proto: first.proto,
            orig,
            reply,
            state: shown.state,
            engine: shown.engine,
            packets: shown.packets,
            bytes: shown.bytes,
            rate_bps: shown.rate_bps,
            rate_pps: shown.rate_pps,
            age_s: shown.age_s,
            idle_s: shown.idle_s,
            directions: Vec::new(),
        };
        directions[1..].iter().for_each(|direction| join(&mut connection, direction));
        connection.directions = directions;
        Some(connection)
    }
}

impl FlowSource for View {
    fn sample(&mut self) {
        let mut sample = Sample::new();
        let read = self.table.each(|key, entry| {
            sample.insert(sampled_as(&key, &entry), (entry.pkts(), entry.bytes()));
        });
        if let Err(error) = read {
            tracing::warn!("flows cannot be read: {error}");
        }
        self.sampled = Some((Instant::now(), sample));
    }

    fn list(mut self: Box<Self>) -> Listing {
        let mut seen = self.read();
        seen.sort_unstable_by_key(|seen| (seen.proto, seen.orig));
        let mut at = 0;
        Box::new(std::iter::from_fn(move || {
            let rest = &seen[at..];
            let first = rest.first()?;
            let count =
                rest.iter().take_while(|next| (next.proto, next.orig) == (first.proto, first.orig)).count();
            at += count;
            self.connection(&rest[..count])
        }))
    }
}

/// By what a flow is found again. Much smaller than the key, and there may be many.
fn sampled_as(key: &Key, entry: &Entry) -> (u64, u32) {
    let mut hasher = DefaultHasher::new();
    match key {
        Key::V4(key) => key.bytes().hash(&mut hasher),
        Key::V6(key) => key.bytes().hash(&mut hasher),
    }
    (hasher.finish(), entry.cold.learned_ticks)
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    pub(crate) epoch: u32,
    now: u32,
    /// When it was `now`.
    read: Instant,
    ticks_per_s: u32,
}

impl Clock {
    pub(crate) fn of(plane: &DataPlane) -> Result<Self, shunt_bpf::Error> {
        Ok(Self {
            epoch: plane.control().epoch(),
            // A sweep of nothing tells what time it is for the data plane.
            now: plane.sweep_part(Duration::ZERO, false, 0, 0)?.now_ticks,
            read: Instant::now(),
            ticks_per_s: plane.control().ticks(Duration::from_secs(1)),
        })
    }

    pub(crate) fn seconds_since(self, at: u32) -> u64 {
        // The flow may have been used after we read the clock.
        let ticks = self.now.wrapping_sub(at);
        if ticks > u32::MAX / 2 { 0 } else { u64::from(ticks / self.ticks_per_s.max(1)) }
    }

    /// A flow that pauses is not proved either, and nothing is wrong with it.
    fn pause(self) -> u32 {
        4 * self.ticks_per_s
    }

    /// Whether one time was before another; neither is long ago.
    pub(crate) fn is_before(self, one: u32, other: u32) -> bool {
        other.wrapping_sub(one).wrapping_sub(1) < u32::MAX / 2
    }

    fn is_past(self, at: u32) -> bool {
        self.now.wrapping_sub(at) <= u32::MAX / 2
    }

    pub(crate) fn state(self, flow: &abi::Flow) -> FlowState {
        if flow.flags & abi::FLOW_STATIC != 0 {
            FlowState::Static
        } else if flow.epoch == abi::EPOCH_RETIRED {
            FlowState::Retired
        } else if flow.epoch != self.epoch || self.is_past(flow.prove_by_ticks.wrapping_add(self.pause())) {
            FlowState::Stale
        } else if flow.state == abi::FLOW_ACTIVE {
            FlowState::Active
        } else {
            FlowState::Pending
        }
    }
}

fn join(connection: &mut Connection, direction: &Direction) {
    connection.state = connection.state.max(direction.state);
    connection.engine = connection.engine.max(direction.engine);
    connection.packets += direction.packets;
    connection.bytes += direction.bytes;
    connection.rate_bps += direction.rate_bps;
    connection.rate_pps += direction.rate_pps;
    connection.age_s = connection.age_s.max(direction.age_s);
    connection.idle_s = connection.idle_s.min(direction.idle_s);
}

fn per_second(count: u64, over: Duration) -> u64 {
    let seconds = over.as_secs_f64();
    if seconds > 0.0 { (count as f64 / seconds).round() as u64 } else { 0 }
}

fn direction_of(seen: &Seen, view: &View) -> Direction {
    let Seen { key, entry, .. } = seen;
    let (flow, clock) = (&entry.flow, view.clock);
    let (ifindex, tags) = match key {
        Key::V4(key) => (key.ifindex, key.tags),
        Key::V6(key) => (key.ifindex, key.tags),
    };
    let mac = |at: usize| {
        let mut bytes = [0; 6];
        bytes.copy_from_slice(&flow.l2[at..at + 6]);
        Mac(bytes)
    };
    let out_tag = |n: usize| u16::from_be_bytes([flow.l2[14 + 4 * n], flow.l2[15 + 4 * n]]) & abi::TAG_VID;
    let mut direction = Direction {
        dir: if flow.flags & abi::FLOW_REPLY != 0 { DirectionName::Reply } else { DirectionName::Orig },
        in_port: view.name(ifindex),
        in_vlans: tags
            .iter()
            .filter(|tag| *tag & abi::TAG_PRESENT != 0)
            .map(|tag| tag & abi::TAG_VID)
            .collect(),
        tuple: tuple_of(key),
        out_port: view.name(view.slots.get(&flow.out_slot).copied().unwrap_or(0)),
        out_vlans: (0..usize::from(flow.out_tags.min(2))).map(out_tag).collect(),
        new: new_of(key, entry),
        in_dmac: Mac(flow.in_dmac),
        out_smac: mac(6),
        out_dmac: mac(0),
        mark: flow.mark,
        priority: flow.priority,
        max_l3_bytes: u32::from(flow.max_l3_bytes),
        state: clock.state(flow),
        engine: if flow.flags & abi::FLOW_XDP != 0 { Engine::Xdp } else { Engine::Tc },
        packets: entry.pkts(),
        bytes: entry.bytes(),
        rate_bps: 0,
        rate_pps: 0,
        age_s: clock.seconds_since(entry.cold.learned_ticks),
        idle_s: clock.seconds_since(flow.seen_ticks),
    };
    view.rates(&mut direction, seen.since);
    direction
}

pub(crate) fn proto_of(key: &Key) -> Proto {
    let number = match key {
        Key::V4(key) => key.l4_proto,
        Key::V6(key) => key.l4_proto,
    };
    if number == 6 { Proto::Tcp } else { Proto::Udp }
}

pub(crate) fn tuple_of(key: &Key) -> Tuple {
    match key {
        Key::V4(key) => Tuple {
            src: IpAddr::from(key.src_be),
            dst: IpAddr::from(key.dst_be),
            sport: u16::from_be_bytes(key.sport_be),
            dport: u16::from_be_bytes(key.dport_be),
        },
        Key::V6(key) => Tuple {
            src: IpAddr::from(key.src_be),
            dst: IpAddr::from(key.dst_be),
            sport: u16::from_be_bytes(key.sport_be),
            dport: u16::from_be_bytes(key.dport_be),
        },
    }
}

/// The addresses and ports of a trace.
pub(crate) fn tuple_of_trace(tuple: &abi::Tuple) -> Tuple {
    let addr = |bytes: [u8; 16]| {
        let v4 = <[u8; 4]>::try_from(&bytes[..4]).ok().filter(|_| tuple.family == 4);
        v4.map_or(IpAddr::from(bytes), IpAddr::from)
    };
    Tuple {
        src: addr(tuple.src_be),
        dst: addr(tuple.dst_be),
        sport: u16::from_be_bytes(tuple.sport_be),
        dport: u16::from_be_bytes(tuple.dport_be),
    }
}

/// As the flow's packets leave.
pub(crate) fn new_of(key: &Key, entry: &Entry) -> Tuple {
    let v4 = matches!(key, Key::V4(_));
    Tuple {
        src: addr(&entry.to, 0, v4),
        dst: addr(&entry.to, 1, v4),
        sport: u16::from_be_bytes(entry.flow.sport_be),
        dport: u16::from_be_bytes(entry.flow.dport_be),
    }
}

/// The first or second address of two that lie one after the other.
fn addr(to: &[u8; 32], which: usize, v4: bool) -> IpAddr {
    if v4 {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&to[4 * which..4 * which + 4]);
        IpAddr::from(bytes)
    } else {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&to[16 * which..16 * which + 16]);
        IpAddr::from(bytes)
    }
}

/// The same ends, seen from the other one.
pub(crate) fn turned(tuple: Tuple) -> Tuple {
    Tuple { src: tuple.dst, dst: tuple.src, sport: tuple.dport, dport: tuple.sport }
}
