//! What the two ends of a connection say to each other.

use super::{
    endpoint::Endpoint,
    outcome::{Outcome, Way},
    spec::FleetSpec,
};
use std::{net::SocketAddr, time::Duration};

/// An end and its place in the fleet.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) end: Endpoint,
    pub(super) own: SocketAddr,
    pub(super) peer: SocketAddr,
    /// The earliest timer of this end in the fleet's queue.
    pub(super) timer: Option<Duration>,
    /// Whether the end is in the fleet's list of those that may have something to send.
    pub(super) touched: bool,
    /// Received bytes that the outcome has.
    counted: u64,
}

/// The end that opens the connection and sends requests.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) slot: Slot,
    /// When the first SYN was sent.
    pub(super) opened: Duration,
    is_established: bool,
    /// Number of complete exchanges.
    exchanges: u32,
    /// Bytes that have arrived once the present response is complete.
    expected: u64,
    /// When the present request was written; None between exchanges.
    asked: Option<Duration>,
    /// When to write the next request.
    pub(super) resume: Option<Duration>,
    /// The server that has received the number of this connection.
    pub(super) server: Option<u32>,
    pub(super) is_over: bool,
}

/// The end that answers.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) slot: Slot,
    /// The connection whose number has arrived.
    pub(super) connection: Option<u32>,
    /// Number of requests that have arrived.
    exchanges: u32,
    /// Bytes of these requests.
    arrived: u64,
}

impl Slot {
    pub(super) fn new(end: Endpoint, own: SocketAddr, peer: SocketAddr) -> Self {
        Self { end, own, peer, timer: None, touched: false, counted: 0 }
    }

    /// Counts bytes that have arrived since the last call.
    fn count(&mut self, way: &mut Way) {
        let received = self.end.received();
        way.bytes += received - self.counted;
        self.counted = received;
    }
}

impl Client {
    pub(super) fn new(slot: Slot, opened: Duration) -> Self {
        Self {
            slot,
            opened,
            is_established: false,
            exchanges: 0,
            expected: 0,
            asked: None,
            resume: None,
            server: None,
            is_over: false,
        }
    }

    /// When something is to be done.
    pub(super) fn due(&self) -> Option<Duration> {
        [self.slot.end.due(), self.resume].into_iter().flatten().min()
    }

    /// Goes on after a segment has arrived or a pause has ended. `nth` is the number of this connection.
    pub(super) fn step(&mut self, nth: u32, spec: &FleetSpec, outcome: &mut Outcome, now: Duration) {
        if !self.slot.end.is_open() {
            return;
        }
        self.slot.count(&mut outcome.to_client);
        if !self.is_established {
            self.is_established = true;
            outcome.established += 1;
            outcome.handshake_ns.push((now - self.opened).as_nanos() as u64);
            self.resume = Some(now);
        }
        if let Some(asked) = self.asked.filter(|_| self.slot.end.received() >= self.expected) {
            outcome.exchange_ns.push((now - asked).as_nanos() as u64);
            self.exchanges += 1;
            self.asked = None;
            match self.exchanges == spec.profile.exchanges {
                true => self.slot.end.close(now),
                false => self.resume = Some(now + spec.profile.think),
            }
        }
        if self.resume.is_some_and(|at| at <= now) {
            let (request, response) = spec.profile.exchange(spec.seed, nth, self.exchanges);
            self.slot.end.write(request, now);
            self.expected += response;
            (self.asked, self.resume) = (Some(now), None);
        }
    }
}

impl Server {
    pub(super) fn new(slot: Slot) -> Self {
        Self { slot, connection: None, exchanges: 0, arrived: 0 }
    }

    /// Answers the requests of this connection that have arrived.
    pub(super) fn step(&mut self, connection: u32, spec: &FleetSpec, outcome: &mut Outcome, now: Duration) {
        self.slot.count(&mut outcome.to_server);
        while self.exchanges < spec.profile.exchanges {
            let (request, response) = spec.profile.exchange(spec.seed, connection, self.exchanges);
            if self.slot.end.received() < self.arrived + request {
                break;
            }
            self.arrived += request;
            self.exchanges += 1;
            self.slot.end.write(response, now);
        }
        if self.slot.end.peer_has_closed() && !self.slot.end.is_closing() {
            self.slot.end.close(now);
        }
    }
}
