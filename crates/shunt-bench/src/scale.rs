//! `cargo xtask scale`: the cost of a packet, the memory and the time to learn with a thousand flows and with a
//! million.
//!
//! The flows are bridged, so no table of conntrack limits their number, and the look-up is the same as for routed
//! flows.

pub mod table;

use crate::{
    rig::{
        router_rig::{self, Placement, Rig},
        shunt,
    },
    rows,
};
use anyhow::{Context, ensure};
use serde::Serialize;
use shunt_lab::{Reading, ResultsFile};
use shunt_model::FlowOrder;
use shunt_testkit::{Shuntd, Topology};
use shunt_traffic::LookupRedirect;
use std::{
    fs,
    time::{Duration, Instant},
};

/// Part of the round's packets that must be fast before a measurement begins.
const LEARNED: f64 = 0.98;
/// Rounds over all flows after which they must be learned.
const ROUNDS: u32 = 60;
/// Duration of a sample, beside one packet of each flow.
const SAMPLE: Duration = Duration::from_millis(200);
/// Largest time between two packets at the beginning of a sample.
const PACKET: Duration = Duration::from_micros(4);
/// Seed of the random order.
const SEED: u64 = 1;

/// The engine's name of a redirect with a look-up, which shows what memory costs any forwarder.
const LOOKUP: &str = "lookup";
/// The same with as many instructions in all as the xdp engine executes.
pub const LOOKUP_AND_WORK: &str = "lookup-and-work";
const WORK_ROUNDS: u32 = 45;
/// Both orders, in the order in which they take turns.
const ORDERS: [FlowOrder; 2] = [FlowOrder::Sequence, FlowOrder::Random];
/// What is measured, by its name in the results.
pub const ENGINES: [&str; 4] = ["tc", "xdp", LOOKUP, LOOKUP_AND_WORK];

/// Measures the cost of a packet by the number of flows, and writes target/bench/scale.json.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Print the rows as JSON
    #[arg(long)]
    json: bool,
    /// Number of flows. May be given several times
    #[arg(long, value_name = "N", default_values_t = [1_000, 100_000, 1_000_000])]
    flows: Vec<u32>,
    /// Measure only this engine. For comparison, `lookup` is an XDP program that looks up the source of each packet and
    /// redirects it, and `lookup-and-work` executes as many instructions as the xdp engine
    #[arg(long, value_parser = ENGINES, value_name = "ENGINE")]
    engine: Option<String>,
    /// Number of rounds; the numbers of flows and the orders take turns
    #[arg(long, default_value_t = 5)]
    rounds: u32,
}

/// The name of an order in results.
fn order_name(order: FlowOrder) -> &'static str {
    match order {
        FlowOrder::Sequence => "sequence",
        FlowOrder::Random => "random",
    }
}

/// The name of a reading in the file of results.
pub fn reading_name(flows: u64, order: FlowOrder, engine: &str) -> String {
    format!("{flows} flows {} {engine}", order_name(order))
}

/// The result for a number of flows, an order and an engine.
#[derive(Debug, Serialize)]
struct Row {
    flows: u64,
    order: FlowOrder,
    engine: String,
    /// Median of the rounds.
    ns_per_packet: f64,
    /// The least and the greatest round.
    ns_per_packet_range: [f64; 2],
    /// Cost by that of the smallest number of flows in the same order.
    ratio_to_fewest: f64,
    /// Memory of the tables of one address family for each flow that they have room for.
    bytes_per_flow: f64,
    /// The least share of fast packets of the rounds, and of the last round of learning.
    fast_share: f64,
    /// From the first packet of the first flow until the flows are fast.
    learn_seconds: f64,
}

/// What forwards the packets of a bridge.
enum Forwarder {
    Shunt(Box<Shuntd>),
    Lookup {
        #[expect(dead_code, reason = "attached as long as it lives")]
        program: LookupRedirect,
    },
}

