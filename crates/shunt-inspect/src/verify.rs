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
pub use report::{Difference, FlowReport, Interval, PathReport, Report, Verdict};
pub use request::{Flow, Owner, Request, VerifyError};

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

/// Verifies in the calling thread's network namespace, until the time is over or `stop` is set. Calls `started` when
/// the first packets are followed. Leaves the connections on the fast path.
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
    let period = request.time / u32::try_from(2 * pairs).unwrap_or(u32::MAX);
    // A period can take longer by as much as packets may stay.
    let time = period + 2 * LONGEST_STAY;
    let mut observer = Observer::attach(request, owner, time)?;
    course.doubts.append(&mut observer.doubts);
    started();
    let mut outcome = Ok(());
    for n in 0..2 * pairs {
        let way = if n % 2 == 0 { Way::Fast } else { Way::Slow };
        // The first period finds the connections on the fast path.
        if n > 0 {
            let stay = observer.taps.as_ref().map_or(Ok(()), |taps| owner.attach(taps, time));
            outcome = stay.and_then(|()| owner.switch(way, time)).map_err(VerifyError::Owner);
        }
        if outcome.is_err() || stop.load(Ordering::Relaxed) {
            break;
        }
        outcome = observer.observe(way, period, stop);
        course.round_trips.extend(observer.round_trip(way).map(|ns| (way, ns)));
        course.periods = n / 2 + 1;
        if outcome.is_err() {
            break;
        }
    }
    let back = owner.switch(Way::Fast, Duration::ZERO);
    let detached = observer.taps.as_ref().map_or(Ok(()), |_| owner.detach());
    outcome.and(back.and(detached).map_err(VerifyError::Owner))?;
    course.seconds = began.elapsed().as_secs_f64();
    course.undecided = observer.settle();
    course.records_lost = observer.records_lost;
    course.drop_reasons = observer.drop_reasons.clone();
    let flows = observer.flows.iter().zip(&observer.followers);
    let flows: Vec<_> = flows.map(|(flow, one)| (name(flow), flow.engine, &one.follower)).collect();
    Ok(report::report(&flows, course))
}

/// `udp 192.168.1.2:4000 > 198.51.100.7:53`.
fn name(flow: &Flow) -> String {
    format!("{} {} > {}", flow.proto, flow.enters.source(), flow.enters.destination())
}
