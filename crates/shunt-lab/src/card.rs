//! A router card: the figures that describe a router, measured together in a few minutes, in rounds.
//!
//! Throughput, latency and connections are measured by the same searches and sessions as on their own. A round measures
//! each figure once, so that the runs of a figure spread over the whole time. A figure that cannot be measured is
//! missing, with the reason, and does not end the others.

mod load_point;
mod quantities;

use crate::{
    Progress, Results, ResultsFile,
    dut::{self, Dut},
    nat::NatPlan,
    search::{Goal, GoalResult, Irregular, Range, Wrong},
    throughput::{self, Device, Engine, Generated, ThroughputPlan, unless_stopped},
    traffic::{Error, Testbed, TrafficSpec, Variant, require_root},
    turns::in_turn,
};
pub use load_point::LOAD_PERCENT;
use load_point::LoadPoint;
pub use quantities::{WHAT, quantities, reading, routers};
use serde_json::{Value, json};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Number of flows of all frames that are not connections of their own.
pub const FLOWS: u32 = 64;

/// The plan of a card.
#[derive(Debug)]
pub struct CardPlan {
    /// The traffic of each frame size. Latency and CPU time are those of the last one.
    pub traffic: Vec<SizedTraffic>,
    /// The test bed.
    pub testbed: Testbed,
    /// Engines in a router of our own, by name; None for Linux without Shunt, or for a router between two devices.
    pub engines: Vec<(String, Option<Engine>)>,
    /// The DUT, if its load is to be read.
    pub dut: Option<Dut>,
    /// How connections are measured, or why they cannot be.
    pub connections: Result<Box<NatPlan>, String>,
    /// How exactly the throughput is searched.
    pub effort: Effort,
    /// Number of rounds.
    pub rounds: u32,
    /// After this time, no further round begins; None for no limit.
    pub time: Option<Duration>,
}

/// Traffic with frames of one size or mix.
#[derive(Debug, Clone)]
pub struct SizedTraffic {
    /// Name of the size: `64 bytes`, `imix`.
    pub name: String,
    /// The traffic.
    pub spec: TrafficSpec,
}

/// How exactly the throughput is searched.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effort {
    /// Name of the effort, for the conditions.
    pub name: &'static str,
    /// The goal without loss. That with loss has the same durations.
    pub goal: Goal,
    /// Duration of a run at a share of the NDR.
    pub at_load: Duration,
}

/// The result of a card.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// All readings, and the reasons for missing ones.
    pub results: Results,
}

/// The least load to try, in frames/s.
const MIN_PPS: f64 = 1000.0;

/// What is measured at a router at one go, and saved when it is over.
struct Task<'p> {
    router: &'p (String, Option<Engine>),
    part: Part<'p>,
    /// Rounds in which the sender was never held up.
    complete: u32,
    /// The error of the last round, unless the part has succeeded before.
    failed: Option<Error>,
}

#[derive(Clone, Copy)]
enum Part<'p> {
    /// Throughput with these frames, no more than the generator can send.
    Throughput {
        traffic: &'p SizedTraffic,
        max_pps: f64,
        then_load: bool,
    },
    Connections(&'p NatPlan),
}

/// What a round needs.
struct Round<'a> {
    /// Number of the round, from 1; also one beyond the planned rounds.
    nth: u32,
    file: &'a mut ResultsFile,
    stop: &'a Arc<AtomicBool>,
}

impl Effort {
    /// Trials of 0.2 s, five at a load; bounds within 2 %.
    pub const USUAL: Self = Self {
        name: "usual",
        goal: Goal { width: 0.02, initial_s: 0.2, final_s: 0.2, sum_s: 1.0, ..Goal::NDR },
        at_load: Duration::from_secs(1),
    };
    /// Trials of 0.1 s, three at a load; bounds within 5 %.
    pub const QUICK: Self = Self {
        name: "quick",
        goal: Goal { width: 0.05, initial_s: 0.1, final_s: 0.1, sum_s: 0.3, ..Goal::NDR },
        at_load: Duration::from_millis(500),
    };

