//! Maximum receive rate (MRR, as in FD.io's CSIT) of routers by frame size: all that arrives when the generator sends
//! as fast as it can. Routers are measured in turn, so that changes over time affect all of them.

mod effect;
mod runs;
mod series;

use crate::{
    Doubt, Labels, Limit, Measured, PathLabel, Progress, Reading, Results, ResultsFile, Spread,
    dut::{self, Dut},
    throughput::Engine,
    traffic::{Error, Testbed, TrafficSpec, Variant},
};
pub use effect::{Cost, Effect};
use runs::Runs;
use serde::{Deserialize, Serialize};
use series::Series;
use shunt_gen::{Schedule, Sizes};
use shunt_wire::line::LinkSpeed;
use std::{
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
    /// MTUs of all links of a router of our own, each of which is measured with the frames that fit it; empty for one
    /// that is large enough.
    pub mtus: Vec<u32>,
    /// Number of trials of each router at each size.
    pub rounds: u32,
    /// Duration of each trial.
    pub trial: Duration,
    /// The DUT, if its load is to be read.
    pub dut: Option<Dut>,
    /// Whether to measure the load of a router of our own.
    pub own_load: bool,
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
    /// MTU of all links, if it was chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
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
    /// Load of the router's CPUs in percent: the median of the runs; None if it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dut_load_percent: Option<f64>,
    /// The same in percent of one core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dut_core_percent: Option<f64>,
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
        let mut all = self.series();
        let line = Runs::new(self, &mut file, stop, show)?.perform(&mut all)?;
        let mut report = self.report(&all, speed, line, file.results().clone());
        for Point { router, frame_bytes, mtu, forwarded_pps, .. } in &report.points {
            let name = self.variant(*mtu).name(&format!("{router} {frame_bytes}"));
            forwarded_pps.doubts.iter().for_each(|doubt| file.add_doubt(&name, doubt.clone()));
        }
        let stopped = stop.load(Ordering::Relaxed);
        report.results = file.end(!stopped)?;
        if stopped {
            report.doubts.push(Doubt::Interrupted);
        }
        Ok(report)
    }

    /// A frame size that fits none of the MTUs; None if each fits one.
    pub fn without_mtu(&self) -> Option<u32> {
        let fits = |bytes: u32| self.mtus.iter().any(|mtu| self.spec.l3_bytes(bytes) <= *mtu);
        self.frame_bytes.iter().copied().find(|bytes| !self.mtus.is_empty() && !fits(*bytes))
    }

    /// The packets before each trial.
    pub fn warm_up(&self) -> Schedule {
        self.spec.warm_up_for_all(WARM_UP)
    }

    /// The MTUs to measure; None for one that is large enough.
    fn all_mtus(&self) -> Vec<Option<u32>> {
        match &self.mtus[..] {
            [] => vec![None],
            some => some.iter().copied().map(Some).collect(),
        }
    }

    fn variant(&self, mtu: Option<u32>) -> Variant {
        let variant = self.spec.variant_of_sum();
        mtu.map_or(variant.clone(), |mtu| variant.and(&format!("MTU {mtu}")))
    }

    /// By MTU, router and size, without frames that do not fit the MTU.
    fn series(&self) -> Vec<Series> {
        let of = |mtu: Option<u32>, router: &String, frame_bytes| Series {
            router: router.clone(),
            frame_bytes,
            mtu,
            variant: self.variant(mtu),
            labels: Labels {
                quantity: Some(Measured::Received),
                engine: PathLabel::from_name(router),
                frame_bytes: Some(frame_bytes),
                mtu,
                ..self.spec.labels(&self.testbed)
            },
            is_own: self.testbed == Testbed::Own,
            runs: Vec::new(),
            generator_pps: None,
            dut_loads: Vec::new(),
            doubts: Vec::new(),
        };
        let fits = |mtu: Option<u32>, bytes: u32| mtu.is_none_or(|mtu| self.spec.l3_bytes(bytes) <= mtu);
        let mut all = Vec::new();
        for mtu in self.all_mtus() {
            for (router, _) in &self.engines {
                let sizes = self.frame_bytes.iter().filter(|bytes| fits(mtu, **bytes));
                all.extend(sizes.map(|bytes| of(mtu, router, *bytes)));
            }
        }
        all
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
        let frames = |point: &Point| (point.mtu, point.frame_bytes);
        let first: Vec<((Option<u32>, u32), Reading)> =
            self.engines.first().map_or(Vec::new(), |(name, _)| {
                let own = points.iter().filter(|point| point.router == *name);
                own.map(|point| (frames(point), point.forwarded_pps.clone())).collect()
            });
        for point in &mut points {
            let same_size = first.iter().find(|(of, _)| *of == frames(point));
            let other = self.engines.first().is_some_and(|(name, _)| *name != point.router);
            point.gain =
                same_size.filter(|_| other).and_then(|(_, base)| Gain::against(&point.forwarded_pps, base));
        }
        let of = |mtu: Option<u32>, router: &String| {
            let own = points.iter().filter(|point| point.router == *router && point.mtu == mtu);
            let name = mtu.map_or(router.clone(), |mtu| format!("{router}, MTU {mtu}"));
            Effect::between_sizes(&name, &own.collect::<Vec<_>>())
        };
        let of_mtu = |mtu| self.engines.iter().filter_map(move |(name, _)| of(mtu, name));
        let effects = self.all_mtus().into_iter().flat_map(of_mtu).collect();
        let speed_bps = speed.map(LinkSpeed::bits_per_second);
        let variant = self.variant(None);
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
