//! Finds the connections that `shunt why` is asked about, in conntrack and in the flow table.

use crate::flow_entry::{expired_tuple, key_protocol, key_tuple, new_tuple};
use nix::{ifaddrs::getifaddrs, sys::socket::SockaddrStorage};
use shunt_api::{Counted, Proto, Selection, Tracked, Tuple};
use shunt_bpf::{Arrival, Candidates, DataPlane, Entry, FlowTable, Key, abi};
use shunt_core::reversed;
use shunt_kernel::{ConntrackTimeouts, SilentHop};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, hash_map::Entry as Slot},
    error::Error,
    hash::{BuildHasher, RandomState},
    net::{IpAddr, Ipv4Addr},
    thread,
    time::{Duration, Instant},
};

/// At most this many connections of a selection are explained at a time; the rest are only counted.
const EXPLAINED_MAX: usize = 100;

/// A connection to be explained, with the facts that are read apart from the event loop.
#[derive(Debug, Clone)]
pub struct Candidate {
    pub(crate) protocol: u8,
    /// The tuples of the original and of the reply direction.
    pub(crate) tuples: [Tuple; 2],
    /// The conntrack entry; `None` if conntrack has none.
    pub(crate) tracked: Option<Tracked>,
    /// The flows of each direction: a direction has more than one if its packets arrive on several ports or VLANs.
    pub(crate) flows: [Vec<(Key, Entry)>; 2],
    /// What is left of flows of each direction that have left the table.
    pub(crate) expired: [Option<abi::Expired>; 2],
    /// Whether the connection begins or ends at the router itself.
    pub(crate) local: bool,
    /// Whether its packets are for a group of hosts: broadcast or multicast.
    pub(crate) to_group: bool,
    /// The devices by which Linux routes to the sources of both tuples: the two hosts, each before translation.
    pub(crate) devices: [BTreeSet<u32>; 2],
    /// What a second look has seen of each direction.
    pub(crate) looks: [Option<Look>; 2],
    /// After a second look: the next hops to the sources of both tuples that do not answer.
    pub(crate) silent_hops: [Option<SilentHop>; 2],
    /// After a second look: whether Linux forwards packets of this address family.
    pub(crate) is_forwarding: Option<bool>,
    /// Seconds since conntrack last saw a packet, as far as its timeout tells.
    pub(crate) tracked_ago_s: Option<u64>,
}

/// What a second look has seen of a direction.
#[derive(Debug, Clone)]
pub(crate) struct Look {
    pub(crate) over: Duration,
    /// What conntrack has counted meanwhile; `None` if it does not count.
    pub(crate) counted: Option<Counted>,
    /// Packets that arrived meanwhile.
    pub(crate) arrived: u64,
    /// The last packet, if it has not left through a port.
    pub(crate) stayed: Option<Arrival>,
    /// Packets of any connection that arrived on ports meanwhile and were passed to Linux, by the number of their
    /// reason.
    pub(crate) passed: [(usize, u64); PASSED.len()],
}

/// The first connections that match a search.
#[derive(Debug, Default)]
pub struct Found {
    pub(crate) candidates: Vec<Candidate>,
    /// How many more match.
    pub(crate) more: u64,
    /// To look again; `None` if nothing was searched.
    pub(crate) search: Option<Search>,
}

/// How long a second look takes, and how often it reads the slots of candidates. Packets use few slots, and use them
/// again at once.
const LOOK: Duration = Duration::from_millis(500);
const LOOKS: u32 = 20;

/// A direction is seldom slow if more than so many packets are fast for each slow one.
const SELDOM_SLOW: u64 = 8;

/// Reasons for which packets are passed to Linux whatever is known of their connection.
const PASSED: [usize; 6] = [
    abi::reason::FRAGMENT,
    abi::reason::TTL,
    abi::reason::OPTIONS,
    abi::reason::BAD_HEADER,
    abi::reason::CLASS,
    abi::reason::MTU,
];

/// Protocol, original direction, zone.
type Id = (u8, Tuple, Option<u16>);

/// Finds connections, on another thread than the event loop's.
#[derive(Debug)]
pub(crate) struct Search {
    table: FlowTable,
    /// None if nothing is learned.
    waiting: Option<Candidates>,
    which: Which,
}

