//! How soon a change in Linux takes effect for flows that are on the fast path.
//!
//! The reaction time runs from the return of the change's system call to the last packet of a steady stream that was
//! still handled the old way. Linux alone handles packets that are under way the old way, too; so each change is also
//! measured without Shunt.

mod change;
mod fill;
pub mod probe_stream;
mod requests;
mod rows;

use crate::interrupt;
use anyhow::{Context, ensure};
use change::{Change, Lab};
use clap::ValueEnum;
use fill::Fill;
use probe_stream::ReactionTimes;
pub use rows::markdown;
use rows::{ENGINES, FLOWS, Key, Rows};
use shunt_testkit::{
    Shuntd, Tap,
    tree::{built, target},
};
use shunt_traffic::schedule;
use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Settings under which no flow leaves the table or is due for a proof during a run. The table has room for both
/// directions of each flow.
const CONFIG: &str = "max_flows = 131072\nidle = \"600s\"\nreprove = \"30s\"";
/// A run in which the stream paused for longer is repeated: its reaction time is not known well enough.
const RESOLUTION_MAX: Duration = Duration::from_millis(1);
/// Time limit for a flow to get onto the fast path: a refused tuple is not tried again for a second.
const TEACH_LIMIT: Duration = Duration::from_secs(10);
/// Interval of progress lines.
const PROGRESS: Duration = Duration::from_secs(5);

/// Measures, prints rows, and writes target/reaction/summary.json.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Print the rows as JSON.
    #[arg(long)]
    json: bool,
    /// Print the rows as the table of docs/performance/reaction.md.
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Make a tenth of the runs.
    #[arg(long)]
    quick: bool,
    /// Number of runs of each change; a quarter of them with 100,000 flows.
    #[arg(long, default_value_t = 200)]
    runs: usize,
    /// Time limit for the runs of one row; the row has fewer runs if they take longer.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    row_time: u64,
    /// Measure only this change. May be given several times.
    #[arg(long, value_enum, value_name = "CHANGE")]
    only: Vec<Change>,
    /// Measure only this engine, or `linux` for Linux without Shunt. May be given several times.
    #[arg(long, value_parser = ["linux", "tc", "xdp"], value_name = "ENGINE")]
    engine: Vec<String>,
    /// Measure only with this number of flows. May be given several times.
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(["1", "100000"]), value_name = "FLOWS")]
    flows: Vec<String>,
}

/// Runs the measurement. On SIGINT or SIGTERM it ends after the current run, with the rows that it has.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let stop = interrupt::stop_flag();
    let directory = target().join("reaction");
    fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    let path = directory.join("summary.json");
    let keys = options.keys();
    let mut rows = Rows::begin(path.clone(), keys.len())?;
    for keys in keys.chunk_by(|a, b| (a.engine, a.flows) == (b.engine, b.flows)) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        if let Err(e) = measure(options, keys, &mut rows, stop) {
            for key in keys {
                rows.add_missing(key, &format!("{e:#}"));
            }
        }
    }
    if options.json {
        println!("{}", rows.json()?);
    } else if options.markdown {
        print!("{}", markdown(rows.results()));
    }
    eprintln!("{}", path.display());
    let missing = rows.finish(!stop.load(Ordering::Relaxed))?;
    ensure!(missing == 0, "{missing} rows could not be measured");
    Ok(())
}

impl Options {
    /// The rows to measure, in the order of measuring.
    fn keys(&self) -> Vec<Key> {
        let selected = |list: &[String], item: &str| list.is_empty() || list.iter().any(|one| one == item);
        let flows = FLOWS.into_iter().filter(|flows| selected(&self.flows, &flows.to_string()));
        let engines = || ENGINES.into_iter().filter(|engine| selected(&self.engine, engine));
        let changes = || {
            let all = Change::value_variants().iter().copied();
            all.filter(|change| self.only.is_empty() || self.only.contains(change))
        };
        flows
            .flat_map(|flows| engines().map(move |engine| (flows, engine)))
            .flat_map(|(flows, engine)| changes().map(move |change| Key { change, engine, flows }))
            .collect()
    }

    fn runs_with(&self, flows: u32) -> usize {
        let runs = self.runs / if self.quick { 10 } else { 1 } / if flows > 1 { 4 } else { 1 };
        runs.max(1)
    }
}

