//! Several streams at once, each with packets, a rate and figures of its own.

mod flow_ranges;
mod lane;
mod live;
mod report;
mod running;
mod sending;
mod setup;

pub use live::LiveStreams;
pub use report::{StreamReport, StreamsReport};

use super::{Error, SendMethodChoice, TrafficSpec, testbed::Testbed};
use crate::Conditions;
use setup::Setup;
use shunt_gen::{Course, Ramp, Rate, Shape};
use shunt_wire::line::LinkSpeed;
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

/// Longest name of a stream.
const NAME_MAX: usize = 16;
/// Interval at which a measurement checks whether its streams are over.
const GLANCE: Duration = Duration::from_millis(5);
/// Flows of all streams of a session whose streams are not known beforehand.
const FLOWS_OF_SESSION: u32 = 1 << 16;
/// Largest frame of such a session.
const LARGEST_OF_SESSION: u32 = 1518;

/// One stream.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamSpec {
    /// The name in reports.
    pub name: String,
    /// The packets. Unspecified addresses are replaced by those of the ports.
    pub shape: Shape,
    /// The offered rate.
    pub rate: Rate,
    /// How the rate is reached; None if it holds from the start.
    pub ramp: Option<RampSpec>,
    /// Time without packets at the start.
    pub delay: Duration,
    /// Duration of the traffic that does not count, after the delay.
    pub warm_up: Duration,
    /// Duration of the traffic that counts; None for no end.
    pub duration: Option<Duration>,
    /// Number of packets that count; None for no limit.
    pub packets: Option<u64>,
    /// Number of packets that are sent without an interval between them.
    pub burst: u32,
    /// Whether the second port sends, and the first receives.
    pub reverse: bool,
}

/// A rate that rises or falls to that of the stream.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RampSpec {
    /// The first rate; None for the present rate of a stream that changes.
    pub from: Option<Rate>,
    /// Time from the first rate to the last.
    pub time: Duration,
    /// Number of rates of equal duration before the last one; None for a linear ramp.
    pub steps: Option<u32>,
}

/// What all streams of a session share.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamsSpec {
    /// Speed of the link; only needed if the driver does not report it.
    pub speed: Option<LinkSpeed>,
    /// The way of sending.
    pub method: SendMethodChoice,
    /// Number of CPUs that send in each direction; each stream is sent by one.
    pub cpus: u32,
}

/// Sends the streams until all are over. When `stop` is set, they end at once and the figures cover the packets until
/// then.
///
/// # Errors
/// Fails if the request is not possible or the operating system returns an error. The setup is undone.
pub fn measure_streams(
    spec: &StreamsSpec,
    streams: &[StreamSpec],
    testbed: &Testbed,
    mut conditions: Conditions,
    stop: &AtomicBool,
) -> Result<StreamsReport, Error> {
    let setup = Setup::for_streams(streams, testbed.speed(spec.speed))?;
    live::session(spec, &setup, testbed, |live| {
        live.start(streams)?;
        conditions.nics = live.nics();
        while !live.is_over()? && !stop.load(Ordering::Relaxed) {
            thread::sleep(GLANCE);
        }
        let interrupted = stop.load(Ordering::Relaxed);
        live.end_all()?;
        Ok(StreamsReport::new(live.reports()?, live.batch(), conditions, interrupted))
    })
}

/// Sets up a session without streams, calls `work`, and undoes the setup.
///
/// # Errors
/// Fails if the operating system returns an error, or if `work` fails.
pub fn live_streams<R>(
    spec: &StreamsSpec,
    testbed: &Testbed,
    work: impl FnOnce(&mut LiveStreams<'_, '_>) -> Result<R, Error>,
) -> Result<R, Error> {
    live::session(
        spec,
        &Setup { flows: FLOWS_OF_SESSION, largest: LARGEST_OF_SESSION, most_pps: Some(0.0) },
        testbed,
        work,
    )
}

impl StreamSpec {
    /// The course of the rate.
    ///
    /// # Errors
    /// Fails if a rate is not possible.
    fn course(&self, speed: Option<LinkSpeed>) -> Result<Course, Error> {
        let mean = self.shape.sizes.mean_bytes();
        let pps = self.rate.packets_per_second_for(mean, speed, self.duration)?;
        let ramp = self.ramp.map(|ramp| ramp.between(None, pps, mean, speed)).transpose()?;
        Ok(Course { delay: self.delay, warm_up: self.warm_up, ramp, pps, duration: self.duration })
    }

    /// The spec of the stream alone, which test beds and stations are made for: from the first port to the second.
    fn alone(&self) -> TrafficSpec {
        let shape = if self.reverse { self.shape.clone().reversed() } else { self.shape.clone() };
        TrafficSpec { both: self.reverse, ..TrafficSpec::for_shape(shape) }
    }

    fn check(&self) -> Result<(), Error> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if self.name.is_empty() || self.name.len() > NAME_MAX || !self.name.chars().all(plain) {
            return Err(Error::Asked(format!(
                "`{}`: the name of a stream has 1 to {NAME_MAX} letters, digits, `-`, `_` and `.`",
                self.name
            )));
        }
        if self.duration.is_none() && self.packets == Some(0) {
            return Err(Error::Asked("0 packets: a stream has at least one".to_owned()));
        }
        Ok(())
    }

    fn named(&self, error: impl Into<Error>) -> Error {
        match error.into() {
            Error::Asked(why) => Error::Asked(format!("stream `{}`: {why}", self.name)),
            other => other,
        }
    }
}

impl RampSpec {
    /// The ramp to a rate, from this one unless the ramp names another.
    fn between(
        &self,
        present: Option<f64>,
        to: Option<f64>,
        mean_bytes: f64,
        speed: Option<LinkSpeed>,
    ) -> Result<Ramp, Error> {
        let named = self.from.map(|rate| rate.packets_per_second(mean_bytes, speed)).transpose()?;
        match (named.flatten().or(present), to) {
            (Some(from), Some(to)) => Ok(Ramp { from, to, time: self.time, steps: self.steps }),
            _ => Err(Error::Asked(
                "a ramp needs two rates, and `max` is none; give them in pps or bit".to_owned(),
            )),
        }
    }
}