/// The connections to find.
#[derive(Debug)]
enum Which {
    Selected(Selection),
    /// By protocol and original direction, as conntrack has them.
    Named(HashSet<(u8, Tuple)>),
}

impl Which {
    fn has(&self, protocol: u8, tuples: &[Tuple; 2]) -> bool {
        match self {
            Self::Selected(selection) => {
                selection.proto.is_none_or(|proto| proto.number() == protocol)
                    && tuples.iter().any(|tuple| selection.has_ends(tuple))
            }
            Self::Named(named) => named.contains(&(protocol, tuples[0])),
        }
    }
}

impl Search {
    pub(crate) fn new(plane: &DataPlane, selection: Selection) -> Result<Self, shunt_bpf::Error> {
        Self::open(plane, Which::Selected(selection))
    }

    /// A search for these connections, by protocol and original direction.
    pub(crate) fn named(plane: &DataPlane, these: Vec<(u8, Tuple)>) -> Result<Self, shunt_bpf::Error> {
        Self::open(plane, Which::Named(these.into_iter().collect()))
    }

    fn open(plane: &DataPlane, which: Which) -> Result<Self, shunt_bpf::Error> {
        Ok(Self { table: plane.flows()?, waiting: plane.candidates()?, which })
    }

    /// Reads conntrack and the flow table whole: takes as long as they are large.
    pub(crate) fn run(self) -> Result<Found, Box<dyn Error + Send + Sync>> {
        let (candidates, more) = self.find(&[])?;
        Ok(Found { candidates, more, search: Some(self) })
    }

    /// Finds them again, after a while in which packets were watched.
    pub(crate) fn look_again(self, before: &[Candidate]) -> Result<Found, Box<dyn Error + Send + Sync>> {
        let begin = Instant::now();
        let before_watch = self.passed()?;
        let watched = self.watch()?;
        let mut passed = self.passed()?;
        for ((_, packets), (_, then)) in passed.iter_mut().zip(before_watch) {
            *packets = packets.saturating_sub(then);
        }
        let known: HashSet<(u8, Tuple)> = before.iter().flat_map(Candidate::directions).collect();
        let unknown = watched.iter().filter(|seen| !known.contains(&seen.direction()));
        let unknown: Vec<(u8, Tuple)> = unknown.map(Seen::direction).collect();
        let (mut candidates, more) = self.find(&unknown)?;
        let counts = |candidate: &Candidate| {
            let tracked = candidate.tracked.as_ref()?;
            Some([tracked.orig.count?, tracked.reply.count?])
        };
        let mut hops: HashMap<IpAddr, Option<SilentHop>> = HashMap::new();
        let forwarding = shunt_kernel::forwarding()?;
        for candidate in &mut candidates {
            let is_v4 = candidate.tuples[0].src.is_ipv4();
            candidate.is_forwarding = Some(if is_v4 { forwarding.v4 } else { forwarding.v6 });
            for (tuple, silent) in candidate.tuples.iter().zip(&mut candidate.silent_hops) {
                *silent = match hops.entry(tuple.src) {
                    Slot::Occupied(known) => *known.get(),
                    Slot::Vacant(place) => *place.insert(shunt_kernel::silent_hop_to(tuple.src)?),
                };
            }
            let earlier = match before.iter().find(|earlier| earlier.id() == candidate.id()) {
                Some(earlier) if earlier.tracked.is_some() => counts(earlier),
                // Conntrack did not have it yet, unless it was one of those that were left out.
                _ if before.len() < EXPLAINED_MAX => Some([Counted::default(); 2]),
                _ => None,
            };
            let now = counts(candidate);
            candidate.looks = [0, 1].map(|at| {
                let seen = watched.iter().find(|seen| seen.direction() == candidate.directions()[at]);
                Some(Look {
                    over: begin.elapsed(),
                    counted: now.zip(earlier).map(|(now, then)| Counted {
                        packets: now[at].packets.saturating_sub(then[at].packets),
                        bytes: now[at].bytes.saturating_sub(then[at].bytes),
                    }),
                    arrived: seen.map_or(0, |seen| seen.arrived),
                    stayed: seen.map(|seen| seen.last).filter(|last| !last.left),
                    passed,
                })
            });
        }
        Ok(Found { candidates, more, search: Some(self) })
    }

