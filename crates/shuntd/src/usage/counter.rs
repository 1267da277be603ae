//! Counts what hosts send and receive, on a thread of its own: packets of the fast path by the counters of their flows,
//! all others by those of conntrack.
//!
//! Each packet is in one counter of a flow or of conntrack. A counter's increase is added at each reading, and the rest
//! when it ends: conntrack reports the entries that end, and the sweep the flows that it frees.

use super::{
    counts::{PathCount, PortsReceived},
    ends::{Ends, Wire},
    followed::Followed,
    ledger::{Ledger, LeftCounters, LeftPorts, Record},
    listener::Listener,
};
use crate::{
    flow_entry::{key_ingress, key_protocol, key_tuple, new_tuple, trace_tuple},
    reasons,
};
use shunt_api::{Counted, FastCount, WatchEvent};
use shunt_bpf::{Entry, FlowTable, Key, Ring, abi};
use shunt_core::{End, LocalSide};
use shunt_kernel::{CountedEntry, Ended};
use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash},
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};
use tokio::sync::broadcast;

/// Flows, and conntrack's counters, that are followed at a time. The tables that follow them do not grow beyond 3 MB
/// each.
const FOLLOWED_MAX: usize = 114_688;
/// Pairs of addresses that wait for the next reading, which knows the neighbours.
const PAIRS_MAX: usize = 8192;
/// After an end was read, further ones gather: to wake for each costs many times as much as to count it. The socket's
/// buffer takes what a kernel that flushes its table sends meanwhile.
const GATHER: Duration = Duration::from_millis(10);
/// With as many ends at a time, this thread does not wait for more.
const SEVERAL: usize = 256;
/// Final counters that are read at a time.
const FINALS: usize = 1024;
/// Addresses all over the world, of IPv4 and IPv6: who leads to one of them is no local network. Nothing is sent there.
const FAR_AWAY: [IpAddr; 4] = [
    IpAddr::V4(std::net::Ipv4Addr::new(1, 0, 0, 1)),
    IpAddr::V4(std::net::Ipv4Addr::new(193, 0, 0, 1)),
    IpAddr::V6(std::net::Ipv6Addr::new(0x2001, 0x200, 0, 0, 0, 0, 0, 1)),
    IpAddr::V6(std::net::Ipv6Addr::new(0x2a00, 0x1450, 0, 0, 0, 0, 0, 1)),
];

/// What the event loop knows at the time of a reading.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(crate) side: LocalSide,
    /// What all ports have received since the daemon started.
    pub(crate) received: PortsReceived,
    /// What those that are attached have received since then, under this daemon and those before.
    pub(crate) attached: PortsReceived,
    /// Seconds since 1970.
    pub(crate) clock: u64,
    /// Whether the ports count no more: the programs are detached.
    pub(crate) is_end: bool,
}

/// Who sends to whom: the addresses without NAT.
type Pair = (IpAddr, IpAddr);

pub(super) struct Counter {
    table: FlowTable,
    finals: Ring<abi::Final>,
    listener: Listener,
    /// Whether some entry of conntrack may have counters.
    may_be_counted: bool,
    keys: FlowKeys,
    flows: Followed,
    /// Whether the flows of the table are followed since they were learned, or from an earlier daemon's values on.
    are_flows_known: bool,
    connections: Followed,
    /// Entries that conntrack had before the daemon started, and that are not followed: nobody knows what they counted
    /// since.
    older: HashSet<u32>,
    /// Until the first reading: whether an entry that is not followed may have counted before the daemon started.
    may_be_older: bool,
    /// While conntrack is being read: the counters that have ended meanwhile. The kernel may still list their entries.
    ended: Option<HashSet<u64>>,
    is_first: bool,
    tally: Tally,
    ports_received: PortsReceived,
    ports_attached: PortsReceived,
    /// Until the first reading: where the daemon before stopped counting what the ports of this data plane receive.
    taken_over: Option<PortsReceived>,
    recorded_at: Instant,
    ends: Ends,
    ledger: Arc<Mutex<Ledger>>,
}

