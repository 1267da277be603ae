//! A DUT on another machine, whose agent reports the load of its CPUs during a measurement, and its counters.

use crate::{
    Conditions, Position, ResultsFile, Run,
    counters::Snapshot,
    load::Load,
    traffic::{Directed, Error, Session, Variant},
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use shunt_gen::Schedule;
use std::{
    collections::BTreeMap,
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Interval at which a waiting thread checks whether the traffic has ended.
const GLANCE: Duration = Duration::from_millis(20);
/// Number of attempts to offer a load.
const ATTEMPTS: u32 = 3;

/// An agent that reports from inside the DUT.
pub trait DutAgent: fmt::Debug + Send + Sync {
    /// Version, CPUs and conditions of the DUT.
    fn about(&self) -> &About;
    /// Sets a mark from which the load is measured.
    ///
    /// # Errors
    /// Fails if the agent does not answer or answers something unexpected.
    fn mark(&self) -> Result<Mark, Error>;
    /// The load since a mark.
    ///
    /// # Errors
    /// Fails if the agent does not answer, or no longer knows the mark.
    fn load_since(&self, mark: Mark) -> Result<Load, Error>;
    /// All counters of the DUT.
    ///
    /// # Errors
    /// Fails if the agent does not answer or answers something unexpected.
    fn counters(&self) -> Result<Counters, Error>;
}

/// A DUT with an agent.
pub type Dut = Arc<dyn DutAgent>;

/// A DUT's description of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// Version of Shunt on the DUT.
    pub version: String,
    /// CPUs whose load the agent measures.
    pub cpus: Vec<usize>,
    /// Conditions on the DUT.
    pub conditions: Conditions,
}

/// A point in time on the DUT, by a number that the agent assigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Mark(pub u64);

/// An agent's answer to a request for the load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Loaded {
    /// The mark of the answer.
    pub mark: Mark,
    /// The load since the mark in the request; absent if the request had none.
    pub load: Option<Load>,
}

/// Counters by device and name. Counters of CPUs have devices such as `cpu0`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters(pub BTreeMap<String, BTreeMap<String, u64>>);

/// Sends traffic, and measures the DUT's load while packets are sent, not while late packets are awaited. If a sender
/// was held up, its load was not offered: sends again with a higher priority, up to [`ATTEMPTS`] times in all. Calls
/// `prepare` before each attempt.
///
/// # Errors
/// Fails as the session, the agent and `prepare` do.
pub(crate) fn run(
    session: &mut Session,
    schedule: &Schedule,
    dut: &Option<Dut>,
    mut prepare: impl FnMut() -> Result<(), Error>,
) -> Result<(Vec<Directed>, Option<Load>), Error> {
    prepare()?;
    let mut ran = run_once(session, schedule, dut)?;
    for _ in 1..ATTEMPTS {
        if session.stopped() || !ran.0.iter().any(Directed::is_held_up) {
            break;
        }
        session.raise_priority();
        prepare()?;
        ran = run_once(session, schedule, dut)?;
    }
    Ok(ran)
}

fn run_once(
    session: &mut Session,
    schedule: &Schedule,
    dut: &Option<Dut>,
) -> Result<(Vec<Directed>, Option<Load>), Error> {
    let Some(dut) = dut else { return Ok((session.run(schedule)?, None)) };
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let (began, mark) = (Instant::now(), dut.mark()?);
            while !ended.load(Ordering::Relaxed)
                && schedule.duration.is_none_or(|time| began.elapsed() < time)
            {
                thread::sleep(GLANCE);
            }
            dut.load_since(mark)
        });
        let ran = session.run(schedule);
        ended.store(true, Ordering::Relaxed);
        let load = watching.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((ran?, Some(load?)))
    })
}

/// The conditions on the DUT.
pub(crate) fn conditions(dut: &Option<Dut>) -> Option<Box<Conditions>> {
    dut.as_ref().map(|dut| Box::new(dut.about().conditions.clone()))
}

/// Adds the DUT's load, if known, at some point and with a variant of the traffic, to the file of results. `along` is
/// the position in a series: quantity, unit, value.
pub(crate) fn save(
    file: &mut ResultsFile,
    (when, variant): (&str, &Variant),
    load: Option<&Load>,
    along: Option<(&str, &str, f64)>,
) -> io::Result<()> {
    let Some(load) = load else { return Ok(()) };
    let name = variant.name(&format!("load of the DUT {when}"));
    let cpus: BTreeMap<String, f64> =
        load.cpus.iter().map(|cpu| (format!("cpu{}", cpu.cpu), cpu.load_percent)).collect();
    let details = json!({"cpus": cpus, "seconds": load.seconds}).as_object().cloned().unwrap_or_default();
    file.add(&name, "%", Run { value: load.load_percent, at: None, details })?;
    if let Some((along, unit, value)) = along {
        let [line, along, unit] = ["DUT", along, unit].map(str::to_owned);
        let of = variant.name("load");
        file.set_position(&name, Position { of, line, along, unit, value });
    }
    load.doubts.iter().for_each(|doubt| file.add_doubt(&name, doubt.clone()));
    Ok(())
}

impl Snapshot {
    /// Adds the DUT's counters to the snapshot, with devices named such as `dut eth0`.
    ///
    /// # Errors
    /// Fails as the agent does.
    pub(crate) fn with(mut self, dut: &Option<Dut>) -> Result<Self, Error> {
        if let Some(dut) = dut {
            for (device, counters) in dut.counters()?.0 {
                let of_device =
                    counters.into_iter().map(|(name, value)| ((format!("dut {device}"), name), value));
                self.0.extend(of_device);
            }
        }
        Ok(self)
    }
}

impl From<Snapshot> for Counters {
    fn from(snapshot: Snapshot) -> Self {
        let mut all: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
        for ((device, name), value) in snapshot.0 {
            all.entry(device).or_default().insert(name, value);
        }
        Self(all)
    }
}
