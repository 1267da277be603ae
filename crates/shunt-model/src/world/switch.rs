//! The switch behind the line on which the board sends: a buffer, and a port that may be slower.

use super::{Frame, Frames, World, slot};
use crate::time::{NEVER, Ps, of_bytes};

/// A pause by IEEE 802.3 annex 31B, from one moment to another.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pause {
    from: Ps,
    until: Ps,
}

impl Pause {
    /// A pause that lasts until its end is known.
    pub(super) fn from(from: Ps) -> Self {
        Self { from, until: NEVER }
    }

    /// A pause that ends by itself, unless something ends it sooner.
    pub(super) fn of(from: Ps, duration: Ps) -> Self {
        Self { from, until: from.saturating_add(duration) }
    }

    /// When a pause that holds now ends, as far as is known.
    pub(super) fn ends(self, now: Ps) -> Option<Ps> {
        (self.holds(now) && self.until != NEVER).then_some(self.until)
    }

    pub(super) fn end(&mut self, until: Ps) {
        self.until = until;
    }

    pub(super) fn holds(self, now: Ps) -> bool {
        self.from <= now && now < self.until
    }
}

/// The frames in the switch that wait for its onward port.
#[derive(Debug, Default)]
pub(super) struct Onward {
    queue: Frames,
    bytes: u32,
    asked_for_pause: bool,
}

impl World<'_> {
    /// A frame from the board has reached the switch.
    pub(super) fn reach_switch(&mut self, port: usize, frame: Frame) {
        let (switch, onward) = (&self.case.switch, &mut self.onward[port]);
        if onward.bytes + frame.bytes > switch.buffer {
            self.drops.switch += 1;
            return self.lose(frame);
        }
        onward.bytes += frame.bytes;
        onward.queue.push_back(frame);
        let begins = onward.queue.len() == 1;
        if switch.pause && !onward.asked_for_pause && onward.bytes > switch.buffer / 4 * 3 {
            onward.asked_for_pause = true;
            self.pauses_received += 1;
            if self.case.fifo.obeys_pause {
                self.transmits[port].paused = Pause::from(self.now + self.costs.until_pause);
            }
        }
        if begins {
            self.start_onward(port);
        }
    }

    fn start_onward(&mut self, port: usize) {
        if let Some(frame) = self.onward[port].queue.front() {
            let took = of_bytes(frame.bytes + self.case.link.gap_bytes, self.case.switch.onward_rate);
            self.schedule(slot::ONWARD + port, self.now + took);
        }
    }

    /// The switch has sent a frame on.
    pub(super) fn onward_done(&mut self, port: usize) {
        let onward = &mut self.onward[port];
        let Some(frame) = onward.queue.pop_front() else { return };
        onward.bytes -= frame.bytes;
        if onward.asked_for_pause && onward.bytes <= self.case.switch.buffer / 2 {
            onward.asked_for_pause = false;
            let at = self.now + self.costs.until_pause;
            self.transmits[port].paused.end(at);
            self.schedule(slot::RESUME + port, at);
        }
        self.start_onward(port);
        self.reach_peer(port, frame);
    }
}
