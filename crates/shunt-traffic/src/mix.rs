//! A sender of several streams of live XDP frames, which start, change and stop independently.

use crate::{
    Error, Pacing, TrafficState,
    abi::{TRAFFIC_ASK_EACH, TRAFFIC_STREAMS_MAX, TrafficPlan, TrafficSteps, TrafficTurns, start_steps},
    generator, libbpf_error,
    live::LiveFrames,
    load, map, missing, open, set_entries, set_rodata,
    steps::StepRing,
};
use libbpf_rs::{MapCore, MapFlags, Object};
use shunt_bpf::abi::Plain;
use shunt_gen::{Step, Timetable, Traffic};
use std::os::fd::{AsFd, AsRawFd};

/// Streams that one sender has at most.
pub const STREAMS_MAX: u32 = TRAFFIC_STREAMS_MAX;
const ZERO: [u8; 4] = [0; 4];
const NEVER: u64 = u64::MAX;

/// Sends several streams from one CPU at a time. A frame goes to the stream whose packet was due first.
#[derive(Debug)]
pub struct Mix {
    object: Object,
    frame: Vec<u8>,
    batch: u32,
}

/// One stream of a [`Mix`].
#[derive(Debug)]
pub struct MixedStream {
    object: Object,
    turn: u32,
    steps: StepRing,
}

impl Mix {
    /// Loads a sender without streams. Frames are made of a buffer of `frame_bytes`, without FCS; the kernel builds up
    /// to `batch` of them before it passes them on.
    ///
    /// # Errors
    /// If the kernel refuses the program.
    pub fn new(frame_bytes: usize, batch: u32) -> Result<Self, Error> {
        let open = open("xdp_mix", include_bytes!(concat!(env!("OUT_DIR"), "/xdp_mix.o")))?;
        let object = load("xdp_mix", open)?;
        let none = TrafficTurns { look_at_ns: [NEVER; TRAFFIC_STREAMS_MAX as usize] };
        map(&object, "turns")?
            .update(&ZERO, none.bytes(), MapFlags::ANY)
            .map_err(|e| libbpf_error("xdp_mix: clearing the streams", e))?;
        Ok(Self { object, frame: vec![0; frame_bytes], batch })
    }

    /// Adds a stream that sends out of the interface `out_ifindex` once it is started. Its flows have numbers from
    /// `first_flow` on. `turn`, below [`STREAMS_MAX`], is its place among the streams. Call this in the namespace of
    /// the interface.
    ///
    /// # Errors
    /// If the kernel refuses the program.
    pub fn add(
        &self,
        turn: u32,
        traffic: &Traffic,
        first_flow: u32,
        out_ifindex: u32,
    ) -> Result<MixedStream, Error> {
        let mut open = open("xdp_gen", include_bytes!(concat!(env!("OUT_DIR"), "/xdp_gen.o")))?;
        let plan = TrafficPlan::for_stream(traffic, first_flow);
        let plan = TrafficPlan { mixed: 1, turn: turn as u8, ..plan };
        set_rodata(&mut open, plan.bytes());
        set_entries(&mut open, "numbers", traffic.flows)?;
        let turns = map(&self.object, "turns")?;
        for mut own in open.maps_mut().filter(|map| map.name() == "turns") {
            own.reuse_fd(turns.as_fd()).map_err(|e| libbpf_error("xdp_gen: sharing the turns", e))?;
        }
        let object = load("xdp_gen", open)?;
        generator::send_to(&object, out_ifindex)?;
        let program = object.progs().next().ok_or_else(|| missing("shunt_gen"))?.as_fd().as_raw_fd();
        let stream = MixedStream { object, turn, steps: StepRing::new(&[]) };
        let random = traffic.shuffled.unwrap_or_default();
        // Nothing is due yet: a state without slots is over.
        stream.set(&TrafficState { random, burst: 1, ..TrafficState::default() })?;
        map(&self.object, "streams")?
            .update(&turn.to_ne_bytes(), &program.to_ne_bytes(), MapFlags::ANY)
            .map_err(|e| libbpf_error("xdp_mix: adding a stream", e))?;
        Ok(stream)
    }