    fn passed(&self) -> Result<[(usize, u64); PASSED.len()], shunt_bpf::Error> {
        let mut passed = PASSED.map(|reason| (reason, 0));
        if let Some(waiting) = &self.waiting {
            for (reason, packets) in &mut passed {
                *packets = waiting.counted(*reason)?;
            }
        }
        Ok(passed)
    }

    /// Watches the packets that ports pass to Linux, for [`LOOK`].
    fn watch(&self) -> Result<Vec<Seen>, shunt_bpf::Error> {
        let mut all: HashMap<u64, (Arrival, bool)> = HashMap::new();
        let Some(waiting) = &self.waiting else { return Ok(Vec::new()) };
        for turn in 0..=LOOKS {
            for arrival in waiting.read()? {
                match all.entry(arrival.id) {
                    Slot::Occupied(mut known) => known.get_mut().0 = arrival,
                    // The last turn tells only whether earlier ones have left.
                    Slot::Vacant(place) if turn < LOOKS => drop(place.insert((arrival, turn > 0))),
                    Slot::Vacant(_) => {}
                }
            }
            if turn < LOOKS {
                thread::sleep(LOOK / LOOKS);
            }
        }
        let mut seen: HashMap<(u8, Tuple), Seen> = HashMap::new();
        for (arrival, is_new) in all.into_values() {
            let direction = (arrival.protocol, Tuple::new(arrival.src, arrival.dst));
            let one = seen.entry(direction).or_insert(Seen { arrived: 0, last: arrival });
            one.arrived += u64::from(is_new);
            // Ticks wrap.
            if arrival.at_ticks.wrapping_sub(one.last.at_ticks) < u32::MAX / 2 {
                one.last = arrival;
            }
        }
        Ok(seen.into_values().collect())
    }

    /// `further` are directions that packets had, and that conntrack may not know.
    fn find(&self, further: &[(u8, Tuple)]) -> Result<(Vec<Candidate>, u64), Box<dyn Error + Send + Sync>> {
        let mut matches = Matches::new(match &self.which {
            Which::Selected(_) => EXPLAINED_MAX,
            Which::Named(named) => named.len(),
        });
        let mut further: BTreeSet<(u8, Tuple)> = further.iter().copied().collect();
        self.add_conntrack_entries(&mut matches, &mut further)?;
        self.add_flows(&mut matches)?;
        if let Which::Selected(selection) = &self.which
            && matches.first.is_empty()
        {
            for candidate in unknown_tuples(selection) {
                matches.add(candidate);
            }
        }
        let ip = |address: SockaddrStorage| {
            let v4 = address.as_sockaddr_in().map(|a| IpAddr::from(a.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::from(a.ip())))
        };
        let (mut local, mut broadcast) = (HashSet::new(), HashSet::from([Ipv4Addr::BROADCAST.into()]));
        for interface in getifaddrs()? {
            local.extend(interface.address.and_then(ip));
            // Linux takes the last address of a network for broadcast, whatever the device says.
            if let (Some(IpAddr::V4(address)), Some(IpAddr::V4(mask))) =
                (interface.address.and_then(ip), interface.netmask.and_then(ip))
                && mask.to_bits().count_ones() <= 30
            {
                broadcast.insert(IpAddr::V4(address | !mask));
            }
        }
        for (protocol, tuple) in further {
            let tuples = [tuple, reversed(tuple)];
            // To the router itself: the connection is over, or it is not tracked.
            let is_local = local.contains(&tuple.src) || local.contains(&tuple.dst);
            if !is_local && self.which.has(protocol, &tuples) {
                matches.add(Candidate::new(protocol, tuples));
            }
        }
        let (mut first, more) = matches.found();
        let mut routes: HashMap<IpAddr, BTreeSet<u32>> = HashMap::new();
        for candidate in &mut first {
            // The sources of the two directions are the two hosts, each before translation.
            candidate.local = candidate.tuples.iter().any(|tuple| local.contains(&tuple.src));
            let to = candidate.tuples[0].dst;
            candidate.to_group = to.is_multicast() || broadcast.contains(&to);
            self.add_expired(candidate)?;
            for (tuple, devices) in candidate.tuples.iter().zip(&mut candidate.devices) {
                // Many connections have the same ends.
                *devices = match routes.entry(tuple.src) {
                    Slot::Occupied(known) => known.get().clone(),
                    Slot::Vacant(place) => place.insert(shunt_kernel::devices_to(&[tuple.src])?).clone(),
                };
            }
        }
        Ok((first, more))
    }

