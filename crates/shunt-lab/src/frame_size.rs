//! Maximum receive rate (MRR, as in FD.io's CSIT) of routers by frame size: all that arrives when the generator sends
//! as fast as it can. Routers are measured in turn, so that changes over time affect all of them.

mod effect;
mod series;

use crate::{
    Doubt, Labels, Limit, Measured, PathLabel, Progress, Reading, Results, ResultsFile, Spread,
    dut::{self, Dut},
    load::Load,
    throughput::{Engine, RunningShunt, take_part},
    traffic::{Directed, Error, Session, Testbed, TrafficSpec, Variant, session},
};
pub use effect::{Cost, Effect};
use serde::{Deserialize, Serialize};
use series::Series;
use shunt_gen::{Schedule, Sizes};
use shunt_wire::line::LinkSpeed;
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

/// The frame sizes of RFC 2544, with FCS.
pub const RFC2544_BYTES: [u32; 7] = [64, 128, 256, 512, 1024, 1280, 1518];

/// A rate above this share of the line's rate counts as all of the line.
const WHOLE_LINE: f64 = 0.99;
/// Least duration of a trial: shorter trials miss what happens once a second.
const TRIAL_WANTED_S: f64 = 1.0;
/// Packets before each trial, enough for a fast path to learn the flow and the new size of its packets.
const WARM_UP: Schedule =
    Schedule { pps: Some(20_000.0), burst: 1, packets: None, duration: Some(Duration::from_millis(100)) };

/// The plan of a measurement.
#[derive(Debug)]
pub struct FrameSizePlan {
    /// The traffic, apart from the frame size.
    pub spec: TrafficSpec,
    /// The router under test.
    pub testbed: Testbed,
    /// Engines in a router of our own, by name; None for Linux without Shunt.
    pub engines: Vec<(String, Option<Engine>)>,
    /// Frame sizes with FCS, in bytes.
    pub frame_bytes: Vec<u32>,
    /// Number of trials of each router at each size.
    pub rounds: u32,
    /// Duration of each trial.
    pub trial: Duration,
    /// The DUT, if its load is to be read.
    pub dut: Option<Dut>,
}

/// The result of a measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Reasons why the figures may be wrong.
    pub doubts: Vec<Doubt>,
    /// How the traffic differs from one flow of IPv4 without NAT.
    #[serde(default, skip_serializing_if = "Variant::is_empty")]
    pub variant: Variant,
    /// Speed of the line in bit/s, above which nothing was offered; None if unknown.
    pub speed_bps: Option<u64>,
    /// Duration of each trial in seconds.
    pub trial_s: f64,
    /// The points, by router and size.
    pub points: Vec<Point>,
    /// The effect of the frame size, by router.
    pub effects: Vec<Effect>,
    /// All readings, with doubts and conditions.
    #[serde(flatten, serialize_with = "Results::serialize_file")]
    pub results: Results,
}

/// A router at one frame size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Name of the router: the engine, or `dut`.
    pub router: String,
    /// Size of each frame with FCS, in bytes.
    pub frame_bytes: u32,
    /// Received frames/s.
    pub forwarded_pps: Reading,
    /// Received bit/s of frames with FCS.
    pub l2_bps: f64,
    /// Received bit/s with preamble and gap.
    pub l1_bps: f64,
    /// Received rate as a share of what the line, or both directions of it, can carry; None if the speed is unknown.
    pub line_share: Option<f64>,
    /// Sent frames/s.
    pub offered_pps: f64,
    /// Share of the sent frames that were lost.
    pub loss_ratio: f64,
    /// Frames/s that the generator reaches with nothing in between.
    pub generator_pps: Option<f64>,
    /// Load of the DUT's CPUs in percent: the median of the runs; None without an agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dut_load_percent: Option<f64>,
    /// Rate against the first router, in paired runs; None for the first router itself, or if a sender was held up.
    pub gain: Option<Gain>,
}

/// A ratio with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// The median ratio.
    pub value: f64,
    /// The confidence interval.
    pub spread: Spread,
}

