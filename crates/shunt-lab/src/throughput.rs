//! The throughput of one or more routers. Searches of all routers are made in turn, so that changes over time affect
//! all of them.

pub(crate) mod connections;
mod generated;

use crate::{
    Doubt, Labels, Limit, Nic, Results, ResultsFile, Run,
    dut::{self, LoadOf},
    load::Load,
    search::{
        BinarySearch, Goal, GoalResult, Irregular, MlrSearch, Outcome, Range, Search, Trial, Wrong, run,
        simulated::{Behaviour, Router},
    },
    traffic::{LatencyUs, Variant},
    turns::in_turn,
};
pub use generated::{Engine, Generated};
pub(crate) use generated::{RunningShunt, take_part, unless_stopped};
use serde::Serialize;
use serde_json::json;
use std::{
    io,
    sync::atomic::{AtomicBool, Ordering},
};

/// Loads at which latency is measured, in percent of the throughput, as in CSIT.
const LATENCY_PERCENTS: &[u32] = &[10, 50, 90];
/// Least duration of a trial: shorter trials miss what happens once a second.
const TRIAL_WANTED_S: f64 = 1.0;

/// A router under test.
pub trait Device {
    /// The error of a trial.
    type Error: From<io::Error>;
    /// Name of the router.
    fn name(&self) -> &str;
    /// The unit of its rates.
    fn counted(&self) -> Counted {
        Counted::Frames
    }
    /// How the traffic through it differs from one flow of UDP over IPv4 without NAT.
    fn variant(&self) -> Variant {
        Variant::default()
    }
    /// The labels of its readings, apart from the quantity.
    fn labels(&self) -> Labels {
        Labels::default()
    }
    /// Whether the router is one of our own, and not a DUT on another machine.
    fn is_own(&self) -> bool {
        false
    }
    /// Doubts about its figures.
    fn doubts(&self) -> Vec<Doubt>;
    /// The network devices that took part; known after `serve`.
    fn nics(&self) -> &[Nic] {
        &[]
    }
    /// The most that the line carries in one direction; None if there is no line. Known after `serve`.
    fn limit(&self) -> Option<Limit> {
        None
    }
    /// Sets up the router, calls `work` to measure trials, and undoes the setup.
    ///
    /// # Errors
    /// Fails if the setup fails.
    fn serve(&mut self, work: &mut Work<'_, Self::Error>) -> Result<(), Self::Error>;
}

/// Measures trials with the given function, as often as needed.
pub type Work<'w, E> = dyn FnMut(&mut Measure<'_, E>) -> Result<(), E> + 'w;
/// Runs a trial: sends, and counts arrivals.
pub type Measure<'m, E> = dyn FnMut(Trial) -> Result<TrialFigures, E> + 'm;

/// The figures of a trial.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialFigures {
    /// Numbers of frames.
    pub outcome: Outcome,
    /// Latency; None if nothing arrived or packets carry no time.
    pub latency_us: Option<LatencyUs>,
    /// Load of the router's CPUs; None without an agent.
    pub dut_load: Option<Load>,
}

/// Latency at a load below the throughput.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LatencyAt {
    /// Load in percent of the throughput for the last goal, which is the most lenient.
    pub percent: u32,
    /// Load in frames/s of one direction.
    pub load_pps: f64,
    /// Share of the frames that were lost or not sent.
    pub loss_ratio: f64,
    /// Latency; None if unknown.
    pub latency_us: Option<LatencyUs>,
    /// Load of the router's CPUs; None without an agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dut_load: Option<Load>,
}

/// The plan of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct ThroughputPlan {
    method: Method,
    goals: Vec<Goal>,
    range: Range,
    runs: u32,
    /// Duration of the warm-up trial before each search, which is not kept.
    warm_up_s: f64,
    /// Loads at which latency is measured after a search, in percent of the throughput for the last goal.
    latency_percents: &'static [u32],
}