    fn search(&self, max_pps: f64) -> Result<ThroughputPlan, Error> {
        let goals = [self.goal, Goal { loss_ratio: Goal::PDR.loss_ratio, ..self.goal }];
        let range = Range { min_pps: MIN_PPS, max_pps };
        ThroughputPlan::of_goals(&goals, range).map_err(|why: Wrong| Error::Asked(why.to_string()))
    }
}

impl CardPlan {
    /// Measures. When `stop` is set, the measurement ends at once and keeps what was measured.
    ///
    /// # Errors
    /// Fails if nothing could be measured, or if the file cannot be written. The setup is undone.
    pub fn perform(
        &self,
        mut file: ResultsFile,
        stop: &Arc<AtomicBool>,
        show: &mut dyn FnMut(Progress),
    ) -> Result<Report, Error> {
        require_root()?;
        self.begin(&mut file);
        let mut tasks = self.tasks(stop)?;
        let (began, of_round) = (Instant::now(), tasks.len() as u64);
        let (mut done, mut total) = (0, of_round * u64::from(self.rounds));
        let mut is_late = false;
        let rounds = self.rounds + self.more_rounds();
        in_turn((rounds, &mut tasks), (&mut file, stop), |nth, task, file| {
            if done % of_round == 0 {
                is_late |= self.is_too_late(nth, began.elapsed());
            }
            let is_over = is_late || task.complete >= self.rounds;
            total = total.max(done + u64::from(!is_over));
            if !is_over || nth <= self.rounds {
                show(Progress { done, total, now: task.name() });
            }
            done += 1;
            if is_over { Ok(()) } else { self.add(task, Round { nth, file, stop }) }
        })?;
        if file.results().readings.is_empty()
            && let Some(error) = tasks.into_iter().find_map(|task| task.failed)
        {
            return Err(error);
        }
        Ok(Report { results: file.end(!stop.load(Ordering::Relaxed))? })
    }

    /// Records the conditions, and why connections are not measured.
    fn begin(&self, file: &mut ResultsFile) {
        // A file that is continued may have other routers already.
        let mut routers: Vec<String> = routers(file.results()).into_iter().map(str::to_owned).collect();
        for (name, _) in &self.engines {
            if !routers.contains(name) {
                routers.push(name.clone());
            }
        }
        let conditions = file.conditions_mut();
        conditions.dut = dut::conditions(&self.dut);
        let setup: [(&str, Value); 4] = [
            ("routers", json!(routers)),
            ("effort", json!(self.effort.name)),
            ("flows", json!(FLOWS)),
            ("load", json!(format!("{LOAD_PERCENT} % of the NDR"))),
        ];
        conditions.setup.extend(setup.map(|(name, value)| (name.to_owned(), value)));
        if let Err(why) = &self.connections {
            let names = self.engines.iter().map(|(router, _)| reading("connections", router));
            names.for_each(|name| file.add_missing(&name, why.clone()));
        }
    }

