//! From the flow tables to connections as people know them: both directions together, as conntrack prints them.

use shunt_api::{Connection, Direction, DirectionName, Engine, Family, FlowState, Proto, Tuple};
use shunt_bpf::{ControlBlock, DataPlane, Entry, Key, abi};
use shunt_wire::Mac;
use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    time::Duration,
};

/// What flows had counted at some time, by tuple and first proof.
pub(crate) type Sample = HashMap<(Tuple, u32), (u64, u64)>;

/// Counts of all flows, now.
pub(crate) fn sample(plane: &DataPlane) -> Sample {
    let mut counts = Sample::new();
    let read = plane.each_flow(|key, entry| {
        counts.insert((tuple_of(&key), entry.cold.learned_ticks), (entry.pkts(), entry.bytes()));
    });
    if let Err(error) = read {
        tracing::warn!("flows cannot be read: {error}");
    }
    counts
}

/// All connections, with rates since `before` was taken.
pub(crate) fn list(
    plane: &DataPlane,
    before: &Sample,
    over: Duration,
    now_ticks: u32,
    name: &dyn Fn(u32) -> String,
) -> Vec<Connection> {
    let clock = Clock { control: plane.control(), now: now_ticks };
    let mut found: BTreeMap<(Proto, Tuple), Connection> = BTreeMap::new();
    let out_name = |slot| name(plane.ifindex_at(slot).unwrap_or(0));
    let read = plane.each_flow(|key, entry| {
        let mut direction = direction_of(&key, &entry, clock, name, &out_name);
        let earlier = before.get(&(direction.tuple, entry.cold.learned_ticks));
        let (pkts, bytes) = earlier.map_or((0, 0), |(pkts, bytes)| {
            (direction.packets.saturating_sub(*pkts), direction.bytes.saturating_sub(*bytes))
        });
        direction.rate_pps = per_second(pkts, over);
        direction.rate_bps = per_second(bytes.saturating_mul(8), over);
        let proto = proto_of(&key);
        let (orig, reply) = match direction.dir {
            DirectionName::Orig => (direction.tuple, turned(direction.new)),
            DirectionName::Reply => (turned(direction.new), direction.tuple),
        };
        found
            .entry((proto, orig))
            .and_modify(|connection| join(connection, &direction))
            .or_insert_with(|| Connection {
                family: if orig.src.is_ipv4() { Family::V4 } else { Family::V6 },
                proto,
                orig,
                reply,
                state: direction.state,
                engine: direction.engine,
                packets: direction.packets,
                bytes: direction.bytes,
                rate_bps: direction.rate_bps,
                rate_pps: direction.rate_pps,
                age_s: direction.age_s,
                idle_s: direction.idle_s,
                directions: Vec::new(),
            })
            .directions
            .push(direction);
    });
    if let Err(error) = read {
        tracing::warn!("flows cannot be read: {error}");
    }
    let mut list: Vec<Connection> = found.into_values().collect();
    for connection in &mut list {
        connection.directions.sort_by_key(|direction| direction.dir);
    }
    list
}

#[derive(Clone, Copy)]
struct Clock<'p> {
    control: &'p ControlBlock,
    now: u32,
}

impl Clock<'_> {
    fn seconds_since(self, at: u32) -> u64 {
        // The flow may have been used after we read the clock.
        let ticks = self.now.wrapping_sub(at);
        if ticks > u32::MAX / 2 { 0 } else { self.control.span(ticks).as_secs() }
    }

    fn is_past(self, at: u32) -> bool {
        self.now.wrapping_sub(at) <= u32::MAX / 2
    }

    fn state(self, flow: &abi::Flow) -> FlowState {
        if flow.flags & abi::FLOW_STATIC != 0 {
            FlowState::Static
        } else if flow.epoch == abi::EPOCH_RETIRED {
            FlowState::Retired
        } else if flow.epoch != self.control.epoch() || self.is_past(flow.prove_by_ticks) {
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

fn direction_of(
    key: &Key,
    entry: &Entry,
    clock: Clock<'_>,
    name: &dyn Fn(u32) -> String,
    out_name: &dyn Fn(u16) -> String,
) -> Direction {
    let flow = &entry.flow;
    let (ifindex, tags, v4) = match key {
        Key::V4(key) => (key.ifindex, key.tags, true),
        Key::V6(key) => (key.ifindex, key.tags, false),
    };
    let mac = |at: usize| {
        let mut bytes = [0; 6];
        bytes.copy_from_slice(&flow.l2[at..at + 6]);
        Mac(bytes)
    };
    let out_tag = |n: usize| u16::from_be_bytes([flow.l2[14 + 4 * n], flow.l2[15 + 4 * n]]) & abi::TAG_VID;
    Direction {
        dir: if flow.flags & abi::FLOW_REPLY != 0 { DirectionName::Reply } else { DirectionName::Orig },
        in_port: name(ifindex),
        in_vlans: tags
            .iter()
            .filter(|tag| *tag & abi::TAG_PRESENT != 0)
            .map(|tag| tag & abi::TAG_VID)
            .collect(),
        tuple: tuple_of(key),
        out_port: out_name(flow.out_slot),
        out_vlans: (0..usize::from(flow.out_tags.min(2))).map(out_tag).collect(),
        new: Tuple {
            src: addr(&entry.to, 0, v4),
            dst: addr(&entry.to, 1, v4),
            sport: u16::from_be_bytes(flow.sport_be),
            dport: u16::from_be_bytes(flow.dport_be),
        },
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
    }
}

fn proto_of(key: &Key) -> Proto {
    let number = match key {
        Key::V4(key) => key.l4_proto,
        Key::V6(key) => key.l4_proto,
    };
    if number == 6 { Proto::Tcp } else { Proto::Udp }
}

fn tuple_of(key: &Key) -> Tuple {
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
fn turned(tuple: Tuple) -> Tuple {
    Tuple { src: tuple.dst, dst: tuple.src, sport: tuple.dport, dport: tuple.sport }
}
