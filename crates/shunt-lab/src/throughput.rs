//! The throughput of one or more routers, searched for in turn, so that what changes with time is in all of them.

pub mod concurrent;
mod connections;
mod generated;

use crate::{
    Conditions, Doubt, Kept, Limit, Nic, Run, dut,
    load::Load,
    search::{
        BinarySearch, Goal, GoalResult, Irregular, MlrSearch, Outcome, Range, Search, Trial, Wrong, run,
        simulated::{Behaviour, Router},
    },
    traffic::LatencyUs,
};
pub use generated::{Engine, Generated};
pub(crate) use generated::{RULESET, Up, take_part};
use serde::Serialize;
use serde_json::json;
use std::io;

/// As CSIT has them.
const LATENCY_PERCENTS: [u32; 3] = [10, 50, 90];
/// Shorter trials miss what happens once a second.
const TRIAL_WANTED_S: f64 = 1.0;

/// What forwards frames, as seen from outside.
pub trait Device {
    /// Why a trial cannot be measured.
    type Error: From<io::Error>;
    /// Its name among the others.
    fn name(&self) -> &str;
    /// What is sent through it.
    fn counted(&self) -> Counted {
        Counted::Frames
    }
    /// What speaks against what was measured of it.
    fn doubts(&self) -> Vec<Doubt>;
    /// The devices by which it was, once it was served.
    fn nics(&self) -> &[Nic] {
        &[]
    }
    /// What the line to it can carry in one direction, once it was served; none where there is no line.
    fn limit(&self) -> Option<Limit> {
        None
    }
    /// Whether somebody wants no more of it.
    fn is_stopped(&self) -> bool {
        false
    }
    /// Sets it up, lets trials be measured, and takes it down.
    ///
    /// # Errors
    /// When that cannot be done.
    fn serve(&mut self, work: &mut Work<'_, Self::Error>) -> Result<(), Self::Error>;
}

/// Measures by what it is given, as often as it likes.
pub type Work<'w, E> = dyn FnMut(&mut Measure<'_, E>) -> Result<(), E> + 'w;
/// Sends, and counts what arrives.
pub type Measure<'m, E> = dyn FnMut(Trial) -> Result<Seen, E> + 'm;

/// What came of a trial.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// The frames.
    pub outcome: Outcome,
    /// How long they took, if anything arrived and that is known.
    pub latency_us: Option<LatencyUs>,
    /// Of the router, if it tells.
    pub dut_load: Option<Load>,
}

/// Latency under a load that the router can take.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LatencyAt {
    /// Of the throughput for the most lenient goal, the last one.
    pub percent: u32,
    /// In frames/s of one direction.
    pub load_pps: f64,
    /// Of all frames that were asked for.
    pub loss_ratio: f64,
    /// None where it is not known.
    pub latency_us: Option<LatencyUs>,
    /// Of the router's CPUs, if it tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dut_load: Option<Load>,
}

/// What is to be found out.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    method: Method,
    goals: Vec<Goal>,
    range: Range,
    runs: u32,
    /// For a trial that is not kept, before each search.
    warm_up_s: f64,
}

/// What a rate is of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Counted {
    /// Frames/s of one direction.
    #[default]
    Frames,
    /// New connections/s, each answered.
    Connections,
}

impl Counted {
    fn is_frames(&self) -> bool {
        *self == Self::Frames
    }
}

/// How it is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// RFC 9971.
    Mlrsearch,
    /// RFC 2544, section 26.1.
    Rfc2544,
}

/// What was found out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// How it was searched.
    pub method: Method,
    /// Between which loads.
    pub range: Range,
    /// A search each, in the order in which they were made.
    pub searches: Vec<Searched>,
    /// Where and how.
    pub conditions: Conditions,
}

/// One search.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Searched {
    /// What the rates are of.
    #[serde(skip_serializing_if = "Counted::is_frames")]
    pub counted: Counted,
    /// Of which router.
    pub device: String,
    /// The how many-th of this router, from 1 on.
    pub run: u32,
    /// How many trials it took, without the one to warm up.
    pub trials: u32,
    /// How long they took together.
    pub seconds: f64,
    /// By goal.
    pub results: Vec<GoalResult>,
    /// After the search.
    pub latency: Vec<LatencyAt>,
    /// What the line carries in one direction, where its speed is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Why they may be wrong.
    pub doubts: Vec<Doubt>,
}

