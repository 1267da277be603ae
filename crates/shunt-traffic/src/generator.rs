//! A generator of live XDP frames.

use crate::{
    Error, TrafficState,
    abi::{ReplayFrame, ReplayPlan, TrafficEnds, TrafficPlan, start},
    libbpf_error,
    live::LiveFrames,
    load, map, missing, now_ns, open, set_entries, set_rodata,
};
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object};
use shunt_bpf::abi::Plain;
use shunt_gen::{Capture, Round, Schedule, Traffic};
use std::{
    io,
    time::{Duration, Instant},
};

/// Default number of frames that the kernel builds before it passes them on. Frames begin at the same place of a page,
/// so with more of them, fewer are still in the cache when they come back.
const BATCH: u32 = 64;
/// The most that the kernel allows.
const BATCH_MAX: u32 = 256;

/// Number of flows whose ends are written in one call into the kernel.
const LISTED_AT_ONCE: usize = 4096;
/// The key of the only element of a map.
const ZERO: [u8; 4] = [0; 4];
/// The most kernel memory for a capture.
const REPLAY_BYTES: usize = 1 << 30;

/// Sends frames out of one interface with `BPF_F_TEST_XDP_LIVE_FRAMES`, from one CPU at a time.
///
/// A veth whose ring is full drops frames without counting them: count frames at the receiver.
#[derive(Debug)]
pub struct Generator {
    object: Object,
    frame: Vec<u8>,
    batch: u32,
}

impl Generator {
    /// Loads a generator that sends `traffic` out of the interface `out_ifindex`.
    ///
    /// # Errors
    /// If the kernel refuses the program.
    pub fn new(traffic: &Traffic, out_ifindex: u32) -> Result<Self, Error> {
        let mut open = open("xdp_gen", include_bytes!(concat!(env!("OUT_DIR"), "/xdp_gen.o")))?;
        set_rodata(&mut open, TrafficPlan::for_traffic(traffic).bytes());
        set_entries(&mut open, "numbers", traffic.flows)?;
        set_entries(&mut open, "ends", if traffic.listed { traffic.flows } else { 1 })?;
        let object = load("xdp_gen", open)?;
        send_to(&object, out_ifindex)?;
        let generator = Self { object, frame: traffic.largest_frame().to_bytes(), batch: BATCH };
        let random = traffic.shuffled.unwrap_or_default();
        generator.set(&TrafficState { random, burst: 1, ..TrafficState::default() })?;
        Ok(generator)
    }

    /// Loads a generator that sends the frames of a capture out of the interface `out_ifindex`.
    ///
    /// # Errors
    /// If the kernel refuses the program, or the capture needs more than 1 GiB of kernel memory.
    pub fn replay(capture: &Capture, round: &Round, out_ifindex: u32) -> Result<Self, Error> {
        let plan = ReplayPlan::for_capture(capture, round, out_ifindex);
        let largest = capture.largest();
        let value_size = (size_of::<ReplayFrame>() + largest).next_multiple_of(8);
        if value_size * capture.frames.len() > REPLAY_BYTES {
            let cause = io::Error::from_raw_os_error(nix::libc::E2BIG);
            return Err(Error { doing: "xdp_replay: loading the capture".to_owned(), cause: cause.into() });
        }
        let mut open = open("xdp_replay", include_bytes!(concat!(env!("OUT_DIR"), "/xdp_replay.o")))?;
        set_rodata(&mut open, plan.bytes());
        set_entries(&mut open, "frames", plan.frames)?;
        if let Some(mut map) = open.maps_mut().find(|map| map.name() == "frames") {
            map.set_value_size(value_size as u32)
                .map_err(|e| libbpf_error("xdp_replay: sizing the map of frames", e))?;
        }
        let object = load("xdp_replay", open)?;
        let frames = map(&object, "frames")?;
        for ((nth, frame), due) in (0u32..).zip(&capture.frames).zip(&round.due) {
            let head =
                ReplayFrame { due_ns: due.as_nanos() as u64, bytes: frame.bytes.len() as u32, _pad: 0 };
            let mut value = [head.bytes(), &frame.bytes].concat();
            value.resize(value_size, 0);
            let written = frames.update(&nth.to_ne_bytes(), &value, MapFlags::ANY);
            written.map_err(|e| libbpf_error("xdp_replay: writing the frames", e))?;
        }
        let generator = Self { object, frame: vec![0; largest], batch: BATCH };
        generator.set(&TrafficState::default())?;
        Ok(generator)
    }

    /// Sets the ends of the first flows of traffic whose ends are listed.
    ///
    /// # Errors
    /// If there are more ends than flows, or the map cannot be written.
    pub fn list(&self, ends: &[TrafficEnds]) -> Result<(), Error> {
        let doing = |e| libbpf_error("xdp_gen: writing the ends of flows", e);
        let map = map(&self.object, "ends")?;
        for (chunk, first) in ends.chunks(LISTED_AT_ONCE).zip((0u32..).step_by(LISTED_AT_ONCE)) {
            let keys: Vec<u8> = (first..).take(chunk.len()).flat_map(u32::to_ne_bytes).collect();
            let values: Vec<u8> = chunk.iter().flat_map(|ends| ends.bytes().to_vec()).collect();
            map.update_batch(&keys, &values, chunk.len() as u32, MapFlags::ANY, MapFlags::ANY)
                .map_err(doing)?;
        }
        Ok(())
    }

