//! `cargo xtask predict`: the cost of a packet in `bench` and `scale` on this machine, before either is measured.
//!
//! The inputs are the committed results of another machine, the time of a load on this one, and a single row measured
//! here. The prediction is kept in a file of its own, so that nothing can be changed once the measurement is known.

pub mod table;

use crate::{
    load_latency,
    peers::report::name_of,
    rig::pinning::pin,
    rig::{path::Path as RouterPath, router_rig::Placement, setting::Setting},
    scale::{self, LOOKUP_AND_WORK},
    table_cells::reading,
};
use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use shunt_lab::{Conditions, Results, ResultsFile};
use shunt_model::{ExposedWait, FlowEffect, FlowOrder, LatencyCurve};
use shunt_testkit::tree::{root, target};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

/// The committed results of the machine whose figures the prediction starts from.
const SCALE: &str = "scale-veth-6.18";
const BENCH: &str = "bench-veth-6.18";
const PEERS: &str = "peers-7.3";
/// The row that is measured on the machine: of the engine that works most. An error in the ratio of the engines then
/// concerns only the rows of the other engine.
const CALIBRATED: &str = "tc";
const FEW: u64 = 1000;
const ENGINES: [&str; 2] = ["tc", "xdp"];
const MANY: [u64; 2] = [100_000, 1_000_000];
const ORDERS: [FlowOrder; 2] = [FlowOrder::Sequence, FlowOrder::Random];

/// Predicts the cost of a packet on this machine, or compares a prediction with what was measured later.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// The prediction's name in lab/results/predictions
    name: String,
    /// Print the kept prediction compared with this file of results instead. May be given several times
    #[arg(long, value_name = "FILE")]
    compare: Vec<PathBuf>,
    /// Predict only rows of `scale` with this number of flows, which `scale --flows` measures. May be given several
    /// times
    #[arg(long, value_name = "N")]
    flows: Vec<u64>,
    /// Number of rounds of the row that is measured for calibration
    #[arg(long, default_value_t = 5)]
    rounds: u32,
}

/// A prediction, as it is kept.
#[derive(Debug, Serialize, Deserialize)]
pub struct Kept {
    /// When it was made, before anything but the calibration was measured.
    made: String,
    conditions: Conditions,
    /// The committed results that it starts from.
    reference: Vec<String>,
    /// Bytes and ns per load that waits for the load before.
    latency: LatencyCurve,
    calibration: Calibration,
    /// Numbers of flows, if they were chosen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    flows: Vec<u64>,
    /// By engine, fitted to the reference.
    exposed: Exposed,
    rows: Vec<Row>,
}

/// By engine.
type Exposed = BTreeMap<String, ExposedWait>;

/// The row that was measured on the machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Calibration {
    reading: String,
    ns_per_packet: f64,
    runs: Vec<f64>,
}

/// What is predicted for a row, in ns per packet: by the model, and by predictors that know no mechanism.
#[derive(Debug, Serialize, Deserialize)]
struct Row {
    /// The row's name in the results of its bench.
    reading: String,
    model: f64,
    /// As on the other machine.
    unchanged: f64,
    /// As on the other machine, times the ratio of the calibrated rows.
    scaled: f64,
    /// The engine's row with few flows, scaled.
    few_flows: f64,
    /// The calibrated row, by the ratio of the engines' instructions.
    instructions: f64,
}

/// A row of the benches.
struct Wanted {
    reading: String,
    /// The row of the same engine with few flows in turn.
    base: String,
    engine: &'static str,
    flows: u64,
    order: FlowOrder,
}

/// The committed results of the other machine.
pub struct Reference {
    scale: Results,
    bench: Results,
    peers: Results,
}

/// Runs the command.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let path = committed().join("predictions").join(format!("{}.json", options.name));
    if !options.compare.is_empty() {
        let results = options.compare.iter().map(|file| read(file)).collect::<anyhow::Result<Vec<_>>>()?;
        println!("{}", table::compared(&Kept::read(&path)?, &Reference::read(&committed())?, &results)?);
        return Ok(());
    }
    ensure!(!path.exists(), "{}: a prediction is never changed; choose another name", path.display());
    ensure!(nix::unistd::geteuid().is_root(), "network namespaces need root: sudo cargo xtask predict");
    let reference = Reference::read(&committed())?;
    pin(0, Placement::OneCpu.cpus().0)?;
    let latency = load_latency::measure()?;
    let calibration = calibrate(options.rounds)?;
    let exposed = reference.exposed()?;
    let kept = Kept {
        made: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        conditions: Conditions::of_this_machine(),
        reference: [SCALE, BENCH, PEERS].map(str::to_owned).to_vec(),
        rows: predicted(&reference, &exposed, &latency, &calibration, &options.flows)?,
        flows: options.flows.clone(),
        latency,
        calibration,
        exposed,
    };
    fs::create_dir_all(path.parent().context("the prediction has no directory")?)?;
    fs::write(&path, serde_json::to_string_pretty(&kept)? + "\n")?;
    for row in &kept.rows {
        println!("{:35} {:7.1} ns", row.reading, row.model);
    }
    println!("{}", path.display());
    Ok(())
}

