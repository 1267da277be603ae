//! The ways of sending: live XDP frames, or a packet socket.

use super::Error;
use crate::net::FrameSocket;
use serde::{Deserialize, Serialize};
use shunt_gen::{Capture, Round, Schedule, Traffic};
use shunt_traffic::{FrameMaker, Generator, Replayer, TrafficEnds, TrafficState, now_ns, takes_frames};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

/// The sender wakes this long before something is due, because starting and ending a generator takes long. The sender
/// does not sleep at all for something that is due within twice this time.
const AWAKE_LIVE_NS: u64 = 100_000_000;
const AWAKE_SOCKET_NS: u64 = 100_000;
/// Longest sleep, after which the sender checks whether it should stop.
const NAP_NS: u64 = 50_000_000;
/// Largest number of packets that are passed to the kernel at once: the generator's default.
const BATCH: u32 = 64;

/// A way of sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SendMethod {
    /// An XDP program run on live frames.
    XdpLive,
    /// An AF_PACKET socket.
    Socket,
}

/// The requested way of sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendMethodChoice {
    /// Live XDP frames if the device takes them, otherwise a socket.
    Auto,
    /// Only this way; an error if the device does not support it.
    Only(SendMethod),
}

pub(super) enum Sender {
    Live(Generator),
    Socket(Box<Sending>),
}

/// A socket on one device, and the frames to send.
pub(super) struct Sending {
    frames: Due,
    socket: FrameSocket,
}

/// The packets to send.
pub(super) enum PacketSource {
    Made(Box<Traffic>),
    Captured(Arc<Capture>, Round),
}

/// Packets of a socket, one frame at a time.
enum Due {
    Made(Box<FrameMaker>),
    Captured(Box<Replayer>),
}

/// Whether to try live frames on a device.
pub(super) fn may_send_live(ifname: &str, ifindex: u32, choice: SendMethodChoice) -> Result<bool, Error> {
    let takes = takes_frames(ifindex);
    if !takes && choice == SendMethodChoice::Only(SendMethod::XdpLive) {
        return Err(Error::Asked(format!(
            "{ifname}: the device does not take XDP frames; use --sender socket (a veth takes them if its peer has GRO: \
             `ethtool -K PEER gro on`)"
        )));
    }
    Ok(takes && choice != SendMethodChoice::Only(SendMethod::Socket))
}

/// Number of packets to pass to the kernel at once: few at low rates, so that no packet waits for others.
pub(super) fn batch(pps: Option<f64>) -> u32 {
    match pps {
        Some(pps) if pps < 50_000.0 => 1,
        Some(pps) if pps < 500_000.0 => 8,
        _ => BATCH,
    }
}

impl Sender {
    /// Opens the sender. Call this in the namespace of the device.
    pub(super) fn new(
        source: &PacketSource,
        ifname: &str,
        ifindex: u32,
        choice: SendMethodChoice,
    ) -> Result<Self, Error> {
        let live = may_send_live(ifname, ifindex, choice)?;
        if live {
            let tried = source.generator(ifindex).and_then(|generator| {
                // Nothing is scheduled, so no frame leaves: the call only shows whether the kernel accepts live frames.
                generator.turn(1)?;
                Ok(generator)
            });
            match tried {
                Ok(generator) => return Ok(Self::Live(generator)),
                Err(e) if choice != SendMethodChoice::Auto => return Err(e.into()),
                // The frames do not fit into a page, or the kernel is older than 5.18.
                Err(_) => {}
            }
        }
        let socket = open_socket(ifname)?;
        Ok(Self::Socket(Box::new(Sending { frames: source.due(), socket })))
    }

    pub(super) fn method(&self) -> SendMethod {
        match self {
            Self::Live(_) => SendMethod::XdpLive,
            Self::Socket(_) => SendMethod::Socket,
        }
    }

