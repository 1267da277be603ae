//! The runs of a measurement, and their figures in the file of results.

use super::{
    Cell, Column, GoodputPlan, Quantity,
    gauge::Gauge,
    groups,
    iperf_rig::{Devices, End, Rig},
};
use crate::{
    Doubt, Nic, Progress, ResultsFile, Run,
    iperf::{Arrived, FlowDirection, Iperf, Test},
    load::Load,
    throughput::RunningShunt,
    traffic::Error,
};
use serde_json::{Map, Value, json};
use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
};

/// After so many failures in a row the measurement ends.
const FAILURES_MAX: u32 = 3;

pub(super) struct Runs<'a> {
    plan: &'a GoodputPlan,
    iperf: Iperf,
    devices: Option<&'a Devices>,
    gauge: Option<Gauge>,
    file: &'a mut ResultsFile,
    stop: &'a AtomicBool,
    show: &'a mut dyn FnMut(Progress),
    done: u64,
    /// Names of columns that failed to start.
    broken: BTreeSet<String>,
    failures_in_a_row: u32,
    failure: Option<String>,
    measured: bool,
}

/// The figures of one run.
struct RunFigures {
    arrived: Vec<Arrived>,
    /// CPU load; None without a meter, or if the run was too short for it.
    load: Option<Load>,
    /// Share of all packets on the fast path; None without an engine.
    fast_share: Option<f64>,
    /// Bytes received by the device of each way's receiver, headers included.
    received_bytes: Vec<u64>,
}

impl<'a> Runs<'a> {
    pub(super) fn new(
        plan: &'a GoodputPlan,
        iperf: Iperf,
        devices: Option<&'a Devices>,
        gauge: Option<Gauge>,
        file: &'a mut ResultsFile,
        stop: &'a AtomicBool,
        show: &'a mut dyn FnMut(Progress),
    ) -> Self {
        Self {
            plan,
            iperf,
            devices,
            gauge,
            file,
            stop,
            show,
            done: 0,
            broken: BTreeSet::new(),
            failures_in_a_row: 0,
            failure: None,
            measured: false,
        }
    }

    /// Runs all cells; failures are recorded in the results.
    pub(super) fn all(&mut self, cells: &[Cell]) {
        let plan = self.plan;
        let total = u64::from(plan.rounds) * (cells.len() * plan.columns.len()) as u64;
        for round in 1..=plan.rounds {
            for group in groups(cells) {
                for column in &plan.columns {
                    if self.is_over() {
                        return;
                    }
                    if self.broken.contains(&column.name) {
                        self.done += group.len() as u64;
                    } else if let Err(why) = self.group(column, &group, round, total) {
                        self.fails(&column.name, &why.to_string());
                        self.broken.insert(column.name.clone());
                    }
                }
            }
        }
    }

    /// The first failure, and whether any run succeeded.
    pub(super) fn end(self) -> (Option<String>, bool) {
        (self.failure, self.measured)
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.failures_in_a_row >= FAILURES_MAX
    }

    fn group(&mut self, column: &Column, cells: &[Cell], round: u32, total: u64) -> Result<(), Error> {
        let Some(first) = cells.first() else { return Ok(()) };
        let rig = Rig::new(self.devices, *first)?;
        let ends = rig.ends();
        if self.file.results().conditions.nics.is_empty() {
            self.file.set_nics(&ends.map(|end| end.ns.within(|| Nic::read(end.nic))));
        }
        let up = rig.arrange(column)?;
        for cell in cells {
            let now = format!("{cell}, {}", column.name);
            (self.show)(Progress { done: self.done, total, now });
            match self.run(cell, &ends, up.as_ref()) {
                Ok(None) => {}
                Ok(Some(seen)) => {
                    self.failures_in_a_row = 0;
                    self.save(cell, column, &seen)?;
                    self.file.save()?;
                    self.measured = true;
                }
                Err(why) => {
                    self.failures_in_a_row += 1;
                    self.fails(&format!("{cell} {}, run {round}", column.name), &why.to_string());
                }
            }
            self.done += 1;
            if self.is_over() {
                break;
            }
        }
        up.map(RunningShunt::down).transpose()?;
        Ok(())
    }

    fn fails(&mut self, what: &str, why: &str) {
        self.file.add_missing(what, why.to_owned());
        self.failure.get_or_insert_with(|| format!("{what}: {why}"));
    }

