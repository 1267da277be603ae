//! Whether the fast path sends what Linux would: follows packets of fast flows from where they enter the router to
//! where they leave it, on the fast path and on the slow path in turn, and compares bytes, order and loss
//! (docs/adr/0026-packets-are-verified-at-both-ends.md).

pub(crate) mod abi;
mod compare;
mod fault;
mod follow;
mod programs;
mod report;
mod segment;

pub use fault::{Fault, Way};
pub use report::{Difference, FlowReport, Interval, PathReport, Report, Verdict};

use crate::{probes::ProgramError, trace::abi::TraceTuple, trace::machine};
use follow::Follower;
use nix::{
    net::if_::if_nametoindex,
    time::{ClockId, clock_gettime},
};
use programs::{Observed, Programs};
use report::Course;
use segment::segments;
use shunt_api::{Engine, Proto, Tuple};
use shunt_lab::statistics::median;
use std::{
    collections::BTreeMap,
    io,
    net::IpAddr,
    sync::atomic::{AtomicBool, Ordering},
    thread::sleep,
    time::{Duration, Instant},
};

/// Periods of each path, at least.
const PERIODS: usize = 3;
/// The longest period.
const PERIOD: Duration = Duration::from_secs(10);
/// Each of these has a budget.
const SLOT: Duration = Duration::from_millis(100);
/// Bytes that may enter in a slot, with what each packet costs besides: 2,000 packets of 1,500 bytes a second.
const BUDGET: u64 = 512 * 1024;
/// How often records are taken from the buffers.
const INTERVAL: Duration = Duration::from_millis(5);
/// A packet that has not left after this time is lost: queues hold no packet for longer.
const LONGEST_STAY: Duration = Duration::from_secs(1);
/// Records of different CPUs are in order once they are older than this.
const SETTLED: Duration = Duration::from_millis(2);
/// Reasons of the kernel up to this one are no reason: the driver of a veth frees with them what the other end took.
const NO_DROP_REASON: u32 = 2;
/// The reason for what a tc program drops, as Shunt's would.
const BY_PROGRAM: &str = "TC_INGRESS";

/// A direction of a connection to observe.
#[derive(Debug, Clone)]
pub struct Flow {
    /// The connection, by any number: both directions have the same.
    pub connection: usize,
    /// The protocol of `enters` and `leaves`.
    pub proto: Proto,
    /// The port through which packets arrive.
    pub in_port: String,
    /// The port through which packets leave.
    pub out_port: String,
    /// Addresses and ports of arriving packets.
    pub enters: Tuple,
    /// Addresses and ports of leaving packets.
    pub leaves: Tuple,
    /// The engine that forwards them.
    pub engine: Engine,
}

/// The flows to observe, for how long, and what of them cannot be observed.
#[derive(Debug, Clone)]
pub struct Request {
    /// The directions of fast connections.
    pub flows: Vec<Flow>,
    /// For how long.
    pub time: Duration,
    /// What cannot be observed.
    pub doubts: Vec<String>,
}

/// Packets cannot be verified.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The kernel refuses the programs.
    #[error("{0}")]
    Programs(String),
    /// The caller may not load programs.
    #[error("{0}; verifying needs root")]
    NotAllowed(String),
    /// A port is gone, or the clock cannot be read.
    #[error("{doing}: {source}")]
    System {
        /// What was tried.
        doing: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The connections could not be moved to the other path.
    #[error("{0}")]
    Switch(String),
}

impl From<ProgramError> for VerifyError {
    fn from(error: ProgramError) -> Self {
        let why = error.to_string();
        if error.forbidden { Self::NotAllowed(why) } else { Self::Programs(why) }
    }
}

/// How the connections are moved to a path for a time: by the daemon, which moves them back when the time is over.
pub type Switch<'s> = dyn FnMut(Way, Duration) -> Result<(), String> + 's;

