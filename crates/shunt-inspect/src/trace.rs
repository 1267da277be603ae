//! Where the time of packets goes: time stamps of the stages of single packets, on the slow path, on the fast path and
//! in local TCP.
//!
//! Programs of `bpf/inspect` sit on tracepoints of the kernel and on hooks of netfilter. They follow one packet in N by
//! the address of its skb, and leave packets as they are.

pub(crate) mod abi;
mod bisect;
mod calls;
mod cost;
mod diagnosis;
mod firewall;
mod functions;
pub(crate) mod machine;
mod packet;
mod programs;
mod softirqs;
mod summary;
mod threads;
mod tracepoints;

pub use bisect::{Bisection, Round};
pub use cost::Cost;
pub use diagnosis::{Cause, Culprit, Diagnosis, Loss};
pub use firewall::ChainPart;
pub use packet::{End, Ends, Packet, PacketPath, StageName, Step, Thread, Verdict};
pub use softirqs::SoftirqWork;
pub use summary::{Path, StageTimes, Times};

use crate::probes::ProgramError;
use diagnosis::Evidence;
use firewall::Firewall;
use nix::net::if_::if_nameindex;
use packet::Context;
use programs::Programs;
use serde::{Deserialize, Serialize};
use shunt_api::{Network, Proto, Selection};
use shunt_bpf::attach;
use shunt_lab::{Conditions, counters::Snapshot};
use std::{
    collections::BTreeMap,
    io,
    net::IpAddr,
    sync::atomic::{AtomicBool, Ordering},
    thread::sleep,
    time::{Duration, Instant},
};
use threads::Threads;

/// Switches of CPUs that are kept; further ones are counted.
const SWITCHES_MAX: usize = 2_000_000;
/// Packets that are kept; further ones are counted.
const PACKETS_MAX: usize = 200_000;
/// How often records are taken from the ring.
const INTERVAL: Duration = Duration::from_millis(20);
/// One packet in fewer is traced all the time; with more, the programs are attached for a part of each period.
const DENSEST: u32 = 4;
const PERIOD: Duration = Duration::from_secs(1);
const WINDOW_MIN: Duration = Duration::from_millis(10);
/// How long packets that are traced are followed to their end before the programs are detached.
const DRAIN: Duration = Duration::from_millis(50);

/// What to trace.
#[derive(Debug, Clone)]
pub struct Request {
    /// Only packets that arrive here, and all that local programs send; None for all devices.
    pub port: Option<String>,
    /// Only packets of one of these, in either direction: at most [`Request::SELECTIONS_MAX`].
    pub selections: Vec<Selection>,
    /// Trace one packet in N.
    pub sample: u32,
    /// For how long.
    pub time: Duration,
    /// Packets of each path that the report shows one by one.
    pub rows: usize,
    /// Whether to search the worst stage for the function that takes the time.
    pub bisect: bool,
}

impl Request {
    /// The most selections.
    pub const SELECTIONS_MAX: usize = abi::TRACE_FILTERS as usize;
}

/// What was traced.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// Duration in seconds.
    pub seconds: f64,
    /// One packet in N was traced.
    pub sample: u32,
    /// Packets that were traced to their end.
    pub packets: usize,
    /// What makes packets slow, or loses them.
    #[serde(default)]
    pub diagnosis: Diagnosis,
    /// Percentiles of stages, by path and direction.
    pub paths: Vec<Path>,
    /// Single packets of each path, in the order of `paths`.
    pub rows: Vec<Vec<Packet>>,
    /// Stages that cannot be seen on this machine, and why.
    pub missing: BTreeMap<String, String>,
    /// What was lost.
    pub lost: Lost,
    /// What the probes cost; None if it could not be measured.
    pub cost: Option<TraceCost>,
    /// Why the cost could not be measured.
    pub cost_unknown: Option<String>,
    /// The search for the function that takes the time.
    pub bisection: Option<Bisection>,
    /// Why the worst stage could not be searched.
    pub bisection_failed: Option<String>,
    /// Kernel, CPUs and load of the machine during the trace.
    pub conditions: Conditions,
}

