//! What of TCP and UDP arrives through a router, by iperf3, and the CPU load meanwhile: each kind of traffic with one thing after the other
//! (an engine, a setting), and again for each round, so that what changes with time is in all of them.

mod cell;
mod gauge;
mod rig;
mod runs;

use crate::{
    Compared, Doubt, Kept, Progress, Reading, Results,
    dut::{self, Inside},
    iperf::{Iperf, Way},
    load::{LoadError, Meter},
    net::NetNs,
    throughput::Engine,
    traffic::{Error, require_root},
};
pub use cell::{Cell, Protocol};
use gauge::Gauge;
use rig::Devices;
use runs::Runs;
use shunt_wire::line::LinkSpeed;
use std::{
    collections::{BTreeSet, HashSet},
    mem::discriminant,
    net::IpAddr,
    sync::atomic::{AtomicBool, Ordering},
};

/// Runs that differ by more than this share of their median are noisy.
const NOISY: f64 = 0.1;
/// Of the bootstrap.
const SEED: u64 = 1;

/// What is to be measured.
#[derive(Debug)]
pub struct Plan {
    /// Such as `goodput matrix`.
    pub what: String,
    /// Devices of this machine that a router is between; none: one of our own in namespaces.
    pub between: Option<Between>,
    /// What is compared; ratios are to the first.
    pub columns: Vec<Column>,
    /// The traffic.
    pub cells: Vec<Cell>,
    /// How often each is measured.
    pub rounds: u32,
    /// How long each time.
    pub seconds: u32,
    /// Of the line, where there is one: no more is offered.
    pub speed: Option<LinkSpeed>,
    /// Measure the CPU load too.
    pub load: bool,
}

/// Where a router is that is not ours.
#[derive(Debug)]
pub struct Between {
    /// The device that connects.
    pub lan: Wired,
    /// The device that is connected to.
    pub wan: Wired,
    /// Who tells the router's load, if somebody does.
    pub inside: Inside,
}

/// A device of this machine, and the next hops from there to the other one, if they are not in one subnet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wired {
    /// Its name.
    pub device: String,
    /// Of either version of IP.
    pub gateways: Vec<IpAddr>,
}

/// What is the same for all traffic in one column.
#[derive(Debug, Clone)]
pub struct Column {
    /// Its name among the others.
    pub name: String,
    /// What forwards; none: Linux.
    pub engine: Option<Engine>,
    /// Run by the shell in the router before its runs, each time that the router is made.
    pub command: Option<String>,
}

/// What was found out.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The traffic that could be.
    pub cells: Vec<Cell>,
    /// Of each run.
    pub seconds: u32,
    /// Of the line.
    pub speed: Option<LinkSpeed>,
    /// The router is not ours, and CPU load is its own.
    pub dut: bool,
    /// All that was measured, and what could not be.
    pub results: Results,
    /// Something failed that should not have.
    pub failure: Option<String>,
}

/// What is measured of one way of some traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// Payload that arrived.
    Goodput,
    /// Datagrams that did not arrive.
    Loss,
    /// Of datagrams.
    Jitter,
    /// By the meter, the mean of all CPUs of this machine, or of a DUT that is another one.
    CpuLoad,
    /// The same by /proc/stat.
    ProcStat,
}

impl Plan {
    /// Measures. When `stop` is set it ends at once, with the runs that were over.
    ///
    /// # Errors
    /// When nothing could be measured. What was set up is undone.
    pub fn perform(
        &self,
        mut kept: Kept,
        stop: &AtomicBool,
        show: &mut dyn FnMut(Progress),
    ) -> Result<Report, Error> {
        require_root()?;
        let iperf = Iperf::find()?;
        kept.conditions().tools.insert("iperf3".to_owned(), iperf.version().to_owned());
        let devices = self.between.as_ref().map(Devices::borrow).transpose()?;
        let cells = self.possible(devices.as_ref(), &mut kept)?;
        let gauge = if self.load { self.gauge(&mut kept) } else { None };
        let mut runs = Runs::new(self, iperf, devices.as_ref(), gauge, &mut kept, stop, show);
        runs.all(&cells);
        let (failure, measured) = runs.end();
        if let Some(why) = failure.clone().filter(|_| !measured) {
            return Err(Error::Machine(why));
        }
        self.report(cells, kept, failure, stop)
    }

    /// What tells the load. Before the traffic: a meter is calibrated on a quiet machine.
    fn gauge(&self, kept: &mut Kept) -> Option<Gauge> {
        match &self.between {
            None => Meter::start(None)
                .map_err(|why| kept.lacks("CPU", why.to_string()))
                .map(|meter| Gauge::Here(Box::new(meter)))
                .ok(),
            Some(Between { inside: Some(dut), .. }) => {
                kept.conditions().dut = dut::conditions(&Some(dut.clone()));
                Some(Gauge::There(dut.clone(), None))
            }
            Some(Between { inside: None, .. }) => {
                kept.lacks("CPU", "the DUT tells its load by --dut-agent only".to_owned());
                None
            }
        }
    }

    /// Those that this machine can have.
    fn possible(&self, devices: Option<&Devices>, kept: &mut Kept) -> Result<Vec<Cell>, Error> {
        let is_tagged = self.cells.iter().any(|cell| cell.vlan);
        let no_tags = if devices.is_none() && is_tagged { vlan_lacking()? } else { None };
        let (mut possible, mut first_lack) = (Vec::new(), None);
        for cell in &self.cells {
            let lack = match devices {
                Some(devices) => devices.lack(cell),
                None => no_tags.clone().filter(|_| cell.vlan),
            };
            match lack {
                Some(why) => {
                    kept.lacks(&cell.to_string(), why.clone());
                    first_lack.get_or_insert(why);
                }
                None => possible.push(*cell),
            }
        }
        match first_lack {
            Some(why) if possible.is_empty() => Err(Error::Asked(why)),
            _ => Ok(possible),
        }
    }