/// Verifies in the calling thread's network namespace, until the time is over or `stop` is set. Calls `started` when
/// the first packets are followed. Leaves the connections on the fast path.
///
/// # Errors
/// If the kernel refuses the programs, a port is gone, or the connections cannot be moved.
pub fn run(
    request: &Request,
    stop: &AtomicBool,
    switch: &mut Switch<'_>,
    started: impl FnOnce(),
) -> Result<Report, VerifyError> {
    let began = Instant::now();
    let mut course = Course { doubts: request.doubts.clone(), ..Course::default() };
    if request.flows.is_empty() {
        return Ok(report::report(&[], course));
    }
    let mut observer = Observer::attach(request)?;
    started();
    let pairs = PERIODS.max((request.time.as_secs_f64() / (2.0 * PERIOD.as_secs_f64())) as usize);
    let period = request.time / u32::try_from(2 * pairs).unwrap_or(u32::MAX);
    let mut outcome = Ok(());
    for n in 0..2 * pairs {
        let way = if n % 2 == 0 { Way::Fast } else { Way::Slow };
        // The first period finds the connections on the fast path.
        if n > 0 {
            outcome = switch(way, period + 2 * LONGEST_STAY).map_err(VerifyError::Switch);
        }
        if outcome.is_err() || stop.load(Ordering::Relaxed) {
            break;
        }
        outcome = observer.observe(period, stop);
        course.round_trips.extend(observer.round_trip(way).map(|ns| (way, ns)));
        course.periods = n / 2 + 1;
        if outcome.is_err() {
            break;
        }
    }
    let back = switch(Way::Fast, Duration::ZERO).map_err(VerifyError::Switch);
    outcome.and(back)?;
    course.seconds = began.elapsed().as_secs_f64();
    course.records_lost = observer.records_lost;
    course.drop_reasons = observer.drop_reasons.clone();
    let flows = request.flows.iter().zip(&observer.followers);
    let flows: Vec<_> = flows.map(|(flow, one)| (name(flow), flow.engine, &one.follower)).collect();
    Ok(report::report(&flows, course))
}

/// `udp 192.168.1.2:4000 > 198.51.100.7:53`.
fn name(flow: &Flow) -> String {
    format!("{} {} > {}", flow.proto, flow.enters.source(), flow.enters.destination())
}

#[derive(Debug, Default)]
struct Observation {
    follower: Follower,
    /// The place of the other direction.
    reverse: Option<usize>,
    /// Round trips of earlier periods, by path.
    round_trips_before: [usize; 2],
}

struct Observer {
    programs: Programs,
    followers: Vec<Observation>,
    /// Records that may still be followed by older ones of other CPUs.
    unsettled: Vec<Observed>,
    records_lost: u64,
    drop_reasons: BTreeMap<u32, String>,
}

impl Observer {
    fn attach(request: &Request) -> Result<Self, VerifyError> {
        let programs = Programs::attach()?;
        let mut followers = Vec::new();
        for (number, flow) in request.flows.iter().enumerate() {
            let (enters, leaves) = (tuple(flow.proto, &flow.enters), tuple(flow.proto, &flow.leaves));
            let (from, to) = (index(&flow.in_port)?, index(&flow.out_port)?);
            programs.observe(number as u32, (from, &enters), (to, &leaves))?;
            let mut others = request.flows.iter().enumerate();
            let reverse = others.find(|(n, one)| *n != number && one.connection == flow.connection);
            followers.push(Observation { reverse: reverse.map(|(n, _)| n), ..Observation::default() });
        }
        let drop_reasons = machine::drop_reasons();
        Ok(Self { programs, followers, unsettled: Vec::new(), records_lost: 0, drop_reasons })
    }

    /// Follows packets for this long, and then those that are on their way to their end.
    fn observe(&mut self, time: Duration, stop: &AtomicBool) -> Result<(), VerifyError> {
        let began = Instant::now();
        while began.elapsed() < time && !stop.load(Ordering::Relaxed) {
            let slot = Instant::now();
            self.programs.set_window(BUDGET, true)?;
            while slot.elapsed() < SLOT {
                sleep(INTERVAL);
                if !self.follow(SETTLED)? {
                    break;
                }
                if self.programs.is_full() {
                    self.drain()?;
                    break;
                }
            }
            sleep(SLOT.saturating_sub(slot.elapsed()));
        }
        self.drain()
    }

    /// Lets no further packet enter, and waits for those that are on their way.
    fn drain(&mut self) -> Result<(), VerifyError> {
        self.programs.set_window(0, true)?;
        let began = Instant::now();
        loop {
            sleep(INTERVAL);
            let is_whole = self.follow(SETTLED)?;
            let is_waiting = self.followers.iter().any(|one| one.follower.is_waiting());
            if !is_whole || !is_waiting && self.unsettled.is_empty() || began.elapsed() > LONGEST_STAY {
                break;
            }
        }
        self.programs.set_window(0, false)?;
        self.follow(Duration::ZERO)?;
        for one in &mut self.followers {
            one.follower.give_up(u64::MAX);
            one.follower.forget(false);
        }
        Ok(())
    }

