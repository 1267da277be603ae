//! Threads that send, each the packets of several streams.

use crate::{
    net::FrameSocket,
    traffic::{
        Error, SendMethod, SendMethodChoice,
        sender::{may_send_live, open_socket},
        station::Station,
    },
};
use shunt_gen::{Step, Timetable, Traffic};
use shunt_traffic::{FrameMaker, Mix, MixedStream, Pacing, TrafficState, now_ns};
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

/// How long a thread without packets to send sleeps.
const IDLE: Duration = Duration::from_millis(5);
/// A thread stays awake for this time after the start of a stream, which may not show before.
const SETTLE_NS: u64 = 50_000_000;
/// Longest sleep of a thread that sends by a socket; it wakes this long before a packet is due.
const NAP_NS: u64 = 1_000_000;
const AWAKE_NS: u64 = 100_000;

/// A thread's streams, and how it sends.
pub(super) struct Sending {
    mix: Mixed,
    busy_until_ns: AtomicU64,
    failure: Mutex<Option<String>>,
}

enum Mixed {
    Live(Mix),
    Socket { socket: FrameSocket, makers: Mutex<Vec<Shared>> },
}

type Shared = Arc<Mutex<FrameMaker>>;

/// One stream, as its thread has it.
pub(super) enum SentStream {
    Live(MixedStream),
    Socket(Shared),
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sending {
    /// Prepares to send frames of up to this size, with FCS, from a station.
    pub(super) fn new(
        from: &Station<'_>,
        choice: SendMethodChoice,
        largest: u32,
        batch: u32,
    ) -> Result<Self, Error> {
        let mix = from.within(|| {
            if may_send_live(&from.ifname, from.ifindex, choice)? {
                // There is no stream, so no frame leaves: the call only shows whether the kernel accepts live frames.
                let tried = Mix::new(largest as usize - 4, batch).and_then(|mix| mix.turn(1).map(|()| mix));
                match tried {
                    Ok(mix) => return Ok(Mixed::Live(mix)),
                    Err(e) if choice != SendMethodChoice::Auto => return Err(e.into()),
                    Err(_) => {}
                }
            }
            Ok::<_, Error>(Mixed::Socket { socket: open_socket(&from.ifname)?, makers: Mutex::default() })
        })?;
        Ok(Self { mix, busy_until_ns: AtomicU64::new(0), failure: Mutex::default() })
    }

    pub(super) fn method(&self) -> SendMethod {
        match self.mix {
            Mixed::Live(_) => SendMethod::XdpLive,
            Mixed::Socket { .. } => SendMethod::Socket,
        }
    }

    /// Adds a stream, in a place of its own. Call this in the namespace of the device.
    pub(super) fn add(
        &self,
        place: u32,
        traffic: &Traffic,
        first_flow: u32,
        ifindex: u32,
    ) -> Result<SentStream, Error> {
        match &self.mix {
            Mixed::Live(mix) => Ok(SentStream::Live(mix.add(place, traffic, first_flow, ifindex)?)),
            Mixed::Socket { makers, .. } => {
                let maker = Arc::new(Mutex::new(FrameMaker::stream(traffic, first_flow)));
                locked(makers).push(maker.clone());
                Ok(SentStream::Socket(maker))
            }
        }
    }

    /// Removes a stream that is over.
    pub(super) fn remove(&self, stream: &SentStream) -> Result<(), Error> {
        match (&self.mix, stream) {
            (Mixed::Live(mix), SentStream::Live(stream)) => mix.remove(stream)?,
            (Mixed::Socket { makers, .. }, SentStream::Socket(gone)) => {
                locked(makers).retain(|maker| !Arc::ptr_eq(maker, gone));
            }
            _ => {}
        }
        Ok(())
    }

    /// Keeps the thread awake for a stream that starts at this time.
    pub(super) fn expect_start(&self, start_ns: u64) {
        self.busy_until_ns.fetch_max(start_ns + SETTLE_NS, Ordering::Relaxed);
    }

    /// The error that ended the thread.
    pub(super) fn check(&self) -> Result<(), Error> {
        locked(&self.failure).clone().map_or(Ok(()), |why| Err(Error::Machine(why)))
    }

    /// Sends what is due until `over` is set. Call this in the namespace of the device.
    pub(super) fn serve(&self, over: &AtomicBool) {
        if let Err(error) = self.send_until(over) {
            *locked(&self.failure) = Some(error.to_string());
        }
    }

    fn send_until(&self, over: &AtomicBool) -> Result<(), Error> {
        let mut asked_for_ns = 0;
        while !over.load(Ordering::Relaxed) {
            let busy_until_ns = self.busy_until();
            match &self.mix {
                // The machine may not have let this thread run since a stream was started.
                Mixed::Live(mix) if asked_for_ns < busy_until_ns && !self.is_active()? => {
                    mix.ask_all()?;
                    asked_for_ns = busy_until_ns;
                }
                _ if !self.is_active()? => thread::sleep(IDLE),
                Mixed::Live(mix) => mix.offer(|| {
                    Ok(over.load(Ordering::Relaxed) || (now_ns() > self.busy_until() && !mix.is_active()?))
                })?,
                Mixed::Socket { socket, makers } => send_due(socket, &locked(makers).clone())?,
            }
        }
        Ok(())
    }

    fn busy_until(&self) -> u64 {
        self.busy_until_ns.load(Ordering::Relaxed)
    }

    fn is_active(&self) -> Result<bool, Error> {
        if now_ns() <= self.busy_until() {
            return Ok(true);
        }
        match &self.mix {
            Mixed::Live(mix) => Ok(mix.is_active()?),
            Mixed::Socket { makers, .. } => {
                Ok(locked(makers).iter().any(|maker| locked(maker).look_at_ns() < u64::MAX))
            }
        }
    }
}

/// Sends packets that are due, the streams in turn. Sleeps if none is due.
fn send_due(socket: &FrameSocket, makers: &[Shared]) -> Result<(), Error> {
    let mut next_ns = u64::MAX;
    for maker in makers {
        let mut maker = locked(maker);
        match maker.next(now_ns()) {
            Some(frame) => {
                socket.send(frame)?;
                next_ns = 0;
            }
            None => next_ns = next_ns.min(maker.look_at_ns()),
        }
    }
    let left = next_ns.saturating_sub(now_ns());
    if left > 2 * AWAKE_NS {
        thread::sleep(Duration::from_nanos((left - AWAKE_NS).min(NAP_NS)));
    }
    Ok(())
}

impl SentStream {
    pub(super) fn start(
        &mut self,
        table: &Timetable,
        pacing: Pacing,
        start_ns: u64,
        label: u8,
    ) -> Result<(), Error> {
        match self {
            Self::Live(stream) => stream.start(table, pacing, start_ns, label)?,
            Self::Socket(maker) => locked(maker).start(table, pacing, start_ns, label),
        }
        Ok(())
    }

    /// Replaces the steps from a time on. Returns false if the stream is over by then.
    pub(super) fn change(&mut self, at: u64, steps: &[Step]) -> Result<bool, Error> {
        match self {
            Self::Live(stream) => Ok(stream.change(at, steps)?),
            Self::Socket(maker) => Ok(locked(maker).change(at, steps)),
        }
    }

    pub(super) fn state(&self) -> Result<TrafficState, Error> {
        match self {
            Self::Live(stream) => Ok(stream.state()?),
            Self::Socket(maker) => Ok(*locked(maker).state()),
        }
    }
}
