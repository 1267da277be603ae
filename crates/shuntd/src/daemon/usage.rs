//! The ledger of hosts, as the event loop sees it: when counters are read, and when the file is written.

use super::Daemon;
use crate::{
    kept_file::KeptFile,
    off_rules::unix_time,
    usage::{Facts, HostTotals, KeptLedger, UsageThread},
};
use shunt_api::{Counted, Failure, FailureCode, Usage, UsageQuery, WatchEvent};
use tokio::sync::broadcast;

/// Counters are read this often, in seconds.
const READ_S: u64 = 60;
/// The file is written this often, in seconds: a crash loses no more.
const WRITE_S: u64 = 900;
const LOSS: &str = "what hosts have used since the file was last written is lost at the next restart";

/// The thread that counts, and the file.
pub(super) struct HostLedger {
    thread: UsageThread,
    file: KeptFile,
    /// The numbers of the minute that was read, and of the quarter of an hour that was written.
    done: (u64, u64),
}

impl HostLedger {
    pub(super) fn watch(&self, clients: Option<broadcast::Sender<WatchEvent>>) {
        self.thread.watch(clients);
    }
}

impl Daemon {
    /// Starts to count for hosts, if the configuration asks for it.
    pub(super) fn start_usage(&mut self, kept: Option<KeptLedger>) -> Result<(), Failure> {
        let Some(KeptLedger { file, ledger }) = kept else { return Ok(()) };
        let thread = UsageThread::start(&self.plane, ledger)?;
        thread.read(self.usage_facts());
        let now = unix_time();
        self.usage = Some(HostLedger { thread, file, done: (now / READ_S, now / WRITE_S) });
        Ok(())
    }

    /// Reads counters each minute, and writes the file each quarter of an hour.
    pub(super) fn update_usage(&mut self) {
        let now = unix_time();
        let due = (now / READ_S, now / WRITE_S);
        let Some(done) = self.usage.as_ref().map(|usage| usage.done) else { return };
        if due == done {
            return;
        }
        let facts = self.usage_facts();
        let Some(HostLedger { thread, file, done }) = &mut self.usage else { return };
        if due.0 != done.0 {
            thread.read(facts);
        }
        let contents = (due.1 != done.1).then(|| file.replace(thread.encode()));
        *done = due;
        if let Some(contents) = contents {
            self.keep("write-usage", contents, LOSS);
        }
    }

    /// Prepares the answer to a query, which another thread gives.
    pub(super) fn answer_usage(
        &mut self,
        query: UsageQuery,
    ) -> Result<impl FnOnce() -> Result<Usage, Failure> + Send + use<>, Failure> {
        let facts = self.usage_facts();
        let usage = self.usage.as_ref().ok_or_else(|| {
            let why =
                "the ledger of hosts is off; set usage = true in the configuration, and restart the daemon";
            Failure::new(FailureCode::Usage, why)
        })?;
        Ok(usage.thread.answer(facts, query))
    }

    pub(super) fn host_totals(&self) -> HostTotals {
        self.usage.as_ref().map(|usage| usage.thread.totals()).unwrap_or_default()
    }

    /// Takes the ledger from the daemon, with a last job: to count the rest after the programs are detached, and to
    /// write the file.
    pub(super) fn end_usage(&mut self) -> Option<impl FnOnce() + use<>> {
        let facts = self.usage_facts();
        let HostLedger { thread, mut file, .. } = self.usage.take()?;
        Some(move || {
            let contents = thread.end(facts);
            if let Err(why) = file.replace(move || contents).write() {
                tracing::warn!("{why}; {LOSS}");
            }
        })
    }

    /// What a reading needs to know.
    fn usage_facts(&mut self) -> Facts {
        self.record_all_counters();
        let mut received = Counted::default();
        for counted in self.port_counters.by_name().values() {
            let packets = [counted.xdp_pkts, counted.tc_pkts, counted.external_pkts, counted.slow_pkts];
            let bytes = [counted.xdp_bytes, counted.tc_bytes, counted.external_bytes, counted.slow_bytes];
            received = received.plus(Counted { packets: packets.iter().sum(), bytes: bytes.iter().sum() });
        }
        Facts { side: self.core.local_side(), received, clock: unix_time() }
    }
}
