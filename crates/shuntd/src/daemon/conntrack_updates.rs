//! Updates of conntrack entries, a few at a time, on a thread of their own: somebody who deletes all entries holds
//! conntrack's lock for long.

use super::{Daemon, blocking::BlockingThread};
use shunt_core::{Connection, Correction, TrackedDirection};
use shunt_kernel::{Liberal, Linux};

/// Connections that are set liberal at a time.
const LIBERAL_BATCH: usize = 128;
/// Silent connections that conntrack is told of at a time.
const SILENT_BATCH: usize = 64;
/// Connections that wait for either. With more, the newest are dropped: the data plane asks again.
const WAITING_MAX: usize = 16_384;

const UPDATE: &str = "conntrack-update";
const CORRECT: &str = "conntrack-correction";

/// What a call changes.
struct Batch {
    liberal: Vec<Connection>,
    silent: Vec<TrackedDirection>,
}

impl Batch {
    fn apply(&self, kernel: &mut Linux) {
        if !self.liberal.is_empty() {
            for (connection, result) in self.liberal.iter().zip(kernel.set_be_liberal(&self.liberal)) {
                match result {
                    Ok(Liberal::Set | Liberal::Gone) => {}
                    Err(error) => {
                        tracing::debug!("cannot set BE_LIBERAL on {connection:?}, which stays slow: {error}");
                    }
                }
            }
        }
        if !self.silent.is_empty()
            && let Err(error) = kernel.keep_silent(&self.silent)
        {
            tracing::debug!("cannot extend conntrack timeouts; silent connections may expire early: {error}");
        }
    }
}

impl Daemon {
    /// Sets BE_LIBERAL on connections that wait for it, and extends the conntrack timeout of those that have fallen
    /// silent.
    pub(super) fn update_conntrack(&mut self) {
        let (requests, silent) = (&mut self.liberal_requests, &mut self.silent);
        requests.sort_unstable();
        requests.dedup();
        requests.truncate(WAITING_MAX);
        silent.truncate(WAITING_MAX);
        if requests.is_empty() && silent.is_empty() || self.is_open(BlockingThread::Conntrack, UPDATE) {
            return;
        }
        let batch = Batch {
            liberal: self.liberal_requests.drain(..self.liberal_requests.len().min(LIBERAL_BATCH)).collect(),
            silent: self.silent.drain(..self.silent.len().min(SILENT_BATCH)).collect(),
        };
        self.in_background(
            BlockingThread::Conntrack,
            UPDATE,
            move |kernel| batch.apply(kernel),
            |daemon, ()| daemon.update_conntrack(),
        );
    }

    /// When the next corrections are due; `None` if there are none, or while the last ones are being made.
    pub(super) fn corrections_due(&self) -> Option<tokio::time::Instant> {
        self.corrections.due().filter(|_| !self.is_open(BlockingThread::Conntrack, CORRECT))
    }

    /// Corrects the conntrack entries whose correction is due.
    pub(super) fn correct_conntrack(&mut self) {
        let (due, later): (Vec<Correction>, Vec<Correction>) = self.corrections.take_due();
        let correct = move |kernel: &mut Linux| {
            if let Err(error) = kernel.correct(&due, &later) {
                tracing::debug!("cannot correct conntrack entries: {error}");
            }
        };
        self.in_background(BlockingThread::Conntrack, CORRECT, correct, |_, ()| {});
    }
}
