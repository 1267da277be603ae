//! Updates of conntrack entries, a few at a time, so that changes of kernel state are never kept waiting.

use super::Daemon;
use shunt_core::{Connection, TrackedDirection};
use shunt_kernel::Liberal;

/// Connections that are set liberal at a time.
const LIBERAL_BATCH: usize = 128;
/// Silent connections that conntrack is told of at a time.
const SILENT_BATCH: usize = 64;

impl Daemon {
    /// Sets BE_LIBERAL on some of the connections that wait for it. Returns whether more wait.
    pub(super) fn set_liberal(&mut self) -> bool {
        let requests = &mut self.liberal_requests;
        requests.sort_unstable();
        requests.dedup();
        let batch: Vec<Connection> = requests.drain(..requests.len().min(LIBERAL_BATCH)).collect();
        for (connection, result) in batch.iter().zip(self.kernel.set_be_liberal(&batch)) {
            match result {
                Ok(Liberal::Set | Liberal::Gone) => {}
                Err(error) => {
                    tracing::debug!("cannot set BE_LIBERAL on {connection:?}, which stays slow: {error}");
                }
            }
        }
        !self.liberal_requests.is_empty()
    }

    /// Extends the conntrack timeout of some connections that have fallen silent. Returns whether more wait.
    pub(super) fn keep_silent(&mut self) -> bool {
        let batch: Vec<TrackedDirection> = self.silent.drain(..self.silent.len().min(SILENT_BATCH)).collect();
        if let Err(error) = self.kernel.keep_silent(&batch) {
            tracing::debug!("cannot extend conntrack timeouts; silent connections may expire early: {error}");
        }
        !self.silent.is_empty()
    }

    /// Corrects the conntrack entries whose correction is due.
    pub(super) fn correct_conntrack(&mut self) {
        let (due, later) = self.corrections.take_due();
        if let Err(error) = self.kernel.correct(&due, &later) {
            tracing::debug!("cannot correct conntrack entries: {error}");
        }
    }
}
