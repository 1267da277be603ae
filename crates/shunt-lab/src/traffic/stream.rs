//! One direction of the traffic: a sender and a receiver.

use super::{
    Error, SendMethod, SendMethodChoice,
    figures::{Directed, Figures},
    membership,
    replay::Replay,
    sender::{PacketSource, Sender},
    station::Station,
};
use crate::Nic;
use nix::libc::PACKET_MR_PROMISC;
use shunt_gen::{Addresses, Round, Schedule, Shape, Traffic};
use shunt_traffic::{self as receiver, Arrival, CaptureBuffer, Receiver, Reflector, TrafficEnds, now_ns};
use shunt_wire::Tcp;
use std::{
    os::fd::OwnedFd,
    sync::{Arc, atomic::AtomicBool},
    thread,
    time::{Duration, Instant},
};

/// Longest wait for packets under way after the last one was sent; RFC 2544 gives them two seconds.
const DRAIN: Duration = Duration::from_secs(2);
/// The wait ends after this time without a packet.
const QUIET: Duration = Duration::from_millis(300);
/// The wait ends after this time without a packet if all packets have arrived; duplicates may follow.
const QUIET_ALL: Duration = Duration::from_millis(20);
/// The driver that runs XDP programs while a system call writes a frame.
const TUN: &str = "tun";

pub(super) struct Stream<'n> {
    from: Station<'n>,
    to: Station<'n>,
    name: String,
    sender: Sender,
    receiver: Receiver,
    /// Whether packets carry a number and a time.
    stamped: bool,
    _promiscuous: Option<OwnedFd>,
    reflector: Option<Reflector>,
    /// Whether packets start TCP handshakes; then completed handshakes count as received.
    shakes: bool,
}

/// The frames to send.
pub(super) enum Frames<'r> {
    /// Generated packets of this shape.
    Made(Shape),
    /// Frames of a capture.
    Captured { replay: &'r Replay, round: Round },
}

impl<'n> Stream<'n> {
    /// Unspecified addresses are replaced by those of the stations.
    pub(super) fn new(
        from: &Station<'n>,
        to: &Station<'n>,
        frames: Frames<'_>,
        method: SendMethodChoice,
        hand_on: bool,
    ) -> Result<Self, Error> {
        match frames {
            Frames::Made(shape) => Self::of_shape(from, to, shape, method, hand_on),
            Frames::Captured { replay, round } => Self::of_capture(from, to, replay, round, method, hand_on),
        }
    }

    /// A stream whose packets `by` sends back.
    pub(super) fn answered(
        from: &Station<'n>,
        by: &Station<'n>,
        mut shape: Shape,
        method: SendMethodChoice,
    ) -> Result<Self, Error> {
        if shape.destination.first.is_unspecified() {
            shape.destination = Addresses::one(by.address_like(shape.destination.first)?);
        }
        let reflector = by.within(|| Reflector::attach(by.ifindex))?;
        let stream = Self::of_shape(from, from, shape, method, false)?;
        Ok(Self { reflector: Some(reflector), ..stream })
    }

    fn of_shape(
        from: &Station<'n>,
        to: &Station<'n>,
        shape: Shape,
        method: SendMethodChoice,
        hand_on: bool,
    ) -> Result<Self, Error> {
        let (name, traffic) = between(from, to, shape)?;
        Self::of_source(from, to, name, &PacketSource::Made(Box::new(traffic)), method, hand_on)
    }

    fn of_capture(
        from: &Station<'n>,
        to: &Station<'n>,
        replay: &Replay,
        round: Round,
        method: SendMethodChoice,
        hand_on: bool,
    ) -> Result<Self, Error> {
        let mut capture = replay.capture.clone();
        if from.routed {
            Arc::make_mut(&mut capture).send_to(from.next_hop);
        }
        let promiscuous = (!from.routed)
            .then(|| to.within(|| membership::join(&to.ifname, to.ifindex, PACKET_MR_PROMISC)))
            .transpose()?;
        let stream = Self::of_source(
            from,
            to,
            replay.name(),
            &PacketSource::Captured(capture, round),
            method,
            hand_on,
        )?;
        Ok(Self { _promiscuous: promiscuous, ..stream })
    }

