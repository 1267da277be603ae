//! Reads of kernel state that the RTNL lock protects. Others can hold that lock for seconds, so these reads are made by
//! a thread of their own, and here is what holds while they are late.

use super::{Daemon, blocking::BlockingThread};
use crate::foreign_programs::foreign_programs;
use shunt_core::{Action, Cause, Event, EventSource, Scope, Traffic};
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

/// A read that takes longer ends the heartbeat: changes that only reads find would act too late.
pub(super) const READ_MAX: Duration = Duration::from_secs(5);
/// A dump that takes longer holds learning: messages were lost, so nobody knows what has changed.
const DUMP_MAX: Duration = Duration::from_secs(1);
/// Changes that are kept during a dump; 1 MB. With more, the next dump follows.
const NOTED_MAX: usize = 8192;

/// Finished changes that are handled one by one.
const FINISHED_MAX: usize = 64;

const DUMP: &str = "dump";
const PROGRAMS: &str = "tcx-programs";
const CAPTURES: &str = "captures";

/// The reads that are in progress.
#[derive(Default)]
pub(super) struct KernelReads {
    /// The changes since the dump in progress was asked for; `None` if there is no such dump.
    noted: Option<Vec<Event>>,
    /// Packet sockets are to be listed again, because a link has changed meanwhile.
    captures_again: bool,
    /// The traffic from which the policy lets nothing be learned.
    held: Traffic,
    /// Nothing is learned because a dump is late.
    dump_is_late: bool,
    /// The heartbeat has stopped because a read is late.
    beat_stopped: bool,
    /// Changes that the kernel has announced and not finished.
    unfinished: BTreeSet<(Cause, Scope)>,
}

impl KernelReads {
    /// Whether the state is known, and the kernel has finished all changes that it has announced.
    pub(super) fn are_settled(&self) -> bool {
        self.noted.is_none() && self.unfinished.is_empty() && !self.dump_is_late && !self.beat_stopped
    }

    /// Keeps changes of state that a dump in progress may lack.
    pub(super) fn note(&mut self, changes: &[Event]) {
        let Some(noted) = &mut self.noted else { return };
        let room = (NOTED_MAX + 1).saturating_sub(noted.len());
        noted.extend(changes.iter().filter(|change| is_state(change)).take(room).cloned());
    }
}

/// Whether the effect of an event is in a dump.
fn is_state(event: &Event) -> bool {
    matches!(
        event,
        Event::Link(_)
            | Event::LinkGone { .. }
            | Event::Address { .. }
            | Event::AddressGone { .. }
            | Event::Neighbour { .. }
            | Event::NeighbourGone { .. }
            | Event::Qdisc(_)
            | Event::QdiscGone(_)
            | Event::XdpFeatures { .. }
            | Event::Offloads { .. }
    )
}

/// The events of changes. Many changes of one cause count as one that concerns everything: each costs a system call.
fn finished(changes: &BTreeSet<(Cause, Scope)>) -> Vec<Event> {
    if changes.len() <= FINISHED_MAX {
        return changes.iter().map(|(cause, scope)| Event::Finished(*cause, *scope)).collect();
    }
    let causes: BTreeSet<Cause> = changes.iter().map(|(cause, _)| *cause).collect();
    causes.into_iter().map(|cause| Event::Finished(cause, Scope::Everything)).collect()
}

impl Daemon {
    /// Reads the whole state, and hands it to the policy, followed by the changes since.
    pub(super) fn resync(&mut self) {
        self.kernel_reads.noted = Some(Vec::new());
        self.in_background(BlockingThread::State, DUMP, shunt_kernel::Linux::dump, |daemon, state| {
            daemon.on_dump(state)
        });
    }

    fn on_dump(&mut self, state: Result<Vec<Event>, shunt_kernel::Error>) {
        let mut noted = self.kernel_reads.noted.take().unwrap_or_default();
        match state {
            Ok(state) => {
                self.set_dump_late(false);
                let is_complete = noted.len() <= NOTED_MAX;
                noted.insert(0, Event::Dump(state));
                noted.extend((!is_complete).then_some(Event::Overrun(EventSource::Route)));
                self.handle_all(noted);
            }
            // The overrun that asked for the dump has moved the epoch, so waiting is safe; this event asks again.
            Err(error) => {
                tracing::warn!(
                    "cannot read links, routes and neighbours from netlink: {error}; trying again in a second"
                );
                self.handle(Event::Overrun(EventSource::Route));
            }
        }
    }

