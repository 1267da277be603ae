//! The C code of the lab's programs, compiled for this machine: makes packets to send by a socket, and is tested here.

#[cfg(test)]
use crate::Arrival;
use crate::{
    TrafficState,
    abi::{Pacing, ReplayPlan, TrafficEnds, TrafficPlan, TrafficSteps, start, start_steps},
    steps::StepRing,
};
use shunt_gen::{Capture, Round, Schedule, Step, Timetable, Traffic};
use std::{collections::BTreeSet, sync::Arc};

// SAFETY: the declarations are those of bpf/core/host.c.
unsafe extern "C" {
    fn shunt_host_traffic_next(
        plan: *const TrafficPlan,
        state: *mut TrafficState,
        steps: *const TrafficSteps,
        ends: *const TrafficEnds,
        numbers: *mut u32,
        frame: *mut u8,
        room: u32,
        now: u64,
    ) -> u32;
    fn shunt_host_look_at_ns(state: *const TrafficState, steps: *const TrafficSteps) -> u64;
    fn shunt_host_replay_next(
        plan: *const ReplayPlan,
        state: *mut TrafficState,
        bytes: u32,
        next_due_ns: u64,
        now: u64,
    ) -> i32;
    fn shunt_host_frame_kind(frame: *const u8, bytes: u32) -> u32;
    #[cfg(test)]
    fn shunt_host_arrival_note(arrival: *mut Arrival, label: u32, number: u32, transit_ns: u32);
    #[cfg(test)]
    fn shunt_host_latency_bucket(ns: u32) -> u32;
}

/// Makes the packets of a [`crate::Generator`] in user space, to send by a socket.
#[derive(Debug)]
pub struct FrameMaker {
    plan: TrafficPlan,
    state: TrafficState,
    /// The end of each flow; empty if the ends are not listed.
    ends: Vec<TrafficEnds>,
    numbers: Vec<u32>,
    /// The steps of a stream whose rate changes.
    steps: Option<StepRing>,
    frame: Vec<u8>,
}

impl FrameMaker {
    /// Makes packets of this traffic.
    pub fn new(traffic: &Traffic) -> Self {
        Self::of_plan(traffic, TrafficPlan::for_traffic(traffic))
    }

    /// Makes packets of one of several streams; its flows have numbers from `first_flow` on.
    pub fn stream(traffic: &Traffic, first_flow: u32) -> Self {
        Self::of_plan(traffic, TrafficPlan::for_stream(traffic, first_flow))
    }

    fn of_plan(traffic: &Traffic, plan: TrafficPlan) -> Self {
        let random = traffic.shuffled.unwrap_or_default();
        Self {
            plan,
            state: TrafficState { random, burst: 1, ..TrafficState::default() },
            ends: vec![TrafficEnds::default(); if traffic.listed { traffic.flows as usize } else { 0 }],
            numbers: vec![0; traffic.flows as usize],
            steps: None,
            frame: vec![0; (traffic.sizes.largest() - 4) as usize],
        }
    }

    /// As [`crate::Generator::schedule`].
    pub fn schedule(&mut self, schedule: &Schedule, start_ns: u64, label: u8) {
        self.state = start(schedule, start_ns, label, &self.state);
    }

    /// As [`crate::MixedStream::start`].
    pub fn start(&mut self, table: &Timetable, pacing: Pacing, start_ns: u64, label: u8) {
        self.steps = Some(StepRing::new(&table.steps));
        self.state = start_steps(table, pacing, start_ns, label, &self.state);
    }

    /// As [`crate::MixedStream::change`].
    pub fn change(&mut self, at: u64, steps: &[Step]) -> bool {
        let step = self.state.step;
        self.steps.as_mut().is_some_and(|ring| match ring.splice(step, at, steps) {
            Some(splice) => {
                ring.set_until(splice);
                true
            }
            None => false,
        })
    }