/// The directory of committed results.
fn committed() -> PathBuf {
    root().join("lab/results")
}

fn read(path: &Path) -> anyhow::Result<Results> {
    Results::read(path).map_err(|e| anyhow::anyhow!("{}: {e}", path.display()))
}

/// Measures the row by which the other machine's figures are scaled.
fn calibrate(rounds: u32) -> anyhow::Result<Calibration> {
    let directory = target().join("bench");
    fs::create_dir_all(&directory)?;
    let results = Results::new("calibration of a prediction", Conditions::of_this_machine());
    let mut file = ResultsFile::begin(directory.join("calibration-results.json"), results)?;
    let measured = scale::measure_row(CALIBRATED, u32::try_from(FEW)?, rounds, &mut file)?;
    file.finish()?;
    Ok(Calibration {
        reading: scale::reading_name(FEW, FlowOrder::Sequence, CALIBRATED),
        ns_per_packet: measured.value,
        runs: measured.runs.iter().map(|run| run.value).collect(),
    })
}

/// What the model and the other predictors say of each row that was not measured for calibration.
fn predicted(
    reference: &Reference,
    exposed: &Exposed,
    latency: &LatencyCurve,
    calibration: &Calibration,
    flows: &[u64],
) -> anyhow::Result<Vec<Row>> {
    let factor = calibration.ns_per_packet / reference.ns(&calibration.reading)?;
    let table_ns = |flows| latency.table_ns(flows).context("the table is larger than what was measured");
    let rows = wanted(flows).into_iter().filter(|row| row.reading != calibration.reading);
    rows.map(|row| {
        let few_flows = reference.ns(&row.base)? * factor;
        let wait_ns = table_ns(row.flows)? - table_ns(FEW)?;
        let unchanged = reference.row_ns(&row)?;
        Ok(Row {
            model: few_flows + exposed[row.engine].more_ns(row.order, wait_ns),
            unchanged,
            scaled: unchanged * factor,
            few_flows,
            instructions: calibration.ns_per_packet * reference.instructions(row.engine)?
                / reference.instructions(CALIBRATED)?,
            reading: row.reading,
        })
    })
    .collect()
}

/// The rows of both benches with an engine of Shunt, or those of `scale` with chosen numbers of flows.
fn wanted(chosen: &[u64]) -> Vec<Wanted> {
    let usual = [FEW, MANY[0], MANY[1]];
    let mut rows = Vec::new();
    for engine in ENGINES {
        let base = scale::reading_name(FEW, FlowOrder::Sequence, engine);
        for order in ORDERS {
            for &flows in if chosen.is_empty() { &usual } else { chosen } {
                let reading = scale::reading_name(flows, order, engine);
                rows.push(Wanted { reading, base: base.clone(), engine, flows, order });
            }
        }
    }
    if !chosen.is_empty() {
        return rows;
    }
    for (engine, reading) in [
        ("tc", "packets: tc"),
        ("xdp", "packets: xdp"),
        ("tc", "bridged: tc"),
        ("xdp", "bridged: xdp"),
        ("xdp", "flows: 1000"),
    ] {
        let base = reading.to_owned();
        rows.push(Wanted { reading: base.clone(), base, engine, flows: FEW, order: FlowOrder::Sequence });
    }
    for (reading, order) in
        [("flows: 100000", FlowOrder::Sequence), ("flows: 100000-shuffled", FlowOrder::Random)]
    {
        let (reading, base) = (reading.to_owned(), "flows: 1000".to_owned());
        rows.push(Wanted { reading, base, engine: "xdp", flows: MANY[0], order });
    }
    rows
}

impl Reference {
    /// Reads them from the directory of committed results.
    pub fn read(committed: &Path) -> anyhow::Result<Self> {
        let file = |name: &str| read(&committed.join(format!("{name}.json")));
        Ok(Self { scale: file(SCALE)?, bench: file(BENCH)?, peers: file(PEERS)? })
    }