    /// Removes a stream that is over; its place becomes free.
    ///
    /// # Errors
    /// If the map cannot be written.
    pub fn remove(&self, stream: &MixedStream) -> Result<(), Error> {
        map(&self.object, "streams")?
            .delete(&stream.turn.to_ne_bytes())
            .map_err(|e| libbpf_error("xdp_mix: removing a stream", e))
    }

    /// Whether a stream has packets left. A stream that was started shows once it was [asked](Self::ask_all).
    ///
    /// # Errors
    /// If the map cannot be read.
    pub fn is_active(&self) -> Result<bool, Error> {
        let turns = map(&self.object, "turns")?
            .lookup(&ZERO, MapFlags::ANY)
            .map_err(|e| libbpf_error("xdp_mix: reading the streams", e))?;
        let turns =
            turns.and_then(|bytes| TrafficTurns::from_bytes(&bytes)).ok_or_else(|| missing("turns"))?;
        Ok(turns.look_at_ns.iter().any(|at| *at != NEVER))
    }

    /// Offers frames to the streams until `over` is true, which is checked once per millisecond.
    ///
    /// # Errors
    /// If the kernel does not run the program.
    pub fn offer(&self, over: impl Fn() -> Result<bool, Error> + Sync) -> Result<(), Error> {
        self.frames()?.offer(over)
    }

    /// Asks each stream once whether it has packets, and sends those that are due meanwhile.
    ///
    /// # Errors
    /// If the kernel does not run the program.
    pub fn ask_all(&self) -> Result<(), Error> {
        self.turn(TRAFFIC_ASK_EACH * TRAFFIC_STREAMS_MAX)
    }

    /// Offers this many frames. A signal ends the call early.
    ///
    /// # Errors
    /// If the kernel does not run the program.
    pub fn turn(&self, frames: u32) -> Result<(), Error> {
        self.frames()?.turn(frames)
    }

    fn frames(&self) -> Result<LiveFrames<'_>, Error> {
        LiveFrames::of(&self.object, &self.frame, self.batch)
    }
}

impl MixedStream {
    /// Its place among the streams of its sender.
    pub fn turn(&self) -> u32 {
        self.turn
    }

    /// Starts the stream: times are those since `start_ns`, by the clock of [`crate::now_ns`]. Counters restart at
    /// zero. The stream must be over, or not have been started.
    ///
    /// # Errors
    /// If the state cannot be written.
    pub fn start(
        &mut self,
        table: &Timetable,
        pacing: Pacing,
        start_ns: u64,
        label: u8,
    ) -> Result<(), Error> {
        self.steps = StepRing::new(&table.steps);
        self.write_steps()?;
        self.set(&start_steps(table, pacing, start_ns, label, &self.state()?))
    }

    /// Replaces the steps from `at` on, in ns / 65536 since the start; an `at` that has passed makes packets late.
    /// Returns false if the stream is over by then.
    ///
    /// # Errors
    /// If the map cannot be written.
    pub fn change(&mut self, at: u64, steps: &[Step]) -> Result<bool, Error> {
        let state = self.state()?;
        if state.is_over(crate::now_ns()) {
            return Ok(false);
        }
        let Some(splice) = self.steps.splice(state.step, at, steps) else { return Ok(false) };
        // The program must find the new steps as soon as the current one ends.
        self.write_steps()?;
        self.steps.set_until(splice);
        self.write_steps()?;
        Ok(true)
    }

    /// How far it got.
    ///
    /// # Errors
    /// If the state cannot be read.
    pub fn state(&self) -> Result<TrafficState, Error> {
        generator::read(&map(&self.object, ".bss")?)
    }

    fn set(&self, state: &TrafficState) -> Result<(), Error> {
        let written = map(&self.object, ".bss")?.update(&ZERO, state.bytes(), MapFlags::ANY);
        written.map_err(|e| libbpf_error("xdp_gen: writing the state", e))
    }

    fn write_steps(&self) -> Result<(), Error> {
        let table: &TrafficSteps = self.steps.table();
        let written = map(&self.object, "steps")?.update(&ZERO, table.bytes(), MapFlags::ANY);
        written.map_err(|e| libbpf_error("xdp_gen: writing the steps", e))
    }
}