impl Counter {
    /// The seed is that of the flow table, which the next daemon takes over with it.
    pub(super) fn new(
        table: FlowTable,
        seed: u64,
        finals: Ring<abi::Final>,
        ledger: Arc<Mutex<Ledger>>,
    ) -> Self {
        let left = {
            let mut ledger = ledger.lock().unwrap_or_else(PoisonError::into_inner);
            ledger.set_open(true);
            ledger.left.take()
        };
        let left = left.filter(|left| boot_id().is_some_and(|boot| boot == left.boot));
        let mut connections = Followed::new(FOLLOWED_MAX);
        connections.restore(left.as_ref().map_or(&[], |left| &left.counters));
        let mut flows = Followed::new(FOLLOWED_MAX);
        let taken_over = left.as_ref().and_then(|left| left.ports).filter(|ports| ports.seed == seed);
        let left_flows = left.as_ref().and_then(|left| left.flows.as_deref());
        flows.restore(left_flows.unwrap_or_default());
        Self {
            table,
            finals,
            listener: Listener::Closed,
            may_be_counted: true,
            keys: FlowKeys(seed),
            flows,
            are_flows_known: left_flows.is_some(),
            connections,
            older: HashSet::new(),
            may_be_older: left.is_none_or(|left| !left.complete),
            ended: None,
            is_first: true,
            tally: Tally::default(),
            ports_received: PortsReceived::default(),
            ports_attached: PortsReceived::default(),
            taken_over: taken_over.map(|ports| ports.attached),
            recorded_at: Instant::now(),
            ends: Ends::default(),
            ledger,
        }
    }

    /// Follows the flows that are in the table. Unless an earlier daemon has left what they had counted, all of it is
    /// taken to be in the ledger.
    pub(super) fn begin(&mut self) {
        if self.are_flows_known {
            return;
        }
        let (flows, keys) = (&mut self.flows, self.keys);
        let done = self.table.for_each_counted(|key, entry| {
            let count = Counted { packets: entry.pkts(), bytes: entry.bytes() };
            flows.follow(keys.of(&key, &entry), count);
        });
        if let Err(error) = done {
            tracing::debug!("cannot read the flow table: {error}");
        }
    }

    /// Waits until a counter has ended, or an end is to be reported, and handles it. May be dropped at any time.
    pub(super) async fn follow(&mut self) {
        let due = self.ends.due();
        let ended = tokio::select! {
            ready = self.finals.wait() => {
                if let Err(error) = ready {
                    tracing::warn!("cannot wait for the counts of flows: {error}");
                    return std::future::pending().await;
                }
                None
            }
            ended = self.listener.next() => Some(ended),
            () = until(due) => None,
        };
        let keeps_up = ended.as_ref().is_some_and(|ended| ended.entries.len() < SEVERAL);
        if let Some(ended) = ended {
            self.add_ended(ended);
        }
        self.read_finals();
        self.ends.report(Instant::now());
        if keeps_up {
            // Not a timer of the runtime, which would wake this thread for each end.
            thread::sleep(GATHER);
        }
    }

    /// Reads all counters, and adds what they have counted to the ledger.
    pub(super) fn read(&mut self, facts: Facts) {
        self.set_side(facts.side);
        self.may_be_counted |= shunt_kernel::conntrack_accounting();
        self.listen();
        if self.may_be_counted {
            self.read_connections();
            self.listen();
        }
        self.read_flows();
        let before = std::mem::replace(&mut self.ports_received, facts.received);
        self.ports_attached = facts.attached;
        let taken_over = self.taken_over.take();
        let is_new = std::mem::take(&mut self.is_first) && taken_over.is_none();
        let PortsReceived { all: received, fast } = match taken_over {
            Some(left) => facts.attached.minus(left),
            None if is_new => PortsReceived::default(),
            None => facts.received.minus(before),
        };
        let mut record = self.tally.take();
        let elapsed_s = self.recorded_at.elapsed().as_secs();
        self.recorded_at += Duration::from_secs(elapsed_s);
        record.total.received = received;
        record.total.fast = fast;
        if is_new || facts.is_end {
            // What was forwarded between two data planes has passed no port's counters, or ones that neither reads.
            let explained = record.total.explained;
            record.total.received.bytes = received.bytes.max(explained.bytes);
            record.total.received.packets = received.packets.max(explained.packets);
        }
        record.total.counted_s = elapsed_s;
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        ledger.record(facts.clock, elapsed_s, record);
    }

    /// Leaves the counters of conntrack, and of flows that are handed over, to the next start.
    pub(super) fn leave(&self) {
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        ledger.set_open(false);
        let Some(boot) = boot_id() else { return };
        let complete = !self.connections.is_full() && self.older.is_empty() && !self.may_be_older;
        let flows = (!self.flows.is_full()).then(|| self.flows.known());
        let ports = Some(LeftPorts { seed: self.keys.0, attached: self.ports_attached });
        let left = LeftCounters { boot, counters: self.connections.known(), complete, flows, ports };
        ledger.left = Some(left);
    }

    pub(super) fn set_clients(&mut self, clients: Option<broadcast::Sender<WatchEvent>>) {
        self.ends.set_clients(clients);
        self.listen();
    }

