//! `shunt bench ndr`: searches for the highest load that a router forwards.

mod args;
mod connections;
pub(crate) mod view;

use super::testbed::{self, Engines};
use crate::{
    commands::measure::{MeasureContext, Measurement, begin, begin_simulated},
    failure::{traffic_failed, usage},
    render::Answer,
};
pub(super) use args::NdrArgs;
use args::NdrTarget;
use shunt_api::Failure;
use shunt_lab::{
    Conditions,
    dut::Dut,
    search::{Goal, Range, Wrong, simulated::Behaviour},
    throughput::{Device, Engine, Generated, Report, Simulated, ThroughputPlan},
    traffic::{Testbed, TrafficSpec},
};
use std::{path::PathBuf, sync::atomic::AtomicBool, time::Duration};

/// The default of --max-load for simulated routers: 64-byte frames on a line of 1 Gbit/s.
const SIMULATED_MAX_PPS: f64 = 1_488_095.0;

/// Estimates: the duration of a search between namespaces, and the number of trials of a search by halving.
const QUICK_SEARCH_TIME: Duration = Duration::from_secs(60);
const SEARCH_TIME: Duration = Duration::from_secs(300);
const HALVING_TRIALS: u32 = 12;

/// A resolved `shunt bench ndr`.
#[derive(Debug)]
pub(crate) struct NdrBench {
    method: Method,
    min_pps: f64,
    /// None: the rate of the generator without a router.
    max_pps: Option<f64>,
    routers: Routers,
    seed: u64,
    keep: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy)]
struct Method {
    /// The duration of a trial of RFC 2544; none for MLRsearch.
    rfc2544: Option<Duration>,
    quick: bool,
    runs: u32,
}

#[derive(Debug)]
enum Routers {
    Simulated(Vec<Behaviour>),
    Real { spec: Box<TrafficSpec>, testbed: Testbed, engines: Engines, dut: Option<Dut>, own_load: bool },
}

impl NdrBench {
    pub(super) fn resolve(typed: &NdrArgs) -> anyhow::Result<Self> {
        let method = Method { rfc2544: typed.rfc2544, quick: typed.quick, runs: typed.runs };
        let max_pps = match typed.what {
            NdrTarget::Frames if typed.simulate.is_empty() => typed.max_load,
            NdrTarget::Frames => typed.max_load.or(Some(SIMULATED_MAX_PPS)),
            NdrTarget::Connections | NdrTarget::TcpConnections => {
                Some(connections::max_load(typed.max_load, method.longest_trial_s())?)
            }
        };
        let routers = match typed.simulate[..] {
            [] => real_routers(typed, max_pps, method.longest_trial_s())?,
            _ => Routers::Simulated(typed.simulate.clone()),
        };
        let (min_pps, seed, keep) = (typed.min_load, typed.seed, typed.keep.clone());
        let bench = Self { method, min_pps, max_pps, routers, seed, keep };
        // Find a wrong range now, not after an hour of measuring.
        bench.plan(max_pps.unwrap_or(f64::MAX))?;
        Ok(bench)
    }

    fn plan(&self, max_pps: f64) -> Result<ThroughputPlan, Failure> {
        let range = Range { min_pps: self.min_pps, max_pps };
        let Method { rfc2544, quick, runs } = self.method;
        let plan = match rfc2544 {
            Some(trial) => ThroughputPlan::rfc2544(range, runs, trial.as_secs_f64()),
            None => ThroughputPlan::mlrsearch(range, runs, quick),
        };
        plan.map_err(|error: Wrong| usage(error.to_string()))
    }

    fn search<D: Device>(
        &self,
        plan: &ThroughputPlan,
        what: &str,
        stop: &AtomicBool,
        mut conditions: Conditions,
        devices: &mut [D],
    ) -> anyhow::Result<Report>
    where
        D::Error: std::error::Error + Send + Sync + 'static,
    {
        conditions.seed = Some(self.seed);
        let begin = match self.routers {
            Routers::Simulated(_) => begin_simulated,
            Routers::Real { .. } => begin,
        };
        let file = begin(what, self.keep.clone(), conditions)?;
        Ok(plan.perform(devices, file, stop)?)
    }