/// Cost of tracing for the packets that were seen.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TraceCost {
    /// Cost of single probes, as measured.
    #[serde(flatten)]
    pub measured: Cost,
    /// Probes that a packet of these paths passed, on average.
    pub probes_per_packet: f64,
    /// The share of the time in which the probes were attached.
    pub attached_share: f64,
    /// What each packet of the whole time was delayed, traced or not, on average.
    pub per_packet_ns: f64,
    /// Share of the time in which one CPU attached and detached probes.
    pub switching_percent: f64,
}

/// Packets and events that are not part of the report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// Packets that were not traced because their slot was in use.
    pub slots_busy: u64,
    /// Records that did not fit the ring.
    pub ring_full: u64,
    /// Runs of programs that the kernel skipped.
    pub runs_skipped: u64,
    /// Events that did not fit a record.
    pub events: u64,
    /// Packets lost from sight: merged by GRO, or freed without a tracepoint.
    pub vanished: u64,
    /// Packets on their way when the trace ended.
    pub unfinished: u64,
    /// Packets beyond those that are kept.
    pub not_kept: u64,
    /// Switches of threads beyond those that are kept.
    #[serde(default)]
    pub switches: u64,
}

/// Tracing failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The device does not exist.
    #[error("no device {0} in this network namespace")]
    NoDevice(String),
    /// More selections than the programs compare.
    #[error("{0} pairs of addresses, and at most {max} can be traced at once: name one address", max = Request::SELECTIONS_MAX)]
    Selections(usize),
    /// The kernel refused the programs.
    #[error("{0}")]
    Programs(String),
    /// The caller may not load programs.
    #[error("{0}; tracing needs root")]
    NotAllowed(String),
    /// Namespaces or devices could not be read.
    #[error("cannot read the network namespace: {0}")]
    System(#[from] io::Error),
    /// The cost of the probes could not be measured.
    #[error("cannot measure the cost of the probes: {0}")]
    Cost(String),
    /// The worst stage cannot be searched.
    #[error("cannot bisect: {0}")]
    Bisect(String),
}

impl From<ProgramError> for TraceError {
    fn from(error: ProgramError) -> Self {
        let why = error.to_string();
        if error.forbidden { Self::NotAllowed(why) } else { Self::Programs(why) }
    }
}

/// Traces in the calling thread's network namespace until the time is over or `stop` is set. Calls `started` when the
/// first packets are traced.
///
/// # Errors
/// If the port does not exist, or the kernel refuses the programs.
pub fn run(request: &Request, stop: &AtomicBool, started: impl FnOnce()) -> Result<Report, TraceError> {
    let devices = devices()?;
    let plan = plan(request, &devices)?;
    let ports: Vec<u32> = devices.keys().copied().collect();
    let cost = Cost::measure();
    let rhythm = Rhythm::from_sample(request.sample);
    let plan = abi::TracePlan { sample: rhythm.sample, ..plan };
    let mut programs = Programs::load(plan, &ports)?;
    let mut started = Some(started);
    let mut lost = Lost::default();
    let mut packets = Vec::new();
    let (queues, conntrack) = (Snapshot::read(&[]), firewall::dropped_by_conntrack());
    let begun = || started.take().into_iter().for_each(|started| started());
    let mut watched = collect(&mut programs, &ports, &rhythm, request.time, stop, begun, |packet| {
        if packets.len() < PACKETS_MAX {
            packets.push(packet)
        } else {
            lost.not_kept += 1
        }
        true
    })?;
    let missing = programs.missing.clone();
    count_losses(&programs, &packets, &mut lost);
    lost.unfinished = watched.unfinished as u64;
    lost.switches = watched.switches_lost;
    let switches = std::mem::take(&mut watched.switches);
    drop(programs);

    packets.sort_by_key(|packet| packet.began_ns);
    let name = |index: u32| devices.get(&index).cloned().unwrap_or_else(|| format!("device {index}"));
    let machine = Machine { switches, queues: machine::full_queues(queues), conntrack };
    let Summary { paths, rows, diagnosis } = summarise(request, &packets, machine, &name);
    let (bisection, bisection_failed) = match (request.bisect, stop.load(Ordering::Relaxed)) {
        (true, false) => match bisect::run(plan, &ports, &paths, &packets, name, stop) {
            Ok(found) => (Some(found), None),
            Err(error) => (None, Some(error.to_string())),
        },
        _ => (None, None),
    };
    let done = packets.iter().filter(|packet| packet.end == End::Done).count();
    let (cost, cost_unknown) = match cost {
        Ok(measured) => (Some(cost_of(measured, &packets, &rhythm, &watched)), None),
        Err(error) => (None, Some(error.to_string())),
    };
    Ok(Report {
        seconds: watched.seconds,
        sample: request.sample,
        packets: done,
        diagnosis,
        paths,
        rows,
        missing,
        lost,
        cost,
        cost_unknown,
        bisection,
        bisection_failed,
        conditions: Conditions::of_this_machine(),
    })
}