    fn of_source(
        from: &Station<'n>,
        to: &Station<'n>,
        name: String,
        source: &PacketSource,
        method: SendMethodChoice,
        hand_on: bool,
    ) -> Result<Self, Error> {
        let wanted = match source {
            PacketSource::Made(traffic) => {
                let shakes = traffic.packet.tcp().is_some_and(|tcp| tcp.flags == Tcp::SYN);
                receiver::Selection::Stamped { flows: traffic.flows, handshakes: shakes }
            }
            PacketSource::Captured(capture, _) => receiver::Selection::Kinds(capture),
        };
        // Attach the receiver first: a veth takes live frames only if its peer has a program or GRO.
        let mut receiver = to
            .within(|| Receiver::attach_for(to.ifindex, &wanted, hand_on))
            .map_err(|error| Error::attaching(&to.ifname, &error))?;
        if to.within(|| Nic::read(&to.ifname)).driver.is_some_and(|driver| driver != TUN) {
            receiver.share_clock();
        }
        let sender = from.within(|| Sender::new(source, &from.ifname, from.ifindex, method))?;
        Ok(Self {
            from: from.clone(),
            to: to.clone(),
            name,
            sender,
            receiver,
            stamped: matches!(wanted, receiver::Selection::Stamped { .. }),
            _promiscuous: None,
            reflector: None,
            shakes: matches!(wanted, receiver::Selection::Stamped { handshakes: true, .. }),
        })
    }

    /// Makes the receiver pass on all frames from now on.
    pub(super) fn handed_on(
        &self,
        each: impl FnMut(u64, &[u8]) + 'static,
    ) -> Result<CaptureBuffer<'static>, Error> {
        Ok(self.receiver.captured(each)?)
    }

    /// Sets the addresses and ports of the first flows, if they are listed.
    pub(super) fn list(&mut self, ends: &[TrafficEnds]) -> Result<(), Error> {
        self.sender.list(ends)
    }

    /// The arrivals of each flow in the last run.
    pub(super) fn arrivals(&self) -> Result<Vec<Arrival>, Error> {
        Ok(self.receiver.arrivals()?)
    }

    pub(super) fn method(&self) -> SendMethod {
        self.sender.method()
    }

    /// Sends, and waits until no packet arrives any more.
    pub(super) fn run(
        &mut self,
        schedule: &Schedule,
        start_ns: u64,
        label: u8,
        stop: &AtomicBool,
    ) -> Result<Directed, Error> {
        // Two streams use the two ends of a wire. If a DUT sends packets back, the packets of one stream must not count
        // for the other.
        let label = label | if self.from.ifindex < self.to.ifindex { 0x40 } else { 0x80 };
        self.receiver.expect(label)?;
        let shaken = self.shaken()?;
        let sender = &mut self.sender;
        let sent = self.from.within(|| sender.run(schedule, start_ns, label, stop))?;
        let ended_ns = now_ns();
        drain(sent.sent, || Ok(self.receiver.packets()?))?;
        let mut received = self.receiver.received()?;
        if let Some((now, then)) = self.shaken()?.zip(shaken) {
            received.packets = received.packets.min(now - then).max(received.duplicated);
        }
        let figures = Figures::new(&sent, &received, schedule, ended_ns, self.stamped);
        let doubts = figures.doubts(&sent, &received, self.method(), self.receiver.mode());
        Ok(Directed {
            from: self.from.ifname.clone(),
            to: self.to.ifname.clone(),
            traffic: self.name.clone(),
            method: self.method(),
            figures,
            limit: None,
            line_share: None,
            packets: received.packets,
            latency: received.latency,
            jitter: received.jitter,
            doubts,
        })
    }

    /// Number of completed TCP handshakes; None if packets start none.
    fn shaken(&self) -> Result<Option<u64>, Error> {
        let reflector = self.reflector.as_ref().filter(|_| self.shakes);
        Ok(reflector.map(Reflector::unanswered).transpose()?)
    }
}

/// The packets of a shape between two stations, with a description. Unspecified addresses are replaced by those of the
/// stations.
pub(super) fn between(
    from: &Station<'_>,
    to: &Station<'_>,
    mut shape: Shape,
) -> Result<(String, Traffic), Error> {
    for (addresses, station) in [(&mut shape.source, from), (&mut shape.destination, to)] {
        if addresses.first.is_unspecified() {
            *addresses = Addresses::one(station.address_like(addresses.first)?);
        }
    }
    let name = format!(
        "{} {} -> {}, ports {} -> {}, frames of {} bytes",
        shape.encapsulation(),
        shape.source,
        shape.destination,
        shape.source_ports,
        shape.destination_ports,
        shape.sizes
    );
    let traffic = shape.traffic(from.mac, from.next_hop)?;
    let name = match traffic.flows {
        1 => format!("{name}, 1 flow"),
        flows => format!("{name}, {flows} flows"),
    };
    Ok((name, traffic))
}

/// Waits until this many packets have arrived, or none arrives any more.
pub(super) fn drain(sent: u64, packets: impl Fn() -> Result<u64, Error>) -> Result<(), Error> {
    let begun = Instant::now();
    let (mut last, mut changed) = (packets()?, Instant::now());
    while begun.elapsed() < DRAIN {
        let enough = if last >= sent { QUIET_ALL } else { QUIET };
        if changed.elapsed() >= enough {
            break;
        }
        thread::sleep(Duration::from_millis(2));
        let now = packets()?;
        if now != last {
            (last, changed) = (now, Instant::now());
        }
    }
    Ok(())
}
