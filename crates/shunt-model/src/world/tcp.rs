//! A TCP sender: slow start, Reno's congestion avoidance, fast retransmit by selective acknowledgements, time-outs that
//! back off.
//!
//! Frames stay in order, so an acknowledgement of a transmission says which of the earlier ones arrived: those that
//! were not dropped. As with SACK, three later arrivals show a loss. What was lost is sent again as a new transmission.

use super::{End, World, slot};
use crate::time::{NEVER, Ps};
use std::collections::BTreeSet;

/// The least time until a time-out: 200 ms, as Linux.
const TIMEOUT: Ps = 200_000_000_000;
/// A time-out doubles at most this often.
const BACKOFF_MAX: u32 = 8;
/// Segments of the first window.
const FIRST_WINDOW: f64 = 10.0;
/// A transmission is lost once this many later ones have arrived.
const LATER_ARRIVALS: u64 = 3;

/// A sender of segments.
#[derive(Debug)]
pub(super) struct Sender {
    /// Transmissions before this one have arrived, or are in `dropped`, or were found lost.
    seen: u64,
    window: f64,
    threshold: f64,
    /// A loss of a transmission before this one belongs to a loss that has halved the window.
    recover: u64,
    /// Transmissions that were dropped, and are not found lost yet.
    dropped: BTreeSet<u64>,
    /// Time-outs since the last acknowledgement.
    timeouts: u32,
}

impl Default for Sender {
    fn default() -> Self {
        Self {
            seen: 0,
            window: FIRST_WINDOW,
            threshold: f64::MAX,
            recover: 0,
            dropped: BTreeSet::new(),
            timeouts: 0,
        }
    }
}

impl Sender {
    /// Notes a loss. Transmissions before the last time-out count no more.
    pub(super) fn dropped(&mut self, index: u64) {
        if index >= self.seen {
            self.dropped.insert(index);
        }
    }

    /// Transmissions that may still be under way, for all that the sender knows.
    fn in_flight(&self, sent: u64) -> u64 {
        sent - self.seen + self.dropped.range(..self.seen).count() as u64
    }

    /// Takes an acknowledgement of a transmission.
    fn acknowledged(&mut self, last: u64, sent: u64) {
        let new = last + 1 - self.seen;
        let missing = self.dropped.range(self.seen..=last).count() as u64;
        let arrived = (new - missing) as f64;
        self.seen = last + 1;
        self.timeouts = 0;
        let mut recovers = false;
        while let Some(first) = self.dropped.first().copied() {
            if first > last {
                break;
            }
            let not_arrived = self.dropped.range(first..=last).count() as u64;
            if last + 1 - first - not_arrived < LATER_ARRIVALS {
                break;
            }
            self.dropped.remove(&first);
            recovers |= first >= self.recover;
        }
        if recovers {
            self.threshold = (self.window / 2.0).max(2.0);
            self.window = self.threshold;
            self.recover = sent;
        } else if last < self.recover && self.timeouts == 0 && self.window >= self.threshold {
            // Fast recovery: the window grows again once it is over.
        } else if self.window < self.threshold {
            self.window += arrived;
        } else {
            self.window += arrived / self.window;
        }
    }

    fn timed_out(&mut self, sent: u64) {
        self.threshold = (self.window / 2.0).max(2.0);
        self.window = 1.0;
        self.seen = sent;
        self.recover = sent;
        self.dropped.clear();
        self.timeouts = (self.timeouts + 1).min(BACKOFF_MAX);
    }

    fn timeout(&self) -> Ps {
        TIMEOUT << self.timeouts
    }
}

impl World<'_> {
    /// Whether both windows allow another segment.
    pub(super) fn window_allows(&mut self, flow: usize) -> bool {
        let t = &self.case.traffic;
        let Self { flows, program, .. } = self;
        let of = &flows[flow];
        let in_flight = of.sender.in_flight(of.sent);
        let unread = if of.to == End::Board { program.socket.len() as u64 } else { 0 };
        (in_flight as f64) < of.sender.window
            && (in_flight + unread + 1) * u64::from(t.payload) <= u64::from(t.window)
    }

    pub(super) fn sent_segment(&mut self, flow: usize) {
        let of = &mut self.flows[flow];
        of.sent += 1;
        let timeout = of.sender.timeout();
        if self.agenda[slot::TIMEOUT + flow] == NEVER {
            self.schedule(slot::TIMEOUT + flow, self.now + timeout);
        }
    }

    /// An acknowledgement has reached the sender.
    pub(super) fn acknowledged(&mut self, flow: usize, last: u64) {
        let of = &mut self.flows[flow];
        if last < of.sender.seen {
            return;
        }
        of.sender.acknowledged(last, of.sent);
        let waits = of.sender.in_flight(of.sent) > 0;
        self.agenda[slot::TIMEOUT + flow] = if waits { self.now + of.sender.timeout() } else { NEVER };
    }

    /// Nothing was acknowledged for long: what is under way counts as lost.
    pub(super) fn timeout(&mut self, flow: usize) {
        let of = &mut self.flows[flow];
        of.sender.timed_out(of.sent);
        self.send(flow);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sender in congestion avoidance with ten segments under way, some of them dropped.
    fn sender(dropped: &[u64]) -> Sender {
        let mut sender = Sender { threshold: 5.0, ..Sender::default() };
        dropped.iter().for_each(|index| sender.dropped(*index));
        sender
    }

    #[test]
    fn three_later_arrivals_show_a_loss_and_halve_the_window_once() {
        let mut sender = sender(&[2, 3]);
        sender.acknowledged(1, 10);
        sender.acknowledged(5, 10);
        assert_eq!((sender.in_flight(10), sender.dropped.len()), (6, 2), "two arrivals show nothing");
        sender.acknowledged(6, 10);
        assert_eq!(sender.in_flight(10), 3, "segments 7 to 9");
        assert!((5.0..5.3).contains(&sender.window), "{sender:?}");
    }

    #[test]
    fn losses_at_the_end_of_a_window_wait_for_a_timeout_that_backs_off() {
        let mut sender = sender(&[8, 9]);
        sender.acknowledged(7, 10);
        assert_eq!(sender.in_flight(10), 2);
        assert_eq!(sender.timeout(), TIMEOUT);
        sender.timed_out(10);
        assert_eq!((sender.in_flight(10), sender.window, sender.timeout()), (0, 1.0, 2 * TIMEOUT));
        sender.timed_out(11);
        assert_eq!(sender.timeout(), 4 * TIMEOUT);
        sender.acknowledged(11, 12);
        assert_eq!((sender.window, sender.timeout()), (2.0, TIMEOUT));
    }
}