/// What packets show, in the form of the report.
struct Summary {
    paths: Vec<Path>,
    rows: Vec<Vec<Packet>>,
    diagnosis: Diagnosis,
}

/// What happened around the packets.
struct Machine {
    /// What threads did.
    switches: Vec<abi::TraceSwitch>,
    /// Packets that were dropped because the queue of a CPU was full, by CPU.
    queues: BTreeMap<u32, u64>,
    /// Packets that conntrack had dropped when the trace began; None if it has no counters.
    conntrack: Option<u64>,
}

fn summarise(
    request: &Request,
    packets: &[Packet],
    machine: Machine,
    name: &impl Fn(u32) -> String,
) -> Summary {
    let mut paths = summary::paths(packets, name);
    let round_trips = summary::round_trips(packets, request.sample == 1);
    paths.extend(summary::paths(&round_trips, name));
    // With fewer, what a program sends next need not be the answer to what it read.
    let (answered, single) = match request.sample {
        1 => summary::answers(packets),
        _ => (Vec::new(), packets.iter().collect()),
    };
    paths.extend(summary::paths(&answered, name));
    let reasons = machine::drop_reasons();
    let firewall = diagnosis::by_netfilter(packets, &reasons).then(|| Firewall::read(machine.conntrack));
    let full_queue = machine.queues.first_key_value().filter(|_| machine.queues.len() == 1);
    let diagnosis = diagnosis::diagnose(
        &Evidence {
            single: &single,
            answered: &answered,
            round_trips: &round_trips,
            threads: &Threads::new(machine.switches, &diagnosis::followed(packets)),
            reasons: &reasons,
            full_queue: full_queue.map(|(cpu, _)| *cpu),
            firewall: firewall.flatten().as_ref(),
        },
        name,
    );
    let rows = paths
        .iter()
        .map(|path| match path.way {
            PacketPath::RoundTrip => rows(path, &round_trips, name, request.rows),
            PacketPath::Answered => rows(path, &answered, name, request.rows),
            _ => rows(path, packets, name, request.rows),
        })
        .collect();
    Summary { paths, rows, diagnosis }
}

/// When the programs are attached. A probe costs time for every packet that passes it, traced or not; so with 1 in N,
/// the probes are there for a part of the time only, in which more packets are traced.
struct Rhythm {
    /// How long they are attached.
    window: Duration,
    /// How long they are not.
    pause: Duration,
    /// One packet in N is traced while they are.
    sample: u32,
}

impl Rhythm {
    fn from_sample(sample: u32) -> Self {
        if sample <= DENSEST {
            return Self { window: Duration::MAX, pause: Duration::ZERO, sample };
        }
        let window = (PERIOD * DENSEST / sample).max(WINDOW_MIN);
        let share = window.as_secs_f64() / PERIOD.as_secs_f64();
        let sample = (f64::from(sample) * share).round().max(1.0) as u32;
        Self { window, pause: PERIOD.saturating_sub(window), sample }
    }

    /// The share of the time in which the programs are attached.
    fn share(&self) -> f64 {
        if self.pause.is_zero() { 1.0 } else { self.window.as_secs_f64() / PERIOD.as_secs_f64() }
    }
}

