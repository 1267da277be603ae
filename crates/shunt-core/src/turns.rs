//! When links went up or down, for what follows from that.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// When links last went up or down.
#[derive(Debug, Default)]
pub(crate) struct Turns(BTreeMap<u32, Instant>);

impl Turns {
    /// How long a turn is remembered.
    pub(crate) const KEPT: Duration = Duration::from_secs(10);

    pub(crate) fn note(&mut self, ifindex: u32, now: Instant) {
        self.0.retain(|_, at| now.saturating_duration_since(*at) <= Self::KEPT);
        self.0.insert(ifindex, now);
    }

    pub(crate) fn has(&self, ifindex: u32, now: Instant, within: Duration) -> bool {
        self.0.get(&ifindex).is_some_and(|at| now.saturating_duration_since(*at) <= within)
    }
}
