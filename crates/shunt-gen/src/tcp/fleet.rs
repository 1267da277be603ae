//! Many connections: both ends of each, when they open, what they say, and what became of them.

use super::{
    endpoint::{Endpoint, Heard},
    ends::{Client, Server, Slot},
    outcome::{Cause, Outcome, Way},
    packets::{is_intact, packet_of, quoted},
    payload::Header,
    peers::{CLIENT_PORTS, Peers, SERVER_PORTS},
    profile::mix,
    spec::FleetSpec,
};
use crate::{Ports, Wrong};
use shunt_wire::{Packet, Tcp, Transport};
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    net::SocketAddr,
    time::Duration,
};

/// Most connections that open at once, however many are due: answers must be read in between.
const OPEN_AT_ONCE: u32 = 64;
/// Distance between the client ports of two runs.
const SHIFT: u32 = 7919;

/// An end of a connection, and the port where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The end that opens the connection.
    Client,
    /// The end that answers.
    Server,
}

/// Both ends of many connections.
#[derive(Debug)]
pub struct Fleet {
    spec: FleetSpec,
    peers: Peers,
    clients: Vec<Client>,
    servers: Vec<Server>,
    /// The server of each client address and port that arrived, and server address and port.
    by_peer: HashMap<(SocketAddr, SocketAddr), u32>,
    timers: BinaryHeap<Reverse<(Duration, Who)>>,
    /// Ends that may have something to send.
    touched: Vec<Who>,
    /// Resets of failed connections, by their clients.
    resets: Vec<Packet>,
    outcome: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    Client(u32),
    Server(u32),
}

impl Fleet {
    /// Connections that open from time 0 on.
    ///
    /// # Errors
    /// Fails if there are too many connections, or the addresses are of different families.
    pub fn new(spec: FleetSpec) -> Result<Self, Wrong> {
        let FleetSpec { connections, client, server, run, .. } = spec;
        if client.is_ipv4() != server.is_ipv4() {
            let why = format!("from {client} to {server}: both must be IPv4, or both IPv6");
            return Err(Wrong::because(why));
        }
        if !(1..=Peers::MOST).contains(&connections) {
            let why = format!("{connections} connections: 1 to {} are possible", Peers::MOST);
            return Err(Wrong::because(why));
        }
        let shift = run.wrapping_mul(SHIFT) % CLIENT_PORTS.1;
        Ok(Self {
            spec,
            peers: Peers { client, server, shift },
            clients: Vec::new(),
            servers: Vec::new(),
            by_peer: HashMap::new(),
            timers: BinaryHeap::new(),
            touched: Vec::new(),
            resets: Vec::new(),
            outcome: Outcome::default(),
        })
    }

    /// Most connections of a run.
    pub const CONNECTIONS_MAX: u32 = Peers::MOST;

    /// The ports of clients.
    pub fn client_ports() -> Ports {
        Ports { first: CLIENT_PORTS.0, count: CLIENT_PORTS.1 as u16 }
    }

    /// The ports of servers.
    pub fn server_ports() -> Ports {
        Ports { first: SERVER_PORTS.0, count: SERVER_PORTS.1 as u16 }
    }

    /// Whether all connections have completed or failed.
    pub fn is_over(&self) -> bool {
        self.outcome.opened == u64::from(self.spec.connections) && self.outcome.unfinished() == 0
    }

    /// When to call [`Fleet::advance`] next; None if nothing is due before the next segment arrives.
    pub fn due(&self) -> Option<Duration> {
        let opens = (self.clients.len() < self.spec.connections as usize)
            .then(|| self.opens_at(self.clients.len() as u32));
        [opens, self.timers.peek().map(|Reverse((due, _))| *due)].into_iter().flatten().min()
    }

    fn opens_at(&self, connection: u32) -> Duration {
        Duration::from_secs_f64(f64::from(connection) / self.spec.per_second)
    }

    /// Time from the first SYN to the last.
    pub fn opening(&self) -> Duration {
        let ends = self.clients.first().zip(self.clients.last());
        ends.map_or(Duration::ZERO, |(first, last)| last.opened - first.opened)
    }

    /// The counts and times until now.
    pub fn outcome(&self) -> Outcome {
        let mut outcome = self.outcome.clone();
        let sum = |ends: &mut dyn Iterator<Item = &Endpoint>| ends.map(Endpoint::retransmitted).sum();
        outcome.to_server.retransmitted = sum(&mut self.clients.iter().map(|client| &client.slot.end));
        outcome.to_client.retransmitted = sum(&mut self.servers.iter().map(|server| &server.slot.end));
        outcome
    }

