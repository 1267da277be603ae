//! How fast routers forward all that comes, against the size of the frames: the maximum receive rate (MRR) of FD.io's CSIT, for one size
//! after the other. What forwards changes in turn, so that what changes with time is in all of them.

mod effect;

use crate::{
    Conditions, Doubt, Kept, Limit, Position, Progress, Reading, Run, Spread,
    dut::{self, Inside},
    load::Load,
    net::NetNs,
    statistics::median,
    throughput::{Engine, Up, take_part},
    traffic::{Directed, Error, Figures, Place, Session, Wanted, session},
};
pub use effect::{Cost, Effect};
use serde::Serialize;
use serde_json::json;
use shunt_gen::{Schedule, Sizes};
use shunt_wire::line::{LinkSpeed, WIRE_OVERHEAD_BYTES};
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

/// Those of RFC 2544, with FCS.
pub const RFC2544_BYTES: [u32; 7] = [64, 128, 256, 512, 1024, 1280, 1518];

/// A router that loses less than this of what comes was not the limit.
const TOOK_ALL: f64 = 0.001;
/// What forwards this share of what the generator can do with nothing in between says nothing of a router that loses nothing.
const GENERATOR: f64 = 0.9;
/// As much of the line is all of it.
const WHOLE_LINE: f64 = 0.99;
/// Runs that differ by more than this share of their median are noisy.
const NOISY: f64 = 0.1;
/// Shorter trials miss what happens once a second.
const TRIAL_WANTED_S: f64 = 1.0;
/// Enough for a fast path to learn the flow, at the new size of its packets too.
const WARM_UP: Schedule =
    Schedule { pps: Some(20_000.0), burst: 1, packets: None, duration: Some(Duration::from_millis(100)) };

/// What is to be measured.
#[derive(Debug)]
pub struct Plan {
    /// The frames, apart from their size.
    pub wanted: Wanted,
    /// Where the router is.
    pub place: Place,
    /// What forwards in a router of our own, by name; none: Linux.
    pub engines: Vec<(String, Option<Engine>)>,
    /// Of frames, with FCS.
    pub frame_bytes: Vec<u32>,
    /// How often each is measured.
    pub rounds: u32,
    /// How long each time.
    pub trial: Duration,
    /// Whose load is read as well.
    pub dut: Inside,
}

/// What was found out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Why the figures may be wrong: read these first.
    pub doubts: Vec<Doubt>,
    /// Of the link, in bit/s, where it is known: no more was offered.
    pub speed_bps: Option<u64>,
    /// Of each trial.
    pub trial_s: f64,
    /// By router and size.
    pub points: Vec<Point>,
    /// By router.
    pub effects: Vec<Effect>,
    /// Where and how.
    pub conditions: Conditions,
}

/// One router at one size.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    /// What forwards.
    pub router: String,
    /// Of each frame, with FCS.
    pub frame_bytes: u32,
    /// Frames/s that arrived.
    pub forwarded_pps: Reading,
    /// The same in bit/s of frames with FCS.
    pub l2_bps: f64,
    /// The same with preamble and gap.
    pub l1_bps: f64,
    /// Of what the line carries, or both directions of it, if its speed is known.
    pub line_share: Option<f64>,
    /// Frames/s that were sent.
    pub offered_pps: f64,
    /// Of them, the share that did not arrive.
    pub loss_ratio: f64,
    /// Frames/s that the generator can send with nothing in between.
    pub generator_pps: Option<f64>,
    /// Of the DUT's CPUs, in percent of their time: the median of the runs, if the DUT tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dut_load_percent: Option<f64>,
    /// Against the router that is named first, in pairs of runs; none for that one itself.
    pub gain: Option<Gain>,
}

/// A ratio.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Gain {
    /// The median.
    pub value: f64,
    /// How far it may be off.
    pub spread: Spread,
}

/// The runs of one router at one size.
struct Series {
    router: String,
    frame_bytes: u32,
    runs: Vec<Figures>,
    generator_pps: Option<f64>,
    dut_loads: Vec<Load>,
    doubts: Vec<Doubt>,
}

