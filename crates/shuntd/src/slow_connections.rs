//! Finds the connections whose packets Linux forwards, with their rates, on another thread than the event loop's.

use crate::{
    failures::internal,
    flow_entry::{entry_state, key_protocol, key_tuple, read_clock},
};
use shunt_api::{
    Because, Counted, DirectionName, Explained, Failure, FlowState, Proto, Selection, SlowConnection,
    SlowCount, SlowDirection, SlowTable, Tracked, TrackedDirection, Tuple, Why,
};
use shunt_bpf::{DataPlane, Error, FlowTable};
use shunt_core::TickClock;
use std::{
    cmp::Reverse,
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    time::{Duration, Instant},
};

/// Reads conntrack and the flow table once; [`Self::sample`] does it, and [`SlowSample::finish`] a second time.
#[derive(Debug)]
pub(crate) struct SlowReader {
    table: FlowTable,
    clock: (TickClock, Instant),
}

/// What conntrack had counted at one time.
#[derive(Debug)]
pub(crate) struct SlowSample {
    reader: SlowReader,
    hasher: RandomState,
    /// Counts by the hash of their direction, ascending; empty if no rates are wanted.
    counts: Vec<(u64, Counted)>,
    /// When the counts were read; `None` if no rates are wanted.
    at: Option<Instant>,
}

impl SlowReader {
    pub(crate) fn new(plane: &DataPlane) -> Result<Self, Error> {
        Ok(Self { table: plane.flows()?, clock: (read_clock(plane)?, Instant::now()) })
    }

    /// Reads the counts from which rates are measured, if they are wanted.
    pub(crate) fn sample(self, rates: bool) -> Result<SlowSample, Failure> {
        let mut sample =
            SlowSample { reader: self, hasher: RandomState::new(), counts: Vec::new(), at: None };
        if rates && shunt_kernel::conntrack_accounting() {
            for entry in shunt_kernel::conntrack_table().map_err(internal)? {
                let entry = entry.map_err(internal)?;
                for direction in [&entry.orig, &entry.reply] {
                    let hash = sample.hash(&entry, direction);
                    sample.counts.extend(direction.count.map(|count| (hash, count)));
                }
            }
            sample.counts.sort_unstable_by_key(|(hash, _)| *hash);
            sample.at = Some(Instant::now());
        }
        Ok(sample)
    }
}

impl SlowSample {
    fn hash(&self, entry: &Tracked, direction: &TrackedDirection) -> u64 {
        self.hasher.hash_one((
            entry.protocol,
            direction.tuple(),
            entry.zone.or(direction.zone),
            direction.icmp,
        ))
    }

    fn hash_of_flow(&self, protocol: u8, tuple: Tuple) -> u64 {
        let (zone, icmp) = (None::<u16>, None::<shunt_api::Icmp>);
        self.hasher.hash_one((protocol, tuple, zone, icmp))
    }

    /// Lists the slow connections, with rates since the sample.
    pub(crate) fn finish(self) -> Result<SlowTable, Failure> {
        let fast = self.directions_in_use().map_err(internal)?;
        let counted = shunt_kernel::conntrack_accounting();
        let mut busiest = Busiest::default();
        for entry in shunt_kernel::conntrack_table().map_err(internal)? {
            let entry = entry.map_err(internal)?;
            if let Some(connection) = self.slow(&entry, &fast) {
                busiest.add(connection);
            }
        }
        let (connections, more) = busiest.sorted();
        Ok(SlowTable { counted, connections, more })
    }

    /// The hashes of directions whose flows are in use, or will be by their next packet; ascending.
    fn directions_in_use(&self) -> Result<Vec<u64>, Error> {
        let (table, (clock, read)) = (&self.reader.table, self.reader.clock);
        let clock = clock.advanced_by(read.elapsed());
        let mut fast = Vec::new();
        table.for_each(|key, entry| {
            if entry_state(&entry.flow, table.epochs()).flow_state(clock) >= FlowState::Pending {
                fast.push(self.hash_of_flow(key_protocol(&key), key_tuple(&key)));
            }
        })?;
        fast.sort_unstable();
        Ok(fast)
    }

