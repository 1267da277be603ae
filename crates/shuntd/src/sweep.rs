//! Sweeps the flow tables a part at a time, so that the event loop is never kept from other work for long.

use shunt_bpf::{DataPlane, abi::Sweep};
use std::time::Duration;
use tokio::{
    sync::oneshot,
    time::{Instant, sleep_until},
};

/// Entries in a part. A part takes 2 ms if none of its entries are in the CPU's cache. Entries that were never used
/// take no time.
const PART_ENTRIES: u32 = 65_536;
/// The pause between two parts, for other work.
const PAUSE: Duration = Duration::from_millis(3);

/// The pass through the tables that is in progress, and the totals of the last complete pass.
#[derive(Debug, Default)]
pub(crate) struct Sweeper {
    pass: Option<Pass>,
    totals: Sweep,
}

#[derive(Debug)]
struct Pass {
    /// The first entry of the next part.
    next: u32,
    /// When the next part is due.
    due: Instant,
    /// Whether the pass retires every learned flow.
    flush: bool,
    sum: Sweep,
    /// Clients that wait for the number of flushed flows.
    flushes: Vec<oneshot::Sender<u64>>,
}

impl Sweeper {
    /// The totals of the last complete pass; 0 before the first one.
    pub(crate) fn totals(&self) -> Sweep {
        self.totals
    }

    /// Begins a pass, unless one is in progress.
    pub(crate) fn begin(&mut self, plane: &DataPlane, idle: Duration) {
        if self.pass.is_none() {
            self.pass = Some(Pass::new());
            self.sweep_part(plane, idle);
        }
    }

    /// Brings the totals up to date if so few entries are in use that one part has them all; otherwise the totals may
    /// be a second old.
    pub(crate) fn refresh(&mut self, plane: &DataPlane, idle: Duration) {
        if plane.used_entries() <= PART_ENTRIES {
            self.begin(plane, idle);
        }
    }

    /// Begins a pass that retires every learned flow, and sends their number to `reply` at its end.
    pub(crate) fn flush(&mut self, plane: &DataPlane, idle: Duration, reply: oneshot::Sender<u64>) {
        let before = self.pass.take().filter(|pass| pass.flush);
        let mut pass = Pass { flush: true, ..Pass::new() };
        if let Some(before) = before {
            pass.sum.flushed = before.sum.flushed;
            pass.flushes = before.flushes;
        }
        pass.flushes.push(reply);
        self.pass = Some(pass);
        self.sweep_part(plane, idle);
    }

    /// Waits until the next part is due; forever if no pass is in progress. May be dropped at any time.
    pub(crate) async fn due(&self) {
        match &self.pass {
            Some(pass) => sleep_until(pass.due).await,
            None => std::future::pending().await,
        }
    }

    /// Sweeps the next part of the pass in progress.
    pub(crate) fn sweep_part(&mut self, plane: &DataPlane, idle: Duration) {
        let Some(mut pass) = self.pass.take() else { return };
        let fits_a_part = plane.used_entries() <= PART_ENTRIES;
        loop {
            match plane.sweep_part(idle, pass.flush, pass.next, PART_ENTRIES) {
                Ok(part) => pass.add(&part),
                Err(error) => {
                    return tracing::warn!(
                        "cannot sweep the flow table: {error}; idle flows stay until the next sweep"
                    );
                }
            }
            let Some(next) = plane.next_used(pass.next.saturating_add(PART_ENTRIES)) else { break };
            pass.next = next;
            if !fits_a_part {
                pass.due = Instant::now() + PAUSE;
                self.pass = Some(pass);
                return;
            }
        }
        self.totals = pass.sum;
        for reply in pass.flushes {
            let _ = reply.send(pass.sum.flushed.into());
        }
    }
}

impl Pass {
    fn new() -> Self {
        Self { next: 0, due: Instant::now(), flush: false, sum: Sweep::default(), flushes: Vec::new() }
    }

    fn add(&mut self, part: &Sweep) {
        let sum = &mut self.sum;
        sum.now_ticks = part.now_ticks;
        for (sum, part) in [
            (&mut sum.active, part.active),
            (&mut sum.pending, part.pending),
            (&mut sum.retired, part.retired),
            (&mut sum.statics, part.statics),
            (&mut sum.deleted, part.deleted),
            (&mut sum.flushed, part.flushed),
        ] {
            *sum = sum.saturating_add(part);
        }
    }
}