    fn run(
        &mut self,
        cell: &Cell,
        ends: &[End<'_>; 2],
        up: Option<&RunningShunt<'_>>,
    ) -> Result<Option<RunFigures>, Error> {
        let [client, server] = ends;
        let test = Test {
            client: client.ns,
            server: server.ns,
            to: server.address(cell.v6)?,
            load: cell.load(),
            streams: 1,
            direction: cell.direction,
            rate_bps: cell.offered_bps(self.plan.speed),
            seconds: self.plan.seconds,
        };
        let receivers = cell.direction.ways().iter().map(|way| match way {
            FlowDirection::Forward => server,
            FlowDirection::Reverse => client,
        });
        let receivers: Vec<&End<'_>> = receivers.collect();
        let bytes = || receivers.iter().map(|end| received(end)).collect::<Result<Vec<u64>, Error>>();
        let packets = || up.map(RunningShunt::packets).transpose();
        let (bytes_before, packets_before) = (bytes()?, packets()?);
        // The load of a run is that between its two looks.
        let mut looks = Vec::new();
        let gauge = &mut self.gauge;
        gauge.iter_mut().for_each(Gauge::begin);
        let look = &mut |_| looks.extend(gauge.as_mut().map(Gauge::look));
        let arrived = self.iperf.run(&test, self.stop, look)?;
        let Some(arrived) = arrived else { return Ok(None) };
        let received_bytes = bytes()?.iter().zip(&bytes_before).map(|(now, then)| now - then).collect();
        let fast_share = packets()?.zip(packets_before).map(|((fast, all), then)| {
            (fast.saturating_sub(then.0)) as f64 / all.saturating_sub(then.1).max(1) as f64
        });
        let load = looks.into_iter().nth(1).transpose()?.flatten();
        Ok(Some(RunFigures { arrived, load, fast_share, received_bytes }))
    }

    fn save(&mut self, cell: &Cell, column: &Column, seen: &RunFigures) -> Result<(), Error> {
        for (n, (way, arrived)) in cell.direction.ways().iter().zip(&seen.arrived).enumerate() {
            let name = |quantity| cell.reading(*way, &column.name, quantity);
            let details = json!({
                "bytes": arrived.bytes, "seconds": arrived.seconds, "retransmits": arrived.retransmits,
                "datagrams": arrived.datagrams, "fast_share": seen.fast_share,
                "device_bytes": seen.received_bytes.get(n),
            });
            let goodput = name(Quantity::Goodput);
            self.add(&goodput, Quantity::Goodput, arrived.bits_per_second / 1e6, details)?;
            if let Some(limit) = cell.limit(self.plan.speed) {
                self.file.set_limit(&goodput, limit);
            }
            if arrived.bytes == 0 {
                self.file.add_doubt(&goodput, Doubt::NothingArrived);
            }
            if let Some(doubt) = seen.fast_share.and_then(Doubt::slow_path) {
                self.file.add_doubt(&goodput, doubt);
            }
            if let Some(datagrams) = arrived.datagrams {
                let details = json!({ "datagrams": datagrams });
                self.add(&name(Quantity::Loss), Quantity::Loss, datagrams.loss_ratio * 100.0, details)?;
                self.add(&name(Quantity::Jitter), Quantity::Jitter, datagrams.jitter_ms, Value::Null)?;
            }
        }
        if let (Some(load), Some(way)) = (&seen.load, cell.direction.ways().first()) {
            self.keep_load(load, |quantity| cell.reading(*way, &column.name, quantity))?;
        }
        for way in cell.direction.ways() {
            for quantity in Quantity::ALL {
                let name = cell.reading(*way, &column.name, quantity);
                self.file.set_labels(&name, cell.labels(*way, column.path(), quantity));
                let position = cell.position(*way, &column.name, quantity);
                position.into_iter().for_each(|position| self.file.set_position(&name, position));
            }
        }
        Ok(())
    }

    fn keep_load(&mut self, load: &Load, name: impl Fn(Quantity) -> String) -> Result<(), Error> {
        let cpus: Vec<Value> = load
            .cpus
            .iter()
            .map(|cpu| json!({ "cpu": cpu.cpu, "load_percent": cpu.load_percent, "taken_percent": cpu.taken_percent }))
            .collect();
        let (cpu_load, proc_stat) = (name(Quantity::CpuLoad), name(Quantity::ProcStat));
        self.add(&cpu_load, Quantity::CpuLoad, load.load_percent, json!({ "cpus": cpus }))?;
        load.doubts.iter().for_each(|doubt| self.file.add_doubt(&cpu_load, doubt.clone()));
        let busy: Option<Vec<f64>> = load.cpus.iter().map(|cpu| cpu.proc_stat.busy_percent).collect();
        if let Some(busy) = busy.filter(|busy| !busy.is_empty()) {
            let mean = busy.iter().sum::<f64>() / busy.len() as f64;
            self.add(&proc_stat, Quantity::ProcStat, mean, Value::Null)?;
        }
        Ok(())
    }

    fn add(&mut self, name: &str, quantity: Quantity, value: f64, details: Value) -> Result<(), Error> {
        let details: Map<String, Value> = details.as_object().cloned().unwrap_or_default();
        let details = details.into_iter().filter(|(_, value)| !value.is_null()).collect();
        self.file.add(name, quantity.unit(), Run { value, at: None, details })?;
        let doubts = self.file.results().conditions.doubts();
        doubts.into_iter().for_each(|doubt| self.file.add_doubt(name, doubt));
        Ok(())
    }
}

fn received(end: &End<'_>) -> Result<u64, Error> {
    let text = end.ns.try_run(&format!("cat /sys/class/net/{}/statistics/rx_bytes", end.nic))?;
    text.trim().parse().map_err(|why| Error::Machine(format!("rx_bytes of {}: {why}", end.nic)))
}