    /// Follows the packets whose records have arrived and are at least this old. Returns false if records were lost:
    /// then nothing is known of the packets on their way, and the window is closed.
    fn follow(&mut self, settled: Duration) -> Result<bool, VerifyError> {
        let now = now_ns()?;
        self.unsettled.extend(self.programs.take());
        self.unsettled.sort_by_key(|one| one.record.at_ns);
        let lost = self.programs.lost();
        if lost != self.records_lost {
            self.records_lost = lost;
            self.programs.set_window(0, false)?;
            self.unsettled.clear();
            self.followers.iter_mut().for_each(|one| one.follower.forget(true));
            return Ok(false);
        }
        let until = now.saturating_sub(settled.as_nanos() as u64);
        let at = self.unsettled.partition_point(|one| one.record.at_ns < until);
        for observed in self.unsettled.drain(..at).collect::<Vec<_>>() {
            self.handle(&observed);
        }
        for one in &mut self.followers {
            one.follower.give_up(until.saturating_sub(LONGEST_STAY.as_nanos() as u64));
        }
        Ok(true)
    }

    fn handle(&mut self, observed: &Observed) {
        let Observed { record, frame } = observed;
        let Some(one) = self.followers.get_mut(record.flow as usize) else { return };
        let follower = &mut one.follower;
        let mut acknowledged = None;
        match (record.place, segments(frame)) {
            (abi::VERIFY_ENTERS, Some(found)) => follower.enter(record.at_ns, found),
            (abi::VERIFY_LEAVES, Some(found)) => {
                let way = if record.is_tracked == 0 { Way::Fast } else { Way::Slow };
                acknowledged = follower.leave(record.at_ns, way, found);
            }
            (abi::VERIFY_DROPPED, _) => {
                let by_program = self.drop_reasons.get(&record.reason).is_some_and(|name| name == BY_PROGRAM);
                if record.reason > NO_DROP_REASON && !by_program {
                    follower.drop_by_linux(record.reason);
                }
            }
            _ => follower.unseen += 1,
        }
        let reverse = one.reverse;
        if let (Some(acknowledged), Some(reverse)) = (acknowledged, reverse) {
            self.followers[reverse].follower.acknowledge(acknowledged);
        }
    }

    /// The median round trip of the period that ends, on this path.
    fn round_trip(&mut self, way: Way) -> Option<f64> {
        let mut times = Vec::new();
        for one in &mut self.followers {
            let all = one.follower.tallies.get(&way).map(|tally| tally.round_trip_ns.as_slice());
            let all = all.unwrap_or_default();
            let before = &mut one.round_trips_before[usize::from(way == Way::Slow)];
            times.extend(&all[*before..]);
            *before = all.len();
        }
        median(&times)
    }
}

/// The index of a port.
fn index(port: &str) -> Result<u32, VerifyError> {
    if_nametoindex(port).map_err(|error| VerifyError::System {
        doing: format!("finding the port {port}"),
        source: error.into(),
    })
}

fn now_ns() -> Result<u64, VerifyError> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map_err(|error| VerifyError::System {
        doing: "reading the clock".to_owned(),
        source: error.into(),
    })?;
    Ok(Duration::from(now).as_nanos() as u64)
}

/// A tuple as the programs compare it.
fn tuple(proto: Proto, tuple: &Tuple) -> TraceTuple {
    let bytes = |address: IpAddr| match address {
        IpAddr::V4(v4) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&v4.octets());
            bytes
        }
        IpAddr::V6(v6) => v6.octets(),
    };
    TraceTuple {
        src_be: bytes(tuple.src),
        dst_be: bytes(tuple.dst),
        sport_be: tuple.sport.to_be_bytes(),
        dport_be: tuple.dport.to_be_bytes(),
        family: if tuple.src.is_ipv4() { 4 } else { 6 },
        l4_proto: match proto {
            Proto::Tcp => 6,
            Proto::Udp => 17,
        },
        ..TraceTuple::default()
    }
}
