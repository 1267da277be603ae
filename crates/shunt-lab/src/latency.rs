//! Latency under load: the round-trip time of small packets through a router, before, while and after TCP fills it.
//!
//! All columns (engines) are measured in turn, and again in each round. A run has three phases: idle, load by iperf3,
//! and idle again. Probes are sent all the time.

mod clock;
mod course;
mod probe;
mod stamps;

use crate::{
    Doubt, Nic, Position, Progress, Results, ResultsFile, Run,
    goodput::{
        Cell, Column, DevicePair,
        iperf_rig::{Devices, End, Rig},
    },
    iperf::{Direction, FlowDirection, Iperf, Load, Test},
    throughput::RunningShunt,
    traffic::{Error, require_root},
};
use clock::ChosenClock;
pub use clock::Clock;
use course::{Figures, Phases, Rtt};
use probe::{Probe, ProbeForm, ProbedRun};
use serde_json::{Map, Value, json};
use shunt_traffic::{HardwareStamps, StampedPackets};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

/// The idle time after the load.
const AFTER: Duration = Duration::from_secs(1);
/// The first probes find neighbours and set up connections; they do not count.
const SETTLE: Duration = Duration::from_millis(200);
const STEP: Duration = Duration::from_millis(20);
/// The conditions that name the clock, and the reasons for not using a better one.
const CLOCK: &str = "clock";
const CLOCK_REASONS: &str = "clock_not_better";
/// The quantity on the x axis of all courses.
const ALONG: &str = "time since the load began";

/// The name of this measurement in files of results.
pub const WHAT: &str = "latency under load";

/// The plan of a measurement.
#[derive(Debug)]
pub struct LatencyPlan {
    /// Two devices of this machine with a router between them; None for a router of our own in namespaces.
    pub between: Option<DevicePair>,
    /// The engines to compare.
    pub columns: Vec<Column>,
    /// The direction of the load.
    pub direction: Direction,
    /// The clock of the round-trip times; None for the best one that stamps the probes.
    pub clock: Option<Clock>,
    /// Number of TCP streams in each direction.
    pub streams: u32,
    /// Whether load and probes are IPv6.
    pub v6: bool,
    /// Whether the router masquerades traffic to the WAN.
    pub nat: bool,
    /// Number of runs of each column.
    pub rounds: u32,
    /// Idle time before the load.
    pub idle: Duration,
    /// Duration of the load in seconds.
    pub seconds: u32,
    /// Length of an interval of the courses.
    pub interval: Duration,
}

/// The result of a measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// The direction of the load.
    pub direction: Direction,
    /// Number of TCP streams in each direction.
    pub streams: u32,
    /// Duration of the load in seconds.
    pub seconds: u32,
    /// All readings, and the reasons for missing ones.
    pub results: Results,
}

/// A figure of a column, beside the courses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// Round-trip time in a phase.
    Rtt(Phase, Percentile),
    /// Share of the probes that were not answered while the load ran.
    Lost,
    /// Received rate of the hosts at the end of a way, headers included, while the load ran.
    Received(FlowDirection),
}

/// A phase of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Before the load.
    Idle,
    /// While the load runs.
    Loaded,
}

/// A percentile of a phase's round-trip times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Percentile {
    /// The median.
    P50,
    /// The 99th percentile.
    P99,
    /// The longest time.
    Max,
}

/// A run: the router's answers, and when the load flowed.
struct Measured {
    seen: ProbedRun,
    /// Numbers of the NICs' clocks, or why they stamp no packets.
    nic_clocks: Result<[u32; 2], String>,
    phases: Phases,
    /// Share of all packets on the fast path while the load ran; None without an engine.
    fast_share: Option<f64>,
}

