//! Goodput of TCP and UDP through a router, by iperf3, with the CPU load. For each kind of traffic, all columns
//! (engines or settings) are measured in turn, and again in each round, so that changes over time affect all of them.

mod cell;
mod gauge;
pub(crate) mod iperf_rig;
mod runs;

pub use crate::labels::Protocol;
use crate::{
    Compared, Doubt, Labels, Measured, PathLabel, Progress, Reading, Results, ResultsFile,
    dut::{self, Dut},
    iperf::{FlowDirection, Iperf},
    load::{LoadError, Meter},
    throughput::Engine,
    traffic::{Error, require_root, vlan_lacking},
};
pub use cell::Cell;
use gauge::Gauge;
use iperf_rig::Devices;
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

/// The plan of a measurement.
#[derive(Debug)]
pub struct GoodputPlan {
    /// Name of the measurement, such as `goodput matrix`.
    pub what: String,
    /// Two devices of this machine with a router between them; None for a router of our own in namespaces.
    pub between: Option<DevicePair>,
    /// The engines or settings to compare; ratios are to the first column.
    pub columns: Vec<Column>,
    /// The kinds of traffic.
    pub cells: Vec<Cell>,
    /// Number of runs of each cell in each column.
    pub rounds: u32,
    /// Duration of a run in seconds.
    pub seconds: u32,
    /// Speed of the line; no more is offered. None if there is no line.
    pub speed: Option<LinkSpeed>,
    /// Whether to measure the CPU load.
    pub load: bool,
}

/// A router between two devices of this machine.
#[derive(Debug)]
pub struct DevicePair {
    /// The device on the LAN side, which connects.
    pub lan: Wired,
    /// The device on the WAN side, which listens.
    pub wan: Wired,
    /// The router's agent, if it has one.
    pub dut: Option<Dut>,
}

/// A device of this machine, and the next hops from there if the other device is in another subnet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wired {
    /// Name of the device.
    pub device: String,
    /// Addresses of the next hops, at most one per IP version.
    pub gateways: Vec<IpAddr>,
}

/// The settings of one column.
#[derive(Debug, Clone)]
pub struct Column {
    /// Name of the column.
    pub name: String,
    /// The engine; None for Linux without Shunt.
    pub engine: Option<Engine>,
    /// Shell command to run in the router before the runs of the column, each time a router is made.
    pub command: Option<String>,
}

impl Column {
    /// The path; None if a command of the column may change it.
    fn path(&self) -> Option<PathLabel> {
        match (&self.command, &self.engine) {
            (Some(_), _) => None,
            (None, None) => Some(PathLabel::Slow),
            (None, Some(engine)) => PathLabel::from_name(&engine.name),
        }
    }
}

/// The result of a measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// The kinds of traffic that this machine supports.
    pub cells: Vec<Cell>,
    /// Duration of each run in seconds.
    pub seconds: u32,
    /// Speed of the line.
    pub speed: Option<LinkSpeed>,
    /// Whether the CPU load is that of a DUT.
    pub dut: bool,
    /// All readings, and the reasons for missing ones.
    pub results: Results,
    /// The first unexpected failure.
    pub failure: Option<String>,
}

/// A quantity that is measured for each way of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// Received payload.
    Goodput,
    /// Share of lost datagrams.
    Loss,
    /// Jitter of datagrams.
    Jitter,
    /// CPU load by the meter: the mean of all CPUs of this machine, or of the DUT.
    CpuLoad,
    /// CPU load by /proc/stat.
    ProcStat,
}

impl GoodputPlan {
    /// Measures. When `stop` is set, the measurement ends at once and keeps the finished runs.
    ///
    /// # Errors
    /// Fails if nothing could be measured. The setup is undone.
    pub fn perform(
        &self,
        mut file: ResultsFile,
        stop: &AtomicBool,
        show: &mut dyn FnMut(Progress),
    ) -> Result<Report, Error> {
        require_root()?;
        let iperf = Iperf::find()?;
        file.conditions_mut().tools.insert("iperf3".to_owned(), iperf.version().to_owned());
        let devices = self.between.as_ref().map(Devices::borrow).transpose()?;
        let cells = self.possible(devices.as_ref(), &mut file)?;
        let gauge = if self.load { self.gauge(&mut file) } else { None };
        let mut runs = Runs::new(self, iperf, devices.as_ref(), gauge, &mut file, stop, show);
        runs.all(&cells);
        let (failure, measured) = runs.end();
        if let Some(why) = failure.clone().filter(|_| !measured) {
            return Err(Error::Machine(why));
        }
        self.report(cells, file, failure, stop)
    }

    /// Starts the load meter. This comes before the traffic, since the meter is calibrated on an idle machine.
    fn gauge(&self, file: &mut ResultsFile) -> Option<Gauge> {
        match &self.between {
            None => Meter::start(None)
                .map_err(|why| file.add_missing("CPU", why.to_string()))
                .map(|meter| Gauge::Here(Box::new(meter)))
                .ok(),
            Some(DevicePair { dut: Some(dut), .. }) => {
                file.conditions_mut().dut = dut::conditions(&Some(dut.clone()));
                Some(Gauge::There(dut.clone(), None))
            }
            Some(DevicePair { dut: None, .. }) => {
                file.add_missing("CPU", "the load of a DUT needs --dut-agent".to_owned());
                None
            }
        }
    }

