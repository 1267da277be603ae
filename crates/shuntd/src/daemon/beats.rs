//! Heartbeats while the programs of the daemon before this one are exchanged. The kernel waits for all its CPUs at each
//! exchange of an XDP program, which takes a busy machine seconds, and the event loop does not run yet. Changes end
//! flows meanwhile, as always: the filters of this daemon's subscriptions move the epoch.

use super::{TICK, hand_over::PER_PORT, kernel_state::READ_MAX};
use crate::signals::start_thread;
use shunt_bpf::{DataPlane, Heartbeat};
use std::{
    io,
    sync::mpsc::{self, RecvTimeoutError, Sender},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// The thread that writes them. It ends when this is dropped, or when the exchange takes longer than a read of the
/// kernel's state may take, and longer than its ports may.
#[derive(Debug)]
pub(super) struct Beats(Option<(Sender<()>, JoinHandle<()>)>);

impl Beats {
    /// Starts the thread. `None` if that fails: packets may be slow for a while.
    pub(super) fn start(plane: &DataPlane, ports: usize) -> Option<Self> {
        let most = READ_MAX + PER_PORT * u32::try_from(ports).unwrap_or(u32::MAX);
        let heartbeat = plane.heartbeat().map_err(io::Error::other);
        let started = heartbeat.and_then(|heartbeat| Self::start_with(heartbeat, most));
        started.inspect_err(|error| tracing::warn!("the heartbeat may pause: {error}")).ok()
    }

    fn start_with(heartbeat: Heartbeat, most: Duration) -> io::Result<Self> {
        let (end, ended) = mpsc::channel();
        let begin = Instant::now();
        let beat = move || {
            while begin.elapsed() < most && ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                if let Err(error) = heartbeat.beat() {
                    tracing::warn!("cannot write the heartbeat: {error}");
                }
            }
        };
        let thread = thread::Builder::new().name("shuntd-beat".to_owned());
        Ok(Self(Some((end, start_thread(|| thread.spawn(beat))?))))
    }
}

impl Drop for Beats {
    fn drop(&mut self) {
        let Some((end, thread)) = self.0.take() else { return };
        drop(end);
        if thread.join().is_err() {
            tracing::error!("the thread that writes the heartbeat has panicked");
        }
    }
}
