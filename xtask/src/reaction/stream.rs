//! A steady stream of one flow, and when its packets left the router.

use crate::{
    napi::go_first,
    reaction::change::{Change, Lab},
};
use anyhow::ensure;
use nix::time::{ClockId, clock_gettime};
use serde::Serialize;
use shunt_testkit::{Host, Tap};
use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Between two packets.
const INTERVAL: Duration = Duration::from_micros(50);
/// It flows for at least so long before the change, and up to twice as long: whatever the daemon does at fixed times is met
/// at all phases.
const BEFORE: Duration = Duration::from_millis(8);
/// When so long no packet was handled the old way, none will be.
const QUIET: Duration = Duration::from_millis(15);
/// Nothing may last longer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks at what has arrived.
const LOOK: Duration = Duration::from_millis(2);

/// What was seen of one change.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Seen {
    /// From the change's return to the last packet that was handled the old way; 0 when none was.
    pub reaction_ns: u64,
    /// How long after that the next packet was sent: it may have been so much more.
    pub resolution_ns: u64,
    /// Packets handled the old way after the change's return.
    pub old_packets: u64,
    /// Packets that left before the change.
    pub before: u64,
    /// How long the change itself took.
    pub change_ns: u64,
}

/// Streams a change's flow, makes the change in the midst of it, and waits until nothing is handled the old way.
pub fn meet(lab: &mut Lab, change: Change) -> anyhow::Result<Seen> {
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
        Ok(Seen {
            reaction_ns: end - returned,
            resolution_ns: next.map_or(u64::MAX, |next| next - end),
            old_packets: after.len() as u64,
            before: old.iter().filter(|at| **at < begun).count() as u64,
            change_ns: returned - begun,
        })
    })
}

/// A raw socket on a host's interface that notes when frames arrive.
///
/// The kernel begins to do so a while after it is first asked, so one such socket must be open all the time.
pub fn stamped_tap(host: &Host) -> Tap {
    let tap = host.tap();
    tap.stamp();
    tap
}

/// When the change was begun, when it had returned, and when packets arrived that were handled the old way.
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
        ensure!(Instant::now() < deadline, "{change}: there is no end to packets handled the old way");
        ensure!(!stop.load(Ordering::Relaxed), "{change}: the stream has ended");
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

/// Sends until it is to stop; when each packet was sent.
fn stream(tap: &Tap, frame: &mut [u8], flowing: &Barrier, stop: &AtomicBool) -> anyhow::Result<Vec<u64>> {
    let ready = nix::sys::prctl::set_timerslack(1).map_err(anyhow::Error::from);
    let ready = ready.and_then(|()| go_first(nix::unistd::gettid().as_raw()));
    flowing.wait();
    ready?;
    let (mut sent, mut due) = (Vec::new(), Instant::now());
    while !stop.load(Ordering::Relaxed) {
        let at = frame.len() - 8;
        frame[at..].copy_from_slice(&(sent.len() as u64).to_be_bytes());
        sent.push(now()?);
        tap.send_bytes(frame);
        // What was missed is not made up for: a burst would be no stream.
        due = (due + INTERVAL).max(Instant::now());
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    Ok(sent)
}

fn now() -> anyhow::Result<u64> {
    Ok(Duration::from(clock_gettime(ClockId::CLOCK_REALTIME)?).as_nanos() as u64)
}