    fn ns(&self, name: &str) -> anyhow::Result<f64> {
        let found = self.scale.readings.get(name).or_else(|| self.bench.readings.get(name));
        Ok(found.with_context(|| format!("`{name}` is missing"))?.value)
    }

    /// What a row cost; between the measured numbers of flows, linear in the logarithm of the number.
    fn row_ns(&self, row: &Wanted) -> anyhow::Result<f64> {
        if let Ok(ns) = self.ns(&row.reading) {
            return Ok(ns);
        }
        let point = |flows| Ok((flows, self.ns(&scale::reading_name(flows, row.order, row.engine))?));
        let points = [FEW, MANY[0], MANY[1]].into_iter().map(point).collect::<anyhow::Result<Vec<_>>>()?;
        let curve = LatencyCurve::new(points).and_then(|curve| curve.at(row.flows));
        curve.with_context(|| format!("{} flows are outside of what was measured", row.flows))
    }

    /// Instructions of an engine per packet, IPv4 without NAT as on a bridge.
    fn instructions(&self, engine: &str) -> anyhow::Result<f64> {
        let path = if engine == "xdp" { RouterPath::Xdp } else { RouterPath::Tc };
        let setting = Setting { nat: false, ..Setting::default() };
        Ok(reading(&self.peers, &name_of(path, setting, u32::try_from(FEW)?))?.value)
    }

    /// How much longer the two loads from the table of `flows` took than from that of few: what they added to a program
    /// that does nothing else and hides nothing.
    fn wait_ns(&self, flows: u64) -> anyhow::Result<f64> {
        let cost = |flows| self.ns(&scale::reading_name(flows, FlowOrder::Random, LOOKUP_AND_WORK));
        Ok(cost(flows)? - cost(FEW)?)
    }

    /// The share of the waits that each engine did not hide on the other machine.
    fn exposed(&self) -> anyhow::Result<Exposed> {
        let share = |engine: &str| {
            let many = wanted(&[]).into_iter().filter(|row| row.engine == engine && row.flows > FEW);
            let effects = many.map(|row| {
                let more_ns = self.ns(&row.reading)? - self.ns(&row.base)?;
                Ok(FlowEffect { order: row.order, wait_ns: self.wait_ns(row.flows)?, more_ns })
            });
            let effects = effects.collect::<anyhow::Result<Vec<_>>>()?;
            let share = ExposedWait::fit(&effects);
            Ok((
                engine.to_owned(),
                share.with_context(|| format!("{engine}: no row shows what it waits for"))?,
            ))
        };
        ENGINES.into_iter().map(share).collect()
    }
}

impl Kept {
    /// Reads a kept prediction.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        serde_json::from_str(&text).with_context(|| path.display().to_string())
    }

    /// What the model says of the same rows today, from the same inputs. It may have been revised since.
    fn revised(&self, reference: &Reference) -> anyhow::Result<Vec<Row>> {
        predicted(reference, &reference.exposed()?, &self.latency, &self.calibration, &self.flows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine that takes `factor` times as long as the reference for work and for loads.
    fn on_the_reference(factor: f64) -> Vec<Row> {
        let reference = Reference::read(&committed()).unwrap();
        let wait = |flows| factor * reference.wait_ns(flows).unwrap() / 2.0;
        let points = [(1 << 15, 0.0), (1 << 18, 0.0), (1 << 21, wait(MANY[0])), (1 << 24, wait(MANY[0]))];
        let points = points.into_iter().chain([(1 << 25, wait(MANY[1])), (1 << 28, wait(MANY[1]))]);
        let latency = LatencyCurve::new(points.collect()).unwrap();
        let reading = scale::reading_name(FEW, FlowOrder::Sequence, CALIBRATED);
        let ns_per_packet = factor * reference.ns(&reading).unwrap();
        let calibration = Calibration { reading, ns_per_packet, runs: Vec::new() };
        predicted(&reference, &reference.exposed().unwrap(), &latency, &calibration, &[]).unwrap()
    }

    #[test]
    fn the_machine_that_the_model_was_fitted_to_is_predicted_within_a_third() {
        for row in on_the_reference(1.0) {
            assert!((row.unchanged / row.scaled - 1.0).abs() < 1e-9);
            assert!((row.model / row.unchanged - 1.0).abs() < 1.0 / 3.0, "{row:?}");
        }
    }

    #[test]
    fn a_machine_that_takes_twice_as_long_for_all_is_predicted_to_do_so() {
        for (once, twice) in on_the_reference(1.0).iter().zip(on_the_reference(2.0)) {
            assert!((twice.model / once.model - 2.0).abs() < 1e-9, "{twice:?}");
        }
    }
}
