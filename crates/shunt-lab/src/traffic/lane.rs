//! One direction: a sender, a receiver, and what is between them.

use super::{
    Error, Means, MeansChoice,
    figures::{Directed, Figures},
    sender::Sender,
    station::Station,
};
use shunt_bpf::traffic::{Receiver, now_ns};
use shunt_gen::{Addresses, Schedule, Shape, Traffic};
use std::{
    sync::atomic::AtomicBool,
    thread,
    time::{Duration, Instant},
};

/// Packets under way when the last was sent: RFC 2544 gives them two seconds.
const DRAIN: Duration = Duration::from_secs(2);
/// After so long without any, no more are expected.
const QUIET: Duration = Duration::from_millis(300);
/// The same when as many came as were sent: there may be copies.
const QUIET_ALL: Duration = Duration::from_millis(20);

pub(super) struct Lane<'n> {
    from: Station<'n>,
    to: Station<'n>,
    traffic: Traffic,
    name: String,
    sender: Sender,
    receiver: Receiver,
}

impl<'n> Lane<'n> {
    /// Addresses that are none are those of the stations.
    pub(super) fn new(
        from: &Station<'n>,
        to: &Station<'n>,
        mut shape: Shape,
        means: MeansChoice,
    ) -> Result<Self, Error> {
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
        // The receiver first: a veth takes live frames only when its peer has a program, or GRO.
        let receiver = to.within(|| Receiver::attach(to.ifindex, traffic.flows))?;
        let sender = from.within(|| Sender::new(&traffic, &from.ifname, from.ifindex, means))?;
        Ok(Self { from: from.clone(), to: to.clone(), traffic, name, sender, receiver })
    }

    pub(super) fn means(&self) -> Means {
        self.sender.means()
    }

    /// Sends, and waits until nothing comes any more.
    pub(super) fn run(
        &mut self,
        schedule: &Schedule,
        start_ns: u64,
        tag: u8,
        stop: &AtomicBool,
    ) -> Result<Directed, Error> {
        // Two lanes have the two ends of a wire; what one sends must not count for the other where a DUT sends it back.
        let tag = tag | if self.from.ifindex < self.to.ifindex { 0x40 } else { 0x80 };
        self.receiver.expect(tag)?;
        let sender = &mut self.sender;
        let sent = self.from.within(|| sender.run(schedule, start_ns, tag, stop))?;
        let ended_ns = now_ns();
        self.drain(sent.sent)?;
        let received = self.receiver.received()?;
        let figures = Figures::of(&sent, &received, schedule, ended_ns);
        let doubts = figures.doubts(&sent, &received, self.means(), self.receiver.mode());
        Ok(Directed {
            from: self.from.ifname.clone(),
            to: self.to.ifname.clone(),
            traffic: match self.traffic.flows {
                1 => format!("{}, 1 flow", self.name),
                flows => format!("{}, {flows} flows", self.name),
            },
            means: self.means(),
            figures,
            limit: None,
            line_share: None,
            span_ns: sent.last_ns.saturating_sub(sent.start_ns),
            latency: received.latency,
            jitter: received.jitter,
            doubts,
        })
    }

    fn drain(&self, sent: u64) -> Result<(), Error> {
        let begun = Instant::now();
        let (mut last, mut changed) = (self.receiver.packets()?, Instant::now());
        while begun.elapsed() < DRAIN {
            let enough = if last >= sent { QUIET_ALL } else { QUIET };
            if changed.elapsed() >= enough {
                break;
            }
            thread::sleep(Duration::from_millis(2));
            let now = self.receiver.packets()?;
            if now != last {
                (last, changed) = (now, Instant::now());
            }
        }
        Ok(())
    }
}