    fn add_expired(&self, candidate: &mut Candidate) -> Result<(), shunt_bpf::Error> {
        let proto = match candidate.protocol {
            6 => Proto::Tcp,
            17 => Proto::Udp,
            _ => return Ok(()),
        };
        for (tuple, expired) in candidate.tuples.iter().zip(&mut candidate.expired) {
            *expired = self.table.expired(&expired_tuple(proto, tuple))?;
        }
        Ok(())
    }

    /// Of `further`, keeps what conntrack does not know.
    fn add_conntrack_entries(
        &self,
        matches: &mut Matches,
        further: &mut BTreeSet<(u8, Tuple)>,
    ) -> Result<(), shunt_kernel::Error> {
        let timeouts = shunt_kernel::conntrack_timeouts().ok();
        for entry in shunt_kernel::conntrack_table()? {
            let entry = entry?;
            let (protocol, tuples) = (entry.protocol, [entry.orig.tuple(), entry.reply.tuple()]);
            for tuple in tuples {
                further.remove(&(protocol, tuple));
            }
            if self.which.has(protocol, &tuples) {
                let tracked_ago_s = timeouts.and_then(|timeouts| last_seen_s(&entry, timeouts));
                let tracked = Some(entry);
                matches.add_tracked(Candidate { tracked, tracked_ago_s, ..Candidate::new(protocol, tuples) });
            }
        }
        matches.end_tracked();
        Ok(())
    }

    /// Adds the flows of the table, each to the conntrack entry of its connection or, without one, by itself.
    fn add_flows(&self, matches: &mut Matches) -> Result<(), shunt_bpf::Error> {
        self.table.for_each(|key, entry| {
            let (protocol, tuple) = (key_protocol(&key), key_tuple(&key));
            if matches.is_tracked(protocol, tuple) {
                if let Some(flows) = matches.flows_of_tracked(protocol, tuple) {
                    flows.push((key, entry));
                }
                return;
            }
            let opposite = reversed(new_tuple(&key, &entry));
            let at = usize::from(entry.flow.flags & abi::FLOW_REPLY != 0);
            let tuples = if at == 0 { [tuple, opposite] } else { [opposite, tuple] };
            let candidate = Candidate::new(protocol, tuples);
            if (matches.first.contains_key(&candidate.id()) || self.which.has(protocol, &tuples))
                && let Some(candidate) = matches.add(candidate)
            {
                candidate.flows[at].push((key, entry));
            }
        })
    }
}

/// The tuple that a selection names, for each protocol that it allows: the data plane may know why the tuple was
/// refused.
fn unknown_tuples(selection: &Selection) -> impl Iterator<Item = Candidate> + use<> {
    let (tuple, proto) = (selection.tuple(), selection.proto);
    let protocols =
        [Proto::Tcp, Proto::Udp].into_iter().filter(move |one| proto.is_none_or(|proto| proto == *one));
    protocols.filter_map(move |one| Some(Candidate::new(one.number(), [tuple?, reversed(tuple?)])))
}

/// Seconds since conntrack last saw a packet of an established connection: its timeout began then. `None` if a rule
/// gave it a longer one.
fn last_seen_s(entry: &Tracked, timeouts: ConntrackTimeouts) -> Option<u64> {
    let left = Duration::from_secs(entry.timeout_s?.into());
    let whole = match (entry.protocol, entry.state.as_deref()) {
        (6, Some("ESTABLISHED")) if left <= timeouts.tcp_unacknowledged => timeouts.tcp_unacknowledged,
        (6, Some("ESTABLISHED")) => timeouts.tcp_established,
        (6, Some("TIME_WAIT")) => timeouts.tcp_time_wait,
        (6, Some("SYN_SENT")) => timeouts.tcp_syn_sent,
        (6, Some("CLOSE")) => timeouts.tcp_close,
        (17, _) if entry.is(Tracked::ASSURED) => timeouts.udp_stream,
        (17, _) => timeouts.udp,
        _ => return None,
    };
    whole.checked_sub(left).map(|ago| ago.as_secs())
}

/// The packets of a direction that were seen while ports were watched.
#[derive(Debug)]
struct Seen {
    /// How many arrived meanwhile.
    arrived: u64,
    last: Arrival,
}