    /// When the next packet is due; `u64::MAX` if there is none.
    pub fn look_at_ns(&self) -> u64 {
        match &self.steps {
            // SAFETY: both structures are read only.
            Some(ring) => unsafe { shunt_host_look_at_ns(&raw const self.state, ring.table()) },
            None => u64::MAX,
        }
    }

    /// Sets the ends of the first flows of traffic whose ends are listed; those beyond the flows are ignored.
    pub fn list(&mut self, ends: &[TrafficEnds]) {
        self.ends.iter_mut().zip(ends).for_each(|(place, ends)| *place = *ends);
    }

    /// How far it got.
    pub fn state(&self) -> &TrafficState {
        &self.state
    }

    /// The packet that is due. None if no packet is due.
    pub fn next(&mut self, now_ns: u64) -> Option<&[u8]> {
        let steps = self.steps.as_ref().map_or(std::ptr::null(), |ring| &raw const *ring.table());
        if self.plan.stepped != 0 && steps.is_null() {
            return None;
        }
        // SAFETY: `numbers` has an element for each flow of the plan, as `ends` has if the plan says that ends are
        // listed, `steps` is a table if the plan is stepped, `frame` has `room` bytes, and nothing else is written but
        // the state.
        let bytes = unsafe {
            shunt_host_traffic_next(
                &raw const self.plan,
                &raw mut self.state,
                steps,
                self.ends.as_ptr(),
                self.numbers.as_mut_ptr(),
                self.frame.as_mut_ptr(),
                self.frame.len() as u32,
                now_ns,
            )
        };
        (bytes > 0).then(|| &self.frame[..bytes as usize])
    }
}

/// Returns the frames of a capture when they are due, to send by a socket.
#[derive(Debug)]
pub struct Replayer {
    plan: ReplayPlan,
    state: TrafficState,
    capture: Arc<Capture>,
    round: Round,
}

impl Replayer {
    /// Replays this capture at the pace of `round`.
    pub fn new(capture: Arc<Capture>, round: Round) -> Self {
        let plan = ReplayPlan::for_capture(&capture, &round, 0);
        Self { plan, state: TrafficState::default(), capture, round }
    }

    /// As [`crate::Generator::schedule`].
    pub fn schedule(&mut self, schedule: &Schedule, start_ns: u64, label: u8) {
        self.state = start(schedule, start_ns, label, &self.state);
    }

    /// How far it got.
    pub fn state(&self) -> &TrafficState {
        &self.state
    }

    /// The frame that is due. None if no frame is due.
    pub fn next(&mut self, now_ns: u64) -> Option<&[u8]> {
        let at = self.state.flow as usize;
        let frame = &self.capture.frames[at].bytes;
        let next_due_ns = self.round.due[(at + 1) % self.round.due.len()].as_nanos() as u64;
        // SAFETY: both pointers are valid, and only the state is written.
        let due = unsafe {
            shunt_host_replay_next(
                &raw const self.plan,
                &raw mut self.state,
                frame.len() as u32,
                next_due_ns,
                now_ns,
            )
        };
        (due != 0).then_some(frame)
    }
}

/// The kinds of frames in a capture, from fields that a router does not change.
pub(crate) fn kinds(capture: &Capture) -> BTreeSet<u32> {
    let kind = |frame: &[u8]| {
        // SAFETY: reads at most the given number of bytes.
        unsafe { shunt_host_frame_kind(frame.as_ptr(), frame.len() as u32) }
    };
    capture.frames.iter().map(|frame| kind(&frame.bytes)).collect()
}

#[cfg(test)]
impl Arrival {
    pub(crate) fn note(&mut self, label: u32, number: u32, transit_ns: u32) {
        // SAFETY: writes to one structure.
        unsafe { shunt_host_arrival_note(self, label, number, transit_ns) }
    }
}

#[cfg(test)]
pub(crate) fn latency_bucket(ns: u32) -> u32 {
    // SAFETY: takes and returns a number.
    unsafe { shunt_host_latency_bucket(ns) }
}

#[cfg(test)]
mod fixed_tests;
#[cfg(test)]
mod step_tests;
#[cfg(test)]
mod tests;