/// The unit of a rate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Counted {
    /// Frames/s of one direction.
    #[default]
    Frames,
    /// New connections/s, each of which is answered.
    Connections,
}

impl Counted {
    fn is_frames(&self) -> bool {
        *self == Self::Frames
    }
}

/// The search method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// MLRsearch, RFC 9971.
    Mlrsearch,
    /// Binary search, RFC 2544, section 26.1.
    Rfc2544,
}

/// The result of the searches.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The search method.
    pub method: Method,
    /// The range of loads.
    pub range: Range,
    /// The searches, in the order in which they were made.
    pub searches: Vec<Searched>,
    /// All readings, with doubts and conditions.
    #[serde(flatten, serialize_with = "Results::serialize_file")]
    pub results: Results,
}

/// The result of a search.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Searched {
    /// The unit of the rates.
    #[serde(skip_serializing_if = "Counted::is_frames")]
    pub counted: Counted,
    /// Name of the router.
    pub device: String,
    /// How the traffic differs from one flow of IPv4 without NAT.
    #[serde(skip_serializing_if = "Variant::is_empty")]
    pub variant: Variant,
    /// Number of this search of the router, from 1.
    pub run: u32,
    /// Number of trials without the warm-up.
    pub trials: u32,
    /// Duration of all trials in seconds.
    pub seconds: f64,
    /// The result for each goal.
    pub results: Vec<GoalResult>,
    /// Latency, measured after the search, at the loads at which no sender was held up.
    pub latency: Vec<LatencyAt>,
    /// The most that the line carries in one direction; None if its speed is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Reasons why the results may be wrong.
    pub doubts: Vec<Doubt>,
}

/// A simulated router.
#[derive(Debug)]
pub struct Simulated {
    name: String,
    router: Router,
}

impl Simulated {
    /// A simulated router with this name and behaviour.
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
        work(&mut |trial| {
            Ok(TrialFigures { outcome: self.router.measure(trial), latency_us: None, dut_load: None })
        })
    }
}

impl ThroughputPlan {
    /// MLRsearch for no loss and for a loss of up to 0.5 %; with `quick` in less time and with less certainty.
    ///
    /// # Errors
    /// Fails if the range cannot be searched.
    pub fn mlrsearch(range: Range, runs: u32, quick: bool) -> Result<Self, Wrong> {
        let goals = if quick { [Goal::QUICK_NDR, Goal::QUICK_PDR] } else { [Goal::NDR, Goal::PDR] };
        Ok(Self { runs, latency_percents: LATENCY_PERCENTS, ..Self::of_goals(&goals, range)? })
    }

    /// One MLRsearch for these goals, without latency.
    pub(crate) fn of_goals(goals: &[Goal; 2], range: Range) -> Result<Self, Wrong> {
        let (method, goals, warm_up_s) = (Method::Mlrsearch, goals.to_vec(), goals[0].initial_s);
        Self { method, goals, range, runs: 1, warm_up_s, latency_percents: &[] }.checked()
    }

