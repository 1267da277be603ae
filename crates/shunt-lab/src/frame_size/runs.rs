//! The trials: each router at each size, in turn.

use super::{FrameSizePlan, Series};
use crate::{
    Progress, ResultsFile,
    dut::{self, LoadMeter},
    load::Load,
    throughput::{RunningShunt, take_part},
    traffic::{Directed, Error, Session, TrafficSpec, session},
};
use shunt_gen::{Schedule, Sizes};
use shunt_wire::line::LinkSpeed;
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
};

/// What is sent in a trial.
type Offered = (Sizes, Schedule);

pub(super) struct Runs<'r> {
    plan: &'r FrameSizePlan,
    /// The most that the generator or the line can do, by size.
    offered: BTreeMap<u32, Offered>,
    /// The generator's own rate over all directions, by size.
    generator: BTreeMap<u32, f64>,
    file: &'r mut ResultsFile,
    stop: &'r AtomicBool,
    show: &'r mut dyn FnMut(Progress),
    done: u64,
    total: u64,
}

impl<'r> Runs<'r> {
    pub(super) fn new(
        plan: &'r FrameSizePlan,
        file: &'r mut ResultsFile,
        stop: &'r AtomicBool,
        show: &'r mut dyn FnMut(Progress),
    ) -> Result<Self, Error> {
        let speed = plan.testbed.speed(plan.spec.speed);
        let of = |bytes: &u32| {
            let sizes = Sizes::fixed(*bytes)?;
            let pps = speed.map(|speed| speed.frames_per_second(sizes.mean_bytes()));
            let burst = plan.spec.burst;
            let schedule = Schedule { pps, burst, packets: None, duration: Some(plan.trial) };
            Ok::<_, Error>((*bytes, (sizes, schedule)))
        };
        let offered = plan.frame_bytes.iter().map(of).collect::<Result<_, _>>()?;
        Ok(Self { plan, offered, generator: BTreeMap::new(), file, stop, show, done: 0, total: 0 })
    }

    /// Measures all series, and returns the speed of the line.
    pub(super) fn perform(&mut self, all: &mut [Series]) -> Result<Option<LinkSpeed>, Error> {
        self.total = u64::from(self.plan.rounds) * all.len() as u64;
        let mtus = self.plan.all_mtus();
        // One MTU stays set; several of them take turns in each round.
        let (turns, rounds) = if mtus.len() > 1 { (self.plan.rounds, 1) } else { (1, self.plan.rounds) };
        let mut line = None;
        for _ in 0..turns {
            for mtu in &mtus {
                let of_mtu: Vec<&mut Series> = all.iter_mut().filter(|series| series.mtu == *mtu).collect();
                if of_mtu.is_empty() || self.is_stopped() {
                    continue;
                }
                line = self.with_mtu(*mtu, rounds, of_mtu)?;
            }
        }
        Ok(line)
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn with_mtu(
        &mut self,
        mtu: Option<u32>,
        rounds: u32,
        mut all: Vec<&mut Series>,
    ) -> Result<Option<LinkSpeed>, Error> {
        let largest = all.iter().map(|series| series.frame_bytes).max().unwrap_or_default();
        let mut spec = TrafficSpec { mtu, ..self.plan.spec.clone() };
        spec.shape.sizes = Sizes::fixed(largest)?;
        session(&spec, &self.plan.testbed, self.stop, |session| {
            take_part(session, self.file)?;
            let line = session.line_speed();
            self.measure_generator(session, &all)?;
            for _ in 0..rounds {
                for of_router in all.chunk_by_mut(|one, next| one.router == next.router) {
                    self.router(session, of_router, line)?;
                    if self.is_stopped() {
                        return Ok(line);
                    }
                }
            }
            Ok::<_, Error>(line)
        })
    }

    /// One run of a router at each size.
    fn router(
        &mut self,
        session: &mut Session<'_>,
        all: &mut [&mut Series],
        line: Option<LinkSpeed>,
    ) -> Result<(), Error> {
        let plan = self.plan;
        let engine = plan.engines.iter().find(|(name, _)| *name == all[0].router);
        let up = RunningShunt::beside(session, engine.and_then(|(_, engine)| engine.as_ref()))?;
        let meter = LoadMeter::for_router(session, &plan.dut, plan.own_load)?;
        for series in all {
            let now = format!("{}, {} bytes", series.router, series.frame_bytes);
            (self.show)(Progress { done: self.done, total: self.total, now });
            let before = up.as_ref().map(RunningShunt::packets).transpose()?;
            let (directed, load) = self.trial(session, series.frame_bytes, &meter)?;
            if self.is_stopped() {
                return Ok(());
            }
            if let Some((up, before)) = up.as_ref().zip(before) {
                let doubt = up.slow_path_since(before)?;
                doubt.into_iter().for_each(|doubt| doubt.add_to(&mut series.doubts));
            }
            series.generator_pps = self.generator.get(&series.frame_bytes).copied();
            series.add(&directed);
            series.dut_loads.extend(load);
            series.save(self.file, plan.limit(series.frame_bytes, line))?;
            self.file.save()?;
            self.done += 1;
        }
        up.map_or(Ok(()), RunningShunt::down)
    }

    fn trial(
        &self,
        session: &mut Session<'_>,
        frame_bytes: u32,
        meter: &LoadMeter<'_>,
    ) -> Result<(Vec<Directed>, Option<Load>), Error> {
        let (sizes, schedule) = &self.offered[&frame_bytes];
        session.resize(sizes)?;
        session.run(&self.plan.warm_up())?;
        dut::run(session, schedule, meter, || Ok(()))
    }

    /// Measures the generator's own rate at sizes that are new; at fewer if the measurement is interrupted.
    fn measure_generator(&mut self, session: &mut Session<'_>, all: &[&mut Series]) -> Result<(), Error> {
        let directions = if self.plan.spec.both { 2.0 } else { 1.0 };
        for series in all {
            if self.is_stopped() {
                break;
            }
            if self.generator.contains_key(&series.frame_bytes) {
                continue;
            }
            let (sizes, schedule) = &self.offered[&series.frame_bytes];
            session.resize(sizes)?;
            let floor = session.floor(&Schedule { pps: None, ..*schedule })?;
            self.generator.insert(series.frame_bytes, floor.max_pps * directions);
        }
        Ok(())
    }
}