    /// Opens connections that are due, repeats what was not acknowledged, and ends pauses.
    pub fn advance(&mut self, now: Duration) {
        for _ in 0..OPEN_AT_ONCE {
            let next = self.clients.len() as u32;
            if next >= self.spec.connections || self.opens_at(next) > now {
                break;
            }
            self.open(next, now);
        }
        while let Some(Reverse((due, who))) = self.timers.peek().copied()
            && due <= now
        {
            self.timers.pop();
            self.slot(who).timer = None;
            if self.due_of(who).is_some_and(|due| due <= now) {
                self.on_time(who, now);
            }
            // The timer may have been put off since.
            self.touch(who);
        }
    }

    fn open(&mut self, connection: u32, now: Duration) {
        let (own, peer) = self.peers.of(connection);
        let header = Header { connection, run: self.spec.run };
        let first = mix(self.spec.seed ^ u64::from(connection)) as u32;
        let end = Endpoint::connect(first, self.spec.segment_bytes.into(), header, now);
        self.clients.push(Client::new(Slot::new(end, own, peer), now));
        let outcome = &mut self.outcome;
        outcome.opened += 1;
        outcome.open_most = outcome.open_most.max(outcome.opened - outcome.completed - outcome.failed.sum());
        outcome.late = outcome
            .late
            .max(now.saturating_sub(Duration::from_secs_f64(f64::from(connection) / self.spec.per_second)));
        self.touch(Who::Client(connection));
    }

    fn slot(&mut self, who: Who) -> &mut Slot {
        match who {
            Who::Client(nth) => &mut self.clients[nth as usize].slot,
            Who::Server(nth) => &mut self.servers[nth as usize].slot,
        }
    }

    fn due_of(&self, who: Who) -> Option<Duration> {
        match who {
            Who::Client(nth) => self.clients[nth as usize].due(),
            Who::Server(nth) => self.servers[nth as usize].slot.end.due(),
        }
    }

    fn touch(&mut self, who: Who) {
        if !std::mem::replace(&mut self.slot(who).touched, true) {
            self.touched.push(who);
        }
    }

    fn on_time(&mut self, who: Who, now: Duration) {
        let patience = self.spec.patience;
        let given_up = self.slot(who).end.on_time(now, patience);
        match who {
            Who::Client(nth) if given_up => {
                let opening = self.clients[nth as usize].slot.end.is_opening();
                self.fail(nth, if opening { Cause::Unanswered } else { Cause::Silent });
            }
            Who::Client(nth) => self.step_client(nth, now),
            Who::Server(nth) if given_up => match self.servers[nth as usize].connection {
                Some(connection) => self.fail(connection, Cause::Silent),
                None => self.servers[nth as usize].slot.end.abandon(),
            },
            Who::Server(_) => {}
        }
    }

    /// Takes a packet that has arrived on a side.
    pub fn receive(&mut self, side: Side, packet: &Packet, now: Duration) {
        let Transport::Tcp(tcp) = &packet.transport else {
            return self.receive_error(side, packet);
        };
        let (Some(from), Some(to)) = (packet.source(), packet.destination()) else { return };
        self.way(side).arrived += 1;
        let who = match side {
            Side::Client => self.peers.connection(to, from).map(Who::Client),
            Side::Server => self.server(from, to, tcp, now).map(Who::Server),
        };
        let known = |who: &Who| !matches!(who, Who::Client(nth) if *nth >= self.clients.len() as u32);
        let Some(who) = who.filter(known).filter(|_| is_intact(packet)) else {
            self.outcome.stray += 1;
            return;
        };
        self.hear(who, tcp, &packet.payload, now);
    }

    /// Segments that arrive on this side.
    fn way(&mut self, side: Side) -> &mut Way {
        match side {
            Side::Client => &mut self.outcome.to_client,
            Side::Server => &mut self.outcome.to_server,
        }
    }

    /// The server for this client; a SYN makes one.
    fn server(&mut self, client: SocketAddr, own: SocketAddr, tcp: &Tcp, now: Duration) -> Option<u32> {
        if own.ip() != self.spec.server {
            return None;
        }
        if let Some(known) = self.by_peer.get(&(client, own)) {
            return Some(*known);
        }
        let nth = self.servers.len() as u32;
        let first = mix(!self.spec.seed ^ u64::from(nth)) as u32;
        let end = Endpoint::accept(tcp, first, self.spec.segment_bytes.into(), now)?;
        self.servers.push(Server::new(Slot::new(end, own, client)));
        self.by_peer.insert((client, own), nth);
        Some(nth)
    }