    fn search_all(&self, context: MeasureContext) -> anyhow::Result<Report> {
        let MeasureContext { stop, conditions, .. } = context;
        let (max_pps, seed) = (self.max_pps, self.seed);
        match &self.routers {
            Routers::Simulated(behaviours) => {
                let mut devices: Vec<_> = (1..)
                    .zip(behaviours)
                    .map(|(n, behaviour)| Simulated::new(format!("simulated-{n}"), *behaviour, seed))
                    .collect();
                let plan = self.plan(max_pps.unwrap_or(SIMULATED_MAX_PPS))?;
                // Results of simulated and real routers must not share a file, so they are named differently.
                self.search(&plan, "throughput of simulated routers", stop, conditions, &mut devices)
            }
            Routers::Real { spec, testbed, engines, dut, own_load } => {
                let device = |(name, engine): &(String, Option<Engine>)| Generated {
                    name: name.clone(),
                    spec: (**spec).clone(),
                    testbed: testbed.clone(),
                    engine: engine.clone(),
                    stop: stop.clone(),
                    nics: Vec::new(),
                    limit: None,
                    dut: dut.clone(),
                    own_load: *own_load,
                };
                let mut devices: Vec<_> = engines.iter().map(device).collect();
                let max_pps = match (max_pps, devices.first()) {
                    (None, Some(device)) => device.generator_max_pps().map_err(traffic_failed)?,
                    (given, _) => given.unwrap_or(SIMULATED_MAX_PPS),
                };
                let what = match (spec.answered, spec.shape.tcp) {
                    (true, None) => "connection rate",
                    (true, Some(_)) => "TCP connection rate",
                    (false, _) => "throughput",
                };
                let report = self.search(&self.plan(max_pps)?, what, stop, conditions, &mut devices);
                report.map_err(|error| {
                    error.downcast().map_or_else(|other| other, |error| traffic_failed(error).into())
                })
            }
        }
    }
}

impl Measurement for NdrBench {
    fn expected_duration(&self) -> Duration {
        let Method { rfc2544, quick, runs } = self.method;
        let search = match (rfc2544, quick) {
            (Some(trial), _) => trial * HALVING_TRIALS,
            (None, true) => QUICK_SEARCH_TIME,
            (None, false) => SEARCH_TIME,
        };
        match &self.routers {
            Routers::Simulated(_) => Duration::ZERO,
            Routers::Real { engines, .. } => search * runs * engines.len() as u32,
        }
    }

    fn needs_root(&self) -> bool {
        !matches!(self.routers, Routers::Simulated(_))
    }

    fn measure(self: Box<Self>, context: MeasureContext) -> anyhow::Result<Box<dyn Answer + Send>> {
        Ok(Box::new(self.search_all(context)?))
    }
}

impl Method {
    fn longest_trial_s(&self) -> f64 {
        let searched = if self.quick { Goal::QUICK_NDR.final_s } else { Goal::NDR.final_s };
        self.rfc2544.map_or(searched, |trial| trial.as_secs_f64())
    }
}

fn real_routers(typed: &NdrArgs, max_pps: Option<f64>, trial_s: f64) -> anyhow::Result<Routers> {
    let mut spec = typed.traffic.traffic(&typed.testbed, typed.both, typed.size.as_ref())?;
    if matches!(typed.what, NdrTarget::Connections | NdrTarget::TcpConnections) {
        connections::one_connection_per_packet(&mut spec, typed, max_pps.unwrap_or_default() * trial_s)?;
    }
    let (testbed, engines) = testbed::resolve(typed.testbed.nics(), &typed.engines)?;
    let (dut, own_load) = (typed.testbed.dut()?, typed.testbed.cpu);
    Ok(Routers::Real { spec: Box::new(spec), testbed, engines, dut, own_load })
}