    /// The connection, if Linux forwards at least one of its directions. With rates, only if packets came.
    fn slow(&self, entry: &Tracked, fast: &[u64]) -> Option<SlowConnection> {
        let directions: Vec<SlowDirection> =
            [(DirectionName::Orig, &entry.orig), (DirectionName::Reply, &entry.reply)]
                .into_iter()
                .map(|(dir, direction)| (dir, self.hash(entry, direction), direction.count))
                .filter(|(_, hash, _)| fast.binary_search(hash).is_err())
                .map(|(dir, hash, count)| SlowDirection {
                    dir,
                    count: count.map(|count| self.count(hash, count)),
                    because: None,
                })
                .collect();
        let count = directions.iter().filter_map(|direction| direction.count).reduce(SlowCount::plus);
        // Without counts, nobody knows whether packets come by the direction that has no flow.
        let is_unknown = count.is_none() && directions.len() < 2;
        let is_silent =
            self.at.is_some() && count.is_some_and(|count| count.rate_pps == 0 && count.rate_bps == 0);
        (!directions.is_empty() && !is_silent && !is_unknown).then(|| SlowConnection {
            family: entry.family,
            protocol: entry.protocol,
            orig: entry.orig.tuple(),
            reply: entry.reply.tuple(),
            state: FlowState::Slow,
            conntrack_state: entry.state.clone(),
            count,
            age_s: entry.age_s,
            directions,
        })
    }

    /// The count of a direction, with its rate since the sample. A direction that came later began at zero.
    fn count(&self, hash: u64, now: Counted) -> SlowCount {
        let Counted { packets, bytes } = now;
        let Some(at) = self.at else { return SlowCount { packets, bytes, ..SlowCount::default() } };
        let before = self.counts.binary_search_by_key(&hash, |(hash, _)| *hash);
        let before = before.map_or_else(|_| Counted::default(), |found| self.counts[found].1);
        let seconds = at.elapsed().max(Duration::from_millis(1)).as_secs_f64();
        let per_second = |count: u64| (count as f64 / seconds).round() as u64;
        let packets_since = packets.saturating_sub(before.packets);
        SlowCount {
            packets,
            bytes,
            // A single packet in a long interval is a rate, too.
            rate_pps: if packets_since > 0 { per_second(packets_since).max(1) } else { 0 },
            rate_bps: per_second(bytes.saturating_sub(before.bytes).saturating_mul(8)),
        }
    }
}

/// Says why each direction is slow, by what was found out about the connections a moment later.
pub(crate) fn give_reasons(connections: &mut [SlowConnection], explained: Vec<Explained>) {
    let mut found: HashMap<(u8, Tuple), Why> = HashMap::new();
    for Explained { protocol, directions, .. } in explained {
        found.extend(directions.into_iter().map(|why| ((protocol, why.tuple), why)));
    }
    for SlowConnection { protocol, orig, reply, directions, .. } in connections {
        for direction in directions {
            let tuple = if direction.dir == DirectionName::Orig { *orig } else { *reply };
            let why = found.remove(&(*protocol, tuple));
            direction.because = Some(why.map_or_else(|| cannot_tell(*protocol, *orig), because));
        }
    }
}

fn because(why: Why) -> Because {
    let text = |reason: &str, meaning: &str, detail: String, remedy: &str| Because {
        reason: reason.to_owned(),
        meaning: meaning.to_owned(),
        detail,
        remedy: remedy.to_owned(),
    };
    match (why.because, why.idle) {
        (Some(because), _) => because,
        (None, Some(idle)) => text(
            "idle",
            "no packets come; the last ones took the fast path",
            idle.for_s.map_or_else(String::new, |s| format!("none for {}{s} s", idle.least())),
            "nothing to do: it is fast again soon after packets come",
        ),
        (None, None) => text(
            "now-fast",
            "it was slow when the list was made, and is fast by now",
            String::new(),
            "nothing to do",
        ),
    }
}

fn cannot_tell(protocol: u8, orig: Tuple) -> Because {
    let Tuple { src, dst, sport, dport } = orig;
    let which = Selection {
        src: Some(src.into()),
        dst: Some(dst.into()),
        sport: Some(sport),
        dport: Some(dport),
        proto: [Proto::Tcp, Proto::Udp].into_iter().find(|proto| proto.number() == protocol),
    };
    Because {
        reason: "cannot-tell".to_owned(),
        meaning: "conntrack no longer has the connection".to_owned(),
        detail: String::new(),
        remedy: format!("if packets still come: `shunt why {}`", which.words()),
    }
}