    /// Binary search with trials of this duration.
    ///
    /// # Errors
    /// Fails if the range or the duration of trials is not possible.
    pub fn rfc2544(range: Range, runs: u32, trial_s: f64) -> Result<Self, Wrong> {
        let goal = Goal { initial_s: trial_s, final_s: trial_s, sum_s: trial_s, ..Goal::RFC2544 };
        let (method, goals, latency_percents) = (Method::Rfc2544, vec![goal], LATENCY_PERCENTS);
        Self { method, goals, range, runs, warm_up_s: 1.0, latency_percents }.checked()
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

    /// Searches each router in turn, `runs` times, and saves each search when it is over. When a search is stopped, the
    /// report has the searches until then.
    ///
    /// # Errors
    /// Fails if a trial fails or the file cannot be written. Finished searches stay in the file.
    pub fn perform<D: Device>(
        &self,
        devices: &mut [D],
        mut file: ResultsFile,
        stop: &AtomicBool,
    ) -> Result<Report, D::Error> {
        let searches = in_turn((self.runs, devices), (&mut file, stop), |run, device, file| {
            let searched = self.search_one(device, run)?;
            file.set_nics(device.nics());
            save(file, &searched, (device.labels(), device.is_own()))?;
            Ok::<_, D::Error>(searched)
        })?;
        let results = file.end(!stop.load(Ordering::Relaxed))?;
        Ok(Report { method: self.method, range: self.range, searches, results })
    }

    pub(crate) fn search_one<D: Device>(&self, device: &mut D, nth: u32) -> Result<Searched, D::Error> {
        let (counted, variant, name) = (device.counted(), device.variant(), device.name().to_owned());
        let mut searched = Searched { counted, device: name, variant, run: nth, ..Searched::default() };
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
        let mut all = Vec::new();
        for &percent in self.latency_percents {
            let load_pps = throughput * f64::from(percent) / 100.0;
            let TrialFigures { outcome, latency_us, dut_load } =
                measure(Trial { load_pps, duration_s: goal.final_s })?;
            // Nothing follows from a load that was not offered.
            if !outcome.sender_late {
                let loss_ratio = outcome.loss_ratio();
                all.push(LatencyAt { percent, load_pps, loss_ratio, latency_us, dut_load });
            }
        }
        Ok(all)
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

/// Whether the generator was the limit: no load was too high for the router, or at the upper bound more frames were not
/// sent than were lost.
fn limited_by_generator(result: &GoalResult, trials: &[(Trial, Outcome)]) -> bool {
    if result.irregular == Some(Irregular::SenderLate) {
        return false;
    }
    let at_upper = trials.iter().filter(|(trial, _)| Some(trial.load_pps) == result.upper_pps);
    let (unsent, lost) = at_upper
        .fold((0, 0), |(unsent, lost), (_, outcome)| (unsent + outcome.unsent(), lost + outcome.lost()));
    result.irregular == Some(Irregular::MaxLoadPasses) || unsent > lost
}

pub(crate) fn save(
    file: &mut ResultsFile,
    searched: &Searched,
    (labels, is_own): (Labels, bool),
) -> io::Result<()> {
    let variant = &searched.variant;
    for result in &searched.results {
        let (prefix, unit) = match searched.counted {
            Counted::Frames => ("", "pps"),
            Counted::Connections => ("connections ", "1/s"),
        };
        let name = variant.name(&format!("{prefix}{} {}", result.goal.name(), searched.device));
        match (result.throughput_pps, result.irregular) {
            (Some(value), irregular) => {
                let details = json!({
                    "lower_pps": result.lower_pps,
                    "upper_pps": result.upper_pps,
                    "irregular": irregular,
                    "trials": searched.trials,
                });
                let details = details.as_object().cloned().unwrap_or_default();
                file.add(&name, unit, Run { value, at: None, details })?;
                file.set_labels(&name, labels);
                searched.limit.iter().for_each(|limit| file.set_limit(&name, limit.clone()));
            }
            (None, irregular) => {
                file.add_missing(&name, irregular.map_or_else(String::new, |why| why.to_string()))
            }
        }
        searched.doubts.iter().for_each(|doubt| file.add_doubt(&name, doubt.clone()));
    }
    for at in &searched.latency {
        let when = format!("at {} % {}", at.percent, searched.device);
        // The name of a router of our own is already part of this.
        let share = format!("at {} %", at.percent);
        let (router, of_load) = if is_own { (Some(searched.device.as_str()), &share) } else { (None, &when) };
        let of = LoadOf { router, when: of_load, variant, labels, along: None };
        dut::save(file, of, at.dut_load.as_ref())?;
        let Some(latency) = at.latency_us else { continue };
        for (quantile, value) in [("p50", latency.p50), ("p99", latency.p99)] {
            let name = variant.name(&format!("latency {quantile} {when}"));
            file.add(&name, "us", value)?;
            searched.doubts.iter().for_each(|doubt| file.add_doubt(&name, doubt.clone()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