    /// Sets how many frames, up to 256, the kernel builds before it passes them on and lets other threads run.
    pub fn set_batch(&mut self, frames: u32) {
        self.batch = frames.clamp(1, BATCH_MAX);
    }

    /// Sets the schedule: packets are due from `start_ns` on, by the clock of [`now_ns`]. Counters restart at zero and
    /// flows with the first; the packet numbers of each flow continue.
    ///
    /// # Errors
    /// If the state cannot be written.
    pub fn schedule(&self, schedule: &Schedule, start_ns: u64, label: u8) -> Result<(), Error> {
        self.set(&start(schedule, start_ns, label, &self.state()?))
    }

    /// The schedule and the progress.
    ///
    /// # Errors
    /// If the state cannot be read.
    pub fn state(&self) -> Result<TrafficState, Error> {
        read(&map(&self.object, ".bss")?)
    }

    fn set(&self, state: &TrafficState) -> Result<(), Error> {
        let written = map(&self.object, ".bss")?.update(&ZERO, state.bytes(), MapFlags::ANY);
        written.map_err(|e| libbpf_error("xdp_gen: writing the state", e))
    }

    /// Sends this many packets without pacing. The next run continues with the next flow.
    ///
    /// # Errors
    /// If the kernel does not run the program.
    pub fn run(&mut self, packets: u64) -> Result<(), Error> {
        self.unpaced(packets)?;
        self.offer(|state| state.sent >= packets)
    }

    /// Sends this many packets at once. Unlike [`Generator::run`], ends with the last one, and not at the next
    /// millisecond.
    ///
    /// # Errors
    /// If the kernel does not run the program.
    pub fn burst(&mut self, packets: u32) -> Result<(), Error> {
        self.unpaced(packets.into())?;
        loop {
            let left = u64::from(packets).saturating_sub(self.state()?.sent);
            match u32::try_from(left) {
                Ok(left) if left > 0 => self.turn(left)?,
                _ => return Ok(()),
            }
        }
    }

    /// Sends without pacing for about this long. Returns the number of packets sent.
    ///
    /// # Errors
    /// If the kernel does not run the program.
    pub fn run_for(&mut self, duration: Duration) -> Result<u64, Error> {
        self.unpaced(u64::MAX)?;
        let end = Instant::now() + duration;
        self.offer(|_| Instant::now() >= end)?;
        Ok(self.state()?.sent)
    }

    /// Offers frames to the program until `over` is true of its state, which is checked once per millisecond.
    ///
    /// # Errors
    /// If the kernel does not run the program.
    pub fn offer(&self, over: impl Fn(&TrafficState) -> bool + Sync) -> Result<(), Error> {
        let bss = MapHandle::try_from(&map(&self.object, ".bss")?)
            .map_err(|e| libbpf_error("xdp_gen: opening the state", e))?;
        self.frames()?.offer(|| Ok(over(&read(&bss)?)))
    }

    fn unpaced(&self, limit: u64) -> Result<(), Error> {
        let TrafficState { random, flow, size, label, .. } = self.state()?;
        let fresh = TrafficState { random, flow, size, label, burst: 1, ..TrafficState::default() };
        self.set(&TrafficState { start_ns: now_ns(), limit, slots: u64::MAX, ..fresh })
    }

    /// Offers this many frames to the program, which sends a frame if a packet is due and reads the clock otherwise. A
    /// signal ends the call early.
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

/// Lets the generator in this object send out of an interface.
pub(crate) fn send_to(object: &Object, out_ifindex: u32) -> Result<(), Error> {
    let written = map(object, "out")?.update(&ZERO, &out_ifindex.to_ne_bytes(), MapFlags::ANY);
    written.map_err(|e| libbpf_error(format!("xdp_gen: sending to interface {out_ifindex}"), e))
}

pub(crate) fn read(bss: &impl MapCore) -> Result<TrafficState, Error> {
    let value = bss.lookup(&ZERO, MapFlags::ANY);
    let value = value.map_err(|e| libbpf_error("xdp_gen: reading the state", e))?;
    value.and_then(|bytes| TrafficState::from_bytes(&bytes)).ok_or_else(|| missing("state"))
}

/// Whether a device accepts frames that XDP redirects to it. A driver that does not drops them silently. Returns true
/// on kernels before 6.3, which cannot tell.
pub fn takes_frames(ifindex: u32) -> bool {
    /// `NETDEV_XDP_ACT_NDO_XMIT`.
    const NDO_XMIT: u64 = 4;
    let mut options = libbpf_sys::bpf_xdp_query_opts {
        sz: size_of::<libbpf_sys::bpf_xdp_query_opts>() as _,
        ..Default::default()
    };
    // SAFETY: libbpf reads and writes at most `sz` bytes of the options.
    let err = unsafe { libbpf_sys::bpf_xdp_query(ifindex as i32, 0, &raw mut options) };
    err != 0 || options.feature_flags == 0 || options.feature_flags & NDO_XMIT != 0
}