    /// The cells that this machine supports.
    fn possible(&self, devices: Option<&Devices>, file: &mut ResultsFile) -> Result<Vec<Cell>, Error> {
        let is_tagged = self.cells.iter().any(|cell| cell.vlan);
        let no_tags = if devices.is_none() && is_tagged { vlan_lacking()? } else { None };
        let (mut possible, mut first_lack) = (Vec::new(), None);
        for cell in &self.cells {
            let of_router = || match devices {
                Some(devices) => devices.lack(cell),
                None => no_tags.clone().filter(|_| cell.vlan),
            };
            let lack = cell.lack().or_else(of_router);
            match lack {
                Some(why) => {
                    file.add_missing(&cell.to_string(), why.clone());
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
        mut file: ResultsFile,
        failure: Option<String>,
        stop: &AtomicBool,
    ) -> Result<Report, Error> {
        for (name, percent) in noisy(file.results()) {
            file.add_doubt(&name, Doubt::Noisy { percent });
        }
        let columns: Vec<String> = self.columns.iter().map(|column| column.name.clone()).collect();
        for (name, ratio) in ratios(&columns, &cells, file.results()) {
            file.insert(&name, ratio);
        }
        let whole = failure.is_none() && !stop.load(Ordering::Relaxed);
        let results = file.end(whole)?;
        let (seconds, speed, dut) = (self.seconds, self.speed, self.between.is_some());
        Ok(Report { columns, cells, seconds, speed, dut, results, failure })
    }
}

fn noisy(results: &Results) -> Vec<(String, f64)> {
    let apart = |reading: &Reading| (reading.spread.high - reading.spread.low) / reading.value;
    let rates = results.readings.iter().filter(|(_, reading)| reading.unit == Quantity::Goodput.unit());
    let rates = rates.map(|(name, reading)| (name.clone(), apart(reading)));
    rates.filter(|(_, apart)| *apart > NOISY).map(|(name, apart)| (name, apart * 100.0)).collect()
}

/// The goodput of each column divided by that of the first, for programs that read the file.
fn ratios(columns: &[String], cells: &[Cell], results: &Results) -> Vec<(String, Reading)> {
    let Some((first, others)) = columns.split_first() else { return Vec::new() };
    let mut ratios = Vec::new();
    for cell in cells {
        for way in cell.direction.ways() {
            let reading = |column| results.readings.get(&cell.reading(*way, column, Quantity::Goodput));
            let Some(base) = reading(first) else { continue };
            ratios.extend(others.iter().filter_map(|column| {
                let name = format!("{} to {first}", cell.reading(*way, column, Quantity::Goodput));
                let of = reading(column)?;
                let labels = Labels { quantity: Some(Measured::GoodputRatio), ..of.labels };
                Some((name, Reading { labels, ..Reading::ratio(of, base)? }))
            }));
        }
    }
    ratios
}

impl Report {
    /// A reading; None if it was not measured.
    pub fn reading(
        &self,
        cell: &Cell,
        way: FlowDirection,
        column: &str,
        quantity: Quantity,
    ) -> Option<&Reading> {
        self.results.readings.get(&cell.reading(way, column, quantity))
    }

    /// A column's change against the first column.
    pub fn gain(
        &self,
        cell: &Cell,
        way: FlowDirection,
        column: &str,
        quantity: Quantity,
    ) -> Option<Compared> {
        let first = self.columns.first().filter(|first| *first != column)?;
        let base = self.reading(cell, way, first, quantity)?;
        let other = self.reading(cell, way, column, quantity)?;
        Some(Compared::within(&cell.reading(way, column, quantity), base, other, &self.results))
    }

    /// The doubts of all readings, one per kind: with the name of the first reading that has it and the number of
    /// readings.
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
    const ALL: [Self; 5] = [Self::Goodput, Self::Loss, Self::Jitter, Self::CpuLoad, Self::ProcStat];

    const fn label(self) -> Measured {
        match self {
            Self::Goodput => Measured::Goodput,
            Self::Loss => Measured::Loss,
            Self::Jitter => Measured::Jitter,
            Self::CpuLoad => Measured::CpuLoad,
            Self::ProcStat => Measured::ProcStat,
        }
    }

    const fn is_load(self) -> bool {
        matches!(self, Self::CpuLoad | Self::ProcStat)
    }

    /// The unit of the readings.
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

/// Cells that use the same router, in the requested order.
fn groups(cells: &[Cell]) -> Vec<Vec<Cell>> {
    let mut seen = BTreeSet::new();
    let kind = |cell: &Cell| (cell.nat, cell.vlan, cell.mtu);
    let kinds = cells.iter().map(kind).filter(|kind| seen.insert(*kind));
    kinds.map(|of| cells.iter().filter(|cell| kind(cell) == of).copied().collect()).collect()
}

#[cfg(test)]
mod tests;