impl FrameSizePlan {
    /// Measures. When `stop` is set, the measurement ends at once and returns the finished trials.
    ///
    /// # Errors
    /// Fails if the plan is not possible or the operating system returns an error. The setup is undone, and finished
    /// trials stay in the file.
    pub fn perform(
        &self,
        mut file: ResultsFile,
        stop: &AtomicBool,
        show: &mut dyn FnMut(Progress),
    ) -> Result<Report, Error> {
        file.conditions_mut().dut = dut::conditions(&self.dut);
        let speed = self.testbed.speed(self.spec.speed);
        let schedules = self.schedules(speed)?;
        let largest = self.frame_bytes.iter().copied().max().unwrap_or_default();
        let mut spec = self.spec.clone();
        spec.shape.sizes = Sizes::fixed(largest)?;
        let mut all = self.series();
        let line = session(&spec, &self.testbed, stop, |session| {
            take_part(session, &mut file)?;
            let line = session.line_speed();
            let total = u64::from(self.rounds) * all.len() as u64;
            let mut done = 0;
            let generator = self.generator(session, &schedules)?;
            for _ in 0..self.rounds {
                for of_router in all.chunks_mut(self.frame_bytes.len()) {
                    let up = self.up(&of_router[0].router, session)?;
                    for (series, (sizes, schedule)) in of_router.iter_mut().zip(&schedules) {
                        let now = format!("{}, {} bytes", series.router, series.frame_bytes);
                        show(Progress { done, total, now });
                        let (directed, load) = self.trial(session, sizes, schedule)?;
                        if stop.load(Ordering::Relaxed) {
                            return Ok(line);
                        }
                        series.generator_pps = generator.get(&series.frame_bytes).copied();
                        series.add(&directed);
                        series.dut_loads.extend(load);
                        series.save(&mut file, self.limit(series.frame_bytes, line))?;
                        file.save()?;
                        done += 1;
                    }
                    up.map(RunningShunt::down).transpose()?;
                }
            }
            Ok::<_, Error>(line)
        })?;
        let mut report = self.report(&all, speed, line, file.results().clone());
        for Point { router, frame_bytes, forwarded_pps, .. } in &report.points {
            let name = report.variant.name(&format!("{router} {frame_bytes}"));
            forwarded_pps.doubts.iter().for_each(|doubt| file.add_doubt(&name, doubt.clone()));
        }
        let stopped = stop.load(Ordering::Relaxed);
        report.results = file.end(!stopped)?;
        if stopped {
            report.doubts.push(Doubt::Interrupted);
        }
        Ok(report)
    }

    /// The rate to offer at each size: the most that the generator or the line can do.
    fn schedules(&self, speed: Option<LinkSpeed>) -> Result<Vec<(Sizes, Schedule)>, Error> {
        let of = |bytes: &u32| {
            let sizes = Sizes::fixed(*bytes)?;
            let pps = speed.map(|speed| speed.frames_per_second(sizes.mean_bytes()));
            let burst = self.spec.burst;
            Ok((sizes, Schedule { pps, burst, packets: None, duration: Some(self.trial) }))
        };
        self.frame_bytes.iter().map(of).collect()
    }

    /// The generator's own rate at each size, over all directions; fewer sizes if the measurement is interrupted.
    fn generator(
        &self,
        session: &mut Session,
        schedules: &[(Sizes, Schedule)],
    ) -> Result<BTreeMap<u32, f64>, Error> {
        let directions = if self.spec.both { 2.0 } else { 1.0 };
        let mut most = BTreeMap::new();
        for (bytes, (sizes, schedule)) in self.frame_bytes.iter().zip(schedules) {
            if session.stopped() {
                break;
            }
            session.resize(sizes)?;
            let floor = session.floor(&Schedule { pps: None, ..*schedule })?;
            most.insert(*bytes, floor.max_pps * directions);
        }
        Ok(most)
    }

    /// The packets before each trial.
    pub fn warm_up(&self) -> Schedule {
        self.spec.warm_up_for_all(WARM_UP)
    }

