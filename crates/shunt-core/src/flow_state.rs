//! The state of a flow, and times on the data plane's clock.

use shunt_api::FlowState;
use std::time::Duration;

/// A reading of the data plane's clock, which wraps around.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TickClock {
    /// The time of the reading, in ticks.
    pub now: u32,
    /// Ticks in a second.
    pub ticks_per_s: u32,
}

impl TickClock {
    /// The clock `elapsed` after this reading.
    pub fn advanced_by(self, elapsed: Duration) -> Self {
        let ticks = elapsed.as_secs_f64() * f64::from(self.ticks_per_s);
        Self { now: self.now.wrapping_add(ticks as u32), ..self }
    }

    /// Whole seconds since `at`. 0 if `at` is later than the reading: a flow may be used after the clock was read.
    pub fn seconds_since(self, at: u32) -> u64 {
        if self.has_passed(at) { u64::from(self.now.wrapping_sub(at) / self.ticks_per_s.max(1)) } else { 0 }
    }

    /// Whether `earlier` is before `later`. Both must lie within half the range of the clock.
    pub fn is_before(self, earlier: u32, later: u32) -> bool {
        later.wrapping_sub(earlier).wrapping_sub(1) < u32::MAX / 2
    }

    fn has_passed(self, at: u32) -> bool {
        self.now.wrapping_sub(at) <= u32::MAX / 2
    }
}

/// The fields of a table entry that decide the state of its flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryState {
    /// The flow was put in by a person and needs no proof.
    pub is_static: bool,
    /// The flow was taken out of use.
    pub is_retired: bool,
    /// The flow has forwarded a packet, or may do so.
    pub is_active: bool,
    /// Nothing that its action depends on has changed since the last proof.
    pub is_current: bool,
    /// When the next proof of its action is due, in ticks.
    pub prove_by_ticks: u32,
}

/// How long a proof may be overdue before a flow counts as stale: a flow that pauses is not proved either, and nothing
/// is wrong with it.
const PROOF_OVERDUE_S: u32 = 4;

impl EntryState {
    /// The state of the flow at the present time.
    pub fn flow_state(self, clock: TickClock) -> FlowState {
        let stale_at = self.prove_by_ticks.wrapping_add(PROOF_OVERDUE_S * clock.ticks_per_s);
        if self.is_static {
            FlowState::Static
        } else if self.is_retired {
            FlowState::Retired
        } else if !self.is_current || clock.has_passed(stale_at) {
            FlowState::Stale
        } else if self.is_active {
            FlowState::Active
        } else {
            FlowState::Pending
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOCK: TickClock = TickClock { now: 1_000, ticks_per_s: 100 };

    #[test]
    fn times_are_compared_across_the_wrap_of_the_clock() {
        let wrapped = TickClock { now: 50, ticks_per_s: 100 };
        assert_eq!(wrapped.seconds_since(u32::MAX - 149), 2);
        assert!(
            wrapped.is_before(u32::MAX, 3) && !wrapped.is_before(3, u32::MAX) && !wrapped.is_before(3, 3)
        );
        assert_eq!(CLOCK.seconds_since(700), 3);
        assert_eq!(CLOCK.seconds_since(1_001), 0, "used after the clock was read");
        assert_eq!(CLOCK.advanced_by(Duration::from_millis(2_500)).now, 1_250);
    }

    #[test]
    fn a_flow_is_stale_after_a_change_or_four_seconds_after_its_proof_was_due() {
        let active = EntryState {
            is_static: false,
            is_retired: false,
            is_active: true,
            is_current: true,
            prove_by_ticks: 601,
        };
        let state = |entry: EntryState| entry.flow_state(CLOCK);
        assert_eq!(state(active), FlowState::Active);
        assert_eq!(state(EntryState { is_active: false, ..active }), FlowState::Pending);
        assert_eq!(state(EntryState { prove_by_ticks: 600, ..active }), FlowState::Stale);
        assert_eq!(state(EntryState { is_current: false, ..active }), FlowState::Stale);
        assert_eq!(state(EntryState { is_retired: true, ..active }), FlowState::Retired);
        assert_eq!(state(EntryState { is_static: true, is_current: false, ..active }), FlowState::Static);
    }
}
