//! A generator of live XDP frames.

use super::{
    Error, State,
    abi::{Plan, ReplayFrame, ReplayPlan, start},
    load, map, missing, now_ns, open, set_entries, set_rodata, told,
};
use crate::abi::Plain;
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object};
use nix::sys::{
    pthread::{pthread_kill, pthread_self},
    signal::Signal,
};
use shunt_gen::{Capture, Round, Schedule, Traffic};
use std::{
    io,
    os::fd::{AsFd, AsRawFd},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// What one call into the kernel may offer: minutes.
const OFFERED_MAX: u32 = i32::MAX as u32;
/// How often it is asked whether a call is over.
const LOOK_EACH: Duration = Duration::from_millis(1);
/// Nobody is hurt by it: it is ignored where nobody handles it.
const WAKE: Signal = Signal::SIGURG;
/// Frames that the kernel builds before it hands them on, unless told otherwise: half of a veth's ring.
const BATCH: u32 = 128;
/// The most that the kernel allows.
const BATCH_MAX: u32 = 256;

/// What a capture may take in the kernel.
const REPLAY_BYTES: usize = 1 << 30;

/// Sends frames out of one interface with `BPF_F_TEST_XDP_LIVE_FRAMES`, from one CPU at a time.
///
/// Frames that find the ring of a veth full are lost without a trace: count them where they arrive.
#[derive(Debug)]
pub struct Generator {
    object: Object,
    frame: Vec<u8>,
    batch: u32,
}

impl Generator {
    /// A generator of this traffic out of the interface `out_ifindex`.
    ///
    /// # Errors
    /// When the kernel refuses the program.
    pub fn new(traffic: &Traffic, out_ifindex: u32) -> Result<Self, Error> {
        let mut open = open("xdp_gen", include_bytes!(concat!(env!("OUT_DIR"), "/xdp_gen.o")))?;
        set_rodata(&mut open, Plan::of(traffic, out_ifindex).bytes());
        set_entries(&mut open, "numbers", traffic.flows)?;
        let object = load("xdp_gen", open)?;
        let generator = Self { object, frame: traffic.largest_frame().to_bytes(), batch: BATCH };
        let random = traffic.shuffled.unwrap_or_default();
        generator.set(&State { random, burst: 1, ..State::default() })?;
        Ok(generator)
    }

    /// A generator of the frames of a capture, out of the interface `out_ifindex`.
    ///
    /// # Errors
    /// When the kernel refuses the program, or so much.
    pub fn replay(capture: &Capture, round: &Round, out_ifindex: u32) -> Result<Self, Error> {
        let plan = ReplayPlan::of(capture, round, out_ifindex);
        let largest = capture.largest();
        let value_size = (size_of::<ReplayFrame>() + largest).next_multiple_of(8);
        if value_size * capture.frames.len() > REPLAY_BYTES {
            let cause = io::Error::from_raw_os_error(nix::libc::E2BIG);
            return Err(Error { doing: "xdp_replay: keeping all frames".to_owned(), cause: cause.into() });
        }
        let mut open = open("xdp_replay", include_bytes!(concat!(env!("OUT_DIR"), "/xdp_replay.o")))?;
        set_rodata(&mut open, plan.bytes());
        set_entries(&mut open, "frames", plan.frames)?;
        if let Some(mut map) = open.maps_mut().find(|map| map.name() == "frames") {
            map.set_value_size(value_size as u32).map_err(|e| told("xdp_replay: sizing its frames", e))?;
        }
        let object = load("xdp_replay", open)?;
        let frames = map(&object, "frames")?;
        for ((nth, frame), due) in (0u32..).zip(&capture.frames).zip(&round.due) {
            let head =
                ReplayFrame { due_ns: due.as_nanos() as u64, bytes: frame.bytes.len() as u32, _pad: 0 };
            let mut value = [head.bytes(), &frame.bytes].concat();
            value.resize(value_size, 0);
            let written = frames.update(&nth.to_ne_bytes(), &value, MapFlags::ANY);
            written.map_err(|e| told("xdp_replay: writing its frames", e))?;
        }
        let generator = Self { object, frame: vec![0; largest], batch: BATCH };
        generator.set(&State::default())?;
        Ok(generator)
    }

    /// Has the kernel build this many frames, up to 256, before it hands them on and lets others run.
    pub fn set_batch(&mut self, frames: u32) {
        self.batch = frames.clamp(1, BATCH_MAX);
    }

    /// Packets are due from `start_ns` on, by the clock of [`now_ns`]. Counters begin at zero, flows with the first, and
    /// each with the number where it was.
    ///
    /// # Errors
    /// When the state cannot be written.
    pub fn schedule(&self, schedule: &Schedule, start_ns: u64, label: u8) -> Result<(), Error> {
        self.set(&start(schedule, start_ns, label, &self.state()?))
    }

    /// How far it got.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn state(&self) -> Result<State, Error> {
        read(&map(&self.object, ".bss")?)
    }

    fn set(&self, state: &State) -> Result<(), Error> {
        let written = map(&self.object, ".bss")?.update(&0u32.to_ne_bytes(), state.bytes(), MapFlags::ANY);
        written.map_err(|e| told("xdp_gen: writing its state", e))
    }

    /// Sends this many packets as fast as it can. The next run goes on with the next flow.
    ///
    /// # Errors
    /// When the kernel does not run the program.
    pub fn run(&mut self, packets: u64) -> Result<(), Error> {
        self.unpaced(packets)?;
        self.offer(|state| state.sent >= packets)
    }

    /// Sends for about this long as fast as it can; how many packets were sent.
    ///
    /// # Errors
    /// When the kernel does not run the program.
    pub fn run_for(&mut self, duration: Duration) -> Result<u64, Error> {
        self.unpaced(u64::MAX)?;
        let end = Instant::now() + duration;
        self.offer(|_| Instant::now() >= end)?;
        Ok(self.state()?.sent)
    }

    /// Offers frames to the program until this is true of its state, which is looked at once a millisecond.
    ///
    /// It is one call into the kernel: such a call ends with a grace period of RCU, which takes tens of milliseconds, and in
    /// which nothing is sent. A signal to this thread ends it.
    ///
    /// # Errors
    /// When the kernel does not run the program.
    pub fn offer(&self, over: impl Fn(&State) -> bool + Sync) -> Result<(), Error> {
        be_woken()?;
        let bss =
            MapHandle::try_from(&map(&self.object, ".bss")?).map_err(|e| told("xdp_gen: its state", e))?;
        let (sender, ended) = (pthread_self(), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                // One that comes before the call has begun is lost.
                while !ended.load(Ordering::Acquire) {
                    if read(&bss).map_or(true, |state| over(&state)) {
                        // Of a thread that waits for this one.
                        let _ = pthread_kill(sender, WAKE);
                    }
                    thread::sleep(LOOK_EACH);
                }
            });
            let offered = loop {
                match read(&bss) {
                    Ok(state) if over(&state) => break Ok(()),
                    Err(e) => break Err(e),
                    Ok(_) => {}
                }
                if let Err(e) = self.turn(OFFERED_MAX) {
                    break Err(e);
                }
            };
            ended.store(true, Ordering::Release);
            offered
        })
    }

    fn unpaced(&self, limit: u64) -> Result<(), Error> {
        let State { random, flow, size, label, .. } = self.state()?;
        let fresh = State { random, flow, size, label, burst: 1, ..State::default() };
        self.set(&State { start_ns: now_ns(), limit, ..fresh })
    }

    /// Has the kernel offer so many frames to the program, which sends those that are due and looks at the clock for the
    /// others. A signal ends it early.
    ///
    /// # Errors
    /// When the kernel does not run the program.
    pub fn turn(&self, frames: u32) -> Result<(), Error> {
        let program = self.object.progs().next().ok_or_else(|| missing("shunt_gen"))?;
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
            data_in: self.frame.as_ptr().cast(),
            data_size_in: self.frame.len() as u32,
            repeat: frames as i32,
            flags: libbpf_sys::BPF_F_TEST_XDP_LIVE_FRAMES,
            batch_size: self.batch,
            ..Default::default()
        };
        // SAFETY: the descriptor is open as long as the object is, `data_in` is readable for `data_size_in` bytes, no
        // output is asked for, and libbpf reads no more than `sz` bytes of the options.
        let said = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_fd().as_raw_fd(), &mut options) };
        if said == 0 || said == -nix::libc::EINTR {
            return Ok(());
        }
        let cause = io::Error::from_raw_os_error(-said);
        Err(Error {
            doing: format!("sending live frames of {} bytes", self.frame.len()),
            cause: cause.into(),
        })
    }
}

