//! The connections of a NAT as its two sides see them: judged by the addresses and ports of the frames that arrived.

use super::ports::Permutation;
use shunt_traffic::{Arrival, TrafficEnds};
use std::{collections::HashSet, net::Ipv4Addr};

/// A connection that passed the router once, from the initiator to the responder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Connection {
    /// Addresses and ports of the frame as the initiator sent it.
    pub(super) inside: TrafficEnds,
    /// Addresses and ports of the frame as it arrived at the responder.
    pub(super) outside: TrafficEnds,
}

/// The state table of the responder after test phase 1, and the frames that are not in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct StateTable {
    pub(super) connections: Vec<Connection>,
    /// Frames that arrived with the initiator's own address, or another one than the NAT's.
    pub(super) untranslated: u64,
    /// Frames that arrived with another destination than they were sent to.
    pub(super) misdelivered: u64,
    /// Frames that arrived with the addresses and ports of another connection, so an answer is ambiguous.
    pub(super) shared: u64,
}

impl StateTable {
    /// The connections whose first frame arrived: `arrivals[n]` is that of `sent[n]`. `nat` is the NAT's address; if it
    /// is unknown, any other address than the initiator's counts as translated.
    pub(super) fn observe(sent: &[TrafficEnds], arrivals: &[Arrival], nat: Option<Ipv4Addr>) -> Self {
        let mut table = Self::default();
        let mut known = HashSet::new();
        for (inside, arrival) in sent.iter().zip(arrivals).filter(|(_, arrival)| arrival.packets > 0) {
            let (inside, outside) = (*inside, arrival.ends);
            let translated = nat.map_or(outside.src != inside.src, |nat| outside.src == nat.to_bits());
            if (outside.dst, outside.dport) != (inside.dst, inside.dport) {
                table.misdelivered += 1;
            } else if !translated {
                table.untranslated += 1;
            } else if !known.insert((outside.src, outside.sport, outside.dport)) {
                table.shared += 1;
            } else {
                table.connections.push(Connection { inside, outside });
            }
        }
        table
    }

    /// Puts the connections in another pseudo-random order, for test phase 2.
    pub(super) fn shuffle(&mut self, seed: u64) {
        let order = Permutation::new(self.connections.len() as u32, seed);
        let places = 0..self.connections.len() as u32;
        self.connections = places.map(|place| self.connections[order.at(place) as usize]).collect();
    }
}

/// The frames that arrived as they must, by the first frame of each connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Passed {
    /// Number of connections.
    pub(super) connections: u64,
    /// Number of frames of these connections, without duplicates.
    pub(super) frames: u64,
}

/// Whether a frame arrived, and the first one had these addresses and ports.
pub(super) fn arrived_as(ends: TrafficEnds, arrival: &Arrival) -> bool {
    arrival.packets > 0 && arrival.ends == ends
}

impl Passed {
    /// Counts arrivals with the expected addresses and ports: `arrivals[n]` is that of the n-th expected frame.
    pub(super) fn count(expected: impl Iterator<Item = TrafficEnds>, arrivals: &[Arrival]) -> Self {
        let right = expected.zip(arrivals).filter(|(ends, at)| arrived_as(*ends, at));
        right.fold(Self::default(), |sum, (_, arrival)| Self {
            connections: sum.connections + 1,
            frames: sum.frames + arrival.packets - u64::from(arrival.duplicated),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nat::ports::tuples;

    const NAT: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

    fn sent(count: u32) -> Vec<TrafficEnds> {
        tuples(count, 1, Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 1))
    }

    /// The arrival of a frame that a NAT translated.
    fn translated(ends: &TrafficEnds) -> Arrival {
        Arrival { packets: 1, ends: TrafficEnds { src: NAT.to_bits(), ..*ends }, ..Arrival::default() }
    }

    #[test]
    fn only_translated_frames_with_ends_of_their_own_are_connections() {
        let sent = sent(6);
        let mut arrivals: Vec<Arrival> = sent.iter().map(translated).collect();
        arrivals[0].packets = 0;
        arrivals[1].ends.src = sent[1].src;
        arrivals[2].ends.dport += 1;
        // The NAT gave the port of another connection.
        (arrivals[4].ends.sport, arrivals[4].ends.dport) = (arrivals[3].ends.sport, arrivals[3].ends.dport);
        let mut with_port = sent.clone();
        with_port[4].dport = with_port[3].dport;
        let table = StateTable::observe(&with_port, &arrivals, None);
        assert_eq!((table.untranslated, table.misdelivered, table.shared), (1, 1, 1));
        let inside: Vec<_> = table.connections.iter().map(|connection| connection.inside).collect();
        assert_eq!(inside, [sent[3], sent[5]]);
        // Another address than the NAT's.
        let table = StateTable::observe(&sent[5..], &arrivals[5..], Some(Ipv4Addr::new(203, 0, 113, 2)));
        assert_eq!((table.connections.len(), table.untranslated), (0, 1));
    }

    #[test]
    fn answers_count_only_if_they_reach_the_connection_that_they_answer() {
        let sent = sent(4);
        let arrivals: Vec<Arrival> = sent.iter().map(translated).collect();
        let mut table = StateTable::observe(&sent, &arrivals, Some(NAT));
        table.shuffle(3);
        let mut inside: Vec<_> = table.connections.iter().map(|connection| connection.inside.sport).collect();
        inside.sort_unstable();
        let mut ports: Vec<_> = sent.iter().map(|ends| ends.sport).collect();
        ports.sort_unstable();
        assert_eq!(inside, ports);
        let expected = || table.connections.iter().map(|connection| connection.inside.reversed());
        let mut answers: Vec<Arrival> = expected()
            .map(|ends| Arrival { packets: 3, duplicated: 1, ends, ..Arrival::default() })
            .collect();
        assert_eq!(Passed::count(expected(), &answers), Passed { connections: 4, frames: 8 });
        answers.swap(0, 1);
        answers[2].packets = 0;
        assert_eq!(Passed::count(expected(), &answers), Passed { connections: 1, frames: 2 });
    }
}
