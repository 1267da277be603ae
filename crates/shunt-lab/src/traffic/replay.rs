//! Replay of a capture.

use super::{Error, TrafficSpec};
use shunt_gen::{Capture, Pace, Round, Schedule};
use shunt_wire::line::{FCS_BYTES, LinkSpeed};
use std::sync::Arc;

/// A capture that is sent in place of generated packets.
#[derive(Debug, Clone, PartialEq)]
pub struct Replay {
    /// Path of the file, as given.
    pub file: String,
    /// The frames of the capture.
    pub capture: Arc<Capture>,
    /// Speed relative to the capture, such as 2 for twice as fast; None for the rate of the traffic.
    pub multiplier: Option<f64>,
    /// Number of repetitions if neither a duration nor a count is given.
    pub rounds: u32,
}

impl Replay {
    /// The order and the times of the frames.
    pub(super) fn round(&self, spec: &TrafficSpec, speed: Option<LinkSpeed>) -> Result<Round, Error> {
        let pace = match self.multiplier {
            Some(times) => Pace::Multiplier(times),
            None => Pace::Pps(spec.rate.packets_per_second(self.mean_bytes(), speed)?),
        };
        Ok(self.capture.round(pace))
    }

    pub(super) fn schedule(&self, spec: &TrafficSpec, speed: Option<LinkSpeed>) -> Result<Schedule, Error> {
        let round = self.round(spec, speed)?;
        // Frames sent with their captured intervals are not spread evenly, so the mean rate does not give their number.
        let due = spec.duration.and_then(|time| round.due_within(time));
        let whole = self.capture.frames.len() as u64 * u64::from(self.rounds);
        let packets = [spec.packets, due].into_iter().flatten().min();
        let packets = packets.or(spec.duration.is_none().then_some(whole));
        let duration = if due.is_some() { None } else { spec.duration };
        Ok(Schedule { pps: round.pps(), burst: 1, packets, duration })
    }

    /// Mean size of a frame with FCS.
    pub(super) fn mean_bytes(&self) -> f64 {
        self.capture.mean_bytes() + f64::from(FCS_BYTES)
    }

    pub(super) fn name(&self) -> String {
        let (frames, largest) = (self.capture.frames.len(), self.capture.largest());
        format!("{}: {frames} frames of {largest} bytes at most, without FCS", self.file)
    }
}