    /// Listens while an end can have a count, or a client waits for ends: that they are reported costs as much as a
    /// packet of each connection.
    fn listen(&mut self) {
        if self.may_be_counted || self.ends.has_clients() {
            self.listener.open();
        } else {
            self.listener.close();
        }
    }

    fn set_side(&mut self, mut side: LocalSide) {
        match shunt_kernel::devices_to(&FAR_AWAY) {
            Ok(devices) => side.leave_out(&devices),
            Err(error) => tracing::debug!("cannot read which devices lead to the world: {error}"),
        }
        self.tally.side = side;
    }

    fn read_connections(&mut self) {
        self.connections.begin();
        self.ended = Some(HashSet::new());
        let mut is_counted = shunt_kernel::conntrack_accounting();
        let mut read = || {
            let mut counts = shunt_kernel::conntrack_counts()?;
            let mut entries = Vec::new();
            while counts.next_piece(|entry| entries.push(entry))? {
                is_counted |= entries.iter().any(CountedEntry::is_counted);
                entries.drain(..).for_each(|entry| self.add_entry(&entry));
                self.read_ended();
            }
            Ok::<(), shunt_kernel::Error>(())
        };
        let done = read();
        // An entry that ended before it was read has been reported by now.
        self.read_ended();
        match done {
            Ok(()) => {
                self.connections.finish();
                self.may_be_older = false;
                self.may_be_counted = is_counted;
            }
            Err(error) => tracing::debug!("cannot read what conntrack has counted: {error}"),
        }
        self.ended = None;
    }

    /// Reads the counters that have ended until now.
    fn read_ended(&mut self) {
        while let Some(ended) = self.listener.read_now() {
            let is_last = ended.entries.is_empty() && !ended.overrun;
            self.add_ended(ended);
            if is_last {
                break;
            }
        }
        self.read_finals();
    }

    /// An entry that is there. What one of the first reading has counted is not known to be new.
    fn add_entry(&mut self, entry: &CountedEntry) {
        for (key, pair, count) in directions(entry) {
            if self.ended.as_ref().is_some_and(|ended| ended.contains(&key)) {
                continue;
            }
            let is_older = self.may_be_older || self.older.contains(&entry.id);
            if self.connections.has(key) || !is_older {
                self.tally.add(pair, Path::Slow, self.connections.update(key, count));
            } else if self.connections.follow(key, count) {
                self.older.remove(&entry.id);
            } else {
                self.older.insert(entry.id);
            }
        }
    }

    fn add_ended(&mut self, ended: Ended) {
        let now = Instant::now();
        if ended.overrun {
            tracing::debug!("conntrack reports the ends of connections faster than they can be read");
            self.ends.add_lost();
        }
        for entry in ended.entries {
            self.ends.add(now, &entry);
            let is_older = self.older.remove(&entry.id) || self.may_be_older;
            for (key, pair, count) in directions(&entry) {
                // Nobody knows what an older entry had counted when the daemon started.
                let is_known = self.connections.has(key) || !is_older;
                let since = self.connections.end(key, count);
                if let Some(ended) = &mut self.ended {
                    ended.insert(key);
                }
                if is_known {
                    self.tally.add(pair, Path::Slow, since);
                }
            }
        }
    }

    fn read_flows(&mut self) {
        self.flows.begin();
        let (flows, keys, tally) = (&mut self.flows, self.keys, &mut self.tally);
        let done = self.table.for_each_counted(|key, entry| {
            let count = Counted { packets: entry.pkts(), bytes: entry.bytes() };
            let since = flows.update(keys.of(&key, &entry), count);
            tally.add(flow_pair(&key, &entry), Path::Fast, since);
        });
        // A flow that was freed before it was read has its final counts in the ring by now.
        self.read_finals();
        match done {
            Ok(()) => self.flows.finish(),
            Err(error) => tracing::debug!("cannot read the flow table: {error}"),
        }
    }

    fn read_finals(&mut self) {
        loop {
            let finals = self.finals.take_some(FINALS);
            let is_last = finals.len() < FINALS;
            for last in finals {
                self.add_final(&last);
            }
            if is_last {
                return;
            }
        }
    }

    fn add_final(&mut self, last: &abi::Final) {
        let abi::Final { tuple: abi::Tuple { l4_proto, .. }, tags, in_slot, learned_ticks, .. } = *last;
        let tuple = trace_tuple(&last.tuple);
        let count = Counted { packets: last.pkts, bytes: last.bytes };
        if last.kind == abi::FINAL_EXPIRED {
            return self.ends.add_flow(Wire::In, l4_proto, tuple, count);
        }
        if reasons::name(last.why) == Some("conntrack-gone") {
            self.ends.add_flow(Wire::Out, l4_proto, tuple, count);
        }
        let from = trace_tuple(&abi::Tuple { src_be: last.from_src_be, ..last.tuple }).src;
        let key = self.keys.hash((l4_proto, from, tuple, tags, in_slot, learned_ticks));
        self.tally.add((from, tuple.dst), Path::Fast, self.flows.end(key, count));
    }
}

