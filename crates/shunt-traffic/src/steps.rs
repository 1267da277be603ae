//! The table of steps of a stream, which may change while the stream is being sent.

use crate::abi::{TRAFFIC_STEPS_MAX, TrafficStep, TrafficSteps};
use shunt_gen::Step;

const LEN: usize = TRAFFIC_STEPS_MAX as usize;

/// The steps as the sender has them.
#[derive(Debug)]
pub(crate) struct StepRing {
    table: Box<TrafficSteps>,
}

/// A step that ends earlier than planned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Splice {
    place: usize,
    until: u64,
}

impl StepRing {
    /// A table of these steps; one place at least stays empty and ends it.
    pub(crate) fn new(steps: &[Step]) -> Self {
        let mut table = Box::new(TrafficSteps { at: [TrafficStep { from: 0, until: 0, interval: 0 }; LEN] });
        table.at.iter_mut().take(LEN - 1).zip(steps).for_each(|(place, step)| *place = step.into());
        Self { table }
    }

    pub(crate) fn table(&self) -> &TrafficSteps {
        &self.table
    }

    /// Puts `steps` behind the step in which the time `at` lies, which must be in the sender's future. The sender was
    /// in the step `current` a moment ago. The steps apply once the end of that step is set, too. None if the schedule
    /// is over by then.
    pub(crate) fn splice(&mut self, current: u32, at: u64, steps: &[Step]) -> Option<Splice> {
        let (mut place, mut passed) = (current as usize % LEN, 0);
        while self.table.at[place].until <= at {
            (place, passed) = ((place + 1) % LEN, passed + 1);
            if self.table.at[place].until == 0 {
                return None;
            }
        }
        let none = TrafficStep { from: 0, until: 0, interval: 0 };
        // The sender may still need the steps that it passes before `at`.
        let ahead = (place + 1..).map(|n| n % LEN).take((LEN - 1).saturating_sub(passed));
        let steps = steps.iter().map(TrafficStep::from).chain(std::iter::repeat(none));
        ahead.zip(steps).for_each(|(n, step)| self.table.at[n] = step);
        Some(Splice { place, until: at })
    }

    pub(crate) fn set_until(&mut self, Splice { place, until }: Splice) {
        self.table.at[place].until = until;
    }
}

impl From<&Step> for TrafficStep {
    fn from(&Step { from, until, interval }: &Step) -> Self {
        Self { from, until, interval }
    }
}
