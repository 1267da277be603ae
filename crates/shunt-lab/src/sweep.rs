//! Traffic at one rate after the other, with the changes in the counters of drivers, MACs and kernel at each rate.

mod knee;

use crate::{
    Doubt, Labels, Measured, PathLabel, Position, Progress, Results, ResultsFile, Run,
    counters::{self, Change, Device, Snapshot},
    dut::{self, Dut, LoadMeter, LoadOf},
    load::Load,
    registers::{RegisterChange, RegisterChanges, Registers},
    throughput::{Engine, RunningShunt, take_part},
    traffic::{Directed, Error, Testbed, TrafficSpec, Variant, session},
};

pub use knee::{Beyond, Knee, Suspect};
use serde::{Deserialize, Serialize};
use serde_json::json;
use shunt_gen::{Rate, Schedule};
use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Least duration of a step: shorter steps miss what happens once a second.
const STEP_WANTED_S: f64 = 1.0;
/// Packets before the first step, enough for a fast path to learn the flows.
const WARM_UP: Schedule =
    Schedule { pps: Some(5_000.0), burst: 1, packets: None, duration: Some(Duration::from_millis(200)) };

/// The plan of a sweep.
#[derive(Debug)]
pub struct SweepPlan {
    /// The traffic: frames, and whether both directions send.
    pub spec: TrafficSpec,
    /// The router under test.
    pub testbed: Testbed,
    /// The engine in a router of our own; None for Linux without Shunt.
    pub engine: Option<Engine>,
    /// Offered rates in bit/s of frames with FCS, for each direction, in rising order.
    pub rates_bps: Vec<u64>,
    /// Duration of each step.
    pub step: Duration,
    /// Further devices of this machine whose counters are read, beside those that send and receive.
    pub watched: Vec<String>,
    /// The DUT, if its load and counters are to be read.
    pub dut: Option<Dut>,
    /// Whether to measure the load of a router of our own.
    pub own_load: bool,
    /// Registers to read before and after each step.
    pub registers: Option<Arc<dyn Registers>>,
}

/// The result of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Reasons why the figures may be wrong.
    pub doubts: Vec<Doubt>,
    /// How the traffic differs from one flow of IPv4 without NAT.
    #[serde(default, skip_serializing_if = "Variant::is_empty")]
    pub variant: Variant,
    /// Duration of each step in seconds.
    pub step_s: f64,
    /// The steps, in rising order of the rate.
    pub steps: Vec<Step>,
    /// The knee of each direction.
    pub knees: Vec<Knee>,
    /// All readings, with doubts and conditions.
    #[serde(flatten, serialize_with = "Results::serialize_file")]
    pub results: Results,
}

/// The result at one rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Offered rate in bit/s of frames with FCS, for each direction.
    pub offered_bps: u64,
    /// Reasons why the step's figures may be wrong.
    pub doubts: Vec<Doubt>,
    /// Figures of one or two directions.
    pub directions: Vec<Directed>,
    /// Load of the router's CPUs while packets were sent; absent if it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dut_load: Option<Load>,
    /// Counters that changed during the step, and registers that count.
    pub changes: Vec<Change>,
    /// Other registers that changed during the step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub registers: Vec<RegisterChange>,
}

/// The directions of a step, and the load of the DUT.
type Ran = (Vec<Directed>, Option<Load>);

impl SweepPlan {
    /// Runs the sweep. When `stop` is set, the sweep ends at once and returns the finished steps.
    ///
    /// # Errors
    /// Fails if the plan is not possible or the machine refuses. The setup is undone, and finished steps stay in the
    /// file.
    pub fn perform(
        &self,
        mut file: ResultsFile,
        stop: &AtomicBool,
        show: &mut dyn FnMut(Progress),
    ) -> Result<Report, Error> {
        let schedules = self.schedules()?;
        let mut steps: Vec<Ran> = Vec::new();
        file.conditions_mut().dut = dut::conditions(&self.dut);
        // The snapshots before each attempt and after each step, and those after a step by their place.
        let (mut snapshots, mut ends) = (Vec::new(), Vec::new());
        let mut of_registers: Vec<RegisterChanges> = Vec::new();
        session(&self.spec, &self.testbed, stop, |session| {
            take_part(session, &mut file)?;
            let up = RunningShunt::beside(session, self.engine.as_ref())?;
            let meter = LoadMeter::for_router(session, &self.dut, self.own_load)?;
            let mut devices = session.devices();
            devices.extend(self.watched.iter().map(|name| Device::here(name)));
            session.run(&self.spec.warm_up_for_all(WARM_UP))?;
            let snapshot = || Snapshot::read(&devices).with(&self.dut);
            for (done, (rate, schedule)) in (0..).zip(&schedules) {
                show(Progress {
                    done,
                    total: schedules.len() as u64,
                    now: Rate::L2(*rate as f64).to_string(),
                });
                let mut before = Vec::new();
                let (directed, load) = dut::run(session, schedule, &meter, || {
                    snapshots.push(snapshot()?);
                    before = self.register_values()?;
                    Ok(())
                })?;
                let after = self.register_values()?;
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                self.save(&mut file, *rate, &directed, load.as_ref())?;
                file.save()?;
                ends.push(snapshots.len());
                snapshots.push(snapshot()?);
                of_registers.push(self.register_changes(&before, &after));
                steps.push((directed, load));
            }
            up.map(RunningShunt::down).transpose()?;
            Ok::<_, Error>(())
        })?;
        let stopped = stop.load(Ordering::Relaxed);
        let mut changes = counters::changes(&snapshots);
        let changes = ends.into_iter().map(|end| mem::take(&mut changes[end - 1]));
        let changes = changes.zip(of_registers).collect();
        let mut report = self.report(steps, changes, file.end(!stopped)?);
        if stopped {
            report.doubts.push(Doubt::Interrupted);
        }
        Ok(report)
    }