impl LatencyPlan {
    /// Measures. When `stop` is set, the measurement ends at once and keeps the finished runs.
    ///
    /// # Errors
    /// Fails if the machine or the router refuses. The setup is undone, and finished runs stay in the file.
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
        if let Some(why) = devices.as_ref().and_then(|devices| devices.lack(&self.cell())) {
            return Err(Error::Asked(why));
        }
        let total = u64::from(self.rounds) * self.columns.len() as u64;
        let mut chosen = None;
        let turns = (0..self.rounds).flat_map(|_| &self.columns);
        for (done, column) in (0..).zip(turns) {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            show(Progress { done, total, now: column.name.clone() });
            let rig = Rig::new(devices.as_ref(), self.cell())?;
            let ends = rig.ends();
            if file.results().conditions.nics.is_empty() {
                file.set_nics(&ends.map(|end| end.ns.within(|| Nic::read(end.nic))));
            }
            let up = rig.arrange(column)?;
            let measured = self.run(&iperf, &ends, up.as_ref(), stop)?;
            up.map(RunningShunt::down).transpose()?;
            if let Some(measured) = measured {
                let clock = match chosen {
                    Some(clock) => clock,
                    None => *chosen.insert(self.choose_clock(&mut file, &measured)?),
                };
                self.save(&mut file, &column.name, &measured, clock)?;
                file.save()?;
            }
        }
        let results = file.end(!stop.load(Ordering::Relaxed))?;
        let columns = self.columns.iter().map(|column| column.name.clone()).collect();
        let Self { direction, streams, seconds, .. } = *self;
        Ok(Report { columns, direction, streams, seconds, results })
    }

    /// The traffic of the load, by which the router is set up.
    fn cell(&self) -> Cell {
        Cell { v6: self.v6, nat: self.nat, direction: self.direction, ..Cell::PLAIN }
    }

    /// Chooses the clock of all runs by the first one, and writes it into the conditions.
    fn choose_clock(&self, file: &mut ResultsFile, measured: &Measured) -> Result<Clock, Error> {
        let no_nic_clock = measured.nic_clocks.as_ref().err().map(String::as_str);
        let chosen = ChosenClock::new(self.clock, no_nic_clock, measured.settled()).map_err(Error::Asked)?;
        let mut named = chosen.clock.to_string();
        if let (Clock::Nic, Ok([lan, wan])) = (chosen.clock, &measured.nic_clocks) {
            named += &format!(" (PHC{lan} and PHC{wan})");
        }
        let setup = &mut file.conditions_mut().setup;
        setup.insert(CLOCK.to_owned(), named.into());
        if !chosen.not_better.is_empty() {
            setup.insert(CLOCK_REASONS.to_owned(), chosen.not_better.into());
        }
        Ok(chosen.clock)
    }

    /// Turns the time stamps of both NICs on, if their clocks may be used.
    fn stamp(&self, ends: &[End<'_>; 2]) -> Result<[HardwareStamps; 2], String> {
        if self.clock.is_some_and(|clock| clock != Clock::Nic) {
            return Err("not asked for".to_owned());
        }
        let [lan, wan] = ends
            .each_ref()
            .map(|end| end.ns.within(|| HardwareStamps::turn_on(end.nic).map_err(|why| why.to_string())));
        Ok([lan?, wan?])
    }

    /// One run; None if `stop` was set meanwhile.
    fn run(
        &self,
        iperf: &Iperf,
        ends: &[End<'_>; 2],
        up: Option<&RunningShunt<'_>>,
        stop: &AtomicBool,
    ) -> Result<Option<Measured>, Error> {
        let [client, server] = ends;
        let to = server.address(self.v6)?;
        let test = Test {
            client: client.ns,
            server: server.ns,
            to,
            load: Load::Tcp,
            streams: self.streams,
            direction: self.direction,
            rate_bps: None,
            seconds: self.seconds,
        };
        let hardware = self.stamp(ends);
        if let (Some(wanted @ Clock::Nic), Err(why)) = (self.clock, &hardware) {
            return Err(Error::Asked(clock::refusal(wanted, why)));
        }
        let only_ptp = |nic: &HardwareStamps| nic.received() == StampedPackets::PtpEvents;
        let form = match &hardware {
            Ok(both) if both.iter().any(only_ptp) => ProbeForm::Ptp,
            _ => ProbeForm::Plain,
        };
        let start = Instant::now();
        let mut looks = Vec::new();
        let (ran, seen) = probe::during(ends, self.v6, form, start, || {
            if !wait(SETTLE + self.idle, stop) {
                return Ok(false);
            }
            let mut look =
                |since: Duration| looks.push((start.elapsed(), since, up.map(RunningShunt::packets)));
            let ran = iperf.run(&test, stop, &mut look)?.is_some();
            Ok::<_, Error>(ran && wait(AFTER, stop))
        })?;
        if !ran? {
            return Ok(None);
        }
        if seen.probes.iter().all(|probe| probe.rtt.is_none()) {
            let port = form.port();
            return Err(Error::Asked(format!(
                "none of {} probes from {} to {to} was answered: does the router forward UDP to port {port}?",
                seen.probes.len(),
                client.nic
            )));
        }
        let mut looks = looks.into_iter();
        let (Some((from, since, before)), Some((until, _, after))) = (looks.next(), looks.next()) else {
            return Err(Error::Machine("iperf3 ended before its time".to_owned()));
        };
        let began = from.saturating_sub(since);
        let phases = Phases { idle: SETTLE..began.min(SETTLE + self.idle), began, loaded: from..until };
        let fast_share = before.transpose()?.zip(after.transpose()?).map(|(then, now)| {
            now.0.saturating_sub(then.0) as f64 / now.1.saturating_sub(then.1).max(1) as f64
        });
        let nic_clocks = hardware.map(|both| both.each_ref().map(HardwareStamps::phc));
        Ok(Some(Measured { seen, nic_clocks, phases, fast_share }))
    }

    fn save(
        &self,
        file: &mut ResultsFile,
        column: &str,
        measured: &Measured,
        clock: Clock,
    ) -> Result<(), Error> {
        let Measured { seen, phases, fast_share, .. } = measured;
        if let Some(why) = clock.lack(measured.settled()) {
            file.add_missing(&Quantity::Rtt(Phase::Loaded, Percentile::P50).reading(column), why);
            return Ok(());
        }
        let phase_of = |range| Figures::from_probes(&seen.probes, range, clock);
        let (idle, loaded) = (phase_of(&phases.idle), phase_of(&phases.loaded));
        for (phase, figures) in [(Phase::Idle, idle), (Phase::Loaded, loaded)] {
            let details =
                json!({ "probes": figures.probes, "fast_share": fast_share, "clock": clock.name() });
            match figures.rtt_ms {
                Some(rtt) => {
                    for percentile in [Percentile::P50, Percentile::P99, Percentile::Max] {
                        let quantity = Quantity::Rtt(phase, percentile);
                        add(file, quantity, column, percentile.value_in(&rtt), &details)?;
                        if let Some(doubt) = fast_share.and_then(Doubt::slow_path) {
                            file.add_doubt(&quantity.reading(column), doubt);
                        }
                    }
                }
                None => file.add_missing(
                    &Quantity::Rtt(phase, Percentile::P50).reading(column),
                    format!("none of {} probes was answered", figures.probes),
                ),
            }
        }
        add(file, Quantity::Lost, column, loaded.lost * 100.0, &json!({ "probes": loaded.probes }))?;
        let loaded = phases.loaded.start.as_secs_f64()..phases.loaded.end.as_secs_f64();
        for way in self.direction.ways() {
            let counts = match way {
                FlowDirection::Forward => &seen.wan,
                FlowDirection::Reverse => &seen.lan,
            };
            if let Some(mbps) = course::rate_mbps(counts, loaded.clone()) {
                add(file, Quantity::Received(*way), column, mbps, &Value::Null)?;
            }
        }
        self.save_courses(file, column, measured, clock)
    }

    fn save_courses(
        &self,
        file: &mut ResultsFile,
        column: &str,
        measured: &Measured,
        clock: Clock,
    ) -> Result<(), Error> {
        for interval in course::intervals(&measured.seen, &measured.phases, self.interval, clock) {
            let received = |way: FlowDirection, mbps: Option<f64>| {
                let of = format!("received {}", side(way));
                self.direction.ways().contains(&way).then_some((of, "Mbit/s", mbps))
            };
            let rtt = |percentile: Percentile| {
                let of = format!("RTT {}", percentile.name());
                Some((of, "ms", interval.rtt_ms.map(|rtt| percentile.value_in(&rtt))))
            };
            let points = [
                rtt(Percentile::P50),
                rtt(Percentile::P99),
                received(FlowDirection::Forward, interval.wan_mbps),
                received(FlowDirection::Reverse, interval.lan_mbps),
            ];
            for (of, unit, value) in points.into_iter().flatten() {
                let Some(value) = value else { continue };
                let name = format!("{of} {column} at {:.1} s", interval.at_s);
                file.add(&name, unit, value)?;
                let position = Position {
                    of,
                    line: column.to_owned(),
                    along: ALONG.to_owned(),
                    unit: "s".to_owned(),
                    value: (interval.at_s * 1e3).round() / 1e3,
                };
                file.set_position(&name, position);
            }
        }
        Ok(())
    }
}

impl Measured {
    /// The probes after the first ones, which find neighbours and set up connections.
    fn settled(&self) -> &[Probe] {
        &self.seen.probes[self.seen.probes.partition_point(|probe| probe.at < SETTLE)..]
    }
}

fn add(
    file: &mut ResultsFile,
    quantity: Quantity,
    column: &str,
    value: f64,
    details: &Value,
) -> Result<(), Error> {
    let details: Map<String, Value> = details.as_object().cloned().unwrap_or_default();
    let details = details.into_iter().filter(|(_, value)| !value.is_null()).collect();
    let name = quantity.reading(column);
    file.add(&name, quantity.unit(), Run { value, at: None, details })?;
    let doubts = file.results().conditions.doubts();
    doubts.into_iter().for_each(|doubt| file.add_doubt(&name, doubt));
    Ok(())
}

/// Waits; false if `stop` was set meanwhile.
fn wait(time: Duration, stop: &AtomicBool) -> bool {
    let until = Instant::now() + time;
    while Instant::now() < until && !stop.load(Ordering::Relaxed) {
        thread::sleep(STEP.min(until.saturating_duration_since(Instant::now())));
    }
    !stop.load(Ordering::Relaxed)
}

fn side(way: FlowDirection) -> &'static str {
    match way {
        FlowDirection::Forward => "on the WAN",
        FlowDirection::Reverse => "on the LAN",
    }
}