    fn report(
        &self,
        cells: Vec<Cell>,
        mut kept: Kept,
        failure: Option<String>,
        stop: &AtomicBool,
    ) -> Result<Report, Error> {
        for (name, percent) in noisy(kept.results()) {
            kept.doubt(&name, Doubt::Noisy { percent });
        }
        let columns: Vec<String> = self.columns.iter().map(|column| column.name.clone()).collect();
        for (name, ratio) in ratios(&columns, &cells, kept.results()) {
            kept.put(&name, ratio)?;
        }
        let whole = failure.is_none() && !stop.load(Ordering::Relaxed);
        let results = if whole {
            kept.finish()?
        } else {
            let results = kept.results().clone();
            kept.leave()?;
            results
        };
        let (seconds, speed, dut) = (self.seconds, self.speed, self.between.is_some());
        Ok(Report { columns, cells, seconds, speed, dut, results, failure })
    }
}

/// Why this kernel has no VLAN devices, if it has none.
fn vlan_lacking() -> Result<Option<String>, Error> {
    let scratch = NetNs::try_new("vlan")?;
    scratch.try_run("ip link add p0 type veth peer name p1")?;
    let made = scratch.try_run("ip link add link p0 name p0.5 type vlan id 5");
    Ok(made.err().map(|why| {
        let why = why.to_string();
        let said =
            why.lines().next().and_then(|line| line.rsplit_once("status: ")).map_or("", |(_, said)| said);
        format!("this kernel makes no VLAN devices (CONFIG_VLAN_8021Q): ip ended with {said}")
    }))
}

fn noisy(results: &Results) -> Vec<(String, f64)> {
    let apart = |reading: &Reading| (reading.spread.high - reading.spread.low) / reading.value;
    let rates = results.readings.iter().filter(|(_, reading)| reading.unit == Quantity::Goodput.unit());
    let rates = rates.map(|(name, reading)| (name.clone(), apart(reading)));
    rates.filter(|(_, apart)| *apart > NOISY).map(|(name, apart)| (name, apart * 100.0)).collect()
}

/// Each column's goodput to that of the first, for programs that read the file.
fn ratios(columns: &[String], cells: &[Cell], results: &Results) -> Vec<(String, Reading)> {
    let Some((first, others)) = columns.split_first() else { return Vec::new() };
    let mut ratios = Vec::new();
    for cell in cells {
        for way in cell.direction.ways() {
            let reading = |column| results.readings.get(&cell.reading(*way, column, Quantity::Goodput));
            let Some(base) = reading(first) else { continue };
            ratios.extend(others.iter().filter_map(|column| {
                let name = format!("{} to {first}", cell.reading(*way, column, Quantity::Goodput));
                Some((name, Reading::ratio(reading(column)?, base, SEED)?))
            }));
        }
    }
    ratios
}

impl Report {
    /// One reading, if it was measured.
    pub fn reading(&self, cell: &Cell, way: Way, column: &str, quantity: Quantity) -> Option<&Reading> {
        self.results.readings.get(&cell.reading(way, column, quantity))
    }

    /// Another column against the first.
    pub fn gain(&self, cell: &Cell, way: Way, column: &str, quantity: Quantity) -> Option<Compared> {
        let first = self.columns.first().filter(|first| *first != column)?;
        let base = self.reading(cell, way, first, quantity)?;
        let other = self.reading(cell, way, column, quantity)?;
        Some(Compared::of(&cell.reading(way, column, quantity), base, other, SEED))
    }

    /// Of the readings, each once: those of a kind with how many readings have it, and the name of the first of them.
    pub fn doubts(&self) -> Vec<(&Doubt, &str, usize)> {
        let mut doubts: Vec<(&Doubt, &str, usize)> = Vec::new();
        for (name, reading) in &self.results.readings {
            let mut of_this_reading = HashSet::new();
            for doubt in reading.doubts.iter().filter(|doubt| of_this_reading.insert(discriminant(*doubt))) {
                let same =
                    |(other, ..): &&mut (&Doubt, &str, usize)| discriminant(*other) == discriminant(doubt);
                match doubts.iter_mut().find(same) {
                    Some((_, _, count)) => *count += 1,
                    None => doubts.push((doubt, name, 1)),
                }
            }
        }
        doubts
    }
}

impl Quantity {
    /// Of its readings.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Goodput => "Mbit/s",
            Self::Loss | Self::CpuLoad | Self::ProcStat => "%",
            Self::Jitter => "ms",
        }
    }
}

impl From<LoadError> for Error {
    fn from(error: LoadError) -> Self {
        Self::Machine(error.to_string())
    }
}

/// The traffic that has the same router, in the order in which it was asked for.
fn groups(cells: &[Cell]) -> Vec<Vec<Cell>> {
    let mut seen = BTreeSet::new();
    let kinds = cells.iter().map(|cell| (cell.nat, cell.vlan)).filter(|kind| seen.insert(*kind));
    kinds.map(|kind| cells.iter().filter(|cell| (cell.nat, cell.vlan) == kind).copied().collect()).collect()
}

#[cfg(test)]
mod tests;