/// One that does not exist.
#[derive(Debug)]
pub struct Simulated {
    name: String,
    router: Router,
}

impl Simulated {
    /// One of this name, that behaves so.
    pub fn new(name: String, behaviour: Behaviour, seed: u64) -> Self {
        Self { name, router: Router::new(behaviour, seed) }
    }
}

impl Device for Simulated {
    type Error = io::Error;

    fn name(&self) -> &str {
        &self.name
    }

    fn doubts(&self) -> Vec<Doubt> {
        vec![Doubt::Simulated]
    }

    fn serve(&mut self, work: &mut Work<'_, io::Error>) -> io::Result<()> {
        work(&mut |trial| Ok(Seen { outcome: self.router.measure(trial), latency_us: None, dut_load: None }))
    }
}

impl Plan {
    /// MLRsearch for no loss and for a loss of up to 0.5 %; `quick` is less certain.
    ///
    /// # Errors
    /// When the range cannot be searched.
    pub fn mlrsearch(range: Range, runs: u32, quick: bool) -> Result<Self, Wrong> {
        let goals = if quick { [Goal::QUICK_NDR, Goal::QUICK_PDR] } else { [Goal::NDR, Goal::PDR] };
        let warm_up_s = goals[0].initial_s;
        Self { method: Method::Mlrsearch, goals: goals.to_vec(), range, runs, warm_up_s }.checked()
    }

    /// Halving by trials of so long.
    ///
    /// # Errors
    /// When the range cannot be searched, or with such trials.
    pub fn rfc2544(range: Range, runs: u32, trial_s: f64) -> Result<Self, Wrong> {
        let goal = Goal { initial_s: trial_s, final_s: trial_s, sum_s: trial_s, ..Goal::RFC2544 };
        Self { method: Method::Rfc2544, goals: vec![goal], range, runs, warm_up_s: 1.0 }.checked()
    }

    fn checked(self) -> Result<Self, Wrong> {
        self.search().map(|_| self)
    }

    fn search(&self) -> Result<Box<dyn Search>, Wrong> {
        Ok(match self.method {
            Method::Mlrsearch => Box::new(MlrSearch::new(&self.goals, self.range)?),
            Method::Rfc2544 => Box::new(BinarySearch::new(self.goals[0], self.range)?),
        })
    }

