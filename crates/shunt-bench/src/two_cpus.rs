//! `cargo xtask two-cpus`: how much two CPUs forward, compared with one. Each has a flow of its own; the entries of
//! both are next to each other in the table. Runs of the XDP program on one frame (`BPF_PROG_TEST_RUN`): no driver, no
//! ring.

use crate::{rig::pinning::pin, rows};
use anyhow::{Context, ensure};
use serde::Serialize;
use shunt_bpf::{DataPlane, LoadOptions, Size, TypesSource, abi, attach::Hook, wire::flow_between};
use shunt_lab::net::NetNs;
use shunt_traffic::testrun::{TestRun, XDP_REDIRECT};
use shunt_wire::Packet;
use std::{
    net::SocketAddr,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

const CPUS: [usize; 2] = [0, 1];
/// Runs of a measurement: tens of milliseconds.
const RUNS: i32 = 500_000;
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
    /// Median of the rounds, for one CPU while the other one is idle.
    alone_ns: f64,
    /// The same while both forward.
    both_ns: f64,
    /// Packets per second of two CPUs, by those of one.
    ratio: f64,
    /// The least and the greatest round.
    ratio_range: [f64; 2],
}

/// Runs the measurement.
pub fn run(options: &Options) -> anyhow::Result<()> {
    ensure!(thread::available_parallelism()?.get() >= CPUS.len(), "two CPUs are needed");
    let mut file = rows::begin("two-cpus", "packets forwarded by two CPUs, by those of one")?;
    let ns = NetNs::new("two-cpus");
    for (near, far) in [("i0", "i1"), ("o0", "o1")] {
        ns.run(&format!("ip link add {near} type veth peer name {far}"));
    }
    let (from, to) = (ns.ifindex("i0"), ns.ifindex("o0"));
    ns.within(|| {
        let plane = plane(from, to)?;
        let program = TestRun::new(&plane, Hook::Xdp, from)?.repeated(RUNS);
        let frames = CPUS.map(|cpu| packet(cpu).to_bytes());
        for cpu in CPUS {
            learn(&plane, cpu, from, to)?;
            let verdict = program.repeated(1).run(&frames[cpu])?.verdict;
            ensure!(verdict == XDP_REDIRECT, "the packet of CPU {cpu} is not forwarded: verdict {verdict}");
        }
        for round in 0..options.rounds.max(1) {
            // Each CPU alone, since one may be slower than the other.
            let mut alone = Vec::new();
            for cpu in CPUS {
                alone.extend(measure(program, &frames, &[cpu])?);
            }
            let both = measure(program, &frames, &CPUS)?;
            let mean = |ns: &[f64]| ns.iter().sum::<f64>() / ns.len() as f64;
            let rates = |ns: &[f64]| ns.iter().map(|ns| 1.0 / ns).sum::<f64>();
            file.add("one CPU", "ns", mean(&alone))?;
            file.add("each of two CPUs", "ns", mean(&both))?;
            file.add("ratio", "", rates(&both) / rates(&alone) * CPUS.len() as f64)?;
            file.save()?;
            eprintln!("round {} of {}", round + 1, options.rounds.max(1));
        }
        anyhow::Ok(())
    })?;
    let results = file.finish()?;
    let reading = |name: &str| results.readings.get(name).context("nothing was measured");
    let ratio = reading("ratio")?;
    let values = ratio.runs.iter().map(|run| run.value);
    let row = Row {
        alone_ns: reading("one CPU")?.value,
        both_ns: reading("each of two CPUs")?.value,
        ratio: ratio.value,
        ratio_range: [values.clone().fold(f64::MAX, f64::min), values.fold(f64::MIN, f64::max)],
    };
    rows::show("two-cpus.json", &[row], options.json, print)
}

fn print(rows: &[Row]) {
    for Row { alone_ns, both_ns, ratio, ratio_range: [low, high] } in rows {
        println!(
            "one CPU {alone_ns:.1} ns, each of two {both_ns:.1} ns: {ratio:.2} times ({low:.2} to {high:.2})"
        );
    }
}

fn plane(from: u32, to: u32) -> anyhow::Result<DataPlane> {
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
    plane.attach(from, 0, true)?;
    plane.attach(to, abi::PORT_XDP_OUT, true)?;
    Ok(plane)
}

/// A packet of the flow of a CPU.
fn packet(cpu: usize) -> Packet {
    let port = |port: u16| SocketAddr::from(([192, 168, 1, 2], port + cpu as u16));
    Packet::udp_between(port(5000), ([198, 18, 0, 2], 443).into()).payload([0; 18])
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

/// Forwards the frames of these CPUs, each on its CPU, at the same time; returns the nanoseconds of a packet on each.
fn measure(program: TestRun<'_>, frames: &[Vec<u8>], cpus: &[usize]) -> anyhow::Result<Vec<f64>> {
    let start = Barrier::new(cpus.len());
    thread::scope(|scope| {
        let forward = |cpu: usize, frame: &[u8]| -> anyhow::Result<f64> {
            pin(0, cpu)?;
            // Wakes the CPU up.
            program.run(frame)?;
            start.wait();
            let begun = Instant::now();
            program.run(frame)?;
            Ok(begun.elapsed().as_nanos() as f64 / f64::from(RUNS))
        };
        let threads: Vec<_> =
            cpus.iter().map(|cpu| scope.spawn(move || forward(*cpu, &frames[*cpu]))).collect();
        threads.into_iter().map(|thread| thread.join().expect("the thread does not panic")).collect()
    })
}
