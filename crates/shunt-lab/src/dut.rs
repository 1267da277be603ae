//! The load of the router under test during a measurement: of a DUT on another machine by its agent, which has its
//! counters, too, and of a router of our own by its threads.

use crate::{
    Conditions, Labels, Measured, Position, ResultsFile, Run,
    counters::Snapshot,
    load::{
        Load,
        router::{RouterLoad, RouterMark},
    },
    net::Segment,
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
pub(crate) const ATTEMPTS: u32 = 3;

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
    /// The port that the agent lends to checks; None if it measures instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lends: Option<String>,
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

/// The meter of the load of the router under test.
#[derive(Debug)]
pub(crate) enum LoadMeter<'d> {
    /// The load is not measured.
    None,
    /// The agent of a DUT on another machine.
    Agent(&'d Dut),
    /// The threads and processes of a router of our own.
    Own(Box<RouterLoad>),
}

impl<'d> LoadMeter<'d> {
    /// The meter for the router of this session, after its engine has started. A router of our own is measured if
    /// `own` is set.
    pub(crate) fn for_router(
        session: &mut Session<'_>,
        dut: &'d Option<Dut>,
        own: bool,
    ) -> Result<Self, Error> {
        Ok(match (dut, session.router().filter(|_| own)) {
            (Some(dut), _) => Self::Agent(dut),
            (None, Some(router)) => {
                session.stay_ordinary();
                let ports = [Segment::LAN.port, Segment::WAN.port];
                Self::Own(Box::new(RouterLoad::start(router, &ports, &session.hosts())?))
            }
            (None, None) => Self::None,
        })
    }

    /// Marks this moment; the returned function gives the load since then.
    fn begin(&self) -> Result<impl FnOnce() -> Result<Option<Load>, Error>, Error> {
        enum Begun<'m> {
            None,
            Agent(&'m Dut, Mark),
            Own(&'m RouterLoad, RouterMark),
        }
        let begun = match self {
            Self::None => Begun::None,
            Self::Agent(dut) => Begun::Agent(dut, dut.mark()?),
            Self::Own(router) => Begun::Own(router, router.mark()?),
        };
        Ok(move || {
            Ok(match begun {
                Begun::None => None,
                Begun::Agent(dut, mark) => Some(dut.load_since(mark)?),
                Begun::Own(router, mark) => Some(router.since(mark)?),
            })
        })
    }
}

/// Sends traffic, and measures the router's load while packets are sent, not while late packets are awaited. If a
/// sender was held up, its load was not offered: sends again with another priority, up to [`ATTEMPTS`] times in all.
/// Calls `prepare` before each attempt.
///
/// # Errors
/// Fails as the session, the meter and `prepare` do.
pub(crate) fn run(
    session: &mut Session,
    schedule: &Schedule,
    meter: &LoadMeter<'_>,
    mut prepare: impl FnMut() -> Result<(), Error>,
) -> Result<(Vec<Directed>, Option<Load>), Error> {
    prepare()?;
    let mut ran = run_once(session, schedule, meter)?;
    for _ in 1..ATTEMPTS {
        if session.stopped() || !ran.0.iter().any(Directed::is_held_up) {
            break;
        }
        session.change_priority();
        prepare()?;
        ran = run_once(session, schedule, meter)?;
    }
    Ok(ran)
}

fn run_once(
    session: &mut Session,
    schedule: &Schedule,
    meter: &LoadMeter<'_>,
) -> Result<(Vec<Directed>, Option<Load>), Error> {
    if matches!(meter, LoadMeter::None) {
        return Ok((session.run(schedule)?, None));
    }
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let (began, load) = (Instant::now(), meter.begin()?);
            while !ended.load(Ordering::Relaxed)
                && schedule.duration.is_none_or(|time| began.elapsed() < time)
            {
                thread::sleep(GLANCE);
            }
            load()
        });
        let ran = session.run(schedule);
        ended.store(true, Ordering::Relaxed);
        let load = watching.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((ran?, load?))
    })
}

/// The conditions on the DUT.
pub(crate) fn conditions(dut: &Option<Dut>) -> Option<Box<Conditions>> {
    dut.as_ref().map(|dut| Box::new(dut.about().conditions.clone()))
}

/// What a reading of the router's load is of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoadOf<'r> {
    /// Name of a router of our own; None for a DUT.
    pub(crate) router: Option<&'r str>,
    /// The traffic, such as `at 100M`.
    pub(crate) when: &'r str,
    pub(crate) variant: &'r Variant,
    pub(crate) labels: Labels,
    /// The position in a series: quantity, unit, value.
    pub(crate) along: Option<(&'r str, &'r str, f64)>,
}

/// Adds the router's load, if known, to the file of results.
pub(crate) fn save(file: &mut ResultsFile, of: LoadOf<'_>, load: Option<&Load>) -> io::Result<()> {
    let Some(load) = load else { return Ok(()) };
    let LoadOf { router, when, variant, labels, along } = of;
    let whose = router.map_or("DUT".to_owned(), |router| format!("router {router}"));
    let name = variant.name(&format!("load of the {whose} {when}"));
    let cpus: BTreeMap<String, f64> =
        load.cpus.iter().map(|cpu| (format!("cpu{}", cpu.cpu), cpu.load_percent)).collect();
    let mut details = json!({"seconds": load.seconds, "core_percent": load.core_percent});
    if !cpus.is_empty() {
        details["cpus"] = json!(cpus);
    }
    let details = details.as_object().cloned().unwrap_or_default();
    file.add(&name, "%", Run { value: load.load_percent, at: None, details })?;
    if let Some((along, unit, value)) = along {
        let [line, along, unit] = [router.unwrap_or("DUT"), along, unit].map(str::to_owned);
        let of = variant.name("load");
        file.set_position(&name, Position { of, line, along, unit, value });
    }
    file.set_labels(&name, Labels { quantity: Some(Measured::CpuLoad), ..labels });
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