impl Plan {
    /// Measures. When `stop` is set it ends at once, with the trials that were over.
    ///
    /// # Errors
    /// When it cannot be as asked, or the machine refuses. What was set up is undone, and the trials until then are kept.
    pub fn perform(
        &self,
        mut kept: Option<&mut Kept>,
        mut conditions: Conditions,
        stop: &AtomicBool,
        show: &mut dyn FnMut(Progress),
    ) -> Result<Report, Error> {
        conditions.dut = dut::conditions(&self.dut);
        let speed = self.place.speed(self.wanted.speed);
        let schedules = self.schedules(speed)?;
        let largest = self.frame_bytes.iter().copied().max().unwrap_or_default();
        let mut wanted = self.wanted.clone();
        wanted.shape.sizes = Sizes::fixed(largest)?;
        let mut all = self.series();
        let line = session(&wanted, &self.place, stop, |session| {
            let router = take_part(session, &mut conditions, kept.as_deref_mut())?;
            let line = session.line_speed();
            let total = u64::from(self.rounds) * all.len() as u64;
            let mut done = 0;
            let generator = self.generator(session, &schedules)?;
            for _ in 0..self.rounds {
                for of_router in all.chunks_mut(self.frame_bytes.len()) {
                    let up = self.up(&of_router[0].router, router)?;
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
                        if let Some(kept) = &mut kept {
                            series.keep(kept, self.limit(series.frame_bytes, line))?;
                        }
                        done += 1;
                    }
                    up.map(Up::down).transpose()?;
                }
            }
            Ok::<_, Error>(line)
        })?;
        let mut report = self.report(&all, speed, line, conditions);
        if let Some(kept) = kept {
            for Point { router, frame_bytes, forwarded_pps, .. } in &report.points {
                let name = format!("{router} {frame_bytes}");
                forwarded_pps.doubts.iter().for_each(|doubt| kept.doubt(&name, doubt.clone()));
            }
        }
        if stop.load(Ordering::Relaxed) {
            report.doubts.push(Doubt::Interrupted);
        }
        Ok(report)
    }

    /// For each size what is offered: all that the generator can, or that the line carries.
    fn schedules(&self, speed: Option<LinkSpeed>) -> Result<Vec<(Sizes, Schedule)>, Error> {
        let of = |bytes: &u32| {
            let sizes = Sizes::fixed(*bytes)?;
            let pps = speed.map(|speed| speed.frames_per_second(sizes.mean_bytes()));
            let burst = self.wanted.burst;
            Ok((sizes, Schedule { pps, burst, packets: None, duration: Some(self.trial) }))
        };
        self.frame_bytes.iter().map(of).collect()
    }

    /// What the generator can do at each size, in all directions; less sizes when it is interrupted.
    fn generator(
        &self,
        session: &mut Session,
        schedules: &[(Sizes, Schedule)],
    ) -> Result<BTreeMap<u32, f64>, Error> {
        let directions = if self.wanted.both { 2.0 } else { 1.0 };
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

    fn series(&self) -> Vec<Series> {
        let of = |router: &String, frame_bytes| Series {
            router: router.clone(),
            frame_bytes,
            runs: Vec::new(),
            generator_pps: None,
            dut_loads: Vec::new(),
            doubts: Vec::new(),
        };
        let routers = self.engines.iter().map(|(name, _)| name);
        routers.flat_map(|name| self.frame_bytes.iter().map(move |bytes| of(name, *bytes))).collect()
    }

    fn up<'n>(&'n self, name: &str, router: Option<&'n NetNs>) -> Result<Option<Up<'n>>, Error> {
        let engine = self.engines.iter().find(|(other, _)| other == name).and_then(|(_, e)| e.as_ref());
        Up::new(router, engine)
    }

    fn trial(
        &self,
        session: &mut Session,
        sizes: &Sizes,
        schedule: &Schedule,
    ) -> Result<(Vec<Directed>, Option<Load>), Error> {
        session.resize(sizes)?;
        session.run(&WARM_UP)?;
        dut::run(session, schedule, &self.dut)
    }

    /// Of all directions together.
    fn limit(&self, frame_bytes: u32, line: Option<LinkSpeed>) -> Option<Limit> {
        let lines = if self.wanted.both { 2 } else { 1 };
        Some(Limit::of_line(line?, &Sizes::fixed(frame_bytes).ok()?, lines))
    }

    /// What was offered is limited by the speed of the line that sends, and what can arrive by that of the slower line.
    fn report(
        &self,
        all: &[Series],
        speed: Option<LinkSpeed>,
        line: Option<LinkSpeed>,
        conditions: Conditions,
    ) -> Report {
        let mut doubts = conditions.doubts();
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
                same_size.filter(|_| other).and_then(|(_, base)| Gain::of(&point.forwarded_pps, base));
        }
        let of = |(name, _): &(String, Option<Engine>)| {
            let own: Vec<&Point> = points.iter().filter(|point| point.router == *name).collect();
            Effect::of(name, &own)
        };
        let effects = self.engines.iter().filter_map(of).collect();
        let speed_bps = speed.map(LinkSpeed::bits_per_second);
        Report { doubts, speed_bps, trial_s, points, effects, conditions }
    }
}

