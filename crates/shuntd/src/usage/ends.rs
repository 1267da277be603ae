//! The ends of connections, for the clients of `shunt watch`: with the packets of the fast path, whose counts are final
//! some time later.

use shunt_api::{ConnectionEnd, Counted, EndedDirection, Tuple, WatchEvent};
use shunt_core::reversed;
use shunt_kernel::CountedEntry;
use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use tokio::sync::broadcast;

/// After this time the sweep has freed the flows of a connection: it removes them a second after they were retired, and
/// runs once a second.
const SETTLED: Duration = Duration::from_secs(5);
/// Ends that wait. With more, the newest are not reported.
const WAITING_MAX: usize = 4096;
/// Directions of ended connections whose flows have been counted.
const DIRECTIONS_MAX: usize = 4 * WAITING_MAX;

/// Where a flow has a tuple: NAT may have changed it in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Wire {
    /// As its packets arrive.
    In,
    /// As its packets leave.
    Out,
}

/// The ends that wait for the counts of their flows, oldest first.
#[derive(Debug, Default)]
pub(super) struct Ends {
    clients: Option<broadcast::Sender<WatchEvent>>,
    waiting: VecDeque<(Instant, ConnectionEnd)>,
    /// What the flows of ended connections have counted, by protocol and tuple. A flow may come before its end.
    flows: HashMap<(Wire, u8, Tuple), Counted>,
    lost: u64,
}

impl Ends {
    /// Reports ends to these clients from now on, or to nobody.
    pub(super) fn set_clients(&mut self, clients: Option<broadcast::Sender<WatchEvent>>) {
        self.clients = clients;
        self.waiting.clear();
        self.flows.clear();
    }

    pub(super) fn has_clients(&self) -> bool {
        self.clients.is_some()
    }

    /// Notes that a connection has ended.
    pub(super) fn add(&mut self, now: Instant, entry: &CountedEntry) {
        if self.clients.is_none() {
            return;
        }
        if self.waiting.len() >= WAITING_MAX {
            self.lost += 1;
            return;
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at_us = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
        let [orig, reply] = [&entry.orig, &entry.reply].map(|direction| EndedDirection {
            tuple: direction.tuple(),
            count: direction.count,
            fast: Counted::default(),
        });
        let end = ConnectionEnd { at_us, protocol: entry.protocol, orig, reply };
        self.waiting.push_back((now + SETTLED, end));
    }

    /// Adds the final counts of a flow whose connection has ended.
    pub(super) fn add_flow(&mut self, at: Wire, protocol: u8, tuple: Tuple, count: Counted) {
        if self.clients.is_some() && self.flows.len() < DIRECTIONS_MAX {
            let sum = self.flows.entry((at, protocol, tuple)).or_default();
            *sum = sum.plus(count);
        }
    }

    /// Notes that conntrack has ended connections that were not read.
    pub(super) fn add_lost(&mut self) {
        self.lost += u64::from(self.clients.is_some());
    }

    /// When the next end is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.waiting.front().map(|(due, _)| *due)
    }

    /// Reports the ends that are due.
    pub(super) fn report(&mut self, now: Instant) {
        let Some(clients) = &self.clients else { return };
        // Sending fails if the last client has just gone, which does not matter.
        while self.due().is_some_and(|due| due <= now)
            && let Some((_, mut end)) = self.waiting.pop_front()
        {
            let ConnectionEnd { protocol, orig, reply, .. } = &mut end;
            // Packets of a direction leave as those of the other one arrive.
            let out = [reversed(reply.tuple), reversed(orig.tuple)];
            for (direction, out) in [orig, reply].into_iter().zip(out) {
                let keys = [(Wire::In, *protocol, direction.tuple), (Wire::Out, *protocol, out)];
                let counts = keys.iter().filter_map(|key| self.flows.remove(key));
                direction.fast = counts.fold(Counted::default(), Counted::plus);
                direction.count = direction.count.map(|slow| slow.plus(direction.fast));
            }
            let _ = clients.send(WatchEvent::End(end));
        }
        if self.waiting.is_empty() && self.flows.len() >= DIRECTIONS_MAX / 2 {
            self.flows.clear();
        }
        if self.lost > 0 {
            let _ = clients.send(WatchEvent::Lost { count: std::mem::take(&mut self.lost) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_api::TrackedDirection;

    const fn count(packets: u64) -> Counted {
        Counted { packets, bytes: packets * 100 }
    }

    fn entry(sport: u16) -> CountedEntry {
        let direction = |src: [u8; 4], dst: [u8; 4], sport, dport| TrackedDirection {
            src: src.into(),
            dst: dst.into(),
            sport: Some(sport),
            dport: Some(dport),
            icmp: None,
            zone: None,
            count: Some(count(1)),
            fast: Counted::default(),
        };
        let (lan, wan, router) = ([192, 0, 2, 1], [198, 51, 100, 1], [203, 0, 113, 1]);
        let (orig, reply) = (direction(lan, wan, sport, 53), direction(wan, router, 53, sport));
        CountedEntry { id: 1, protocol: 17, orig, reply }
    }

    #[test]
    fn an_end_has_the_packets_of_both_paths_once_they_are_final() {
        let (sender, mut client) = broadcast::channel(8);
        let (mut ends, now) = (Ends::default(), Instant::now());
        ends.set_clients(Some(sender));
        ends.add_flow(Wire::In, 17, entry(5).orig.tuple(), count(20));
        ends.add(now, &entry(5));
        ends.add_flow(Wire::Out, 17, reversed(entry(5).reply.tuple()), count(3));
        ends.add_flow(Wire::In, 6, entry(5).reply.tuple(), count(100));
        ends.add_flow(Wire::In, 17, entry(6).reply.tuple(), count(100));
        ends.report(now + SETTLED - Duration::from_millis(1));
        assert!(client.try_recv().is_err());
        assert_eq!(ends.due(), Some(now + SETTLED));
        ends.report(now + SETTLED);
        let WatchEvent::End(end) = client.try_recv().unwrap() else { panic!() };
        assert_eq!((end.orig.count, end.orig.fast), (Some(count(24)), count(23)));
        assert_eq!((end.reply.count, end.reply.fast), (Some(count(1)), count(0)));
        assert_eq!(ends.due(), None);
    }

    #[test]
    fn nobody_waits_without_clients_and_too_many_ends_are_counted() {
        let (mut ends, now) = (Ends::default(), Instant::now());
        ends.add(now, &entry(5));
        assert_eq!(ends.due(), None);
        let (sender, mut client) = broadcast::channel(2 * WAITING_MAX);
        ends.set_clients(Some(sender));
        (0..WAITING_MAX + 2).for_each(|_| ends.add(now, &entry(5)));
        ends.report(now + SETTLED);
        let mut last = client.try_recv().unwrap();
        while let Ok(event) = client.try_recv() {
            last = event;
        }
        assert_eq!(last, WatchEvent::Lost { count: 2 });
    }
}
