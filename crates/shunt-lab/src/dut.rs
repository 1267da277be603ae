//! What a DUT that is another machine says of itself: the load of its CPUs while packets are sent to it, and its counters.

use crate::{
    Conditions, Kept, Position, Run,
    load::Load,
    sweep::counters::Snapshot,
    traffic::{Directed, Error, Session},
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

/// How often is looked whether something has ended early.
const GLANCE: Duration = Duration::from_millis(20);

/// Whoever knows the DUT from inside.
pub trait Dut: fmt::Debug + Send + Sync {
    /// What it is.
    fn about(&self) -> &About;
    /// A moment from which load is told.
    ///
    /// # Errors
    /// When it does not answer as it should.
    fn mark(&self) -> Result<Mark, Error>;
    /// The load since then.
    ///
    /// # Errors
    /// When it does not answer as it should, or does not know that moment.
    fn load_since(&self, mark: Mark) -> Result<Load, Error>;
    /// All of its counters.
    ///
    /// # Errors
    /// When it does not answer as it should.
    fn counters(&self) -> Result<Counters, Error>;
}

/// A DUT that can be asked, if there is one.
pub type Inside = Option<Arc<dyn Dut>>;

/// A DUT, as it tells of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// Of Shunt there.
    pub version: String,
    /// The CPUs whose load it measures.
    pub cpus: Vec<usize>,
    /// Of that machine.
    pub conditions: Conditions,
}

/// A moment, by the number that the DUT has given it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Mark(pub u64);

/// What a DUT answers who asks for its load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Loaded {
    /// This moment.
    pub mark: Mark,
    /// Since the mark that was asked for.
    pub load: Option<Load>,
}

/// Counters by device, those of CPUs among them as `cpu0`, and name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters(pub BTreeMap<String, BTreeMap<String, u64>>);

/// Sends, and has the load of the DUT for as long as is sent: not while late packets are waited for.
///
/// # Errors
/// Those of the session, and of the DUT.
pub(crate) fn run(
    session: &mut Session,
    schedule: &Schedule,
    dut: &Inside,
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

/// Of that machine.
pub(crate) fn conditions(dut: &Inside) -> Option<Box<Conditions>> {
    dut.as_ref().map(|dut| Box::new(dut.about().conditions.clone()))
}

/// Puts down the load of the DUT, if it tells, and where on a course that is: along what, in which unit, how much.
pub(crate) fn keep(
    kept: &mut Kept,
    when: &str,
    load: Option<&Load>,
    along: Option<(&str, &str, f64)>,
) -> io::Result<()> {
    let Some(load) = load else { return Ok(()) };
    let name = format!("load of the DUT {when}");
    let cpus: BTreeMap<String, f64> =
        load.cpus.iter().map(|cpu| (format!("cpu{}", cpu.cpu), cpu.load_percent)).collect();
    let details = json!({"cpus": cpus, "seconds": load.seconds}).as_object().cloned().unwrap_or_default();
    kept.add(&name, "%", Run { value: load.load_percent, at: None, details })?;
    if let Some((along, unit, value)) = along {
        let [of, line, along, unit] = ["load", "DUT", along, unit].map(str::to_owned);
        kept.place(&name, Position { of, line, along, unit, value });
    }
    load.doubts.iter().for_each(|doubt| kept.doubt(&name, doubt.clone()));
    Ok(())
}

impl Snapshot {
    /// With the counters of the DUT, whose devices are then named as `dut eth0`.
    ///
    /// # Errors
    /// Those of the DUT.
    pub(crate) fn with(mut self, dut: &Inside) -> Result<Self, Error> {
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
