//! The plan of a measurement, and its course: each router in turn, as often as there are runs.

use super::{
    CapacitySearch, Measured, NatMetric, Report,
    gateway::{Gateway, Router},
    measure,
};
use crate::{
    Doubt, Progress, ResultsFile,
    search::{Goal, Range},
    throughput::{Engine, unless_stopped},
    traffic::{Error, Session, Testbed, TrafficSpec, session},
    turns::in_turn,
};
use std::{
    net::Ipv4Addr,
    sync::atomic::{AtomicBool, Ordering},
};

/// Rate at which connections are opened if neither a rate was given nor the establishment rate is known.
const OPEN_PPS: f64 = 20_000.0;
/// Where no rate is measured, connections are opened at this share of the establishment rate.
const OPEN_SHARE: f64 = 0.5;

/// The plan of a measurement.
#[derive(Debug, Clone)]
pub struct NatPlan {
    /// The traffic: listed flows, both ways.
    pub spec: TrafficSpec,
    /// The test bed.
    pub testbed: Testbed,
    /// Engines in a router of our own, by name; None for Linux without Shunt.
    pub engines: Vec<(String, Option<Engine>)>,
    /// The quantities to measure.
    pub metrics: Vec<NatMetric>,
    /// Number of connections of the establishment rate and the tear-down rate.
    pub connections: u32,
    /// Numbers of sessions for throughput.
    pub sessions: Vec<u32>,
    /// The search for the capacity.
    pub capacity: CapacitySearch,
    /// The range of rates.
    pub range: Range,
    /// Rate at which connections are opened where no rate is measured; None for half of the establishment rate.
    pub open_pps: Option<f64>,
    /// The NAT's address; None accepts any but the initiator's.
    pub nat: Option<Ipv4Addr>,
    /// The command that deletes all connections of a router that is not our own.
    pub empty: Option<String>,
    /// How exactly rates are searched.
    pub effort: Effort,
    /// Number of runs of each router.
    pub runs: u32,
    /// Seed of the order of ports.
    pub seed: u64,
}

/// How exactly rates are searched.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effort {
    /// The goal of the establishment rate. Its durations count trials.
    pub establishment: Goal,
    /// The goal of throughput.
    pub throughput: Goal,
}

impl Effort {
    /// Five trials at a load, half of which may lose; bounds within 1 %; 1 s of throughput in a trial.
    pub const USUAL: Self = Self {
        establishment: Goal { width: 0.01, sum_s: 5.0, ..Goal::NDR },
        throughput: Goal { width: 0.01, sum_s: 5.0, ..Goal::NDR },
    };
    /// One trial at a load; bounds within 10 %; 0.3 s of throughput in a trial.
    pub const QUICK: Self = Self {
        establishment: Goal { width: 0.1, sum_s: 1.0, ..Goal::NDR },
        throughput: Goal { width: 0.1, initial_s: 0.3, final_s: 0.3, sum_s: 0.3, ..Goal::NDR },
    };
}

impl NatPlan {
    /// Number of steps of the progress for one router.
    fn steps(&self) -> u64 {
        let one = |metric: &NatMetric| match metric {
            NatMetric::Throughput => self.sessions.len() as u64,
            _ => 1,
        };
        self.metrics.iter().map(one).sum()
    }

    /// Measures each router in turn, `runs` times, and saves each run when it is over. When `stop` is set, the report
    /// has the runs until then.
    ///
    /// # Errors
    /// Fails if a trial fails or the file cannot be written. Finished runs stay in the file.
    pub fn perform(
        &self,
        mut file: ResultsFile,
        stop: &AtomicBool,
        show: &mut dyn FnMut(Progress),
    ) -> Result<Report, Error> {
        let (steps, routers) = (self.steps(), self.engines.len() as u64);
        let total = steps * u64::from(self.runs) * routers;
        let mut done = 0;
        let mut engines: Vec<_> = self.engines.iter().collect();
        let routers = in_turn((self.runs, &mut engines), (&mut file, stop), |run, engine, file| {
            let mut step = |now: String| {
                show(Progress { done, total, now });
                done += 1;
            };
            self.add_run((run, engine), file, stop, &mut step)
        })?;
        let results = file.end(!stop.load(Ordering::Relaxed))?;
        Ok(Report { routers, results })
    }

    /// Measures a router once, and adds the results to the file. Calls `step` with the name of each step.
    ///
    /// # Errors
    /// Fails if a trial fails, or if `stop` was set before the first result.
    pub(crate) fn add_run(
        &self,
        (run, (device, engine)): (u32, &(String, Option<Engine>)),
        file: &mut ResultsFile,
        stop: &AtomicBool,
        step: &mut dyn FnMut(String),
    ) -> Result<Measured, Error> {
        let mut step = |now: String| {
            unless_stopped(stop)?;
            step(format!("{device}: {now}"));
            Ok(())
        };
        let measured = session(&self.spec, &self.testbed, stop, |session| {
            file.set_nics(session.nics());
            let measured = Measured { device: device.clone(), run, ..Measured::default() };
            self.measure(session, engine.as_ref(), measured, &mut step)
        })?;
        measured.save(file)?;
        Ok(measured)
    }

    fn measure(
        &self,
        session: &mut Session<'_>,
        engine: Option<&Engine>,
        mut measured: Measured,
        step: &mut dyn FnMut(String) -> Result<(), Error>,
    ) -> Result<Measured, Error> {
        if session.nics().iter().any(|nic| nic.driver.as_deref() == Some("veth")) {
            measured.doubts.push(Doubt::VirtualLinks);
        }
        let line_pps = session.limit().map_or(f64::INFINITY, |limit| limit.value);
        let range = Range { max_pps: self.range.max_pps.min(line_pps), ..self.range };
        let mut router = Router::set_up(session, engine, self.empty.as_deref(), self.nat, self.seed)?;
        measured.open_pps = self.open_pps.unwrap_or(OPEN_PPS.min(range.max_pps));
        match self.measure_all(&mut router, range, &mut measured, step) {
            Err(_) if router.is_stopped() && measured.has_results() => {}
            done => done?,
        }
        router.empty()?;
        router.down()?;
        Ok(measured)
    }

    /// Stops at the first error; `measured` has the results until then.
    fn measure_all(
        &self,
        router: &mut Router<'_, '_>,
        range: Range,
        measured: &mut Measured,
        step: &mut dyn FnMut(String) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let wants = |metric| self.metrics.contains(&metric);
        if wants(NatMetric::Establishment) {
            step("connection establishment rate".to_owned())?;
            let goal = self.effort.establishment;
            let found = measure::establishment(router, self.connections, goal, range)?;
            if let (None, Some(pps)) = (self.open_pps, found.result.throughput_pps) {
                measured.open_pps = pps * OPEN_SHARE;
            }
            measured.establishment = Some(found);
        }
        let pps = measured.open_pps;
        if wants(NatMetric::TearDown) {
            step("connection tear-down rate".to_owned())?;
            measured.tear_down = Some(measure::tear_down(router, self.connections, pps)?);
        }
        if wants(NatMetric::Capacity) {
            step("capacity".to_owned())?;
            measured.capacity = Some(measure::capacity(router, self.capacity, pps)?);
        }
        if wants(NatMetric::Throughput) {
            for sessions in &self.sessions {
                step(format!("throughput with {sessions} sessions"))?;
                let goal = self.effort.throughput;
                measured.throughput.push(measure::throughput(router, *sessions, pps, goal, range)?);
            }
        }
        Ok(())
    }
}
