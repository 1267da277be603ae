//! Goals and ranges of a search.

use serde::{Deserialize, Serialize};

/// A search goal of RFC 9971. Its width is relative: `1 - lower/upper`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    /// A trial that loses a larger share is a high-loss trial.
    pub loss_ratio: f64,
    /// The share of high-loss trials, by duration, that a lower bound may have.
    pub exceed_ratio: f64,
    /// The search ends when the bounds are this close.
    pub width: f64,
    /// Duration of the first trials in seconds.
    pub initial_s: f64,
    /// Least duration in seconds of a trial that counts in full.
    pub final_s: f64,
    /// Duration in seconds of all trials at one load that decides about the load in any case.
    pub sum_s: f64,
}

/// The range of loads, in frames/s of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Range {
    /// The least load; at least one frame in the shortest trial.
    pub min_pps: f64,
    /// The greatest load that line and generator can send.
    pub max_pps: f64,
}

/// An error in a goal or a range.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Wrong {
    /// A value is out of its limits.
    #[error("{what} {value}: it must be {must}")]
    Value {
        /// Name of the value.
        what: &'static str,
        /// The value.
        value: f64,
        /// The limits of the value.
        must: &'static str,
    },
    /// There is no goal.
    #[error("no search goal")]
    NoGoal,
}

impl Goal {
    /// No loss, with the settings of FD.io's CSIT (NDR): 1 s trials, 21 s at a load, half of which may lose, bounds
    /// within 0.5 %.
    pub const NDR: Self =
        Self { loss_ratio: 0.0, exceed_ratio: 0.5, width: 0.005, initial_s: 1.0, final_s: 1.0, sum_s: 21.0 };
    /// As [`NDR`](Self::NDR), with a loss of up to 0.5 % (PDR).
    pub const PDR: Self = Self { loss_ratio: 0.005, ..Self::NDR };
    /// The unconditional goal of RFC 2544 (RFC 9971, section 4.6.2): one trial of 60 s without loss.
    pub const RFC2544: Self =
        Self { exceed_ratio: 0.0, initial_s: 60.0, final_s: 60.0, sum_s: 60.0, ..Self::NDR };

    /// As [`NDR`](Self::NDR) in less time and with less certainty: 0.5 s trials, 2.5 s at a load, bounds within 1 %.
    pub const QUICK_NDR: Self = Self { width: 0.01, initial_s: 0.5, final_s: 0.5, sum_s: 2.5, ..Self::NDR };
    /// As [`PDR`](Self::PDR) in less time and with less certainty.
    pub const QUICK_PDR: Self = Self { loss_ratio: Self::PDR.loss_ratio, ..Self::QUICK_NDR };

    /// `ndr` if no loss is allowed, otherwise `pdr`.
    pub fn name(&self) -> &'static str {
        if self.loss_ratio > 0.0 { "pdr" } else { "ndr" }
    }

    /// The stages that lead to this goal, which is the last one: earlier stages have fewer trials at a load and wider
    /// bounds.
    pub(super) fn stages(&self) -> [Self; 3] {
        let coarser = |sum_s: f64, widths: f64| Self {
            sum_s,
            final_s: self.final_s.min(sum_s),
            width: 1.0 - (1.0 - self.width).powf(widths),
            ..*self
        };
        [coarser(self.initial_s, 4.0), coarser((self.initial_s * self.sum_s).sqrt(), 2.0), *self]
    }

    pub(super) fn check(&self) -> Result<(), Wrong> {
        let ratio = "from 0 to less than 1";
        within("loss ratio", self.loss_ratio, (0.0..1.0).contains(&self.loss_ratio), ratio)?;
        within("exceed ratio", self.exceed_ratio, (0.0..1.0).contains(&self.exceed_ratio), ratio)?;
        within("width", self.width, self.width > 0.0 && self.width < 1.0, "more than 0 and less than 1")?;
        within("initial trial duration", self.initial_s, self.initial_s > 0.0, "more than 0")?;
        let final_fits = self.final_s >= self.initial_s && self.final_s.is_finite();
        within("final trial duration", self.final_s, final_fits, "no shorter than the initial one")?;
        let sum_fits = self.sum_s >= self.final_s && self.sum_s.is_finite();
        within("duration sum", self.sum_s, sum_fits, "no shorter than the final trial duration")
    }
}

impl Range {
    /// Checks that the shortest trial sends a frame at every load of the range, so that it has a loss ratio.
    pub(super) fn check(&self, shortest_s: f64) -> Result<(), Wrong> {
        let sends = self.min_pps * shortest_s >= 1.0;
        within("minimum load", self.min_pps, sends, "enough for one frame in the shortest trial")?;
        let above = self.max_pps > self.min_pps && self.max_pps.is_finite();
        within("maximum load", self.max_pps, above, "above the minimum load")
    }
}

fn within(what: &'static str, value: f64, fits: bool, must: &'static str) -> Result<(), Wrong> {
    if fits { Ok(()) } else { Err(Wrong::Value { what, value, must }) }
}
