//! The sweep of the flow tables, a part at a time, so that it never keeps the loop from anything else for long.

use shunt_bpf::{DataPlane, abi::Sweep};
use std::time::Duration;
use tokio::{
    sync::oneshot,
    time::{Instant, sleep_until},
};

/// Entries of a part: 2 ms where nothing of them is in the CPU's cache. A table of the default size is one part.
const PART: u32 = 65_536;
/// Between two parts, for everything else.
const PAUSE: Duration = Duration::from_millis(3);

/// The pass through the tables that is under way, and what the last one found.
#[derive(Debug, Default)]
pub(crate) struct Sweeping {
    pass: Option<Pass>,
    found: Sweep,
}

#[derive(Debug)]
struct Pass {
    next: u32,
    due: Instant,
    all: bool,
    sum: Sweep,
    flushes: Vec<oneshot::Sender<u64>>,
}

impl Sweeping {
    /// What the last whole pass found.
    pub(crate) fn found(&self) -> Sweep {
        self.found
    }

    /// Begins a pass, unless one is under way.
    pub(crate) fn begin(&mut self, plane: &DataPlane, idle: Duration) {
        if self.pass.is_none() {
            self.pass = Some(Pass::new());
            self.go_on(plane, idle);
        }
    }

    /// Has the counts be those of this moment, where a whole pass takes but a moment.
    pub(crate) fn refresh(&mut self, plane: &DataPlane, idle: Duration) {
        if plane.entries() <= PART {
            self.begin(plane, idle);
        }
    }

    /// Retires every learned flow, and then says how many there were.
    pub(crate) fn flush(&mut self, plane: &DataPlane, idle: Duration, reply: oneshot::Sender<u64>) {
        let before = self.pass.take().filter(|pass| pass.all);
        let mut pass = Pass { all: true, ..Pass::new() };
        if let Some(before) = before {
            pass.sum.flushed = before.sum.flushed;
            pass.flushes = before.flushes;
        }
        pass.flushes.push(reply);
        self.pass = Some(pass);
        self.go_on(plane, idle);
    }

    /// When the next part is due; never without a pass. May be dropped at any time.
    pub(crate) async fn due(&self) {
        match &self.pass {
            Some(pass) => sleep_until(pass.due).await,
            None => std::future::pending().await,
        }
    }

    /// Sweeps one part.
    pub(crate) fn go_on(&mut self, plane: &DataPlane, idle: Duration) {
        let Some(mut pass) = self.pass.take() else { return };
        match plane.sweep_part(idle, pass.all, pass.next, PART) {
            Ok(part) => pass.add(&part),
            Err(error) => return tracing::warn!("flows cannot be swept: {error}"),
        }
        pass.next = pass.next.saturating_add(PART);
        if pass.next < plane.entries() {
            pass.due = Instant::now() + PAUSE;
            self.pass = Some(pass);
            return;
        }
        self.found = pass.sum;
        for reply in pass.flushes {
            let _ = reply.send(pass.sum.flushed.into());
        }
    }
}

impl Pass {
    fn new() -> Self {
        Self { next: 0, due: Instant::now(), all: false, sum: Sweep::default(), flushes: Vec::new() }
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
