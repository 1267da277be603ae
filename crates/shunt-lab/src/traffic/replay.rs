//! What was captured, sent again.

use super::{Error, Wanted};
use shunt_gen::{Capture, Pace, Round, Schedule};
use shunt_wire::line::{FCS_BYTES, LinkSpeed};
use std::sync::Arc;

/// A capture that is sent instead of packets that are made.
#[derive(Debug, Clone, PartialEq)]
pub struct Replay {
    /// As it was named.
    pub file: String,
    /// Its frames.
    pub capture: Arc<Capture>,
    /// How many times as fast as it was captured; none: at the rate that is wanted.
    pub multiplier: Option<f64>,
    /// How often, where neither a time nor a count is wanted.
    pub rounds: u32,
}

impl Replay {
    /// When frames go.
    pub(super) fn round(&self, wanted: &Wanted, speed: Option<LinkSpeed>) -> Result<Round, Error> {
        let pace = match self.multiplier {
            Some(times) => Pace::Multiplier(times),
            None => Pace::Pps(wanted.rate.packets_per_second(self.mean_bytes(), speed)?),
        };
        Ok(self.capture.round(pace))
    }

    pub(super) fn schedule(&self, wanted: &Wanted, speed: Option<LinkSpeed>) -> Result<Schedule, Error> {
        let round = self.round(wanted, speed)?;
        // As captured, more or fewer may be due in a time than the mean rate says.
        let due = wanted.duration.and_then(|time| round.due_within(time));
        let whole = self.capture.frames.len() as u64 * u64::from(self.rounds);
        let packets = [wanted.packets, due].into_iter().flatten().min();
        let packets = packets.or(wanted.duration.is_none().then_some(whole));
        let duration = if due.is_some() { None } else { wanted.duration };
        Ok(Schedule { pps: round.pps(), burst: 1, packets, duration })
    }

    /// Of a frame, with FCS.
    pub(super) fn mean_bytes(&self) -> f64 {
        self.capture.mean_bytes() + f64::from(FCS_BYTES)
    }

    pub(super) fn name(&self) -> String {
        let (frames, largest) = (self.capture.frames.len(), self.capture.largest());
        format!("{}: {frames} frames of {largest} bytes at most, without FCS", self.file)
    }
}