    pub(super) fn state(&self) -> Result<TrafficState, Error> {
        match self {
            Self::Live(generator) => Ok(generator.state()?),
            Self::Socket(sending) => Ok(*sending.frames.state()),
        }
    }

    /// Sets the addresses and ports of the first flows of traffic whose flows are listed.
    pub(super) fn list(&mut self, ends: &[TrafficEnds]) -> Result<(), Error> {
        match self {
            Self::Live(generator) => generator.list(ends)?,
            Self::Socket(sending) => {
                if let Due::Made(maker) = &mut sending.frames {
                    maker.list(ends);
                }
            }
        }
        Ok(())
    }

    /// Sends all packets that are due from `start_ns` on. Call this in the namespace of the device.
    pub(super) fn run(
        &mut self,
        schedule: &Schedule,
        start_ns: u64,
        label: u8,
        stop: &AtomicBool,
    ) -> Result<TrafficState, Error> {
        match self {
            Self::Live(generator) => {
                generator.schedule(schedule, start_ns, label)?;
                generator.set_batch(batch(schedule.pps));
            }
            Self::Socket(sending) => sending.frames.schedule(schedule, start_ns, label),
        }
        let over = |state: &TrafficState, now| state.is_over(now) || stop.load(Ordering::Relaxed);
        let wait = |state: &TrafficState, now| (state.start_ns + (state.due >> 16)).saturating_sub(now);
        let awake_ns = match self {
            Self::Live(_) => AWAKE_LIVE_NS,
            Self::Socket(_) => AWAKE_SOCKET_NS,
        };
        loop {
            let (state, now) = (self.state()?, now_ns());
            if over(&state, now) {
                return Ok(state.stopped(now));
            }
            let left = wait(&state, now);
            match self {
                _ if left > 2 * awake_ns => {
                    thread::sleep(Duration::from_nanos((left - awake_ns).min(NAP_NS)));
                }
                Self::Live(generator) => generator.offer(|state| {
                    let now = now_ns();
                    over(state, now) || wait(state, now) > 2 * awake_ns
                })?,
                Self::Socket(sending) => sending.send_due()?,
            }
        }
    }
}

impl PacketSource {
    fn generator(&self, ifindex: u32) -> Result<Generator, shunt_traffic::Error> {
        match self {
            Self::Made(traffic) => Generator::new(traffic, ifindex),
            Self::Captured(capture, round) => Generator::replay(capture, round, ifindex),
        }
    }

    fn due(&self) -> Due {
        match self {
            Self::Made(traffic) => Due::Made(Box::new(FrameMaker::new(traffic))),
            Self::Captured(capture, round) => {
                Due::Captured(Box::new(Replayer::new(capture.clone(), round.clone())))
            }
        }
    }
}

impl Due {
    fn state(&self) -> &TrafficState {
        match self {
            Self::Made(maker) => maker.state(),
            Self::Captured(replayer) => replayer.state(),
        }
    }

    fn schedule(&mut self, schedule: &Schedule, start_ns: u64, label: u8) {
        match self {
            Self::Made(maker) => maker.schedule(schedule, start_ns, label),
            Self::Captured(replayer) => replayer.schedule(schedule, start_ns, label),
        }
    }

    fn next(&mut self, now_ns: u64) -> Option<&[u8]> {
        match self {
            Self::Made(maker) => maker.next(now_ns),
            Self::Captured(replayer) => replayer.next(now_ns),
        }
    }
}

impl Sending {
    /// Sends some of the packets that are due.
    fn send_due(&mut self) -> Result<(), Error> {
        for _ in 0..BATCH {
            let Some(frame) = self.frames.next(now_ns()) else { return Ok(()) };
            self.socket.send(frame)?;
        }
        Ok(())
    }
}

/// Opens a raw socket on a device, in the namespace of the calling thread.
pub(super) fn open_socket(ifname: &str) -> Result<FrameSocket, Error> {
    FrameSocket::open(ifname).map_err(|e| Error::Machine(format!("{ifname}: cannot open a raw socket: {e}")))
}