    fn hear(&mut self, who: Who, tcp: &Tcp, payload: &[u8], now: Duration) {
        let over = match who {
            Who::Client(nth) => Some(nth),
            Who::Server(nth) => self.servers[nth as usize].connection,
        };
        // Late segments of a connection that is over, such as repeated ones, are no strays.
        if over.is_some_and(|connection| self.clients[connection as usize].is_over) {
            return;
        }
        let opening = self.slot(who).end.is_opening();
        match (self.slot(who).end.hear(tcp, payload, now), who) {
            (Heard::Stray, _) => self.outcome.stray += 1,
            (Heard::Fine, Who::Client(nth)) => self.step_client(nth, now),
            (Heard::Fine, Who::Server(nth)) => self.step_server(nth, now),
            (Heard::Reset, Who::Client(nth)) => {
                self.fail(nth, if opening { Cause::Refused } else { Cause::Reset });
            }
            (Heard::Corrupted, Who::Client(nth)) => self.fail(nth, Cause::Corrupted),
            (heard, Who::Server(nth)) => match self.servers[nth as usize].connection {
                Some(connection) if heard == Heard::Reset => self.fail(connection, Cause::Reset),
                Some(connection) => self.fail(connection, Cause::Corrupted),
                None => self.servers[nth as usize].slot.end.abandon(),
            },
        }
        self.touch(who);
    }

    /// An ICMP error about a SYN refuses its connection. About others, it says nothing certain (RFC 1122).
    fn receive_error(&mut self, side: Side, packet: &Packet) {
        let Some(quoted) = quoted(packet).filter(|_| side == Side::Client) else { return };
        let ends = quoted.source().zip(quoted.destination());
        let connection = ends.and_then(|(client, server)| self.peers.connection(client, server));
        let Some(client) = connection.and_then(|nth| self.clients.get(nth as usize)) else { return };
        if client.slot.end.is_opening() && !client.is_over {
            self.fail(connection.unwrap_or_default(), Cause::Refused);
        }
    }

    fn step_client(&mut self, nth: u32, now: Duration) {
        self.clients[nth as usize].step(nth, &self.spec, &mut self.outcome, now);
        self.complete(nth);
    }

    fn step_server(&mut self, nth: u32, now: Duration) {
        let server = &mut self.servers[nth as usize];
        let Some(header) = server.slot.end.header else { return };
        if server.connection.is_none() {
            let client = self.clients.get_mut(header.connection as usize);
            let fits = |client: &&mut Client| client.server.is_none() && !client.is_over;
            let Some(client) = client.filter(fits).filter(|_| header.run == self.spec.run) else {
                self.outcome.stray += 1;
                server.slot.end.abandon();
                return;
            };
            (client.server, server.connection) = (Some(nth), Some(header.connection));
        }
        server.step(header.connection, &self.spec, &mut self.outcome, now);
        self.complete(header.connection);
    }

    /// Ends a connection whose ends have both finished.
    fn complete(&mut self, connection: u32) {
        let client = &mut self.clients[connection as usize];
        let Some(server) = client.server.filter(|_| client.slot.end.is_finished() && !client.is_over) else {
            return;
        };
        if self.servers[server as usize].slot.end.is_finished() {
            client.is_over = true;
            client.slot.end.abandon();
            self.servers[server as usize].slot.end.abandon();
            self.outcome.completed += 1;
        }
    }

    /// Ends a connection as failed, and resets it in the router if the router knows it.
    fn fail(&mut self, connection: u32, cause: Cause) {
        let client = &mut self.clients[connection as usize];
        if std::mem::replace(&mut client.is_over, true) {
            return;
        }
        self.outcome.failed.add(cause);
        if matches!(cause, Cause::Silent | Cause::Corrupted) {
            let reset = client.slot.end.reset();
            self.resets.push(packet_of(client.slot.own, client.slot.peer, reset));
        }
        client.slot.end.abandon();
        client.resume = None;
        if let Some(server) = client.server {
            self.servers[server as usize].slot.end.abandon();
        }
    }

    /// Passes on all packets that are to be sent now, by the side that sends them. They have no MAC addresses.
    pub fn flush(&mut self, now: Duration, send: &mut dyn FnMut(Side, Packet)) {
        for packet in std::mem::take(&mut self.resets) {
            self.outcome.to_server.sent += 1;
            send(Side::Client, packet);
        }
        for who in std::mem::take(&mut self.touched) {
            let side = if matches!(who, Who::Client(_)) { Side::Client } else { Side::Server };
            let slot = self.slot(who);
            slot.touched = false;
            let (own, peer, mut packets) = (slot.own, slot.peer, 0);
            slot.end.transmit(now, &mut |segment| {
                packets += 1;
                send(side, packet_of(own, peer, segment));
            });
            match side {
                Side::Client => self.outcome.to_server.sent += packets,
                Side::Server => self.outcome.to_client.sent += packets,
            }
            self.set_timer(who);
        }
    }

    fn set_timer(&mut self, who: Who) {
        let Some(due) = self.due_of(who) else { return };
        let slot = self.slot(who);
        if slot.timer.is_none_or(|timer| due < timer) {
            slot.timer = Some(due);
            self.timers.push(Reverse((due, who)));
        }
    }
}
