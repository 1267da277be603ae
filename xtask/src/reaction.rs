//! How soon a change in Linux holds for flows that are on the fast path.
//!
//! The time from the return of the change's system call to the last packet of a steady stream that was still handled the
//! old way. Linux itself handles some so, those that are under way; hence a row of each change without Shunt.

mod change;
mod fill;
mod requests;
mod rows;
mod stream;

use crate::{
    bench::record::Records,
    napi::go_first,
    shunt::{built, target},
};
use anyhow::{Context, ensure};
use change::{Change, Lab};
use clap::ValueEnum;
use fill::Fill;
use rows::{Row, Rows};
use shunt_testkit::{Shuntd, Tap};
use std::{
    thread,
    time::{Duration, Instant},
};
use stream::Seen;

/// Many flows, and room for both directions of them.
const MANY: u32 = 100_000;
/// So that no flow leaves the table, or is asked for another proof, while something else is measured.
const CONFIG: &str = "max_flows = 131072\nidle = \"600s\"\nreprove = \"30s\"";
/// A run in which the stream paused for longer tells nothing, and is made again.
const RESOLUTION_MAX: Duration = Duration::from_millis(1);
/// How long a flow may take to be fast: refused tuples are left in peace for a second.
const LESSON: Duration = Duration::from_secs(10);

/// Measures, prints rows, and leaves them in target/reaction/summary.json.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Print the rows as JSON.
    #[arg(long)]
    json: bool,
    /// Print the table of docs/performance.md.
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// A tenth of the runs.
    #[arg(long)]
    quick: bool,
    /// How many runs of each change; a quarter of them where there are many flows.
    #[arg(long, default_value_t = 200)]
    runs: usize,
    /// Measure only this change. May be given several times.
    #[arg(long, value_enum, value_name = "CHANGE")]
    only: Vec<Change>,
    /// Measure only this engine, or `linux` for none. May be given several times.
    #[arg(long, value_parser = ["linux", "tc", "xdp"], value_name = "ENGINE")]
    engine: Vec<String>,
    /// Measure only with so many flows. May be given several times.
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(["1", "100000"]), value_name = "FLOWS")]
    flows: Vec<String>,
}

/// Runs it.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let mut records = Records::new(target().join("reaction"))?;
    let mut rows = Rows::new();
    let is_wanted = |list: &[String], item: &str| list.is_empty() || list.iter().any(|one| one == item);
    for flows in [1, MANY].into_iter().filter(|flows| is_wanted(&options.flows, &flows.to_string())) {
        for engine in ["linux", "tc", "xdp"].into_iter().filter(|engine| is_wanted(&options.engine, engine)) {
            measure(options, engine, flows, &mut records, &mut rows)?;
        }
    }
    if options.json {
        println!("{}", rows.json()?);
    } else if options.markdown {
        print!("{}", rows.markdown());
    }
    eprintln!("{}", records.summarize(&rows)?.display());
    Ok(())
}

/// All changes with one engine and so many flows.
fn measure(
    options: &Options,
    engine: &'static str,
    flows: u32,
    records: &mut Records,
    rows: &mut Rows,
) -> anyhow::Result<()> {
    let mut lab = Lab::new()?;
    let mut fill = (flows > 1).then(|| Fill::new(lab.topology(), flows)).transpose()?;
    let shuntd = (engine != "linux").then(|| -> anyhow::Result<Shuntd> {
        let program = built("shuntd")?;
        let mut builder = Shuntd::on(lab.topology().router()).engine(engine).config(CONFIG);
        // One that loses its address stays a port.
        for host in lab.topology().hosts() {
            builder = builder.port(host.port);
        }
        Ok(builder.program(&program.to_string_lossy()).start())
    });
    let shuntd = shuntd.transpose()?;
    let _clock = stream::stamped_tap(lab.topology().lan());
    go_first(nix::unistd::gettid().as_raw())?;
    let runs = options.runs / if options.quick { 10 } else { 1 } / if flows > 1 { 4 } else { 1 };
    for change in Change::value_variants() {
        if !options.only.is_empty() && !options.only.contains(change) {
            continue;
        }
        let mut seen = Vec::new();
        let mut unclear = 0;
        while seen.len() < runs.max(1) {
            if let Some(fill) = &mut fill {
                fill.teach(&lab.topology().lan().ns, shuntd.as_ref())?;
            }
            let one = meet(&mut lab, *change, shuntd.as_ref());
            lab.undo(*change)?;
            let one = one?;
            if one.resolution_ns <= RESOLUTION_MAX.as_nanos() as u64 {
                seen.push(one);
            } else {
                unclear += 1;
                ensure!(unclear <= 20 + 3 * runs, "{change}: the stream is not steady; is the machine busy?");
            }
        }
        let row = Row::of(*change, engine, flows, unclear, &seen);
        if options.json || options.markdown {
            eprintln!("{row}");
        } else {
            println!("{row}");
        }
        records.keep_as(&format!("{}-{engine}-{flows}", row.slug()), &seen)?;
        rows.push(row);
    }
    if let Some(shuntd) = shuntd {
        shuntd.stop();
    }
    Ok(())
}

/// One run: teaches the flow, and meets the change with it.
fn meet(lab: &mut Lab, change: Change, shuntd: Option<&Shuntd>) -> anyhow::Result<Seen> {
    lab.prepare(change)?;
    if let Some(shuntd) = shuntd {
        teach(&lab.source(change).tap(), &lab.packet(change).to_bytes(), shuntd)
            .with_context(|| format!("{change}: its flow is never fast"))?;
    }
    let fast = |shuntd: &Shuntd| shuntd.status().packets.fast;
    let before = shuntd.map(fast);
    let seen = stream::meet(lab, change)?;
    ensure!(seen.before > 0, "{change}: no packet of its flow passed before it");
    if let Some((shuntd, before)) = shuntd.zip(before) {
        let taken = fast(shuntd) - before;
        ensure!(taken * 2 > seen.before, "{change}: of {} packets only {taken} were fast", seen.before);
    }
    Ok(seen)
}

/// Sends packets of a flow until all of them are fast.
fn teach(from: &Tap, frame: &[u8], shuntd: &Shuntd) -> anyhow::Result<()> {
    const LOT: u64 = 20;
    let since = Instant::now();
    while since.elapsed() < LESSON {
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