/// A bridge with its flows on the fast path.
struct Learned<'a> {
    rig: Rig<'a>,
    forwarder: Forwarder,
    fast_share: f64,
    learn_seconds: f64,
    bytes_per_flow: f64,
}

/// Runs the measurement.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let mut file = rows::begin("scale", "cost of a packet by the number of flows")?;
    let mut rows = Vec::new();
    for engine in ENGINES {
        if options.engine.as_deref().is_none_or(|only| only == engine) {
            rows.extend(measure(engine, &options.flows, &ORDERS, options.rounds, &mut file)?);
        }
    }
    file.finish()?;
    rows::show("scale.json", &rows, options.json, print)
}

/// Measures a single row: an engine with this number of flows in turn.
pub fn measure_row(engine: &str, flows: u32, rounds: u32, file: &mut ResultsFile) -> anyhow::Result<Reading> {
    measure(engine, &[flows], &[FlowOrder::Sequence], rounds, file)?;
    let name = reading_name(flows.into(), FlowOrder::Sequence, engine);
    file.results().readings.get(&name).cloned().context("nothing was measured")
}

/// Measures the rows of an engine.
fn measure(
    engine: &str,
    flows: &[u32],
    orders: &[FlowOrder],
    rounds: u32,
    file: &mut ResultsFile,
) -> anyhow::Result<Vec<Row>> {
    let labs: Vec<Topology> = flows.iter().map(|_| router_rig::bridge()).collect();
    let all = labs.iter().zip(flows).map(|(lab, flows)| learn(lab, engine, *flows));
    let mut all = all.collect::<anyhow::Result<Vec<_>>>()?;
    let name = |flows: u64, order: FlowOrder| reading_name(flows, order, engine);
    for round in 0..rounds.max(1) {
        eprintln!("{engine}: round {} of {}", round + 1, rounds.max(1));
        for Learned { rig, forwarder, fast_share, .. } in &mut all {
            for &order in orders {
                match order {
                    FlowOrder::Sequence => rig.in_turn(),
                    FlowOrder::Random => rig.shuffle(SEED)?,
                }
                let flows = rig.flows();
                let before = forwarder.fast(rig)?;
                let sample = rig.sample(SAMPLE + PACKET * u32::try_from(flows)?)?;
                let fast = forwarder.fast(rig)? - before;
                *fast_share = fast_share.min(fast as f64 / sample.delivered.max(1) as f64);
                file.add(&name(flows, order), "ns/packet", sample.ns_per_packet()?)?;
                file.save()?;
            }
        }
    }
    let mut rows = Vec::new();
    for &order in orders {
        let mut fewest: Option<f64> = None;
        for Learned { rig, fast_share, learn_seconds, bytes_per_flow, .. } in &all {
            let reading = &file.results().readings[&name(rig.flows(), order)];
            let ns_per_packet = reading.value;
            rows.push(Row {
                flows: rig.flows(),
                order,
                engine: engine.to_owned(),
                ns_per_packet,
                ns_per_packet_range: [reading.spread.low, reading.spread.high],
                ratio_to_fewest: ns_per_packet / *fewest.get_or_insert(ns_per_packet),
                bytes_per_flow: *bytes_per_flow,
                fast_share: *fast_share,
                learn_seconds: *learn_seconds,
            });
        }
    }
    all.into_iter().try_for_each(|learned| match learned.forwarder {
        Forwarder::Shunt(shuntd) => shunt::stop(*shuntd),
        Forwarder::Lookup { .. } => Ok(()),
    })?;
    Ok(rows)
}

impl Forwarder {
    /// The number of packets that did not pass Linux's bridge.
    fn fast(&self, rig: &Rig<'_>) -> anyhow::Result<u64> {
        match self {
            Self::Shunt(shuntd) => shunt::fast_packets(shuntd),
            Self::Lookup { .. } => rig.delivered(),
        }
    }
}

