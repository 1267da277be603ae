//! Why a connection is fast or slow: from the flow table, from conntrack, and from what was refused.

mod verdict;

use crate::{
    connections::{Clock, new_of, proto_of, tuple_of, turned},
    daemon::Daemon,
    reasons,
};
use nix::ifaddrs::getifaddrs;
use shunt_api::{
    Because, DirectionName, Engine, Explained, FilterHook, FlowState, MarkMatch, RulesetStatus, Selection,
    Tracked, Tuple, Why,
};
use shunt_bpf::{
    DataPlane, Entry, FlowTable, Key,
    abi::{self, Key4, Key6, Sighting},
};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    error::Error,
    net::IpAddr,
};
use verdict::{Case, FlowFacts};

/// So many are explained at a time, the rest is counted.
const MOST: usize = 100;
/// As in bpf/include/watch.h: packets of a tuple count together for so long.
const WINDOW_S: u64 = 10;
const DIRECTIONS: [DirectionName; 2] = [DirectionName::Orig, DirectionName::Reply];

/// A connection that was asked for, with what can be read apart from the daemon's loop.
#[derive(Debug)]
pub struct Asked {
    protocol: u8,
    tuples: [Tuple; 2],
    tracked: Option<Tracked>,
    flows: [Vec<(Key, Entry)>; 2],
    local: bool,
}

/// What was found, and how many more there are.
pub type Found = (Vec<Asked>, u64);

/// Protocol, original direction, zone.
type Id = (u8, Tuple, Option<u16>);

/// Looks for connections, on another thread than the loop's.
#[derive(Debug)]
pub(crate) struct Search {
    table: FlowTable,
    wanted: Selection,
}

impl Search {
    pub(crate) fn new(plane: &DataPlane, wanted: Selection) -> Result<Self, shunt_bpf::Error> {
        Ok(Self { table: plane.flows()?, wanted })
    }

    /// Takes as long as the tables are large.
    pub(crate) fn run(&self) -> Result<Found, Box<dyn Error + Send + Sync>> {
        let mut found = self.tracked()?;
        self.add_flows(&mut found)?;
        if found.is_empty() {
            found = self.unknown();
        }
        let local: HashSet<IpAddr> = getifaddrs()?
            .filter_map(|interface| {
                let address = interface.address?;
                let v4 = address.as_sockaddr_in().map(|a| IpAddr::from(a.ip()));
                v4.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::from(a.ip())))
            })
            .collect();
        let more = found.len().saturating_sub(MOST) as u64;
        let mut first: Vec<Asked> = found.into_values().take(MOST).collect();
        for asked in &mut first {
            // The sources of both directions are the two ends, before anything was translated.
            asked.local = asked.tuples.iter().any(|tuple| local.contains(&tuple.src));
        }
        Ok((first, more))
    }

    fn tracked(&self) -> Result<BTreeMap<Id, Asked>, shunt_kernel::Error> {
        let Selection { proto, .. } = self.wanted;
        let mut found = BTreeMap::new();
        for entry in shunt_kernel::tracked()? {
            let tuples = [entry.orig.tuple(), entry.reply.tuple()];
            let is_wanted = proto.is_none_or(|proto| entry.proto() == Some(proto))
                && tuples.iter().any(|tuple| self.wanted.has_ends(tuple));
            if is_wanted {
                let id = (entry.protocol, tuples[0], entry.zone);
                found.insert(id, Asked { tracked: Some(entry), ..Asked::new(id.0, tuples) });
            }
        }
        Ok(found)
    }

    /// Those of the table, with what conntrack knows or alone.
    fn add_flows(&self, found: &mut BTreeMap<Id, Asked>) -> Result<(), shunt_bpf::Error> {
        let mut known: HashMap<(u8, Tuple), (Id, usize)> = HashMap::new();
        // Flows are of the default zone, as all that is learned.
        for (id, asked) in found.iter().filter(|((_, _, zone), _)| zone.is_none()) {
            for (at, tuple) in asked.tuples.iter().enumerate() {
                known.insert((id.0, *tuple), (*id, at));
            }
        }
        self.table.each(|key, entry| {
            let (protocol, tuple) = (protocol_of(&key), tuple_of(&key));
            let other = turned(new_of(&key, &entry));
            let at = usize::from(entry.flow.flags & abi::FLOW_REPLY != 0);
            let tuples = if at == 0 { [tuple, other] } else { [other, tuple] };
            let (id, at) =
                known.get(&(protocol, tuple)).copied().unwrap_or(((protocol, tuples[0], None), at));
            if found.contains_key(&id) || self.wanted.has(proto_of(&key), &tuples) {
                let asked = found.entry(id).or_insert_with(|| Asked::new(protocol, tuples));
                asked.flows[at].push((key, entry));
            }
        })
    }

    /// A tuple that nobody knows may have been refused.
    fn unknown(&self) -> BTreeMap<Id, Asked> {
        let Some(tuple) = self.wanted.tuple() else { return BTreeMap::new() };
        let protocols = [6, 17].into_iter().filter(|protocol| {
            self.wanted.proto.is_none_or(|proto| (proto == shunt_api::Proto::Tcp) == (*protocol == 6))
        });
        protocols.map(|p| ((p, tuple, None), Asked::new(p, [tuple, turned(tuple)]))).collect()
    }
}

