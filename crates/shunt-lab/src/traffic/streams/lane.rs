//! One direction: a receiver, and the threads that send to it.

use super::{flow_ranges::FlowRanges, sending::Sending, setup::Setup};
use crate::traffic::{Error, SendMethodChoice, sender, station::Station};
use shunt_traffic::{Arrival, Mode, Received, Receiver, STREAMS_MAX, Selection};
use std::{ops::Range, sync::Arc};

/// A direction between two stations.
pub(super) struct Lane {
    receiver: Receiver,
    senders: Vec<Sender>,
    places: u32,
    flows: FlowRanges,
    pub(super) label: u8,
}

struct Sender {
    sending: Arc<Sending>,
    /// Rate of its streams in packets/s.
    load: f64,
}

/// What a stream has of its lane.
#[derive(Debug, Clone)]
pub(super) struct Share {
    /// Its place among the streams of the lane.
    pub(super) place: u32,
    pub(super) flows: Range<u32>,
    sender: usize,
    load: f64,
}

impl Lane {
    pub(super) fn new(
        from: &Station<'_>,
        to: &Station<'_>,
        setup: &Setup,
        method: SendMethodChoice,
        cpus: u32,
    ) -> Result<Self, Error> {
        let selection = Selection::Streams { flows: setup.flows, streams: STREAMS_MAX };
        // Attach the receiver first: a veth takes live frames only if its peer has a program or GRO.
        let mut receiver = to
            .within(|| Receiver::attach_for(to.ifindex, &selection, false))
            .map_err(|error| Error::attaching(&to.ifname, &error))?;
        // If a DUT sends packets back, they must not count for the other direction.
        let label = 1 | if from.ifindex < to.ifindex { 0x40 } else { 0x80 };
        receiver.expect(label)?;
        let batch = sender::batch(setup.most_pps);
        let senders = (0..cpus)
            .map(|_| {
                let sending = Arc::new(Sending::new(from, method, setup.largest, batch)?);
                Ok(Sender { sending, load: 0.0 })
            })
            .collect::<Result<_, Error>>()?;
        Ok(Self { receiver, senders, places: 0, flows: FlowRanges::new(setup.flows), label })
    }

    pub(super) fn sendings(&self) -> impl Iterator<Item = &Arc<Sending>> {
        self.senders.iter().map(|sender| &sender.sending)
    }

    /// A share for a stream of this many flows and packets/s.
    pub(super) fn take(&mut self, flows: u32, load: f64) -> Result<Share, Error> {
        let Some(place) = (0..STREAMS_MAX).find(|place| self.places & 1 << place == 0) else {
            return Err(Error::Asked(format!("{STREAMS_MAX} streams in one direction are the most")));
        };
        let Some(flows) = self.flows.take(flows) else {
            return Err(Error::Asked(format!("no room for {flows} more flows; stop other streams first")));
        };
        self.receiver.assign(flows.clone(), place)?;
        let lightest = |a: &(usize, &Sender), b: &(usize, &Sender)| a.1.load.total_cmp(&b.1.load);
        let sender = self.senders.iter().enumerate().min_by(lightest).map_or(0, |(nth, _)| nth);
        self.senders[sender].load += load;
        self.places |= 1 << place;
        Ok(Share { place, flows, sender, load })
    }

    pub(super) fn give_back(&mut self, share: &Share) {
        self.places &= !(1 << share.place);
        self.flows.give_back(&share.flows);
        self.senders[share.sender].load -= share.load;
    }

    pub(super) fn sending(&self, share: &Share) -> &Sending {
        &self.senders[share.sender].sending
    }

    pub(super) fn mode(&self) -> Mode {
        self.receiver.mode()
    }

    /// The arrivals of all flows.
    pub(super) fn arrivals(&self) -> Result<Vec<Arrival>, Error> {
        Ok(self.receiver.arrivals()?)
    }

    pub(super) fn received(&self, share: &Share, arrivals: &[Arrival]) -> Result<Received, Error> {
        let flows = share.flows.start as usize..share.flows.end as usize;
        Ok(self.receiver.received_of(share.place, arrivals.get(flows).unwrap_or_default())?)
    }

    /// Number of packets of a stream that arrived, with duplicates.
    pub(super) fn packets(&self, share: &Share) -> Result<u64, Error> {
        Ok(self.receiver.packets_of(share.place)?)
    }
}
