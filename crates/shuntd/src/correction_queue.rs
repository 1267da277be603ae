//! Corrections of conntrack entries, which wait until conntrack has seen the packets in question.

use shunt_core::Correction;
use std::{collections::VecDeque, time::Duration};
use tokio::time::Instant;

/// How long a correction waits. The data plane reports a packet some microseconds before conntrack sees it, and does
/// not report the connection again within SHUNT_DOUBT_MS (20 ms).
const DELAY: Duration = Duration::from_millis(50);
/// Corrections that are taken at a time, so that changes of kernel state are not kept waiting.
const BATCH: usize = 64;
/// Corrections beyond this number are dropped: only forged packets of that many connections within the delay can cause
/// them.
const WAITING_MAX: usize = 8192;

/// Corrections in the order in which they are due.
#[derive(Debug, Default)]
pub(crate) struct CorrectionQueue {
    waiting: VecDeque<(Instant, Correction)>,
}

impl CorrectionQueue {
    /// Adds a correction, unless it is among the latest ones already or the queue is full.
    pub(crate) fn push(&mut self, correction: Correction) {
        if self.waiting.len() < WAITING_MAX
            && !self.waiting.iter().rev().take(BATCH).any(|(_, c)| *c == correction)
        {
            self.waiting.push_back((Instant::now() + DELAY, correction));
        }
    }

    /// When the next correction is due; `None` if the queue is empty.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.waiting.front().map(|(due, _)| *due)
    }

    /// Takes the corrections that are due out of the queue. The second list has the ones that follow, which stay.
    pub(crate) fn take_due(&mut self) -> (Vec<Correction>, Vec<Correction>) {
        let now = Instant::now();
        let count = self.waiting.iter().take(BATCH).take_while(|(due, _)| *due <= now).count();
        let due = self.waiting.drain(..count).map(|(_, correction)| correction).collect();
        (due, self.waiting.iter().take(BATCH).map(|(_, correction)| *correction).collect())
    }
}
