//! Tells clients what becomes of flows. Nothing is traced while nobody watches.

use crate::{connections::tuple_of_trace, reasons};
use nix::{
    net::if_::if_indextoname,
    time::{ClockId, clock_gettime},
};
use shunt_api::{FlowEvent, Proto, WatchEvent};
use shunt_bpf::{DataPlane, Error, Ring, abi};
use std::{
    collections::HashMap,
    io, thread,
    time::{Duration, SystemTime},
};
use tokio::{
    runtime::{Builder, Runtime},
    sync::{broadcast, oneshot},
};

/// A client that is so many behind loses the oldest.
const BACKLOG: usize = 4096;
/// The ring is read so many at a time.
const BATCH: usize = 512;

/// The clients that watch, if any.
#[derive(Debug, Default)]
pub(crate) struct Watching {
    session: Option<Session>,
}

/// From the first client that watches to the last one.
#[derive(Debug)]
struct Session {
    events: broadcast::Sender<WatchEvent>,
    /// Of the data plane, told so far.
    lost: u64,
    /// Dropping it ends the thread that reads the traces.
    _reader: oneshot::Sender<()>,
}

impl Watching {
    /// One more client.
    pub(crate) fn begin(&mut self, plane: &DataPlane) -> Result<broadcast::Receiver<WatchEvent>, Error> {
        if let Some(session) = &self.session {
            return Ok(session.events.subscribe());
        }
        let (events, watcher) = broadcast::channel(BACKLOG);
        let runtime = Builder::new_current_thread().enable_io().build().map_err(Error::Ring)?;
        let mut ring = {
            let _within = runtime.enter();
            plane.traces()?
        };
        // What was written for an earlier session.
        while !ring.take_some(BATCH).is_empty() {}
        let (reader, ended) = oneshot::channel();
        let sender = events.clone();
        let read = move || read(&runtime, ring, &sender, ended);
        thread::Builder::new().name("shuntd-watch".to_owned()).spawn(read).map_err(Error::Ring)?;
        self.session = Some(Session { events, lost: plane.usage()?.traces_lost, _reader: reader });
        plane.control().set_tracing(true);
        Ok(watcher)
    }

    /// Waits until nobody watches any more; forever while nobody does. May be dropped at any time.
    pub(crate) async fn unwatched(&self) {
        match &self.session {
            Some(session) => session.events.closed().await,
            None => std::future::pending().await,
        }
    }

    /// Nobody watches any more.
    pub(crate) fn end(&mut self, plane: &DataPlane) {
        plane.control().set_tracing(false);
        self.session = None;
    }

    /// The epoch has moved.
    pub(crate) fn epoch_moved(&self, epoch: u32, cause: &str) {
        let event =
            || WatchEvent::Epoch { at_us: us_since_1970(SystemTime::now()), epoch, cause: cause.to_owned() };
        if let Some(session) = &self.session {
            // Nobody may be there any more.
            let _ = session.events.send(event());
        }
    }

    /// Tells of traces that the data plane had no room for.
    pub(crate) fn tell_lost(&mut self, plane: &DataPlane) {
        let Some(session) = &mut self.session else { return };
        let lost = plane.usage().map_or(session.lost, |usage| usage.traces_lost);
        let count = lost.saturating_sub(session.lost);
        session.lost = lost;
        if count > 0 {
            let _ = session.events.send(WatchEvent::Lost { count });
        }
    }
}

/// Apart from the daemon's loop: there may be more traces than one CPU can read.
fn read(
    runtime: &Runtime,
    mut ring: Ring<abi::Trace>,
    events: &broadcast::Sender<WatchEvent>,
    mut ended: oneshot::Receiver<()>,
) {
    runtime.block_on(async {
        let mut more = false;
        loop {
            tokio::select! {
                biased;
                _ = &mut ended => return,
                ready = ring.wait(), if !more => if let Err(error) = ready {
                    return tracing::warn!("traces cannot be read: {error}");
                },
                () = std::future::ready(()), if more => {}
            }
            let traces = ring.take_some(BATCH);
            more = traces.len() == BATCH;
            let booted = boot_time().unwrap_or(SystemTime::UNIX_EPOCH);
            let mut names = HashMap::new();
            for trace in traces {
                // Nobody may be there any more.
                let _ = events.send(event_of(&trace, booted, &mut names));
            }
        }
    });
}

fn event_of(trace: &abi::Trace, booted: SystemTime, names: &mut HashMap<u32, String>) -> WatchEvent {
    let port = names.entry(trace.ifindex).or_insert_with(|| {
        let name = if_indextoname(trace.ifindex).ok().and_then(|name| name.into_string().ok());
        name.unwrap_or_else(|| format!("if{}", trace.ifindex))
    });
    let flow = FlowEvent {
        at_us: us_since_1970(booted + Duration::from_nanos(trace.at_ns)),
        proto: if trace.tuple.l4_proto == 6 { Proto::Tcp } else { Proto::Udp },
        tuple: tuple_of_trace(&trace.tuple),
        port: port.clone(),
        vlans: trace.tags.iter().filter(|t| *t & abi::TAG_PRESENT != 0).map(|t| t & abi::TAG_VID).collect(),
        reason: reasons::name(trace.why).map(str::to_owned),
    };
    match trace.kind {
        abi::TRACE_LEARN => WatchEvent::Learn(flow),
        abi::TRACE_ACTIVATE => WatchEvent::Activate(flow),
        abi::TRACE_PUNT => WatchEvent::Punt(flow),
        abi::TRACE_REFUSE => WatchEvent::Refuse(flow),
        _ => WatchEvent::Retire(flow),
    }
}

/// When CLOCK_MONOTONIC was 0.
fn boot_time() -> io::Result<SystemTime> {
    let since: Duration = clock_gettime(ClockId::CLOCK_MONOTONIC)?.into();
    Ok(SystemTime::now().checked_sub(since).unwrap_or(SystemTime::UNIX_EPOCH))
}

fn us_since_1970(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
