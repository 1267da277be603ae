//! `cargo xtask two-cpus`: how much two CPUs forward, compared with one. Each has a flow of its own; the entries of
//! both are next to each other in the table.
//!
//! - *runs of the program* on one frame (`BPF_PROG_TEST_RUN`): no driver, no ring.
//! - *live frames*: each CPU sends, forwards and receives those of its own veths.
//! - the same with a *bare redirect* in place of Shunt: what generator, veths and memory allow.

use crate::{
    rig::pinning::pin,
    rows,
    table_cells::{reading, with_range},
};
use anyhow::{Context, ensure};
use serde::Serialize;
use shunt_bpf::{
    DataPlane, LoadOptions, Size, TypesSource, XdpProgram, abi, attach::Hook, wire::flow_between,
};
use shunt_gen::Grid;
use shunt_lab::{Results, net::NetNs};
use shunt_traffic::{
    BareRedirect, Generator, Sink,
    testrun::{TestRun, XDP_REDIRECT},
};
use shunt_wire::{Mac, Packet};
use std::{
    fmt::Write,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

const CPUS: [usize; 2] = [0, 1];
/// Runs of a measurement: tens of milliseconds.
const RUNS: i32 = 500_000;
/// Duration of a measurement with live frames.
const LIVE: Duration = Duration::from_millis(100);
const EPOCH: u32 = 3;
const LONG: Duration = Duration::from_secs(3600);

/// Measures how much two CPUs forward, compared with one, and writes target/bench/two-cpus.json.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Print the rows as JSON
    #[arg(long)]
    json: bool,
    /// Number of rounds; one CPU and two take turns
    #[arg(long, default_value_t = 15)]
    rounds: u32,
}

#[derive(Debug, Serialize)]
struct Row {
    what: &'static str,
    /// Median of the rounds, for one CPU while the other one is idle.
    alone_ns: f64,
    /// The same while both forward.
    both_ns: f64,
    /// Packets per second of two CPUs, by those of one.
    ratio: f64,
    /// The least and the greatest round.
    ratio_range: [f64; 2],
}

const PROGRAM: &str = "runs of the program";
const FRAMES: &str = "live frames";
const BARE: &str = "live frames, a bare redirect";
const WHAT: [&str; 3] = [PROGRAM, FRAMES, BARE];
const ALONE: &str = "one CPU";
const BOTH: &str = "each of two CPUs";
const RATIO: &str = "ratio";

/// The devices that a CPU has for itself: two veths, from the generator to the router, and on to the receiver.
#[derive(Debug, Clone, Copy)]
struct Devices {
    /// The generator sends here, and `from` receives.
    near: u32,
    from: u32,
    to: u32,
    /// The receiver, behind `to`.
    far: u32,
}