/// How packets were collected.
#[derive(Default)]
struct Watched {
    seconds: f64,
    /// Packets on their way when programs were detached.
    unfinished: usize,
    /// Time for attaching and detaching.
    switching: Duration,
    /// What threads did that read or sent packets.
    switches: Vec<abi::TraceSwitch>,
    /// Switches beyond those that are kept.
    switches_lost: u64,
}

/// Takes packets until the time is over, `stop` is set, or `keep` returns false. Calls `begun` whenever the programs
/// have been attached.
fn collect(
    programs: &mut Programs,
    ports: &[u32],
    rhythm: &Rhythm,
    time: Duration,
    stop: &AtomicBool,
    mut begun: impl FnMut(),
    mut keep: impl FnMut(Packet) -> bool,
) -> Result<Watched, TraceError> {
    let began = Instant::now();
    let mut watched = Watched::default();
    let mut goes_on = true;
    while goes_on && began.elapsed() < time && !stop.load(Ordering::Relaxed) {
        let switched = Instant::now();
        programs.on()?;
        watched.switching += switched.elapsed();
        begun();
        let context = context(programs, ports);
        let mut take = |programs: &Programs| {
            let records = programs.take();
            for switch in programs.take_switches() {
                if watched.switches.len() < SWITCHES_MAX {
                    watched.switches.push(switch);
                } else {
                    watched.switches_lost += 1;
                }
            }
            records.iter().filter_map(|record| Packet::from_record(record, &context)).all(&mut keep)
        };
        let opened = Instant::now();
        while goes_on && !stop.load(Ordering::Relaxed) {
            let left =
                rhythm.window.saturating_sub(opened.elapsed()).min(time.saturating_sub(began.elapsed()));
            if left.is_zero() {
                break;
            }
            sleep(INTERVAL.min(left));
            goes_on &= take(programs);
        }
        programs.close_gate()?;
        let closed = Instant::now();
        while programs.unfinished() > 0 && closed.elapsed() < DRAIN && !stop.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(2));
        }
        let switched = Instant::now();
        watched.unfinished += programs.off()?;
        watched.switching += switched.elapsed();
        goes_on &= take(programs);
        sleep(rhythm.pause.min(time.saturating_sub(began.elapsed())));
    }
    watched.seconds = began.elapsed().as_secs_f64();
    Ok(watched)
}

/// The devices of the calling thread's network namespace, by index.
fn devices() -> Result<BTreeMap<u32, String>, TraceError> {
    let all = if_nameindex().map_err(io::Error::from)?;
    Ok(all.iter().map(|one| (one.index(), one.name().to_string_lossy().into_owned())).collect())
}

fn context(programs: &Programs, ports: &[u32]) -> Context {
    let is_fast = |port: &&u32| attach::is_port(**port);
    Context {
        hooks: !programs.missing.contains_key("prerouting"),
        fast_ports: ports.iter().filter(is_fast).copied().collect(),
    }
}

fn plan(request: &Request, devices: &BTreeMap<u32, String>) -> Result<abi::TracePlan, TraceError> {
    let ifindex = match &request.port {
        None => 0,
        Some(port) => match devices.iter().find(|(_, name)| *name == port) {
            Some((index, _)) => *index,
            None => return Err(TraceError::NoDevice(port.clone())),
        },
    };
    let mut plan = abi::TracePlan {
        netns: machine::netns()?,
        ifindex,
        sample: request.sample,
        ..abi::TracePlan::default()
    };
    let selections = &request.selections;
    // One without conditions is met by all packets.
    if selections.contains(&Selection::default()) {
        return Ok(plan);
    }
    if selections.len() > plan.filter.len() {
        return Err(TraceError::Selections(selections.len()));
    }
    plan.filter.iter_mut().zip(selections).for_each(|(place, selection)| *place = filter(selection));
    plan.filters = selections.len() as u32;
    Ok(plan)
}