    fn tasks(&self, stop: &Arc<AtomicBool>) -> Result<Vec<Task<'_>>, Error> {
        let mut parts = Vec::new();
        for (nth, traffic) in (1..).zip(&self.traffic) {
            unless_stopped(stop)?;
            let max_pps = self.device(traffic, &(String::new(), None), stop).generator_max_pps()?;
            parts.push(Part::Throughput { traffic, max_pps, then_load: nth == self.traffic.len() });
        }
        parts.extend(self.connections.iter().map(|plan| Part::Connections(plan)));
        let of_router =
            |router| parts.iter().map(move |part| Task { router, part: *part, complete: 0, failed: None });
        Ok(self.engines.iter().flat_map(of_router).collect())
    }

    /// Rounds after the planned ones, for parts with values missing because the sender was held up. Only a card with a
    /// limit of time has them.
    fn more_rounds(&self) -> u32 {
        if self.time.is_some() { self.rounds } else { 0 }
    }

    /// Whether another round would end too late, if it takes as long as those before.
    fn is_too_late(&self, nth: u32, elapsed: Duration) -> bool {
        let before = nth - 1;
        self.time.is_some_and(|time| before > 0 && elapsed + elapsed / before > time)
    }

    /// Measures one part of a router, and adds the results. A part that has failed in the first round is left out in
    /// the others.
    fn add(&self, task: &mut Task<'_>, mut round: Round<'_>) -> Result<(), Error> {
        if task.failed.is_some() {
            return Ok(());
        }
        let measured = match task.part {
            Part::Throughput { traffic, max_pps, then_load } => {
                self.add_throughput(task.router, (traffic, max_pps, then_load), &mut round)
            }
            Part::Connections(plan) => {
                let run = (round.nth, task.router);
                plan.add_run(run, round.file, round.stop, &mut |_| ()).map(|_| true)
            }
        };
        match measured {
            Ok(is_complete) => task.complete += u32::from(is_complete),
            Err(error @ (Error::NotRoot | Error::NoDevice(_) | Error::Busy(_))) => return Err(error),
            Err(error) if round.stop.load(Ordering::Relaxed) => return Err(error),
            Err(error) => {
                let name = reading(task.part.name(), &task.router.0);
                round.file.add_missing(&name, format!("cannot tell: {error}"));
                task.failed = (round.nth == 1).then_some(error);
            }
        }
        Ok(())
    }

    /// Returns whether another round may find no more: the sender was never held up.
    fn add_throughput(
        &self,
        router: &(String, Option<Engine>),
        (traffic, max_pps, then_load): (&SizedTraffic, f64, bool),
        round: &mut Round<'_>,
    ) -> Result<bool, Error> {
        let mut device = self.device(traffic, router, round.stop);
        let mut searched = self.effort.search(max_pps)?.search_one(&mut device, round.nth)?;
        // The number of flows is a condition of the whole card.
        searched.variant = Variant::default();
        round.file.set_nics(&device.nics);
        throughput::save(round.file, &searched, (device.labels(), device.is_own()))?;
        let was_held_up = |result: &GoalResult| result.irregular == Some(Irregular::SenderLate);
        let is_complete = !searched.results.iter().any(was_held_up);
        if !then_load {
            return Ok(is_complete);
        }
        // If the sender was held up in this round, the NDR of the rounds before.
        let ndr = searched.results.first();
        let before = |goal: &Goal| round.file.results().readings.get(&reading(goal.name(), &device.name));
        let known = ndr.and_then(|ndr| ndr.throughput_pps.or_else(|| Some(before(&ndr.goal)?.value)));
        let point = match known {
            Some(ndr_pps) => {
                let load_pps = ndr_pps * f64::from(LOAD_PERCENT) / 100.0;
                self.at_load(traffic, router, load_pps, round)
            }
            None => Ok(LoadPoint::unknown("cannot tell: the NDR is not known")),
        };
        let point = point?;
        point.save(round.file, &device.name, &searched.doubts)?;
        Ok(is_complete && !point.was_held_up())
    }

    fn at_load(
        &self,
        traffic: &SizedTraffic,
        router: &(String, Option<Engine>),
        load_pps: f64,
        round: &Round<'_>,
    ) -> Result<LoadPoint, Error> {
        let bench = load_point::Bench { spec: &traffic.spec, testbed: &self.testbed, dut: &self.dut };
        bench.measure(router.1.as_ref(), load_pps, self.effort.at_load, round.stop)
    }

    fn device(
        &self,
        traffic: &SizedTraffic,
        (router, engine): &(String, Option<Engine>),
        stop: &Arc<AtomicBool>,
    ) -> Generated {
        Generated {
            name: reading(&traffic.name, router),
            spec: traffic.spec.clone(),
            testbed: self.testbed.clone(),
            engine: engine.clone(),
            stop: stop.clone(),
            nics: Vec::new(),
            limit: None,
            dut: None,
            own_load: false,
        }
    }
}

impl Part<'_> {
    fn name(&self) -> &str {
        match self {
            Self::Throughput { traffic, .. } => &traffic.name,
            Self::Connections(_) => "connections",
        }
    }
}

impl Task<'_> {
    /// The router and the part, for the progress.
    fn name(&self) -> String {
        format!("{}: {}", self.router.0, self.part.name())
    }
}

#[cfg(test)]
mod tests;