/// The path of a packet: its counter is that of a flow, or one of conntrack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Path {
    Fast,
    Slow,
}

/// What one host has sent to another.
#[derive(Debug, Clone, Copy, Default)]
struct Sent {
    all: Counted,
    fast: Counted,
}

/// What has been counted since the last reading.
#[derive(Default)]
struct Tally {
    /// Not yet counted for hosts: the next reading knows who has an address that is new.
    pairs: HashMap<Pair, Sent>,
    side: LocalSide,
    record: Record,
}

impl Tally {
    fn take(&mut self) -> Record {
        self.settle();
        std::mem::take(&mut self.record)
    }

    /// Adds what a host has sent to another.
    fn add(&mut self, pair: Pair, path: Path, count: Counted) {
        if count == Counted::default() {
            return;
        }
        if self.pairs.len() >= PAIRS_MAX && !self.pairs.contains_key(&pair) {
            self.settle();
        }
        let sum = self.pairs.entry(pair).or_default();
        sum.all = sum.all.plus(count);
        if path == Path::Fast {
            sum.fast = sum.fast.plus(count);
        }
    }

    /// Counts for the ends of each pair.
    fn settle(&mut self) {
        let total = &mut self.record.total;
        let mut ends = Vec::with_capacity(self.pairs.len() * 2);
        for ((from, to), Sent { all: count, fast }) in self.pairs.drain() {
            let (sender, receiver) = (self.side.end(from), self.side.end(to));
            // What the router sends has been received by no port.
            if sender != End::Router {
                total.explained = total.explained.plus(count);
                match (sender, receiver) {
                    (End::Remote, End::Remote) => total.transit = total.transit.plus(count),
                    (End::Remote, _) | (_, End::Remote) => {}
                    _ => total.local = total.local.plus(count),
                }
            } else if receiver == End::Router {
                continue;
            }
            let none = Counted::default();
            let sent =
                PathCount { sent: count, received: none, fast: FastCount { sent: fast, received: none } };
            let received =
                PathCount { sent: none, received: count, fast: FastCount { sent: none, received: fast } };
            ends.push((sender, from, sent));
            ends.push((receiver, to, received));
        }
        ends.into_iter().for_each(|(end, addr, count)| self.record.add(end, addr, count));
    }
}

fn boot_id() -> Option<String> {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

/// Both directions of an entry, if they are counted: a number, who sends to whom, and the count.
fn directions(entry: &CountedEntry) -> impl Iterator<Item = (u64, Pair, Counted)> + use<> {
    let CountedEntry { id, protocol, orig, reply } = entry;
    // The kernel's number is a hash of 32 bits, which two of 80,000 entries share. The hasher is always the same, since
    // the numbers are kept across restarts.
    let ends = (protocol, orig.src, orig.dst, orig.sport, orig.dport, reply.src, reply.dst);
    let above = BuildHasherDefault::<DefaultHasher>::default().hash_one(ends) << 33;
    let number = above | u64::from(*id) << 1;
    let orig_pair = orig.count.map(|count| (number, (orig.src, reply.src), count));
    let reply_pair = reply.count.map(|count| (number | 1, (reply.src, orig.src), count));
    [orig_pair, reply_pair].into_iter().flatten()
}

/// Tells flows apart, also from a later one with the same key. The numbers are the same in the next daemon, and nobody
/// who chooses ports knows which flows would share one.
#[derive(Debug, Clone, Copy)]
struct FlowKeys(u64);

impl FlowKeys {
    /// When a flow has left the table, its key lacks the ports, so those count with which its packets leave.
    fn of(self, key: &Key, entry: &Entry) -> u64 {
        let ((_, tags), abi::Flow { in_slot, .. }) = (key_ingress(key), entry.flow);
        let (from, to) = (key_tuple(key).src, new_tuple(key, entry));
        self.hash((key_protocol(key), from, to, tags, in_slot, entry.cold.learned_ticks))
    }

    fn hash(self, of: impl Hash) -> u64 {
        BuildHasherDefault::<DefaultHasher>::default().hash_one((self.0, of))
    }
}

fn flow_pair(key: &Key, entry: &Entry) -> Pair {
    (key_tuple(key).src, new_tuple(key, entry).dst)
}
