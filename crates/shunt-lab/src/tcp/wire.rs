//! Runs both ends of many connections between two devices: clients at the first, servers at the second.

use crate::{
    net::FrameSocket,
    traffic::{Error, Station},
};
use shunt_gen::tcp::{Fleet, FleetSpec, Outcome, Side};
use shunt_traffic::{SegmentPorts, SegmentReceiver, SegmentRing};
use shunt_wire::Packet;
use std::{
    cell::RefCell,
    collections::VecDeque,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

/// Longest wait before a look at `stop`.
const GLANCE: Duration = Duration::from_millis(50);
/// A run ends when nothing has arrived for this long after the last connection, and at the latest after [`DRAIN`].
const QUIET: Duration = Duration::from_millis(30);
const DRAIN: Duration = Duration::from_secs(1);

/// The outcome of a run.
pub(super) struct Ran {
    pub(super) outcome: Outcome,
    /// Time from the first SYN to the end of the last connection.
    pub(super) took: Duration,
    /// Time from the first SYN to the last.
    pub(super) opening: Duration,
    /// Frames that arrived at each device and could not be read in time.
    pub(super) missed: [u64; 2],
}

/// One side: what sends its frames, and what takes those that arrive.
struct Port<'n> {
    station: &'n Station<'n>,
    socket: FrameSocket,
    receiver: SegmentReceiver,
}

impl<'n> Port<'n> {
    fn open(station: &'n Station<'n>, ports: SegmentPorts) -> Result<Self, Error> {
        let receiver = station.within(|| SegmentReceiver::attach(station.ifindex, ports));
        let receiver = receiver.map_err(|error| Error::attaching(&station.ifname, &error))?;
        let socket = station.within(|| FrameSocket::open(&station.ifname));
        let socket = socket
            .map_err(|e| Error::Machine(format!("{}: cannot open a raw socket: {e}", station.ifname)))?;
        Ok(Self { station, socket, receiver })
    }

    fn send(&self, packet: Packet) -> Result<(), Error> {
        let Station { mac, next_hop, .. } = *self.station;
        Ok(self.socket.send(&packet.macs(mac, next_hop).to_bytes())?)
    }
}

/// Opens all connections of a fleet, and returns when they are over or `stop` is set.
pub(super) fn run(spec: FleetSpec, ends: [&Station<'_>; 2], stop: &AtomicBool) -> Result<Ran, Error> {
    let mut fleet = Fleet::new(spec)?;
    let (clients, servers) = (Fleet::client_ports(), Fleet::server_ports());
    let ports = [
        Port::open(ends[0], SegmentPorts { source: Some(servers), destination: clients })?,
        // A router may translate the ports of clients.
        Port::open(ends[1], SegmentPorts { source: None, destination: servers })?,
    ];
    let arrived = RefCell::new(VecDeque::new());
    let receivers = ports.each_ref().map(|port| &port.receiver);
    let ring = SegmentRing::of(receivers, |nth, frame: &[u8]| {
        let side = if nth == 0 { Side::Client } else { Side::Server };
        arrived.borrow_mut().push_back((side, frame.to_vec()));
    })?;
    let start = Instant::now();
    let (mut over, mut last) = (None, Duration::ZERO);
    loop {
        ring.consume()?;
        let now = start.elapsed();
        while let Some((side, frame)) = arrived.borrow_mut().pop_front() {
            last = now;
            // A frame that Linux would drop as malformed is lost here, too.
            if let Ok(packet) = Packet::parse(&frame) {
                fleet.receive(side, &packet, now);
            }
        }
        fleet.advance(now);
        let mut sent = Ok(());
        fleet.flush(now, &mut |side, packet| {
            if sent.is_ok() {
                sent = ports[usize::from(side == Side::Server)].send(packet);
            }
        });
        sent?;
        let stopped = stop.load(Ordering::Relaxed);
        if fleet.is_over() || stopped {
            let since = *over.get_or_insert(now);
            if stopped || now - since > DRAIN || now - last.max(since) > QUIET {
                break;
            }
        }
        // Frames that were sent have usually arrived by now.
        ring.consume()?;
        if arrived.borrow().is_empty() {
            let due = fleet.due().unwrap_or(Duration::MAX).saturating_sub(start.elapsed());
            ring.poll(due.min(if over.is_some() { QUIET } else { GLANCE }))?;
        }
    }
    drop(ring);
    let missed = [ports[0].receiver.missed()?, ports[1].receiver.missed()?];
    Ok(Ran { outcome: fleet.outcome(), took: over.unwrap_or(last), opening: fleet.opening(), missed })
}