fn read(bss: &impl MapCore) -> Result<State, Error> {
    let value = bss.lookup(&0u32.to_ne_bytes(), MapFlags::ANY);
    let value = value.map_err(|e| told("xdp_gen: reading its state", e))?;
    value.and_then(|bytes| State::of(&bytes)).ok_or_else(|| missing("state"))
}

/// Has the signal end a call into the kernel, and nothing else.
fn be_woken() -> Result<(), Error> {
    static HANDLED: OnceLock<io::Result<()>> = OnceLock::new();
    let handled = HANDLED.get_or_init(|| {
        signal_hook::flag::register(WAKE as i32, Arc::new(AtomicBool::new(false))).map(|_| ())
    });
    handled
        .as_ref()
        .map_err(|e| Error { doing: format!("handling {WAKE}"), cause: io::Error::from(e.kind()).into() })?;
    Ok(())
}

/// Whether the device takes frames that XDP redirects to it. A driver that does not loses them in silence; of a kernel before
/// 6.3, which cannot be asked, it is assumed.
pub fn takes_frames(ifindex: u32) -> bool {
    /// `NETDEV_XDP_ACT_NDO_XMIT`.
    const NDO_XMIT: u64 = 4;
    let mut options = libbpf_sys::bpf_xdp_query_opts {
        sz: size_of::<libbpf_sys::bpf_xdp_query_opts>() as _,
        ..Default::default()
    };
    // SAFETY: libbpf reads and writes no more than `sz` bytes of the options.
    let said = unsafe { libbpf_sys::bpf_xdp_query(ifindex as i32, 0, &raw mut options) };
    said != 0 || options.feature_flags == 0 || options.feature_flags & NDO_XMIT != 0
}