impl Series {
    fn add(&mut self, directed: &[Directed]) {
        let figures = Figures::sum(directed);
        let doubts = directed.iter().flat_map(|one| one.doubts.clone());
        doubts.for_each(|doubt| doubt.add_kind(&mut self.doubts));
        self.runs.push(figures);
    }

    /// What else than the router was the limit, by the medians of the runs.
    fn bound(&self, offered_pps: f64, loss_ratio: f64) -> Option<Doubt> {
        // Where less than this could be sent by the schedule, the line was not the limit.
        let line = self.runs.iter().filter_map(|figures| figures.offered_pps).fold(f64::INFINITY, f64::min);
        if loss_ratio >= TOOK_ALL || offered_pps >= line * WHOLE_LINE {
            return None;
        }
        Some(match self.generator_pps {
            Some(most) if offered_pps < most * GENERATOR => Doubt::SharedCpu,
            _ => Doubt::GeneratorBound,
        })
    }

    fn name(&self) -> String {
        format!("{} {}", self.router, self.frame_bytes)
    }

    /// The last run.
    fn keep(&self, kept: &mut Kept, limit: Option<Limit>) -> std::io::Result<()> {
        let Some(figures) = self.runs.last() else { return Ok(()) };
        kept.add(&self.name(), "pps", run(figures))?;
        limit.into_iter().for_each(|limit| kept.limit(&self.name(), limit));
        let position = Position {
            of: "forwarded".to_owned(),
            line: self.router.clone(),
            along: "frame size".to_owned(),
            unit: "bytes".to_owned(),
            value: f64::from(self.frame_bytes),
        };
        kept.place(&self.name(), position);
        let (when, along) = (
            format!("with {} bytes", self.frame_bytes),
            ("frame size", "bytes", f64::from(self.frame_bytes)),
        );
        dut::keep(kept, &when, self.dut_loads.last(), Some(along))
    }

    fn point(&self, limit: Option<Limit>) -> Option<Point> {
        let mut forwarded_pps = Reading::of_runs("pps", self.runs.iter().map(run).collect())?;
        forwarded_pps.doubts.clone_from(&self.doubts);
        forwarded_pps.set_limit(limit);
        let pps = forwarded_pps.value;
        let apart = (forwarded_pps.spread.high - forwarded_pps.spread.low) / pps;
        if apart > NOISY {
            forwarded_pps.add_doubt(Doubt::Noisy { percent: apart * 100.0 });
        }
        let bits = |bytes: u32| pps * 8.0 * f64::from(bytes);
        let l1_bps = bits(self.frame_bytes + WIRE_OVERHEAD_BYTES);
        let middle = |of: fn(&Figures) -> f64| median(&self.runs.iter().map(of).collect::<Vec<_>>());
        let (offered_pps, loss_ratio) =
            (middle(|figures| figures.achieved_pps)?, middle(|figures| figures.loss_ratio)?);
        self.bound(offered_pps, loss_ratio).into_iter().for_each(|doubt| forwarded_pps.add_doubt(doubt));
        Some(Point {
            router: self.router.clone(),
            frame_bytes: self.frame_bytes,
            l2_bps: bits(self.frame_bytes),
            l1_bps,
            line_share: forwarded_pps.share(pps),
            offered_pps,
            loss_ratio,
            generator_pps: self.generator_pps,
            dut_load_percent: median(
                &self.dut_loads.iter().map(|load| load.load_percent).collect::<Vec<_>>(),
            ),
            forwarded_pps,
            gain: None,
        })
    }
}

fn run(figures: &Figures) -> Run {
    let details = json!({
        "sent": figures.sent, "received": figures.received, "lost": figures.lost, "seconds": figures.seconds,
        "reordered": figures.reordered,
    });
    Run { value: figures.received_pps(), at: None, details: details.as_object().cloned().unwrap_or_default() }
}

impl Gain {
    fn of(reading: &Reading, base: &Reading) -> Option<Self> {
        // An interrupt leaves some without their counterpart.
        let pairs = reading.runs.len().min(base.runs.len());
        let first = |reading: &Reading| Reading::of_runs("pps", reading.runs[..pairs].to_vec());
        let ratio = Reading::ratio(&first(reading)?, &first(base)?, 1)?;
        Some(Self { value: ratio.value, spread: ratio.spread })
    }
}

#[cfg(test)]
mod tests;
