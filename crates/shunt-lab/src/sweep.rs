//! Traffic at one rate after the other, and beside each what changed in the counters of drivers and MACs.

pub mod counters;
mod knee;

use crate::{
    Conditions, Doubt, Kept, Position, Progress, Run,
    dut::{self, Inside},
    load::Load,
    throughput::{Engine, Up, take_part},
    traffic::{Directed, Error, Place, Wanted, session},
};
use counters::{Change, Device, Snapshot};
pub use knee::{Beyond, Knee, Suspect};
use serde::Serialize;
use serde_json::json;
use shunt_gen::{Rate, Schedule};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

/// Shorter steps miss what happens once a second.
const STEP_WANTED_S: f64 = 1.0;
/// Enough for a fast path to learn the flows.
const WARM_UP: Schedule =
    Schedule { pps: Some(5_000.0), burst: 1, packets: None, duration: Some(Duration::from_millis(200)) };

/// What is to be measured.
#[derive(Debug)]
pub struct Plan {
    /// The frames, and whether they go both ways.
    pub wanted: Wanted,
    /// Where the router is.
    pub place: Place,
    /// What forwards in a router of our own; none: Linux.
    pub engine: Option<Engine>,
    /// In bit/s of frames with FCS, of each direction, lowest first.
    pub rates_bps: Vec<u64>,
    /// How long each step is.
    pub step: Duration,
    /// Devices of this machine whose counters are read, beside those that send and receive.
    pub watched: Vec<String>,
    /// Whose load and counters are read as well.
    pub dut: Inside,
}

/// What was found out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Why the figures may be wrong: read these first.
    pub doubts: Vec<Doubt>,
    /// Of each step.
    pub step_s: f64,
    /// Lowest rate first.
    pub steps: Vec<Step>,
    /// Of each direction.
    pub knees: Vec<Knee>,
    /// Where and how.
    pub conditions: Conditions,
}

/// What came of one rate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Step {
    /// In bit/s of frames with FCS, of each direction.
    pub offered_bps: u64,
    /// Why it may be wrong.
    pub doubts: Vec<Doubt>,
    /// One or two.
    pub directions: Vec<Directed>,
    /// Of the DUT's CPUs while it was sent, if the DUT tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dut_load: Option<Load>,
    /// Counters that are not as they were before it.
    pub changes: Vec<Change>,
}

/// What came of a step: the directions, and the load of the DUT.
type Ran = (Vec<Directed>, Option<Load>);

impl Plan {
    /// Measures. When `stop` is set it ends at once, with the steps that were over.
    ///
    /// # Errors
    /// When it cannot be as asked, or the machine refuses. What was set up is undone, and the steps until then are kept.
    pub fn perform(
        &self,
        mut kept: Option<&mut Kept>,
        mut conditions: Conditions,
        stop: &AtomicBool,
        show: &mut dyn FnMut(Progress),
    ) -> Result<Report, Error> {
        let schedules = self.schedules()?;
        let mut steps: Vec<Ran> = Vec::new();
        conditions.dut = dut::conditions(&self.dut);
        let mut snapshots = Vec::new();
        session(&self.wanted, &self.place, stop, |session| {
            let router = take_part(session, &mut conditions, kept.as_deref_mut())?;
            let up = Up::new(router, self.engine.as_ref())?;
            let mut devices = session.devices();
            devices.extend(self.watched.iter().map(|name| Device::here(name)));
            session.run(&WARM_UP)?;
            snapshots.push(Snapshot::of(&devices).with(&self.dut)?);
            for (done, (rate, schedule)) in (0..).zip(&schedules) {
                show(Progress {
                    done,
                    total: schedules.len() as u64,
                    now: Rate::L2(*rate as f64).to_string(),
                });
                let (directed, load) = dut::run(session, schedule, &self.dut)?;
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                if let Some(kept) = &mut kept {
                    keep(kept, *rate, &directed, load.as_ref())?;
                }
                snapshots.push(Snapshot::of(&devices).with(&self.dut)?);
                steps.push((directed, load));
            }
            up.map(Up::down).transpose()?;
            Ok::<_, Error>(())
        })?;
        let mut report = self.report(steps, &snapshots, conditions);
        if stop.load(Ordering::Relaxed) {
            report.doubts.push(Doubt::Interrupted);
        }
        Ok(report)
    }

    fn schedules(&self) -> Result<Vec<(u64, Schedule)>, Error> {
        let speed = self.place.speed(self.wanted.speed);
        let of = |bps: &u64| {
            let wanted =
                Wanted { rate: Rate::L2(*bps as f64), duration: Some(self.step), ..self.wanted.clone() };
            Ok((*bps, wanted.schedule(speed)?))
        };
        self.rates_bps.iter().map(of).collect()
    }

    fn report(&self, steps: Vec<Ran>, snapshots: &[Snapshot], conditions: Conditions) -> Report {
        let mut doubts = conditions.doubts();
        let step_s = self.step.as_secs_f64();
        if step_s < STEP_WANTED_S {
            doubts.push(Doubt::TooShort { seconds: step_s, wanted: STEP_WANTED_S });
        }
        let changes = counters::changes(snapshots);
        let steps: Vec<Step> = self
            .rates_bps
            .iter()
            .zip(steps)
            .zip(changes)
            .map(|((rate, ran), changes)| Step::of(*rate, ran, changes))
            .collect();
        let knees = Knee::of_all(&steps);
        Report { doubts, step_s, steps, knees, conditions }
    }
}

impl Step {
    fn of(offered_bps: u64, (directions, dut_load): Ran, changes: Vec<Change>) -> Self {
        let mut doubts: Vec<Doubt> = Vec::new();
        directions.iter().flat_map(|one| one.doubts.clone()).for_each(|doubt| doubt.add_kind(&mut doubts));
        Self { offered_bps, doubts, directions, dut_load, changes }
    }
}

fn keep(kept: &mut Kept, rate: u64, directed: &[Directed], load: Option<&Load>) -> std::io::Result<()> {
    for one in directed {
        let figures = &one.figures;
        let details = json!({
            "achieved_bps": figures.achieved_l2_bps, "sent": figures.sent, "received": figures.received,
            "lost": figures.lost, "seconds": figures.seconds,
        });
        let details = details.as_object().cloned().unwrap_or_default();
        let line = format!("{} to {}", one.from, one.to);
        let at = format!("at {}", Rate::L2(rate as f64));
        let mut add = |of: &str, name: String, unit: &str, run: Run| {
            kept.add(&name, unit, run)?;
            let position = Position {
                of: of.to_owned(),
                line: line.clone(),
                along: "offered rate".to_owned(),
                unit: "bit/s".to_owned(),
                value: rate as f64,
            };
            kept.place(&name, position);
            one.doubts.iter().for_each(|doubt| kept.doubt(&name, doubt.clone()));
            Ok::<_, std::io::Error>(name)
        };
        let received = Run { value: figures.received_pps(), at: None, details };
        let received = add("received", format!("{line} {at}"), "pps", received)?;
        add("loss", format!("{line} loss {at}"), "%", Run::from(figures.loss_ratio * 100.0))?;
        add("jitter", format!("{line} jitter {at}"), "us", Run::from(figures.jitter_us))?;
        one.limit.iter().for_each(|limit| kept.limit(&received, limit.clone()));
    }
    let along = ("offered rate", "bit/s", rate as f64);
    dut::keep(kept, &format!("at {}", Rate::L2(rate as f64)), load, Some(along))
}

#[cfg(test)]
mod tests;