impl Asked {
    fn new(protocol: u8, tuples: [Tuple; 2]) -> Self {
        Self { protocol, tuples, tracked: None, flows: [Vec::new(), Vec::new()], local: false }
    }
}

/// Explains them; those of which nothing is known at all are left out. On the loop, so a few at a time.
pub(crate) fn explain(daemon: &Daemon, all: &[Asked]) -> Result<Vec<Explained>, shunt_bpf::Error> {
    let clock = Clock::of(&daemon.plane)?;
    let mut explained = Vec::new();
    for asked in all {
        let mut known = asked.tracked.is_some();
        let mut directions = Vec::new();
        for (at, dir) in DIRECTIONS.into_iter().enumerate() {
            let flow = asked.flows[at].iter().max_by_key(|(_, entry)| clock.state(&entry.flow));
            let sighting = daemon.plane.sighting(&key_of(asked.protocol, &asked.tuples[at]))?;
            let case = case_of(daemon, asked, dir, flow, &sighting, clock);
            known |= flow.is_some() || case.refused.is_some();
            directions.push(why(daemon, asked.tuples[at], flow, &case));
        }
        if known {
            let state = asked.tracked.as_ref().and_then(|tracked| tracked.state.clone());
            let (protocol, tracked) = (asked.protocol, asked.tracked.is_some());
            explained.push(Explained { protocol, tracked, state, directions });
        }
    }
    Ok(explained)
}

fn case_of<'c>(
    daemon: &Daemon,
    asked: &'c Asked,
    dir: DirectionName,
    flow: Option<&(Key, Entry)>,
    sighting: &Sighting,
    clock: Clock,
) -> Case<'c> {
    let config = &daemon.config;
    let tracked = asked.tracked.as_ref();
    let excluded = |MarkMatch { value, mask }: MarkMatch| {
        mask != 0 && tracked.and_then(|t| t.mark).is_some_and(|mark| mark & mask == value)
    };
    let seen = if clock.seconds_since(sighting.since_ticks) < WINDOW_S { sighting.pkts } else { 0 };
    let want = if asked.protocol == 6 { config.tcp_packets } else { config.udp_packets };
    Case {
        protocol: asked.protocol,
        dir,
        tracked,
        flow: flow.map(|(_, entry)| facts(&entry.flow, entry.cold.learned_ticks, clock)),
        refused: reasons::name(sighting.refused_why),
        refused_since: flow
            .is_some_and(|(_, entry)| !clock.is_before(sighting.quiet_until_ticks, entry.flow.retired_ticks)),
        seen: (seen, want),
        held: held(daemon, asked.tuples[0].src.is_ipv4()),
        excluded: config.exclude_ct_mark.is_some_and(excluded),
        udp_unreplied: config.udp_unreplied,
        learns: config.learn,
        local: asked.local,
        epoch_moved: daemon.last_move.map(|(at, cause)| (at.elapsed().as_secs(), cause.to_string())),
    }
}

