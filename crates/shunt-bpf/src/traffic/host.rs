//! The traffic core, compiled for this machine: packets for a socket to send, and what the kernel runs, to be tested.

#[cfg(test)]
use super::Arrival;
use super::{
    State,
    abi::{Plan, start},
};
use shunt_gen::{Schedule, Traffic};

// SAFETY: the declarations are those of bpf/core/host.c.
unsafe extern "C" {
    fn shunt_host_traffic_next(
        plan: *const Plan,
        state: *mut State,
        numbers: *mut u32,
        frame: *mut u8,
        room: u32,
        now: u64,
    ) -> u32;
    #[cfg(test)]
    fn shunt_host_arrival_note(arrival: *mut Arrival, tag: u32, number: u32, transit_ns: u32);
    #[cfg(test)]
    fn shunt_host_latency_bucket(ns: u32) -> u32;
}

/// Makes the packets of a [`super::Generator`] where there are no live frames.
#[derive(Debug)]
pub struct Maker {
    plan: Plan,
    state: State,
    numbers: Vec<u32>,
    frame: Vec<u8>,
}

impl Maker {
    /// Of this traffic.
    pub fn new(traffic: &Traffic) -> Self {
        let random = traffic.shuffled.unwrap_or_default();
        Self {
            plan: Plan::of(traffic, 0),
            state: State { random, burst: 1, ..State::default() },
            numbers: vec![0; traffic.flows as usize],
            frame: vec![0; (traffic.sizes.largest() - 4) as usize],
        }
    }

    /// As [`super::Generator::schedule`].
    pub fn schedule(&mut self, schedule: &Schedule, start_ns: u64, tag: u8) {
        self.state = start(schedule, start_ns, tag, &self.state);
    }

    /// How far it got.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The packet that is due, if one is.
    pub fn next(&mut self, now_ns: u64) -> Option<&[u8]> {
        // SAFETY: `numbers` has an element for each flow of the plan, `frame` has `room` bytes, and nothing else is written
        // but the state.
        let bytes = unsafe {
            shunt_host_traffic_next(
                &raw const self.plan,
                &raw mut self.state,
                self.numbers.as_mut_ptr(),
                self.frame.as_mut_ptr(),
                self.frame.len() as u32,
                now_ns,
            )
        };
        (bytes > 0).then(|| &self.frame[..bytes as usize])
    }
}

#[cfg(test)]
impl Arrival {
    pub(super) fn note(&mut self, tag: u32, number: u32, transit_ns: u32) {
        // SAFETY: writes to one structure.
        unsafe { shunt_host_arrival_note(self, tag, number, transit_ns) }
    }
}

#[cfg(test)]
pub(super) fn latency_bucket(ns: u32) -> u32 {
    // SAFETY: takes and returns a number.
    unsafe { shunt_host_latency_bucket(ns) }
}

#[cfg(test)]
mod tests;