impl Quantity {
    /// The name of the reading for a column.
    pub fn reading(self, column: &str) -> String {
        match self {
            Self::Rtt(phase, percentile) => {
                let phase = match phase {
                    Phase::Idle => "idle",
                    Phase::Loaded => "loaded",
                };
                format!("{phase} RTT {} {column}", percentile.name())
            }
            Self::Lost => format!("lost probes under load {column}"),
            Self::Received(way) => format!("received {} under load {column}", side(way)),
        }
    }

    /// The unit of the readings.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Rtt(..) => "ms",
            Self::Lost => "%",
            Self::Received(_) => "Mbit/s",
        }
    }
}

impl Percentile {
    /// The name: `median`, `p99`, `maximum`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::P50 => "median",
            Self::P99 => "p99",
            Self::Max => "maximum",
        }
    }

    fn value_in(self, rtt: &Rtt) -> f64 {
        match self {
            Self::P50 => rtt.p50,
            Self::P99 => rtt.p99,
            Self::Max => rtt.max,
        }
    }
}

impl Report {
    /// The value of a column; None if it was not measured.
    pub fn value(&self, quantity: Quantity, column: &str) -> Option<f64> {
        Some(self.results.readings.get(&quantity.reading(column))?.value)
    }

    /// Share of all packets on the fast path while the load ran, in the last run; None without an engine.
    pub fn fast_share(&self, column: &str) -> Option<f64> {
        let name = Quantity::Rtt(Phase::Loaded, Percentile::P50).reading(column);
        self.results.readings.get(&name)?.runs.last()?.details.get("fast_share")?.as_f64()
    }

    /// The clock of the round-trip times; None in a measurement without a finished run.
    pub fn clock(&self) -> Option<&str> {
        self.results.conditions.setup.get(CLOCK)?.as_str()
    }

    /// Why no better clock was used, one reason for each.
    pub fn clock_reasons(&self) -> Vec<&str> {
        let reasons = self.results.conditions.setup.get(CLOCK_REASONS).and_then(Value::as_array);
        reasons.into_iter().flatten().filter_map(Value::as_str).collect()
    }

    /// A course: seconds since the load began, and the value.
    pub fn course(&self, of: &str, column: &str) -> Vec<(f64, f64)> {
        let of_column = self.results.readings.values().filter_map(|reading| {
            let position = reading.position.as_ref()?;
            (position.of == of && position.line == column).then_some((position.value, reading.value))
        });
        let mut points: Vec<(f64, f64)> = of_column.collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    }
}