impl Seen {
    fn direction(&self) -> (u8, Tuple) {
        (self.last.protocol, Tuple::new(self.last.src, self.last.dst))
    }
}

/// The connections that match. Keeps the first ones and, of the others, which may be very many, only hashes.
struct Matches {
    hasher: RandomState,
    /// The largest number of connections that are kept.
    most: usize,
    first: BTreeMap<Id, Candidate>,
    /// Hashes of the ids of all connections, some of them several times.
    all: Vec<u64>,
    /// Hashes of both tuples of each connection in conntrack's default zone, sorted.
    tracked: Vec<u64>,
    /// Both tuples of those among the first ones.
    tracked_first: HashMap<(u8, Tuple), (Id, usize)>,
}

impl Matches {
    fn new(most: usize) -> Self {
        Self {
            hasher: RandomState::new(),
            most,
            first: BTreeMap::new(),
            all: Vec::new(),
            tracked: Vec::new(),
            tracked_first: HashMap::new(),
        }
    }

    /// Adds a connection, unless it is there. Returns the connection if it is among the first ones.
    fn add(&mut self, candidate: Candidate) -> Option<&mut Candidate> {
        let id = candidate.id();
        self.all.push(self.hasher.hash_one(id));
        self.first.entry(id).or_insert(candidate);
        if self.first.len() > self.most {
            self.first.pop_last();
        }
        self.first.get_mut(&id)
    }

    fn add_tracked(&mut self, candidate: Candidate) {
        // All flows are of conntrack's default zone: nothing else is learned.
        if candidate.id().2.is_none() {
            let hashes = candidate.tuples.map(|tuple| self.hasher.hash_one((candidate.protocol, tuple)));
            self.tracked.extend(hashes);
        }
        self.add(candidate);
    }

    /// To be called when all connections that conntrack knows have been added.
    fn end_tracked(&mut self) {
        self.tracked.sort_unstable();
        for (id, candidate) in self.first.iter().filter(|((_, _, zone), _)| zone.is_none()) {
            for (at, tuple) in candidate.tuples.iter().enumerate() {
                self.tracked_first.insert((id.0, *tuple), (*id, at));
            }
        }
    }

    fn is_tracked(&self, protocol: u8, tuple: Tuple) -> bool {
        self.tracked.binary_search(&self.hasher.hash_one((protocol, tuple))).is_ok()
    }

    /// The flows of a direction of a tracked connection; `None` if the connection is not among the first ones.
    fn flows_of_tracked(&mut self, protocol: u8, tuple: Tuple) -> Option<&mut Vec<(Key, Entry)>> {
        let (id, at) = self.tracked_first.get(&(protocol, tuple))?;
        self.first.get_mut(id).map(|candidate| &mut candidate.flows[*at])
    }

    fn found(mut self) -> (Vec<Candidate>, u64) {
        self.all.sort_unstable();
        self.all.dedup();
        let more = self.all.len().saturating_sub(self.first.len()) as u64;
        (self.first.into_values().collect(), more)
    }
}

impl Candidate {
    fn new(protocol: u8, tuples: [Tuple; 2]) -> Self {
        Self {
            protocol,
            tuples,
            tracked: None,
            flows: [Vec::new(), Vec::new()],
            expired: [None, None],
            local: false,
            to_group: false,
            devices: [BTreeSet::new(), BTreeSet::new()],
            looks: [None, None],
            silent_hops: [None, None],
            is_forwarding: None,
            tracked_ago_s: None,
        }
    }

    /// Both directions, each by protocol and tuple.
    fn directions(&self) -> [(u8, Tuple); 2] {
        self.tuples.map(|tuple| (self.protocol, tuple))
    }

    /// The directions with a flow of which conntrack has counted many packets, each of which went through Linux: before
    /// the flow was learned, or beside it.
    pub(crate) fn directions_often_slow(&self) -> Vec<(u8, Tuple)> {
        let Some(entry) = &self.tracked else { return Vec::new() };
        let slow = [entry.orig.count, entry.reply.count].map(|count| count.map_or(0, |count| count.packets));
        let fast =
            self.flows.each_ref().map(|flows| flows.iter().map(|(_, entry)| entry.pkts()).sum::<u64>());
        let is_often = |at: usize| fast[at] > 0 && SELDOM_SLOW * slow[at] > fast[at];
        (0..2).filter(|at| is_often(*at)).map(|at| self.directions()[at]).collect()
    }

