//! A TCP sender: slow start, Reno's congestion avoidance, recovery of what a later acknowledgement shows as lost,
//! time-outs.
//!
//! Frames stay in order, so an acknowledgement of a transmission settles all earlier ones: those that were not dropped
//! have arrived. What was lost is sent again as a new transmission.

use super::{End, World, slot};
use crate::time::{NEVER, Ps};
use std::{collections::BTreeSet, mem};

/// The least time until a time-out: 200 ms, as Linux.
const TIMEOUT: Ps = 200_000_000_000;
/// Segments of the first window.
const FIRST_WINDOW: f64 = 10.0;

/// A sender of segments.
#[derive(Debug)]
pub(super) struct Sender {
    /// Transmissions before this one are settled.
    settled: u64,
    window: f64,
    threshold: f64,
    /// A loss of a transmission before this one belongs to a loss that has halved the window.
    recover: u64,
    dropped: BTreeSet<u64>,
    /// Whether congestion control or losses have ever held the sender back.
    pub(super) was_limited: bool,
}

impl Default for Sender {
    fn default() -> Self {
        Self {
            settled: 0,
            window: FIRST_WINDOW,
            threshold: f64::MAX,
            recover: 0,
            dropped: BTreeSet::new(),
            was_limited: false,
        }
    }
}

impl Sender {
    pub(super) fn dropped(&mut self, index: u64) {
        if index >= self.settled {
            self.dropped.insert(index);
        }
    }
}

impl World<'_> {
    /// Whether both windows allow another segment.
    pub(super) fn window_allows(&mut self, flow: usize) -> bool {
        let t = &self.case.traffic;
        let Self { flows, program, .. } = self;
        let of = &mut flows[flow];
        let in_flight = of.sent - of.sender.settled;
        let unread = if of.to == End::Board { program.socket.len() as u64 } else { 0 };
        let allowed = (in_flight as f64) < of.sender.window
            && (in_flight + unread + 1) * u64::from(t.payload) <= u64::from(t.window);
        of.sender.was_limited |= !allowed;
        allowed
    }

    pub(super) fn sent_segment(&mut self, flow: usize) {
        self.flows[flow].sent += 1;
        if self.agenda[slot::TIMEOUT + flow] == NEVER {
            self.schedule(slot::TIMEOUT + flow, self.now + TIMEOUT);
        }
    }

    /// An acknowledgement has reached the sender.
    pub(super) fn acknowledged(&mut self, flow: usize, last: u64) {
        let of = &mut self.flows[flow];
        let sender = &mut of.sender;
        if last < sender.settled {
            return;
        }
        let later = sender.dropped.split_off(&(last + 1));
        let lost = mem::replace(&mut sender.dropped, later);
        let recovers = lost.range(sender.recover..).next().is_some();
        let arrived = (last + 1 - sender.settled).saturating_sub(lost.len() as u64) as f64;
        sender.settled = last + 1;
        if recovers {
            sender.threshold = (sender.window / 2.0).max(2.0);
            sender.window = sender.threshold;
            sender.recover = of.sent;
        } else if sender.window < sender.threshold {
            sender.window += arrived;
        } else {
            sender.window += arrived / sender.window;
        }
        let in_flight = of.sent > of.sender.settled;
        self.agenda[slot::TIMEOUT + flow] = if in_flight { self.now + TIMEOUT } else { NEVER };
    }

    /// Nothing was acknowledged for long: what is under way counts as lost.
    pub(super) fn timeout(&mut self, flow: usize) {
        let of = &mut self.flows[flow];
        of.sender.threshold = (of.sender.window / 2.0).max(2.0);
        of.sender.window = 1.0;
        of.sender.settled = of.sent;
        of.sender.recover = of.sent;
        of.sender.dropped.clear();
        self.send(flow);
    }
}