/// The connections with the highest rates. Holds at most twice as many as are wanted.
#[derive(Debug, Default)]
struct Busiest {
    kept: Vec<SlowConnection>,
    left_out: u64,
}

impl Busiest {
    fn add(&mut self, connection: SlowConnection) {
        self.kept.push(connection);
        if self.kept.len() >= 2 * SlowTable::MOST {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let rank = |one: &SlowConnection| {
            let count = one.count.unwrap_or_default();
            (Reverse((count.rate_bps, count.rate_pps, count.bytes)), one.protocol, one.orig)
        };
        self.kept.sort_by_cached_key(rank);
        self.left_out += self.kept.len().saturating_sub(SlowTable::MOST) as u64;
        self.kept.truncate(SlowTable::MOST);
    }

    fn sorted(mut self) -> (Vec<SlowConnection>, u64) {
        self.cut();
        (self.kept, self.left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_api::Family;
    use shunt_api::Idle;

    fn connection(number: u64) -> SlowConnection {
        let port = number as u16;
        let tuple = Tuple::new(([192, 0, 2, 1], port).into(), ([198, 51, 100, 1], 53).into());
        let count = SlowCount { rate_bps: number, ..SlowCount::default() };
        SlowConnection {
            family: Family::V4,
            protocol: 17,
            orig: tuple,
            reply: shunt_core::reversed(tuple),
            state: FlowState::Slow,
            conntrack_state: None,
            count: Some(count),
            age_s: None,
            directions: vec![SlowDirection { dir: DirectionName::Orig, count: Some(count), because: None }],
        }
    }

    #[test]
    fn the_connections_with_the_highest_rates_are_kept_and_the_others_counted() {
        let mut busiest = Busiest::default();
        for number in (0..5000).step_by(2).chain((1..5000).step_by(2)) {
            busiest.add(connection(number));
            assert!(busiest.kept.len() < 2 * SlowTable::MOST);
        }
        let (kept, more) = busiest.sorted();
        assert_eq!((kept.len(), more), (SlowTable::MOST, 4000));
        let rates: Vec<u64> = kept.iter().filter_map(|one| one.count).map(|count| count.rate_bps).collect();
        assert_eq!(rates, (4000..5000).rev().collect::<Vec<_>>());
    }

    #[test]
    fn every_direction_gets_a_reason_or_what_would_tell() {
        let why = |port, dir, because: Option<&str>, idle: bool| {
            let SlowConnection { orig, reply, .. } = connection(port);
            Why {
                dir,
                tuple: if dir == DirectionName::Orig { orig } else { reply },
                fast: because.is_none() && !idle,
                idle: idle.then_some(Idle { for_s: Some(7), at_least: false, was_fast: Some(true) }),
                since_s: None,
                engine: None,
                in_port: None,
                out_port: None,
                because: because.map(|reason| Because { reason: reason.to_owned(), ..cannot_tell(17, orig) }),
            }
        };
        let explained = |directions| Explained { protocol: 17, tracked: true, state: None, directions };
        let mut connections: Vec<SlowConnection> = (1..=4).map(connection).collect();
        connections[1].directions[0].dir = DirectionName::Reply;
        let found = [
            explained(vec![why(1, DirectionName::Orig, Some("off"), false)]),
            explained(vec![
                why(2, DirectionName::Orig, Some("off"), false),
                why(2, DirectionName::Reply, None, true),
            ]),
            explained(vec![why(3, DirectionName::Orig, None, false)]),
        ];
        give_reasons(&mut connections, found.into());
        let reasons: Vec<&Because> =
            connections.iter().map(|one| one.directions[0].because.as_ref().unwrap()).collect();
        assert_eq!(
            reasons.iter().map(|one| one.reason.as_str()).collect::<Vec<_>>(),
            ["off", "idle", "now-fast", "cannot-tell"]
        );
        assert_eq!(reasons[1].detail, "none for 7 s");
        assert!(reasons[3].remedy.contains("`shunt why udp 192.0.2.1:4 198.51.100.1:53`"), "{reasons:?}");
    }
}
