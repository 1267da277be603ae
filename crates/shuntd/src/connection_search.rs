//! Finds the connections that `shunt why` is asked about, in conntrack and in the flow table.

use crate::flow_entry::{key_proto, key_protocol, key_tuple, new_tuple};
use nix::ifaddrs::getifaddrs;
use shunt_api::{Selection, Tracked, Tuple};
use shunt_bpf::{DataPlane, Entry, FlowTable, Key, abi};
use shunt_core::reversed;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    error::Error,
    net::IpAddr,
};

/// At most this many connections are explained at a time; the rest are only counted.
const EXPLAINED_MAX: usize = 100;

/// A connection to be explained, with the facts that are read apart from the event loop.
#[derive(Debug)]
pub struct Candidate {
    pub(crate) protocol: u8,
    /// The tuples of the original and of the reply direction.
    pub(crate) tuples: [Tuple; 2],
    /// The conntrack entry; `None` if conntrack has none.
    pub(crate) tracked: Option<Tracked>,
    /// The flows of each direction: a direction has more than one if its packets arrive on several ports or VLANs.
    pub(crate) flows: [Vec<(Key, Entry)>; 2],
    /// Whether the connection begins or ends at the router itself.
    pub(crate) local: bool,
}

/// The first connections that match a selection, and how many more match.
pub type Found = (Vec<Candidate>, u64);

/// Protocol, original direction, zone.
type Id = (u8, Tuple, Option<u16>);

/// Finds connections, on another thread than the event loop's.
#[derive(Debug)]
pub(crate) struct Search {
    table: FlowTable,
    selection: Selection,
}

impl Search {
    pub(crate) fn new(plane: &DataPlane, selection: Selection) -> Result<Self, shunt_bpf::Error> {
        Ok(Self { table: plane.flows()?, selection })
    }

    /// Reads conntrack and the flow table whole: takes as long as they are large.
    pub(crate) fn run(&self) -> Result<Found, Box<dyn Error + Send + Sync>> {
        let mut found = self.conntrack_entries()?;
        self.add_flows(&mut found)?;
        if found.is_empty() {
            found = self.unknown_tuples();
        }
        let local: HashSet<IpAddr> = getifaddrs()?
            .filter_map(|interface| {
                let address = interface.address?;
                let v4 = address.as_sockaddr_in().map(|a| IpAddr::from(a.ip()));
                v4.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::from(a.ip())))
            })
            .collect();
        let more = found.len().saturating_sub(EXPLAINED_MAX) as u64;
        let mut first: Vec<Candidate> = found.into_values().take(EXPLAINED_MAX).collect();
        for candidate in &mut first {
            // The sources of the two directions are the two hosts, each before translation.
            candidate.local = candidate.tuples.iter().any(|tuple| local.contains(&tuple.src));
        }
        Ok((first, more))
    }

    fn conntrack_entries(&self) -> Result<BTreeMap<Id, Candidate>, shunt_kernel::Error> {
        let Selection { proto, .. } = self.selection;
        let mut found = BTreeMap::new();
        for entry in shunt_kernel::conntrack_table()? {
            let tuples = [entry.orig.tuple(), entry.reply.tuple()];
            let is_selected = proto.is_none_or(|proto| entry.proto() == Some(proto))
                && tuples.iter().any(|tuple| self.selection.has_ends(tuple));
            if is_selected {
                let id = (entry.protocol, tuples[0], entry.zone);
                found.insert(id, Candidate { tracked: Some(entry), ..Candidate::new(id.0, tuples) });
            }
        }
        Ok(found)
    }

    /// Adds the flows of the table, each to the conntrack entry of its connection or, without one, by itself.
    fn add_flows(&self, found: &mut BTreeMap<Id, Candidate>) -> Result<(), shunt_bpf::Error> {
        let mut known: HashMap<(u8, Tuple), (Id, usize)> = HashMap::new();
        // All flows are of conntrack's default zone: nothing else is learned.
        for (id, candidate) in found.iter().filter(|((_, _, zone), _)| zone.is_none()) {
            for (at, tuple) in candidate.tuples.iter().enumerate() {
                known.insert((id.0, *tuple), (*id, at));
            }
        }
        self.table.for_each(|key, entry| {
            let (protocol, tuple) = (key_protocol(&key), key_tuple(&key));
            let opposite = reversed(new_tuple(&key, &entry));
            let at = usize::from(entry.flow.flags & abi::FLOW_REPLY != 0);
            let tuples = if at == 0 { [tuple, opposite] } else { [opposite, tuple] };
            let (id, at) =
                known.get(&(protocol, tuple)).copied().unwrap_or(((protocol, tuples[0], None), at));
            if found.contains_key(&id) || self.selection.has(key_proto(&key), &tuples) {
                let candidate = found.entry(id).or_insert_with(|| Candidate::new(protocol, tuples));
                candidate.flows[at].push((key, entry));
            }
        })
    }

    /// The tuple that the selection names, for each protocol that it allows: the data plane may know why the tuple was
    /// refused.
    fn unknown_tuples(&self) -> BTreeMap<Id, Candidate> {
        let Some(tuple) = self.selection.tuple() else { return BTreeMap::new() };
        let protocols = [6, 17].into_iter().filter(|protocol| {
            self.selection.proto.is_none_or(|proto| (proto == shunt_api::Proto::Tcp) == (*protocol == 6))
        });
        protocols.map(|p| ((p, tuple, None), Candidate::new(p, [tuple, reversed(tuple)]))).collect()
    }
}

impl Candidate {
    fn new(protocol: u8, tuples: [Tuple; 2]) -> Self {
        Self { protocol, tuples, tracked: None, flows: [Vec::new(), Vec::new()], local: false }
    }
}