/// Starts Shunt, and sends packets of all flows until they are fast.
fn learn<'a>(lab: &'a Topology, engine: &str, flows: u32) -> anyhow::Result<Learned<'a>> {
    let mut rig = Rig::new(lab, flows, Placement::OneCpu)?;
    // Room for both directions, and for as many sources as there are.
    let max_flows = flows.saturating_mul(2).next_power_of_two().max(16_384);
    let router = lab.router();
    let forwarder = if engine == LOOKUP || engine == LOOKUP_AND_WORK {
        let [r0, r1] = ["r0", "r1"].map(|port| router.ifindex(port));
        let rounds = if engine == LOOKUP { 0 } else { WORK_ROUNDS };
        Forwarder::Lookup { program: router.within(|| LookupRedirect::attach(r0, r1, flows, rounds))? }
    } else {
        let config = format!("max_flows = {max_flows}\nidle = \"600s\"\nreprove = \"30s\"\n");
        Forwarder::Shunt(Box::new(shunt::start(router, engine, &config)?))
    };
    rig.settle()?;
    let begun = Instant::now();
    rig.establish()?;
    let mut fast_share = 0.0;
    for _ in 0..ROUNDS {
        let before = forwarder.fast(&rig)?;
        rig.send(rig.flows())?;
        fast_share = (forwarder.fast(&rig)? - before) as f64 / rig.flows() as f64;
        if fast_share >= LEARNED {
            break;
        }
    }
    let learn_seconds = begun.elapsed().as_secs_f64();
    ensure!(fast_share > 0.5, "only {:.1} % of {flows} flows are fast", fast_share * 100.0);
    eprintln!("{engine}: {flows} flows learned in {learn_seconds:.1} s, {:.1} % fast", fast_share * 100.0);
    let bytes_per_flow = match &forwarder {
        Forwarder::Shunt(shuntd) => bytes_per_flow(shuntd.try_status()?.pid, max_flows)?,
        Forwarder::Lookup { .. } => LookupRedirect::BYTES_PER_SOURCE,
    };
    Ok(Learned { rig, forwarder, fast_share, learn_seconds, bytes_per_flow })
}

/// The memory of the daemon's maps for IPv4 flows, by the kernel's account, for each flow: entry, counters and index.
fn bytes_per_flow(pid: u32, max_flows: u32) -> anyhow::Result<f64> {
    /// Bytes of an entry, and of what is rarely used of it. An element of the index has four slots.
    const VALUES: [(u64, u64); 3] = [(128, 1), (32, 1), (16, 2)];
    let mut bytes = [None; VALUES.len()];
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
        let Ok(text) = fs::read_to_string(entry?.path()) else { continue };
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            line.trim().parse::<u64>().ok()
        };
        let Some((value, entries, memory)) =
            field("value_size").zip(field("max_entries")).zip(field("memlock")).map(|((v, e), m)| (v, e, m))
        else {
            continue;
        };
        for (nth, (size, share)) in VALUES.iter().enumerate() {
            if value == *size && entries * share == u64::from(max_flows) {
                bytes[nth] = Some(memory);
            }
        }
    }
    let bytes: Option<u64> = bytes.into_iter().sum();
    Ok(bytes.context("the maps of the flow table are not among the daemon's descriptors")? as f64
        / f64::from(max_flows))
}

fn print(rows: &[Row]) {
    println!(
        "{:>9}  {:8}  {:15}  {:>9}  {:>15}  {:>8}  {:>10}  {:>7}",
        "flows", "order", "engine", "ns/packet", "from-to", "x fewest", "bytes/flow", "learn s"
    );
    for row in rows {
        let [low, high] = row.ns_per_packet_range;
        println!(
            "{:>9}  {:8}  {:15}  {:>9.1}  {:>15}  {:>8.2}  {:>10.0}  {:>7.1}",
            row.flows,
            order_name(row.order),
            row.engine,
            row.ns_per_packet,
            format!("{low:.1}-{high:.1}"),
            row.ratio_to_fewest,
            row.bytes_per_flow,
            row.learn_seconds
        );
    }
}