    fn series(&self) -> Vec<Series> {
        let of = |router: &String, frame_bytes| Series {
            router: router.clone(),
            frame_bytes,
            variant: self.spec.variant(),
            labels: Labels {
                quantity: Some(Measured::Received),
                engine: PathLabel::from_name(router),
                frame_bytes: Some(frame_bytes),
                ..self.spec.labels(&self.testbed)
            },
            runs: Vec::new(),
            generator_pps: None,
            dut_loads: Vec::new(),
            doubts: Vec::new(),
        };
        let routers = self.engines.iter().map(|(name, _)| name);
        routers.flat_map(|name| self.frame_bytes.iter().map(move |bytes| of(name, *bytes))).collect()
    }

    fn up<'n, 's: 'n>(
        &'n self,
        name: &str,
        session: &mut Session<'s>,
    ) -> Result<Option<RunningShunt<'n>>, Error> {
        let engine = self.engines.iter().find(|(other, _)| other == name).and_then(|(_, e)| e.as_ref());
        RunningShunt::beside(session, engine)
    }

    fn trial(
        &self,
        session: &mut Session,
        sizes: &Sizes,
        schedule: &Schedule,
    ) -> Result<(Vec<Directed>, Option<Load>), Error> {
        session.resize(sizes)?;
        session.run(&self.warm_up())?;
        dut::run(session, schedule, &self.dut, || Ok(()))
    }

    /// The line's limit for all directions together.
    fn limit(&self, frame_bytes: u32, line: Option<LinkSpeed>) -> Option<Limit> {
        let lines = if self.spec.both { 2 } else { 1 };
        Some(Limit::for_line(line?, &Sizes::fixed(frame_bytes).ok()?, lines))
    }

    /// The sending line limits what is offered, and the slower line limits what arrives.
    fn report(
        &self,
        all: &[Series],
        speed: Option<LinkSpeed>,
        line: Option<LinkSpeed>,
        results: Results,
    ) -> Report {
        let mut doubts = results.conditions.doubts();
        let trial_s = self.trial.as_secs_f64();
        if trial_s < TRIAL_WANTED_S {
            doubts.push(Doubt::TooShort { seconds: trial_s, wanted: TRIAL_WANTED_S });
        }
        let of = |series: &Series| series.point(self.limit(series.frame_bytes, line));
        let mut points: Vec<Point> = all.iter().filter_map(of).collect();
        let first: Vec<(u32, Reading)> = self.engines.first().map_or(Vec::new(), |(name, _)| {
            let own = points.iter().filter(|point| point.router == *name);
            own.map(|point| (point.frame_bytes, point.forwarded_pps.clone())).collect()
        });
        for point in &mut points {
            let same_size = first.iter().find(|(bytes, _)| *bytes == point.frame_bytes);
            let other = self.engines.first().is_some_and(|(name, _)| *name != point.router);
            point.gain =
                same_size.filter(|_| other).and_then(|(_, base)| Gain::against(&point.forwarded_pps, base));
        }
        let of = |(name, _): &(String, Option<Engine>)| {
            let own: Vec<&Point> = points.iter().filter(|point| point.router == *name).collect();
            Effect::between_sizes(name, &own)
        };
        let effects = self.engines.iter().filter_map(of).collect();
        let speed_bps = speed.map(LinkSpeed::bits_per_second);
        let variant = self.spec.variant();
        Report { doubts, variant, speed_bps, trial_s, points, effects, results }
    }
}

impl Gain {
    fn against(reading: &Reading, base: &Reading) -> Option<Self> {
        if reading.doubts.iter().chain(&base.doubts).any(Doubt::is_held_up) {
            return None;
        }
        // After an interrupt, some runs have no counterpart.
        let pairs = reading.runs.len().min(base.runs.len());
        let first = |reading: &Reading| Reading::from_runs("pps", reading.runs[..pairs].to_vec());
        let ratio = Reading::ratio(&first(reading)?, &first(base)?)?;
        Some(Self { value: ratio.value, spread: ratio.spread })
    }
}

#[cfg(test)]
mod tests;
