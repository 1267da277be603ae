//! Whether the fast path sends what Linux would: follows packets of fast flows from where they enter the router to
//! where they leave it, on the fast path and on the slow path in turn, and compares bytes, order and loss
//! (docs/adr/0026-packets-are-verified-at-both-ends.md).

pub(crate) mod abi;
mod compare;
mod fault;
mod follow;
mod observer;
mod programs;
mod report;
mod request;
mod segment;

pub use fault::{Fault, Way};
pub use programs::Taps;
pub use report::{Difference, FlowReport, Interval, PathReport, Report};
pub use request::{Flow, Owner, Request, VerifyError};
pub use shunt_api::Verdict;

use observer::{LONGEST_STAY, Observer};
use report::Course;
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

/// Periods of each path, at least.
const PERIODS: usize = 3;
/// The longest period.
const PERIOD: Duration = Duration::from_secs(10);
/// The last period, of the fast path: a flow that was refused is not watched for a second (`SHUNT_QUIET_USUAL_MS`), so
/// the connections are back within this time.
const RETURN: Duration = Duration::from_millis(1100);
/// The shortest period, if those before have waited for packets that do not leave.
const SHORTEST_PERIOD: Duration = Duration::from_millis(250);

/// Verifies in the calling thread's network namespace, until the time is over or `stop` is set. Calls `started` when
/// the first packets are followed. The last period is one of the fast path, so the connections are back on it.
///
/// # Errors
/// If the kernel refuses the programs, a port is gone, or the connections cannot be moved.
pub fn run(
    request: &Request,
    stop: &AtomicBool,
    owner: &mut dyn Owner,
    started: impl FnOnce(),
) -> Result<Report, VerifyError> {
    let began = Instant::now();
    let mut course = Course { doubts: request.doubts.clone(), ..Course::default() };
    if request.flows.is_empty() {
        return Ok(report::report(&[], course));
    }
    let pairs = PERIODS.max((request.time.as_secs_f64() / (2.0 * PERIOD.as_secs_f64())) as usize);
    // A period can take longer by as much as packets may stay.
    let at_most = |period: Duration| period + 2 * LONGEST_STAY;
    let mut observer = Observer::attach(request, owner, at_most(part(request.time, 2 * pairs)))?;
    course.doubts.append(&mut observer.doubts);
    started();
    let end = Instant::now() + request.time;
    let mut outcome = Ok(());
    for n in 0..=2 * pairs {
        // The first period finds the connections on the fast path.
        let way = if n % 2 == 0 { Way::Fast } else { Way::Slow };
        let left = end.saturating_duration_since(Instant::now());
        // Each period that is left may wait for its last packets as long as the one before did.
        let more = 2 * pairs - n;
        let left = left.saturating_sub(observer.waited * (more as u32 + 1));
        let period = match more {
            0 => left.max(RETURN),
            more => part(left.saturating_sub(RETURN), more).max(SHORTEST_PERIOD),
        };
        let time = at_most(period);
        let stay = observer.taps.as_ref().filter(|_| n > 0).map_or(Ok(()), |taps| owner.attach(taps, time));
        outcome = stay.and_then(|()| owner.switch(way, time)).map_err(VerifyError::Owner);
        if outcome.is_err() || stop.load(Ordering::Relaxed) {
            break;
        }
        outcome = observer.observe(way, period, stop);
        course.round_trips.extend(observer.round_trip(way).map(|ns| (way, ns)));
        course.periods = n.div_ceil(2);
        if outcome.is_err() {
            break;
        }
    }
    let back = owner.switch(Way::Fast, Duration::ZERO);
    let detached = observer.taps.as_ref().map_or(Ok(()), |_| owner.detach());
    outcome.and(back.and(detached).map_err(VerifyError::Owner))?;
    course.seconds = began.elapsed().as_secs_f64();
    course.undecided = observer.settle();
    observer.followers.iter_mut().for_each(|one| one.follower.excuse_what_was_not_sent_again());
    course.records_lost = observer.records_lost;
    course.drop_reasons = observer.drop_reasons.clone();
    let flows = observer.flows.iter().zip(&observer.followers);
    let flows: Vec<_> = flows.map(|(flow, one)| (flow, &one.follower)).collect();
    Ok(report::report(&flows, course))
}

/// One of this many parts of a time.
fn part(time: Duration, parts: usize) -> Duration {
    time / u32::try_from(parts).unwrap_or(u32::MAX)
}