    /// Searches each router in turn, `runs` times, and puts down each search as soon as it is over. Of one that is stopped, what
    /// there is by then is the report.
    ///
    /// # Errors
    /// When a trial cannot be measured, or what was found cannot be kept. The searches until then are kept.
    pub fn perform<D: Device>(
        &self,
        devices: &mut [D],
        mut kept: Option<&mut Kept>,
        mut conditions: Conditions,
    ) -> Result<Report, D::Error> {
        let mut searches = Vec::new();
        'all: for run in 1..=self.runs {
            for device in &mut *devices {
                let searched = match self.search_one(device, run) {
                    Err(_) if device.is_stopped() && !searches.is_empty() => break 'all,
                    searched => searched?,
                };
                conditions.nics = device.nics().to_vec();
                if let Some(kept) = &mut kept {
                    kept.took_part(device.nics());
                    keep(kept, &searched)?;
                }
                searches.push(searched);
            }
        }
        Ok(Report { method: self.method, range: self.range, searches, conditions })
    }

    fn search_one<D: Device>(&self, device: &mut D, nth: u32) -> Result<Searched, D::Error> {
        let (counted, name) = (device.counted(), device.name().to_owned());
        let mut searched = Searched { counted, device: name, run: nth, ..Searched::default() };
        device.serve(&mut |measure| self.search_with(measure, &mut searched))?;
        let mut doubts = device.doubts();
        doubts.append(&mut searched.doubts);
        let limit = device.limit();
        let found = || searched.results.iter().filter_map(|result| result.throughput_pps);
        if limit.as_ref().is_some_and(|limit| found().any(|pps| limit.is_below(pps))) {
            doubts.push(Doubt::AboveLine);
        }
        Ok(Searched { doubts, limit, ..searched })
    }

    fn search_with<E: From<io::Error>>(
        &self,
        measure: &mut Measure<'_, E>,
        searched: &mut Searched,
    ) -> Result<(), E> {
        let invalid = |why: Wrong| io::Error::new(io::ErrorKind::InvalidInput, why);
        let mut search = self.search().map_err(invalid)?;
        measure(Trial { load_pps: self.range.max_pps, duration_s: self.warm_up_s })?;
        let mut trials = Vec::new();
        searched.results = run(&mut *search, |trial| -> Result<Outcome, E> {
            let outcome = measure(trial)?.outcome;
            trials.push((trial, outcome));
            Ok(outcome)
        })?;
        searched.trials = trials.len() as u32;
        searched.seconds = trials.iter().map(|(_, outcome)| outcome.effective_s).sum();
        searched.doubts = self.doubts(&searched.results, &trials);
        searched.latency = self.latency(measure, &searched.results)?;
        Ok(())
    }

    fn latency<E>(&self, measure: &mut Measure<'_, E>, results: &[GoalResult]) -> Result<Vec<LatencyAt>, E> {
        let Some((throughput, goal)) =
            results.last().and_then(|last| Some((last.throughput_pps?, last.goal)))
        else {
            return Ok(Vec::new());
        };
        let at = |percent: u32| {
            let load_pps = throughput * f64::from(percent) / 100.0;
            let seen = measure(Trial { load_pps, duration_s: goal.final_s })?;
            let loss_ratio = seen.outcome.loss_ratio();
            let Seen { latency_us, dut_load, .. } = seen;
            Ok(LatencyAt { percent, load_pps, loss_ratio, latency_us, dut_load })
        };
        LATENCY_PERCENTS.into_iter().map(at).collect()
    }

    fn doubts(&self, results: &[GoalResult], trials: &[(Trial, Outcome)]) -> Vec<Doubt> {
        let mut doubts = Vec::new();
        if results.iter().any(|result| limited_by_generator(result, trials)) {
            doubts.push(Doubt::GeneratorBound);
        }
        let trial_s = self.goals.iter().map(|goal| goal.final_s).fold(f64::INFINITY, f64::min);
        if trial_s < TRIAL_WANTED_S {
            doubts.push(Doubt::TooShort { seconds: trial_s, wanted: TRIAL_WANTED_S });
        }
        doubts
    }
}

/// The limit was not reached, or at the upper bound more frames were not sent than were lost on the way.
fn limited_by_generator(result: &GoalResult, trials: &[(Trial, Outcome)]) -> bool {
    let at_upper = trials.iter().filter(|(trial, _)| Some(trial.load_pps) == result.upper_pps);
    let (unsent, lost) = at_upper.fold((0, 0), |(unsent, lost), (_, outcome)| {
        (unsent + outcome.expected.saturating_sub(outcome.offered), lost + outcome.lost())
    });
    result.irregular == Some(Irregular::MaxLoadPasses) || unsent > lost
}

fn keep(kept: &mut Kept, searched: &Searched) -> io::Result<()> {
    for result in &searched.results {
        let (prefix, unit) = match searched.counted {
            Counted::Frames => ("", "pps"),
            Counted::Connections => ("connections ", "1/s"),
        };
        let name = format!("{prefix}{} {}", result.goal.name(), searched.device);
        match (result.throughput_pps, result.irregular) {
            (Some(value), irregular) => {
                let details = json!({
                    "lower_pps": result.lower_pps,
                    "upper_pps": result.upper_pps,
                    "irregular": irregular,
                    "trials": searched.trials,
                });
                let details = details.as_object().cloned().unwrap_or_default();
                kept.add(&name, unit, Run { value, at: None, details })?;
                searched.limit.iter().for_each(|limit| kept.limit(&name, limit.clone()));
            }
            (None, irregular) => kept.lacks(&name, irregular.map_or_else(String::new, |why| why.to_string())),
        }
        searched.doubts.iter().for_each(|doubt| kept.doubt(&name, doubt.clone()));
    }
    for at in &searched.latency {
        let when = format!("at {} % {}", at.percent, searched.device);
        dut::keep(kept, &when, at.dut_load.as_ref(), None)?;
        let Some(latency) = at.latency_us else { continue };
        for (quantile, value) in [("p50", latency.p50), ("p99", latency.p99)] {
            let name = format!("latency {quantile} {when}");
            kept.add(&name, "us", value)?;
            searched.doubts.iter().for_each(|doubt| kept.doubt(&name, doubt.clone()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