    fn id(&self) -> Id {
        (self.protocol, self.tuples[0], self.tracked.as_ref().and_then(|entry| entry.zone))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(sport: u16) -> Tuple {
        Tuple::new(([192, 0, 2, 1], sport).into(), ([198, 51, 100, 1], 53).into())
    }

    fn candidate(sport: u16) -> Candidate {
        Candidate::new(17, [tuple(sport), reversed(tuple(sport))])
    }

    #[test]
    fn connections_are_found_by_their_original_direction_or_by_a_selection() {
        let both = [tuple(1), reversed(tuple(1))];
        let named = Which::Named([(17, tuple(1))].into());
        assert!(named.has(17, &both) && !named.has(6, &both) && !named.has(17, &[both[1], both[0]]));
        let of_tcp =
            Which::Selected(Selection { sport: Some(53), proto: Some(Proto::Tcp), ..Selection::default() });
        assert!(of_tcp.has(6, &both) && !of_tcp.has(17, &both) && !of_tcp.has(1, &both));
        assert!(Which::Selected(Selection::default()).has(1, &both));
    }

    #[test]
    fn the_timeout_tells_when_conntrack_last_saw_a_packet() {
        let seconds = Duration::from_secs;
        let timeouts = ConntrackTimeouts {
            udp: seconds(30),
            udp_stream: seconds(120),
            tcp_established: seconds(7440),
            tcp_unacknowledged: seconds(300),
            tcp_close: seconds(10),
            tcp_time_wait: seconds(120),
            tcp_syn_sent: seconds(120),
            tcp_be_liberal: false,
        };
        let ago = |protocol: u8, state: Option<&str>, status: u32, timeout_s: Option<u32>| {
            let entry = serde_json::json!({
                "family": 4, "protocol": protocol, "timeout_s": timeout_s, "state": state, "status": status,
                "use": 1,
                "orig": { "src": "192.0.2.1", "dst": "192.0.2.2", "fast": { "packets": 0, "bytes": 0 } },
                "reply": { "src": "192.0.2.2", "dst": "192.0.2.1", "fast": { "packets": 0, "bytes": 0 } },
            });
            last_seen_s(&serde_json::from_value(entry).unwrap(), timeouts)
        };
        let tcp = |state: &str, timeout_s: u32| ago(6, Some(state), Tracked::ASSURED, Some(timeout_s));
        assert_eq!((tcp("ESTABLISHED", 7400), tcp("ESTABLISHED", 280)), (Some(40), Some(20)));
        assert_eq!((tcp("TIME_WAIT", 113), tcp("CLOSE", 4)), (Some(7), Some(6)));
        assert_eq!((tcp("ESTABLISHED", 8000), tcp("LAST_ACK", 20)), (None, None));
        assert_eq!(ago(6, Some("ESTABLISHED"), Tracked::ASSURED, None), None);
        // Only a stream has the long timeout, and has it until its end.
        let [stream, exchange] =
            [Tracked::ASSURED, 0].map(|status| move |timeout_s| ago(17, None, status, Some(timeout_s)));
        assert_eq!((stream(110), stream(28)), (Some(10), Some(92)));
        assert_eq!((exchange(28), exchange(110)), (Some(2), None));
    }

    #[test]
    fn the_first_connections_are_kept_and_the_others_counted_once() {
        let mut matches = Matches::new(100);
        for sport in (1..=300).rev().chain(1..=300) {
            matches.add_tracked(candidate(sport));
        }
        matches.end_tracked();
        assert!(matches.is_tracked(17, reversed(tuple(300))) && !matches.is_tracked(6, tuple(300)));
        assert!(!matches.is_tracked(17, tuple(301)));
        assert!(matches.flows_of_tracked(17, tuple(100)).is_some());
        assert!(matches.flows_of_tracked(17, tuple(101)).is_none());
        assert!(matches.add(candidate(301)).is_none() && matches.add(candidate(0)).is_some());
        let (first, more) = matches.found();
        let ports: Vec<u16> = first.iter().map(|candidate| candidate.tuples[0].sport).collect();
        assert_eq!((ports, more), ((0..100).collect(), 202));
    }
}