fn facts(flow: &abi::Flow, learned_ticks: u32, clock: Clock) -> FlowFacts {
    let state = clock.state(flow);
    let since = if state == FlowState::Retired { flow.retired_ticks } else { learned_ticks };
    FlowFacts {
        state,
        retired_why: reasons::name(flow.retired_why),
        current: flow.epoch == clock.epoch,
        since_s: clock.seconds_since(since),
    }
}

/// Why nothing is learned of a family at all, or on some port. Which port a connection would come in by is not known
/// before it is learned.
fn held(daemon: &Daemon, v4: bool) -> Option<(&'static str, String)> {
    let (held4, held6) = daemon.plane.control().held();
    if if v4 { held4 } else { held6 } {
        return Some(("ruleset", rule(&daemon.core.ruleset(), v4)));
    }
    let mut ports = daemon.core.ports();
    ports.find_map(|(link, view)| {
        if daemon.plane.flags(link.ifindex) & abi::PORT_CAPTURED != 0 {
            return Some(("capture", format!("on {}", link.name)));
        }
        let filter = view.filters.first()?;
        let reason = match filter.hook {
            FilterHook::Ingress => "ingress-filter",
            FilterHook::Egress | FilterHook::Qdisc => "egress-filter",
        };
        Some((reason, filter.to_string()))
    })
}

/// The first rule that has nothing learned.
fn rule(ruleset: &RulesetStatus, v4: bool) -> String {
    let other = if v4 { "ip6" } else { "ip" };
    match ruleset.stops.iter().find(|note| note.family != other) {
        Some(note) => format!("`{}` in {}", note.statement, note.place()),
        None => ruleset.unread.clone().unwrap_or_else(|| "it is being read".to_owned()),
    }
}

fn why(daemon: &Daemon, tuple: Tuple, flow: Option<&(Key, Entry)>, case: &Case) -> Why {
    let verdict = verdict::of(case);
    let in_port = flow.map(|(key, _)| match key {
        Key::V4(key) => key.ifindex,
        Key::V6(key) => key.ifindex,
    });
    let out_port = flow.and_then(|(_, entry)| daemon.plane.ifindex_at(entry.flow.out_slot));
    let engine = |flags: u8| if flags & abi::FLOW_XDP != 0 { Engine::Xdp } else { Engine::Tc };
    let fast = verdict.slow.is_none();
    Why {
        dir: case.dir,
        tuple,
        fast,
        since_s: verdict.since_s,
        engine: flow.filter(|_| fast).map(|(_, entry)| engine(entry.flow.flags)),
        in_port: in_port.map(|ifindex| daemon.name(ifindex)),
        out_port: out_port.map(|ifindex| daemon.name(ifindex)),
        because: verdict.slow.map(|reason| {
            let text = reasons::text(reason);
            Because {
                reason: reason.to_owned(),
                meaning: text.map(|text| text.meaning).unwrap_or_default().to_owned(),
                detail: verdict.detail,
                remedy: text.map(|text| text.remedy).unwrap_or_default().to_owned(),
            }
        }),
    }
}

fn protocol_of(key: &Key) -> u8 {
    let number = match key {
        Key::V4(key) => key.l4_proto,
        Key::V6(key) => key.l4_proto,
    };
    number as u8
}

/// A key whose sighting is asked for: port and tags do not matter.
fn key_of(protocol: u8, tuple: &Tuple) -> Key {
    let (sport_be, dport_be) = (tuple.sport.to_be_bytes(), tuple.dport.to_be_bytes());
    let l4_proto = protocol.into();
    match (tuple.src, tuple.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let (src_be, dst_be) = (src.octets(), dst.octets());
            Key::V4(Key4 { src_be, dst_be, sport_be, dport_be, l4_proto, ..Key4::default() })
        }
        (src, dst) => {
            let octets = |addr| match addr {
                IpAddr::V4(addr) => addr.to_ipv6_mapped().octets(),
                IpAddr::V6(addr) => addr.octets(),
            };
            let (src_be, dst_be) = (octets(src), octets(dst));
            Key::V6(Key6 { src_be, dst_be, sport_be, dport_be, l4_proto, ..Key6::default() })
        }
    }
}