/// Measures rows that have the engine and the number of flows in common.
fn measure(options: &Options, keys: &[Key], rows: &mut Rows, stop: &AtomicBool) -> anyhow::Result<()> {
    let Some(&Key { engine, flows, .. }) = keys.first() else { return Ok(()) };
    eprintln!("{engine}, {flows} flows: setting up");
    let mut lab = Lab::new()?;
    let mut fill = (flows > 1).then(|| Fill::new(lab.topology(), flows)).transpose()?;
    let shuntd = (engine != "linux").then(|| -> anyhow::Result<Shuntd> {
        let program = built("shuntd")?;
        let mut builder = Shuntd::on(lab.topology().router()).engine(engine).config(CONFIG);
        // A port that is named stays a port when it loses its address.
        for host in lab.topology().hosts() {
            builder = builder.port(host.port);
        }
        Ok(builder.program(&program.to_string_lossy()).start())
    });
    let shuntd = shuntd.transpose()?;
    let _clock = probe_stream::stamped_tap(lab.topology().lan());
    schedule::go_first()?;
    for key in keys {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        if let Err(e) = measure_row(options, key, &mut lab, fill.as_mut(), shuntd.as_ref(), rows, stop) {
            rows.add_missing(key, &format!("{e:#}"));
        }
        match rows.row(key) {
            Some(row) if options.json || options.markdown => eprintln!("{row}"),
            Some(row) => println!("{row}"),
            None => {}
        }
    }
    if let Some(shuntd) = shuntd {
        shuntd.stop();
    }
    Ok(())
}

/// Makes the runs of one row. Each run is on disk before the next one begins.
fn measure_row(
    options: &Options,
    key: &Key,
    lab: &mut Lab,
    mut fill: Option<&mut Fill>,
    shuntd: Option<&Shuntd>,
    rows: &mut Rows,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    let (change, runs) = (key.change, options.runs_with(key.flows));
    let (began, mut printed) = (Instant::now(), Instant::now());
    let (mut seen, mut unclear) = (0, 0);
    eprintln!("row {} of {}: {key}, {runs} runs", rows.next(), rows.total());
    while seen < runs && !stop.load(Ordering::Relaxed) {
        if seen + unclear > 0 && began.elapsed() > Duration::from_secs(options.row_time) {
            eprintln!("{key}: {seen} of {runs} runs in {} s (--row-time)", options.row_time);
            ensure!(seen > 0, "the stream is not steady; is the machine busy?");
            break;
        }
        if printed.elapsed() > PROGRESS {
            printed = Instant::now();
            eprintln!("{key}: {seen} of {runs} runs, {unclear} repeated");
        }
        if let Some(fill) = &mut fill {
            fill.teach(&lab.topology().lan().ns, shuntd)?;
        }
        let result = meet(lab, change, shuntd);
        lab.undo(change)?;
        let result = result?;
        if result.resolution_ns <= RESOLUTION_MAX.as_nanos() as u64 {
            seen += 1;
            rows.add(key, &result, unclear)?;
        } else {
            unclear += 1;
            ensure!(unclear <= 20 + 3 * runs, "the stream is not steady; is the machine busy?");
        }
    }
    Ok(())
}

/// Makes one run: gets the flow onto the fast path, and changes Linux while it streams.
fn meet(lab: &mut Lab, change: Change, shuntd: Option<&Shuntd>) -> anyhow::Result<ReactionTimes> {
    lab.prepare(change)?;
    if let Some(shuntd) = shuntd {
        teach(&lab.source(change).tap(), &lab.packet(change).to_bytes(), shuntd)
            .with_context(|| format!("{change}: its flow does not get onto the fast path"))?;
    }
    let fast = |shuntd: &Shuntd| shuntd.status().packets.fast;
    let before = shuntd.map(fast);
    let seen = probe_stream::meet(lab, change)?;
    ensure!(seen.before > 0, "{change}: no packet of its flow was forwarded before the change");
    if let Some((shuntd, before)) = shuntd.zip(before) {
        let taken = fast(shuntd) - before;
        ensure!(
            taken * 2 > seen.before,
            "{change}: only {taken} of {} packets took the fast path",
            seen.before
        );
    }
    Ok(seen)
}

/// Sends packets of a flow until all of them take the fast path.
fn teach(from: &Tap, frame: &[u8], shuntd: &Shuntd) -> anyhow::Result<()> {
    const LOT: u64 = 20;
    let since = Instant::now();
    while since.elapsed() < TEACH_LIMIT {
        let before = shuntd.status().packets.fast;
        for _ in 0..LOT {
            from.send_bytes(frame);
            thread::sleep(Duration::from_micros(200));
        }
        if shuntd.status().packets.fast >= before + LOT {
            return Ok(());
        }
    }
    anyhow::bail!("{:?}", shuntd.status().refusals)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn options(words: &[&str]) -> Options {
        Line::parse_from([&["reaction"], words].concat()).options
    }

    #[test]
    fn options_select_rows_and_runs() {
        assert_eq!(options(&[]).keys().len(), 2 * 3 * Change::value_variants().len());
        let few = options(&["--quick", "--only", "route", "--engine", "tc", "--flows", "1"]);
        assert_eq!(few.keys(), [Key { change: Change::Route, engine: "tc", flows: 1 }]);
        assert_eq!((few.runs_with(1), few.runs_with(100_000)), (20, 5));
        assert_eq!(options(&["--runs", "1"]).runs_with(100_000), 1);
    }
}