    fn register_values(&self) -> Result<Vec<Option<u64>>, Error> {
        self.registers.as_ref().map_or(Ok(Vec::new()), |registers| registers.values())
    }

    fn register_changes(&self, before: &[Option<u64>], after: &[Option<u64>]) -> RegisterChanges {
        self.registers.as_ref().map(|registers| registers.changes(before, after)).unwrap_or_default()
    }

    fn schedules(&self) -> Result<Vec<(u64, Schedule)>, Error> {
        let speed = self.testbed.speed(self.spec.speed);
        let of = |bps: &u64| {
            let spec =
                TrafficSpec { rate: Rate::L2(*bps as f64), duration: Some(self.step), ..self.spec.clone() };
            Ok((*bps, spec.schedule(speed)?))
        };
        self.rates_bps.iter().map(of).collect()
    }

    fn save(
        &self,
        file: &mut ResultsFile,
        rate: u64,
        directed: &[Directed],
        load: Option<&Load>,
    ) -> std::io::Result<()> {
        let variant = self.spec.variant();
        let router = (self.testbed == Testbed::Own).then_some(self.path());
        let engine = router.and_then(PathLabel::from_name);
        let of_step = Labels { engine, rate_bps: Some(rate as f64), ..self.spec.labels(&self.testbed) };
        for one in directed {
            let figures = &one.figures;
            let details = json!({
                "achieved_bps": figures.achieved_l2_bps, "sent": figures.sent, "received": figures.received,
                "lost": figures.lost, "seconds": figures.seconds,
            });
            let details = details.as_object().cloned().unwrap_or_default();
            let ends = format!("{} to {}", one.from, one.to);
            let line = router.map_or(ends.clone(), |router| format!("{router} {ends}"));
            let at = format!("at {}", Rate::L2(rate as f64));
            let mut add = |quantity, of: &str, name: String, unit: &str, run: Run| {
                let name = variant.name(&name);
                file.add(&name, unit, run)?;
                let position = Position {
                    of: variant.name(of),
                    line: line.clone(),
                    along: "offered rate".to_owned(),
                    unit: "bit/s".to_owned(),
                    value: rate as f64,
                };
                file.set_position(&name, position);
                file.set_labels(&name, Labels { quantity: Some(quantity), ..of_step });
                one.doubts.iter().for_each(|doubt| file.add_doubt(&name, doubt.clone()));
                Ok::<_, std::io::Error>(name)
            };
            let received = Run { value: figures.received_pps(), at: None, details };
            let received = add(Measured::Received, "received", format!("{line} {at}"), "pps", received)?;
            add(
                Measured::Loss,
                "loss",
                format!("{line} loss {at}"),
                "%",
                Run::from(figures.loss_ratio * 100.0),
            )?;
            add(
                Measured::Jitter,
                "jitter",
                format!("{line} jitter {at}"),
                "us",
                Run::from(figures.jitter_us),
            )?;
            one.limit.iter().for_each(|limit| file.set_limit(&received, limit.clone()));
        }
        let of = LoadOf {
            router,
            when: &format!("at {}", Rate::L2(rate as f64)),
            variant: &variant,
            labels: of_step,
            along: Some(("offered rate", "bit/s", rate as f64)),
        };
        dut::save(file, of, load)
    }

    /// Name of the path through a router of our own.
    fn path(&self) -> &str {
        self.engine.as_ref().map_or(PathLabel::Slow.name(), |engine| &engine.name)
    }

    fn report(
        &self,
        steps: Vec<Ran>,
        changes: Vec<(Vec<Change>, RegisterChanges)>,
        results: Results,
    ) -> Report {
        let mut doubts = results.conditions.doubts();
        let step_s = self.step.as_secs_f64();
        if step_s < STEP_WANTED_S {
            doubts.push(Doubt::TooShort { seconds: step_s, wanted: STEP_WANTED_S });
        }
        let steps: Vec<Step> = self
            .rates_bps
            .iter()
            .zip(steps)
            .zip(changes)
            .map(|((rate, ran), changes)| Step::new(*rate, ran, changes))
            .collect();
        let knees = Knee::find_all(&steps);
        Report { doubts, variant: self.spec.variant(), step_s, steps, knees, results }
    }
}

impl Step {
    /// Whether the sender was held up in all attempts, so that the step's rate was not offered.
    pub fn is_held_up(&self) -> bool {
        self.doubts.iter().any(Doubt::is_held_up)
    }

    fn new(
        offered_bps: u64,
        (directions, dut_load): Ran,
        (mut changes, of_registers): (Vec<Change>, RegisterChanges),
    ) -> Self {
        changes.extend(of_registers.counters);
        let registers = of_registers.others;
        let mut doubts: Vec<Doubt> = Vec::new();
        directions.iter().flat_map(|one| one.doubts.clone()).for_each(|doubt| doubt.add_to(&mut doubts));
        Self { offered_bps, doubts, directions, dut_load, changes, registers }
    }
}

#[cfg(test)]
mod tests;