/// Runs the measurement.
pub fn run(options: &Options) -> anyhow::Result<()> {
    ensure!(thread::available_parallelism()?.get() >= CPUS.len(), "two CPUs are needed");
    let mut file = rows::begin("two-cpus", "packets forwarded by two CPUs, by those of one")?;
    let ns = NetNs::new("two-cpus");
    let [shunt, bare] = ["", "b"].map(|kind| CPUS.map(|cpu| devices(&ns, kind, cpu)));
    ns.within(|| {
        let plane = plane(&shunt)?;
        let frames = CPUS.map(|cpu| packet(cpu).to_bytes());
        let mut programs = Vec::new();
        for (cpu, Devices { from, to, .. }) in CPUS.into_iter().zip(shunt) {
            learn(&plane, cpu, from, to)?;
            let program = TestRun::new(&plane, Hook::Xdp, from)?;
            let verdict = program.run(&frames[cpu])?.verdict;
            ensure!(verdict == XDP_REDIRECT, "the packet of CPU {cpu} is not forwarded: verdict {verdict}");
            programs.push(program.repeated(RUNS));
        }
        let redirects = bare.iter().map(|of_cpu| BareRedirect::attach(of_cpu.from, of_cpu.to));
        let _redirects = redirects.collect::<Result<Vec<_>, _>>()?;
        let sinks = |devices: [Devices; 2]| -> anyhow::Result<Vec<(u32, Sink)>> {
            devices.iter().map(|of_cpu| Ok((of_cpu.near, Sink::attach(of_cpu.far)?))).collect()
        };
        let (shunt, bare) = (sinks(shunt)?, sinks(bare)?);
        let of_program = |cpu: usize| -> anyhow::Result<f64> {
            let begun = Instant::now();
            programs[cpu].run(&frames[cpu])?;
            Ok(begun.elapsed().as_nanos() as f64 / f64::from(RUNS))
        };
        let of_frames = |cpu: usize| live(&shunt[cpu], cpu);
        let of_bare = |cpu: usize| live(&bare[cpu], cpu);
        let all: [&(dyn Fn(usize) -> anyhow::Result<f64> + Sync); 3] = [&of_program, &of_frames, &of_bare];
        for round in 0..options.rounds.max(1) {
            for (what, ns) in WHAT.into_iter().zip(all) {
                // Each CPU alone, since one may be slower than the other.
                let mut alone = Vec::new();
                for cpu in CPUS {
                    alone.extend(measure(ns, &[cpu])?);
                }
                let both = measure(ns, &CPUS)?;
                let mean = |ns: &[f64]| ns.iter().sum::<f64>() / ns.len() as f64;
                let rates = |ns: &[f64]| ns.iter().map(|ns| 1.0 / ns).sum::<f64>();
                file.add(&name(what, ALONE), "ns", mean(&alone))?;
                file.add(&name(what, BOTH), "ns", mean(&both))?;
                file.add(&name(what, RATIO), "", rates(&both) / rates(&alone) * CPUS.len() as f64)?;
                file.save()?;
            }
            eprintln!("round {} of {}", round + 1, options.rounds.max(1));
        }
        anyhow::Ok(())
    })?;
    let results = file.finish()?;
    let row = |what: &'static str| {
        let value = |of: &str| anyhow::Ok(reading(&results, &name(what, of))?.value);
        let ratios = reading(&results, &name(what, RATIO))?.runs.iter().map(|run| run.value);
        anyhow::Ok(Row {
            what,
            alone_ns: value(ALONE)?,
            both_ns: value(BOTH)?,
            ratio: value(RATIO)?,
            ratio_range: [ratios.clone().fold(f64::MAX, f64::min), ratios.fold(f64::MIN, f64::max)],
        })
    };
    let rows = WHAT.into_iter().map(row).collect::<Result<Vec<_>, _>>()?;
    rows::show("two-cpus.json", &rows, options.json, print)
}

fn print(rows: &[Row]) {
    for Row { what, alone_ns, both_ns, ratio, ratio_range: [low, high] } in rows {
        println!(
            "{what}: one CPU {alone_ns:.1} ns, each of two {both_ns:.1} ns: {ratio:.2} times ({low:.2} to {high:.2})"
        );
    }
}

fn name(what: &str, of: &str) -> String {
    format!("{what}: {of}")
}

/// The table of the documents.
pub fn table(results: &Results) -> anyhow::Result<String> {
    let mut text =
        "| what | one CPU, ns | each of two, ns | two CPUs by one |\n| --- | ---: | ---: | ---: |".to_owned();
    for what in WHAT {
        let cell = |of, digits| with_range(results, &name(what, of), 1.0, digits);
        write!(text, "\n| {what} | {} | {} | {} |", cell(ALONE, 0)?, cell(BOTH, 0)?, cell(RATIO, 2)?)?;
    }
    Ok(text)
}

fn devices(ns: &NetNs, kind: &str, cpu: usize) -> Devices {
    let [near, from, to, far] = ["near", "from", "to", "far"].map(|name| format!("{name}{kind}{cpu}"));
    for (one, other) in [(&near, &from), (&to, &far)] {
        ns.run(&format!("ip link add {one} up type veth peer name {other}"));
        ns.run(&format!("ip link set {other} up"));
    }
    let [near, from, to, far] = [near, from, to, far].map(|name| ns.ifindex(&name));
    Devices { near, from, to, far }
}

