//! What the programs share with user space: the Rust twin of `bpf/abi`, which the build makes, and what belongs to it.

mod plain;
mod reasons;
mod twin {
    #![allow(missing_docs, reason = "the C headers leave out what a name says")]
    #![allow(clippy::all, unused_parens, reason = "expressions come from C as they are")]
    include!(concat!(env!("OUT_DIR"), "/shunt_abi.rs"));
}

pub use plain::Plain;
pub use reasons::{REASONS, Reason, ReasonKind, numbers as reason};
pub use twin::*;

/// The longest L2 header: MACs, two tags, EtherType.
pub const L2_MAX: usize = twin::L2_MAX as usize;
/// Slots in a bucket of the index.
pub const WAYS: usize = twin::WAYS as usize;
/// Number of groups of flows by their stations; each number of 16 bits is one.
pub const GROUPS: usize = twin::GROUPS as usize;

/// All flags that hold learning.
pub const CONTROL_HOLD: u32 = CONTROL_HOLD_TCP4
    | CONTROL_HOLD_TCP6
    | CONTROL_HOLD_UDP4
    | CONTROL_HOLD_UDP6
    | CONTROL_HOLD_NEW4
    | CONTROL_HOLD_NEW6;

impl Flow {
    /// When the action was retired. Valid for a retired action only.
    pub fn retired_ticks(&self) -> u32 {
        self.reprove_at_ticks
    }

    /// Why the action was retired, if it was.
    pub fn retired_why(&self) -> Option<u8> {
        (self.epoch == EPOCH_RETIRED).then(|| self.group.to_ne_bytes()[0])
    }

    /// Marks the action as retired at that time.
    pub fn retire(&mut self, at_ticks: u32) {
        (self.epoch, self.reprove_at_ticks) = (EPOCH_RETIRED, at_ticks);
    }
}

/// The counters, all of which have 64 bits.
type CounterWords = [u64; size_of::<Counters>() / size_of::<u64>()];

impl Counters {
    /// Adds the counters of another CPU.
    pub fn add(&mut self, other: &Self) {
        let words: &mut CounterWords = zerocopy::transmute_mut!(self);
        let others: &CounterWords = zerocopy::transmute_ref!(other);
        for (mine, theirs) in words.iter_mut().zip(others) {
            *mine += theirs;
        }
    }

    /// Takes away what was counted before. A count that is smaller now becomes 0.
    pub fn subtract(&mut self, before: &Self) {
        let words: &mut CounterWords = zerocopy::transmute_mut!(self);
        let others: &CounterWords = zerocopy::transmute_ref!(before);
        for (mine, theirs) in words.iter_mut().zip(others) {
            *mine = mine.saturating_sub(*theirs);
        }
    }
}