/// A selection as the programs compare it.
fn filter(selection: &Selection) -> abi::TraceFilter {
    let Selection { src, dst, sport, dport, proto } = selection;
    let mut filter = abi::TraceFilter::default();
    filter.tuple.l4_proto = proto.map_or(0, Proto::number);
    filter.tuple.sport_be = sport.unwrap_or(0).to_be_bytes();
    filter.tuple.dport_be = dport.unwrap_or(0).to_be_bytes();
    (filter.tuple.src_be, filter.src_mask_be) = address_and_mask(*src, &mut filter.tuple.family);
    (filter.tuple.dst_be, filter.dst_mask_be) = address_and_mask(*dst, &mut filter.tuple.family);
    filter
}

/// An address and its mask as the programs compare them, and the address family.
fn address_and_mask(network: Option<Network>, family: &mut u8) -> ([u8; 16], [u8; 16]) {
    let Some((address, length)) = network.map(Network::parts) else { return ([0; 16], [0; 16]) };
    let mut bytes = [0; 16];
    match address {
        IpAddr::V4(v4) => {
            *family = 4;
            bytes[..4].copy_from_slice(&v4.octets());
        }
        IpAddr::V6(v6) => {
            *family = 6;
            bytes = v6.octets();
        }
    }
    let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
    (bytes, mask.to_be_bytes())
}

fn count_losses(programs: &Programs, packets: &[Packet], lost: &mut Lost) {
    let (losses, skipped) = programs.losses();
    lost.slots_busy = losses.busy;
    lost.ring_full = losses.ring_full;
    lost.runs_skipped = skipped;
    lost.events = packets.iter().map(|packet| u64::from(packet.lost)).sum();
    lost.vanished = packets.iter().filter(|packet| packet.end == End::Vanished).count() as u64;
}

fn cost_of(measured: Cost, packets: &[Packet], rhythm: &Rhythm, watched: &Watched) -> TraceCost {
    let events: usize = packets.iter().map(|packet| packet.steps.len() + 1).sum();
    let probes_per_packet = events as f64 / packets.len().max(1) as f64;
    let attached_share = rhythm.share();
    TraceCost {
        measured,
        probes_per_packet,
        attached_share,
        per_packet_ns: measured.per_packet_ns(probes_per_packet, rhythm.sample) * attached_share,
        switching_percent: watched.switching.as_secs_f64() / watched.seconds.max(1e-9) * 100.0,
    }
}

/// The first packets of a path that reached their end.
fn rows(path: &Path, packets: &[Packet], name: &impl Fn(u32) -> String, count: usize) -> Vec<Packet> {
    let of_path = packets.iter().filter(|packet| {
        packet.way == path.way
            && packet.end == End::Done
            && packet.in_ifindex.map(name) == path.from
            && packet.out_ifindex.map(name) == path.to
    });
    of_path.take(count).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_packet_in_n_is_traced_over_the_whole_time() {
        for (sample, window_ms, share_in_window) in [(8, 500, 4), (64, 62, 4), (1000, 10, 10)] {
            let rhythm = Rhythm::from_sample(sample);
            assert_eq!((rhythm.window.as_millis(), rhythm.sample), (window_ms, share_in_window));
            assert!((f64::from(rhythm.sample) / rhythm.share() / f64::from(sample) - 1.0).abs() < 0.01);
            assert_eq!(rhythm.window + rhythm.pause, PERIOD);
        }
        let always = Rhythm::from_sample(1);
        assert_eq!((always.sample, always.share()), (1, 1.0));
    }

    #[test]
    fn a_network_becomes_an_address_and_a_mask() {
        let of = |text: &str| {
            let mut family = 0;
            let (address, mask) = address_and_mask(text.parse().ok(), &mut family);
            (family, address[..4].to_vec(), mask[..5].to_vec())
        };
        assert_eq!(of("192.0.2.0/24"), (4, vec![192, 0, 2, 0], vec![255, 255, 255, 0, 0]));
        assert_eq!(of("192.0.2.7"), (4, vec![192, 0, 2, 7], vec![255, 255, 255, 255, 0]));
        assert_eq!(of("0.0.0.0/0").2, [0; 5]);
        assert_eq!(of("2001:db8::/36"), (6, vec![0x20, 1, 0x0d, 0xb8], vec![255, 255, 255, 255, 0xf0]));
    }
}