fn plane(devices: &[Devices]) -> anyhow::Result<DataPlane> {
    let options = LoadOptions {
        types: TypesSource::Kernel,
        learning: false,
        xdp: true,
        verify_xdp: false,
        external: false,
    };
    let mut plane = DataPlane::load(Size { max_flows: 1024, seed: 1 }, options)?;
    plane.control().set_epoch(EPOCH);
    plane.control().set_heartbeat_max(LONG);
    plane.control().set_proof(LONG, 2 * LONG);
    plane.beat()?;
    for Devices { from, to, .. } in devices {
        for port in [*from, *to] {
            plane.attach(port, abi::PORT_XDP_OUT, true)?;
            plane.set_xdp(port, Some(XdpProgram::Forward))?;
        }
    }
    Ok(plane)
}

/// The flow of a CPU, whose near port no other CPU has.
fn flow(cpu: usize) -> Grid {
    let (near, far) = (([192, 168, 1, 2], 5000 + cpu as u16).into(), ([198, 18, 0, 2], 443).into());
    Grid::of_one_flow(near, far, [Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])])
}

/// A packet of the flow of a CPU, as the generator sends it.
fn packet(cpu: usize) -> Packet {
    let Grid { near, far, source_mac, destination_mac, .. } = flow(cpu);
    Packet::udp_between(near, far).macs(source_mac, destination_mac).payload([0; 18])
}

/// Adds the flow of a CPU. It is bridged, so that its packet stays the same and can be forwarded again.
fn learn(plane: &DataPlane, cpu: usize, from: u32, to: u32) -> anyhow::Result<()> {
    let packet = packet(cpu);
    let (key, mut entry) = flow_between(&packet, &packet, from).context("the flow cannot be expressed")?;
    let now = plane.sweep(LONG, false)?.now_ticks;
    let flow = &mut entry.flow;
    flow.flags = flow.flags & !abi::FLOW_STATIC | abi::FLOW_XDP;
    flow.epoch = EPOCH;
    flow.reprove_at_ticks = now.wrapping_add(plane.control().ticks(LONG));
    flow.prove_by_ticks = now.wrapping_add(plane.control().ticks(2 * LONG));
    flow.home_cpu = cpu as u8;
    flow.in_slot = plane.slot(from).context("no port")?;
    flow.out_slot = plane.slot(to).context("no port")?;
    Ok(plane.put_flow(&key, &entry)?)
}

/// Sends, forwards and receives frames on this thread's CPU; returns the nanoseconds of each.
fn live((near, sink): &(u32, Sink), cpu: usize) -> anyhow::Result<f64> {
    let mut generator = Generator::new(&flow(cpu).traffic()?, *near)?;
    let (before, begun) = (sink.count()?.packets, Instant::now());
    let sent = generator.run_for(LIVE)?;
    let (elapsed, received) = (begun.elapsed(), sink.count()?.packets - before);
    ensure!(received >= sent - sent / 100, "CPU {cpu}: {received} of {sent} frames were forwarded");
    Ok(elapsed.as_nanos() as f64 / received as f64)
}

/// Runs `ns` on these CPUs at the same time; returns what it returns on each.
fn measure(ns: &(dyn Fn(usize) -> anyhow::Result<f64> + Sync), cpus: &[usize]) -> anyhow::Result<Vec<f64>> {
    let start = Barrier::new(cpus.len());
    thread::scope(|scope| {
        let forward = |cpu: usize| -> anyhow::Result<f64> {
            pin(0, cpu)?;
            // Wakes the CPU up.
            ns(cpu)?;
            start.wait();
            ns(cpu)
        };
        let threads: Vec<_> = cpus.iter().map(|cpu| scope.spawn(move || forward(*cpu))).collect();
        threads.into_iter().map(|thread| thread.join().expect("the thread does not panic")).collect()
    })
}
