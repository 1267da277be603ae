//! The ledger of hosts, as the event loop sees it: when counters are read, and when the file is written.

use super::Daemon;
use crate::{
    kept_file::KeptFile,
    off_rules::unix_time,
    usage::{Facts, HostTotals, KeptLedger, PortsReceived, UsageThread},
};
use shunt_api::{Counted, Failure, FailureCode, Usage, UsageQuery, WatchEvent};
use shunt_bpf::abi::Counters;
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
    due: Due,
    /// Whether conntrack counts.
    is_counting: bool,
    /// Whether the file says that this daemon counts: the counters that the last one left in it are not those to go on
    /// from any more, and an end without a further write is not a planned one.
    is_file_open: bool,
}

/// What is due at a time of the clock.
#[derive(Debug, Clone, Copy)]
struct Due {
    /// The number of the minute that is being counted.
    minute: u64,
    /// The number of the quarter of an hour in which the file was written.
    quarter: u64,
}

impl Due {
    const fn new(now: u64) -> Self {
        Self { minute: now / READ_S, quarter: now / WRITE_S }
    }

    /// Whether a reading is due.
    const fn reads(&self, now: u64) -> bool {
        now / READ_S != self.minute
    }

    /// Whether the file is due; it is not due again then.
    const fn writes(&mut self, now: u64) -> bool {
        let is_due = now / WRITE_S != self.quarter;
        self.quarter = now / WRITE_S;
        is_due
    }

    /// For which second a reading counts. Until the one that is due when a minute is over, readings have what passed in
    /// that minute, so they count for the last second of it.
    const fn clock(&self, now: u64) -> u64 {
        if self.reads(now) { now / READ_S * READ_S - 1 } else { now }
    }

    /// Notes that the reading which was due has been asked for.
    const fn has_read(&mut self, now: u64) {
        self.minute = now / READ_S;
    }
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
        let is_counting = shunt_kernel::conntrack_accounting();
        // As late as possible: what ports receive until the reading is counted twice for them.
        thread.read(self.usage_facts());
        self.usage =
            Some(HostLedger { thread, file, due: Due::new(unix_time()), is_counting, is_file_open: false });
        Ok(())
    }

    /// Reads counters each minute and when conntrack begins to count, and writes the file each quarter of an hour and
    /// soon after the start.
    pub(super) fn update_usage(&mut self) {
        let now = unix_time();
        let Some(HostLedger { due, is_counting, .. }) = &mut self.usage else { return };
        let was_counting = std::mem::replace(is_counting, shunt_kernel::conntrack_accounting());
        let reads = due.reads(now) || *is_counting && !was_counting;
        let facts = reads.then(|| self.usage_facts());
        let Some(HostLedger { thread, file, due, is_file_open, .. }) = &mut self.usage else { return };
        if let Some(facts) = facts {
            thread.read(facts);
            due.has_read(now);
        }
        let is_due = due.writes(now);
        if !std::mem::replace(is_file_open, true) || is_due {
            let contents = file.replace(thread.contents());
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

    /// Takes the ledger from the daemon, with a last job: to count the rest, and to write the file. Unless the data
    /// plane stays for the next daemon, the job is for the time when the programs are detached.
    pub(super) fn end_usage(&mut self, stays: bool) -> Option<impl FnOnce() + use<>> {
        let facts = self.usage_facts();
        let HostLedger { thread, mut file, .. } = self.usage.take()?;
        thread.read(facts.clone());
        let facts = Facts { is_end: !stays, ..facts };
        Some(move || {
            if let Err(why) = file.replace(thread.end(facts)).write() {
                tracing::warn!("{why}; {LOSS}");
            }
        })
    }

    /// What a reading needs to know.
    fn usage_facts(&mut self) -> Facts {
        self.record_all_counters();
        let sum = |sum: PortsReceived, port: Counters| sum.plus(received(&port));
        let none = PortsReceived::default();
        let received = self.port_counters.by_name().into_values().fold(none, sum);
        let attached = self.port_counters.attached().fold(none, sum);
        let now = unix_time();
        let clock = self.usage.as_ref().map_or(now, |usage| usage.due.clock(now));
        Facts { side: self.core.local_side(), received, attached, clock, is_end: false }
    }
}

/// What a port has received.
fn received(port: &Counters) -> PortsReceived {
    let fast = Counted {
        packets: port.xdp_pkts + port.tc_pkts + port.external_pkts,
        bytes: port.xdp_bytes + port.tc_bytes + port.external_bytes,
    };
    let slow = Counted { packets: port.slow_pkts, bytes: port.slow_bytes };
    PortsReceived { all: fast.plus(slow), fast }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-01-01 12:00:00 UTC.
    const NOON: u64 = 1_767_268_800;

    #[test]
    fn what_passed_in_a_minute_counts_for_that_minute() {
        let mut due = Due::new(NOON);
        assert_eq!((due.clock(NOON + 30), due.clock(NOON + 59)), (NOON + 30, NOON + 59));
        // A client that comes first, and the tick.
        assert_eq!((due.clock(NOON + 60), due.clock(NOON + 60)), (NOON + 59, NOON + 59));
        due.has_read(NOON + 60);
        assert_eq!(due.clock(NOON + 60), NOON + 60);
        // A late one, for example after a suspend, and one after the clock was set back.
        assert_eq!((due.clock(NOON + 3605), due.clock(NOON + 7)), (NOON + 3599, NOON - 1));
    }

    #[test]
    fn the_file_is_written_each_quarter_of_an_hour() {
        let mut due = Due::new(NOON);
        let written: Vec<u64> = (0..3600).filter(|s| due.writes(NOON + s)).collect();
        assert_eq!(written, [900, 1800, 2700]);
        assert!(!Due::new(NOON).reads(NOON + 59) && Due::new(NOON).reads(NOON + 60));
    }
}