    pub(super) fn find_captures(&mut self) {
        if self.is_open(BlockingThread::Captures, CAPTURES) {
            self.kernel_reads.captures_again = true;
            return;
        }
        let then = |daemon: &mut Self, captures: Result<BTreeSet<u32>, shunt_kernel::Error>| {
            match captures {
                Ok(captures) => daemon.handle(Event::Captures(captures)),
                Err(error) => tracing::debug!("cannot list packet sockets: {error}"),
            }
            if std::mem::take(&mut daemon.kernel_reads.captures_again) {
                daemon.find_captures();
            }
        };
        self.in_background(BlockingThread::Captures, CAPTURES, shunt_kernel::Linux::captured, then);
    }

    /// Finds the TCX programs of others. While the RTNL lock is held, nobody can attach one either.
    pub(super) fn find_programs(&mut self, devices: BTreeSet<u32>) {
        if self.is_open(BlockingThread::State, PROGRAMS) {
            return;
        }
        let own = self.plane.own_programs();
        self.in_background(
            BlockingThread::State,
            PROGRAMS,
            move |_| foreign_programs(own, &devices),
            |daemon, programs| daemon.handle(Event::Programs(programs)),
        );
    }

    pub(super) fn find_offloads(&mut self, ifindex: u32) {
        self.in_background(
            BlockingThread::State,
            "offloads",
            move |kernel| kernel.offloads(ifindex),
            |daemon, offloads| {
                if let Some(offloads) = offloads {
                    daemon.handle(offloads);
                }
            },
        );
    }

    /// What follows from reads that are late. To be called at each tick.
    pub(super) fn check_kernel_reads(&mut self) {
        let since = |lane| self.blocking.as_ref().and_then(|calls| calls.waits_since(lane));
        let waits = |since: Option<Instant>| since.map_or(Duration::ZERO, |since| since.elapsed());
        let (state, captures) = (waits(since(BlockingThread::State)), waits(since(BlockingThread::Captures)));
        let stops = state.max(captures) > READ_MAX;
        if stops != std::mem::replace(&mut self.kernel_reads.beat_stopped, stops) {
            if stops {
                tracing::warn!(
                    "reading the kernel's state takes more than {} s: another program holds the kernel's RTNL lock; \
                     all packets take the slow path until the state has been read",
                    READ_MAX.as_secs()
                );
            } else {
                tracing::info!("the kernel's state has been read");
            }
        }
        if self.is_open(BlockingThread::State, DUMP) && state > DUMP_MAX {
            self.set_dump_late(true);
        }
        // Linux may have made a part of these changes, and before it has finished, packets may teach the old way.
        let unfinished = finished(&self.kernel_reads.unfinished);
        self.handle_all(unfinished);
    }

    /// Moves the epoch once more when the kernel has finished a change that it has announced, and at each tick until
    /// then.
    pub(super) fn await_kernel(&mut self, cause: Cause, scope: Scope) {
        if let Some(barrier) = &self.rtnl_barrier {
            self.kernel_reads.unfinished.insert((cause, scope));
            let _ = barrier.send((cause, scope));
        }
    }

    pub(super) fn on_finished(&mut self, changes: BTreeSet<(Cause, Scope)>) {
        self.kernel_reads.unfinished.retain(|change| !changes.contains(change));
        self.handle_all(finished(&changes));
    }

    /// Writes the heartbeat, unless a read is late.
    pub(super) fn beat(&self) {
        if self.kernel_reads.beat_stopped {
            return;
        }
        if let Err(error) = self.plane.beat() {
            tracing::warn!("cannot write the heartbeat, so all packets take the slow path: {error}");
        }
    }

    pub(super) fn hold(&mut self, held: Traffic) {
        self.kernel_reads.held = held;
        self.update_hold();
    }

    fn update_hold(&mut self) {
        let KernelReads { held, dump_is_late, .. } = self.kernel_reads;
        self.write_hold(if dump_is_late { Traffic::ALL } else { held });
    }

    fn set_dump_late(&mut self, late: bool) {
        if std::mem::replace(&mut self.kernel_reads.dump_is_late, late) == late {
            return;
        }
        if late {
            tracing::warn!(
                "netlink messages were lost, and reading the kernel's state takes more than {} s; nothing is learned until it was read",
                DUMP_MAX.as_secs()
            );
        }
        self.update_hold();
        if late {
            self.perform(Action::MoveEpoch(Cause::Overrun));
        }
    }
}
