//! A steady stream of one flow, and the times at which its packets left the router.

use crate::reaction::change::{Change, Lab};
use anyhow::ensure;
use nix::time::{ClockId, clock_gettime};
use serde::Serialize;
use shunt_testkit::{Host, Tap};
use shunt_traffic::schedule;
use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Interval between two packets.
const INTERVAL: Duration = Duration::from_micros(50);
/// Least time between the start of the stream and the change; the longest is twice that. The random time lets the
/// change meet the daemon's periodic work in every phase.
const BEFORE: Duration = Duration::from_millis(8);
/// A run ends after this time without a packet that was handled the old way.
const QUIET: Duration = Duration::from_millis(15);
/// Time limit of a run.
const PATIENCE: Duration = Duration::from_secs(10);
/// Interval at which arrived packets are read.
const LOOK: Duration = Duration::from_millis(2);

/// The times and counts of one run.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct ReactionTimes {
    /// Time from the change's return to the last packet that was handled the old way; 0 if there was none.
    pub reaction_ns: u64,
    /// Time from that packet to the next packet sent: the reaction may have taken that much longer.
    pub resolution_ns: u64,
    /// Number of packets handled the old way after the change's return.
    pub old_packets: u64,
    /// Number of packets that left before the change.
    pub before: u64,
    /// Duration of the change itself.
    pub change_ns: u64,
}

/// Streams a change's flow, makes the change, and waits until no packet is handled the old way.
pub fn meet(lab: &mut Lab, change: Change) -> anyhow::Result<ReactionTimes> {
    let mut frame = lab.packet(change).to_bytes();
    let from = lab.source(change).tap();
    let exit = stamped_tap(lab.exit(change));
    let (stop, flowing) = (AtomicBool::new(false), Barrier::new(2));
    thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let sent = stream(&from, &mut frame, &flowing, &stop);
            stop.store(true, Ordering::Relaxed);
            sent
        });
        flowing.wait();
        let met = meet_in_stream(lab, change, &exit, &stop);
        stop.store(true, Ordering::Relaxed);
        let sent = sender.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let (begun, returned, old) = met?;
        let after: Vec<u64> = old.iter().copied().filter(|at| *at > returned).collect();
        let end = after.iter().copied().max().unwrap_or(returned);
        let next = sent.iter().copied().find(|at| *at > end);
        Ok(ReactionTimes {
            reaction_ns: end - returned,
            resolution_ns: next.map_or(u64::MAX, |next| next - end),
            old_packets: after.len() as u64,
            before: old.iter().filter(|at| **at < begun).count() as u64,
            change_ns: returned - begun,
        })
    })
}

/// A raw socket on a host's interface that records when frames arrive.
///
/// The kernel begins to record a while after the first such socket is opened, so one must stay open all the time.
pub fn stamped_tap(host: &Host) -> Tap {
    let tap = host.tap();
    tap.stamp();
    tap
}

/// The times when the change began and returned, and the arrival times of packets that were handled the old way.
fn meet_in_stream(
    lab: &mut Lab,
    change: Change,
    exit: &Tap,
    stop: &AtomicBool,
) -> anyhow::Result<(u64, u64, Vec<u64>)> {
    let mut old = Vec::new();
    thread::sleep(BEFORE + BEFORE.mul_f64(fastrand::f64()));
    let begun = now()?;
    lab.make(change)?;
    let returned = now()?;
    let deadline = Instant::now() + PATIENCE;
    let mut last = returned;
    while now()? < last + QUIET.as_nanos() as u64 {
        ensure!(Instant::now() < deadline, "{change}: packets are still handled the old way after 10 s");
        ensure!(!stop.load(Ordering::Relaxed), "{change}: the stream ended early");
        thread::sleep(LOOK);
        while let Some((frame, arrived)) = exit.next_stamped(Duration::ZERO) {
            if lab.is_old(change, &frame) {
                let arrived = arrived.as_nanos() as u64;
                last = last.max(arrived);
                old.push(arrived);
            }
        }
    }
    Ok((begun, returned, old))
}

/// Sends until `stop` is set, and returns the time of each packet.
fn stream(tap: &Tap, frame: &mut [u8], flowing: &Barrier, stop: &AtomicBool) -> anyhow::Result<Vec<u64>> {
    let ready = nix::sys::prctl::set_timerslack(1).map_err(anyhow::Error::from);
    let ready = ready.and_then(|()| Ok(schedule::go_first()?));
    flowing.wait();
    ready?;
    let (mut sent, mut due) = (Vec::new(), Instant::now());
    while !stop.load(Ordering::Relaxed) {
        let at = frame.len() - 8;
        frame[at..].copy_from_slice(&(sent.len() as u64).to_be_bytes());
        sent.push(now()?);
        tap.send_bytes(frame);
        // Skip packets that are overdue: a burst would not be a steady stream.
        due = (due + INTERVAL).max(Instant::now());
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    Ok(sent)
}

/// The wall clock, in ns: that of the frames' time stamps.
pub fn now() -> anyhow::Result<u64> {
    Ok(Duration::from(clock_gettime(ClockId::CLOCK_REALTIME)?).as_nanos() as u64)
}
