//! Streams traces of flows to the clients of `shunt watch`. Without clients nothing is traced.

use crate::{
    flow_entry::{trace_proto, trace_tuple, vlan_ids},
    reasons,
    signals::start_thread,
};
use nix::{
    net::if_::if_indextoname,
    time::{ClockId, clock_gettime},
};
use shunt_api::{FlowEvent, WatchEvent};
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

/// Events that are kept for a slow client; beyond that the client loses the oldest ones.
const BACKLOG: usize = 4096;
/// Traces that are read from the ring at a time.
const BATCH: usize = 512;

/// The stream, while there are clients.
#[derive(Debug, Default)]
pub(crate) struct TraceStream {
    session: Option<Session>,
}

/// The time from the first client's subscription until the last client has gone.
#[derive(Debug)]
struct Session {
    events: broadcast::Sender<WatchEvent>,
    /// The data plane's count of lost traces, as far as clients have been told.
    lost: u64,
    /// Dropping it ends the thread that reads the traces.
    _reader: oneshot::Sender<()>,
}

impl TraceStream {
    /// Adds a client. The first one turns tracing on.
    pub(crate) fn subscribe(&mut self, plane: &DataPlane) -> Result<broadcast::Receiver<WatchEvent>, Error> {
        if let Some(session) = &self.session {
            return Ok(session.events.subscribe());
        }
        let (events, watcher) = broadcast::channel(BACKLOG);
        let runtime = Builder::new_current_thread().enable_io().build().map_err(Error::Ring)?;
        let mut ring = {
            let _within = runtime.enter();
            plane.traces()?
        };
        // Discards traces of an earlier session.
        while !ring.take_some(BATCH).is_empty() {}
        let (reader, ended) = oneshot::channel();
        let sender = events.clone();
        let forward = move || forward(&runtime, ring, &sender, ended);
        let thread = thread::Builder::new().name("shuntd-watch".to_owned());
        start_thread(|| thread.spawn(forward)).map_err(Error::Ring)?;
        self.session = Some(Session { events, lost: plane.usage()?.traces_lost, _reader: reader });
        plane.control().set_tracing(true);
        Ok(watcher)
    }

    /// Where the clients get events from; `None` without clients.
    pub(crate) fn clients(&self) -> Option<broadcast::Sender<WatchEvent>> {
        self.session.as_ref().map(|session| session.events.clone())
    }

    /// Waits until the last client has gone; forever if there is none. May be dropped at any time.
    pub(crate) async fn unwatched(&self) {
        match &self.session {
            Some(session) => session.events.closed().await,
            None => std::future::pending().await,
        }
    }

    /// Turns tracing off. To be called when the last client has gone.
    pub(crate) fn end(&mut self, plane: &DataPlane) {
        plane.control().set_tracing(false);
        self.session = None;
    }

    /// Tells the clients that the epoch has moved.
    pub(crate) fn send_epoch(&self, epoch: u32, cause: &str) {
        let event =
            || WatchEvent::Epoch { at_us: unix_time_us(SystemTime::now()), epoch, cause: cause.to_owned() };
        if let Some(session) = &self.session {
            // Fails if the last client has just gone, which does not matter.
            let _ = session.events.send(event());
        }
    }

    /// Tells the clients how many traces the data plane had no room for.
    pub(crate) fn report_lost(&mut self, plane: &DataPlane) {
        let Some(session) = &mut self.session else { return };
        let lost = plane.usage().map_or(session.lost, |usage| usage.traces_lost);
        let count = lost.saturating_sub(session.lost);
        session.lost = lost;
        if count > 0 {
            let _ = session.events.send(WatchEvent::Lost { count });
        }
    }
}

/// Forwards traces from the ring to the clients, until `ended` is dropped. Runs on a thread of its own: there may be
/// more traces than one CPU can read.
fn forward(
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
                    return tracing::warn!("cannot read traces, so `shunt watch` shows no more flows: {error}");
                },
                () = std::future::ready(()), if more => {}
            }
            let traces = ring.take_some(BATCH);
            more = traces.len() == BATCH;
            let booted = boot_time().unwrap_or(SystemTime::UNIX_EPOCH);
            let mut names = HashMap::new();
            for trace in traces {
                // Fails if the last client has just gone, which does not matter.
                let _ = events.send(watch_event(&trace, booted, &mut names));
            }
        }
    });
}

fn watch_event(trace: &abi::Trace, booted: SystemTime, names: &mut HashMap<u32, String>) -> WatchEvent {
    let port = names.entry(trace.ifindex).or_insert_with(|| {
        let name = if_indextoname(trace.ifindex).ok().and_then(|name| name.into_string().ok());
        name.unwrap_or_else(|| format!("if{}", trace.ifindex))
    });
    let flow = FlowEvent {
        at_us: unix_time_us(booted + Duration::from_nanos(trace.at_ns)),
        proto: trace_proto(&trace.tuple),
        tuple: trace_tuple(&trace.tuple),
        port: port.clone(),
        vlans: vlan_ids(&trace.tags),
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

/// The time at which CLOCK_MONOTONIC was 0.
fn boot_time() -> io::Result<SystemTime> {
    let since: Duration = clock_gettime(ClockId::CLOCK_MONOTONIC)?.into();
    Ok(SystemTime::now().checked_sub(since).unwrap_or(SystemTime::UNIX_EPOCH))
}

fn unix_time_us(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
