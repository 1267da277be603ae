//! Rounds that measure what the fast path saves: both paths in turn, under the traffic of the moment.

use crate::{
    daemon::{Daemon, blocking::BlockingThread},
    history::Clock,
    savings::{Counted, Round, Spent, Traffic, overload},
};
use nix::time::{ClockId, clock_gettime};
use shunt_api::CannotTell;
use shunt_bpf::{NetTimeLoader, NetTimeMeter, ProgramMeter, abi::reason::COST_SAMPLE, schedule};
use std::{
    fs,
    thread::sleep,
    time::{Duration, Instant},
};

/// The name of a round, for `shunt status`.
const ROUND: &str = "measure-savings";
/// Each path is measured this often in a round, in turn.
const TURNS: usize = 6;
/// The fast packets that a window should have, and its bounds.
const WINDOW_PACKETS: f64 = 600.0;
const WINDOW_MIN: Duration = Duration::from_millis(5);
const WINDOW_MAX: Duration = Duration::from_millis(100);
/// Time after a change of path, until batches are those of the path.
const SETTLE: Duration = Duration::from_millis(2);
/// Packets after a change of path, until caches are those of the path: the first 32 took three times as long. 500
/// packets a second are as many in the longest time.
const SETTLE_PACKETS: f64 = 64.0;
const SETTLE_MAX: Duration = Duration::from_millis(150);
/// Drivers of NICs that merge packets in hardware, but not with XDP. LRO is always off on a router.
const MERGING_DRIVERS: [&str; 5] = ["virtio_net", "bnxt_en", "bnx2x", "qede", "mlx5_core"];
/// Readings of the clock that are timed, to know what one takes.
const CLOCK_READINGS: u32 = 256;

/// What measures, between two rounds.
#[derive(Default)]
pub(super) enum Meter {
    /// Not loaded yet.
    #[default]
    Absent,
    /// A thread has it.
    Lent,
    Loaded(NetTimeMeter),
    /// The kernel cannot be measured, and why.
    Refused(String),
}

impl std::fmt::Debug for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Absent => "Absent",
            Self::Lent => "Lent",
            Self::Loaded(_) => "Loaded",
            Self::Refused(_) => "Refused",
        })
    }
}

/// Where a thread has the meter from.
enum Source {
    Loaded(NetTimeMeter),
    Loader(NetTimeLoader),
}

/// What a round needs.
struct Plan {
    programs: ProgramMeter,
    /// The slots of ports, and their names.
    slots: Vec<u16>,
    names: Vec<String>,
    /// Whether packets may be merged by a driver that XDP keeps from that.
    merging: bool,
    window: Duration,
    /// How many times more the slow path takes.
    ratio: f64,
}

impl Daemon {
    /// Begins a round, if it is time for one.
    pub(super) fn measure_savings(&mut self) {
        if self.is_open(BlockingThread::Meter, ROUND) {
            return;
        }
        let watched = self.recorder.costs.are_wanted();
        let Some((traffic, pps)) = self.recorder.savings.due(Clock::read().since_boot(), watched) else {
            return;
        };
        let ports = self.core.ports().map(|(link, _)| (link.ifindex, link.name.clone()));
        let ports: Vec<(u16, String)> =
            ports.filter_map(|(ifindex, name)| Some((self.plane.slot(ifindex)?, name))).collect();
        let (slots, names) = ports.into_iter().unzip();
        let plan = Plan {
            programs: self.plane.program_meter(),
            merging: traffic.by_xdp() && !traffic.is_small(),
            slots,
            names,
            window: window(pps),
            ratio: self.recorder.savings.ratio(),
        };
        let source = match std::mem::replace(&mut self.recorder.meter, Meter::Lent) {
            Meter::Loaded(meter) => Ok(Source::Loaded(meter)),
            Meter::Refused(why) => Err(why),
            Meter::Absent | Meter::Lent => {
                self.plane.net_time_loader().map(Source::Loader).map_err(|error| error.to_string())
            }
        };
        let source = match source {
            Ok(source) => source,
            Err(why) => {
                self.recorder.meter = Meter::Refused(why.clone());
                self.add_round(traffic, Err(CannotTell::Kernel { why }));
                return;
            }
        };
        let work = move |_: &mut shunt_kernel::Linux| {
            let start = thread_time();
            let meter = match source {
                Source::Loaded(meter) => Ok(meter),
                Source::Loader(loader) => load(loader),
            };
            let before = meter.as_ref().map_or(0, |meter| sampled(meter, &plan));
            let result = meter.as_ref().map_err(String::clone).map(|meter| run(meter, &plan));
            let packets = meter.as_ref().map_or(0, |meter| sampled(meter, &plan)).saturating_sub(before);
            (meter, result, Spent { thread: thread_time().saturating_sub(start), packets })
        };
        self.in_background(BlockingThread::Meter, ROUND, work, move |daemon, (meter, result, spent)| {
            daemon.recorder.savings.add_spent(Clock::read().since_boot(), traffic, spent);
            daemon.recorder.meter = match meter {
                Ok(meter) => Meter::Loaded(meter),
                Err(why) => Meter::Refused(why),
            };
            daemon.add_round(traffic, result.unwrap_or_else(|why| Err(CannotTell::Kernel { why })));
        });
    }

    fn add_round(&mut self, traffic: Traffic, result: Result<Round, CannotTell>) {
        if let Err(why) = &result {
            tracing::debug!("savings of {traffic} not measured: {why}");
        }
        self.recorder.savings.add_round(Clock::read().now(), traffic, result);
    }
}

/// CPU time of this thread.
fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// All packets of these ports that have gone through Linux for a sample.
fn sampled(meter: &NetTimeMeter, plan: &Plan) -> u64 {
    let reading = meter.read(&plan.slots);
    reading.map_or(0, |reading| reading.ports.iter().map(|port| port.reasons[COST_SAMPLE]).sum())
}

/// The length of a window at this rate.
fn window(pps: f64) -> Duration {
    Duration::from_secs_f64(WINDOW_PACKETS / pps.max(1.0)).clamp(WINDOW_MIN, WINDOW_MAX)
}

/// Loads the meter.
///
/// # Errors
/// If this kernel cannot be measured; the message says why.
fn load(loader: NetTimeLoader) -> Result<NetTimeMeter, String> {
    // There, softirqs can be interrupted by other threads, whose time would count.
    if fs::read_to_string("/sys/kernel/realtime").is_ok_and(|text| text.trim() == "1") {
        return Err("a kernel with PREEMPT_RT does not tell the time of its softirqs".to_owned());
    }
    loader.load().map_err(|error| format!("{error}; a kernel that allows tracepoints would tell"))
}

/// Makes a round. Takes up to three and a half seconds.
fn run(meter: &NetTimeMeter, plan: &Plan) -> Result<Round, CannotTell> {
    if let Some(error) = meter.blind_to_threads()
        && plan.names.iter().any(|name| is_threaded(name))
    {
        let why = format!(
            "the time of NAPI threads is not known: {error}; a kernel with BTF, or 0 in /sys/class/net/PORT/threaded, would tell"
        );
        return Err(CannotTell::Kernel { why });
    }
    // A sample must end in time, however busy the machine is. If this is not allowed, the program ends it.
    let raised = schedule::go_first().is_ok();
    let round = measure(meter, plan);
    if raised {
        // The next measurement of the thread is not urgent.
        let _ = schedule::go_ordinary();
    }
    round
}

fn is_threaded(port: &str) -> bool {
    fs::read_to_string(format!("/sys/class/net/{port}/threaded")).is_ok_and(|text| text.trim() == "1")
}

/// Whether the driver of a port merges packets without XDP, or may. A veth, tap or other virtual device gets those that
/// its peer has not cut yet.
fn may_merge(port: &str) -> bool {
    let driver = fs::read_link(format!("/sys/class/net/{port}/device/driver"));
    let name = driver.as_ref().ok().and_then(|path| path.file_name()).and_then(|name| name.to_str());
    name.is_none_or(|name| MERGING_DRIVERS.contains(&name))
}

fn measure(meter: &NetTimeMeter, plan: &Plan) -> Result<Round, CannotTell> {
    let kernel = |error: shunt_bpf::Error| CannotTell::Kernel { why: error.to_string() };
    let _links = meter.attach().map_err(kernel)?;
    let count = || -> Result<Counted, CannotTell> {
        let before = meter.read(&plan.slots).map_err(kernel)?;
        sleep(plan.window);
        Ok(Counted::between(&before, &meter.read(&plan.slots).map_err(kernel)?))
    };
    let settle = || -> Result<(), CannotTell> {
        let (start, before) = (Instant::now(), meter.read(&plan.slots).map_err(kernel)?);
        while start.elapsed() < SETTLE_MAX {
            sleep(SETTLE);
            let passed = Counted::between(&before, &meter.read(&plan.slots).map_err(kernel)?);
            if passed.packets() >= SETTLE_PACKETS {
                return Ok(());
            }
        }
        Err(CannotTell::Unsteady)
    };
    let most = SETTLE_MAX + plan.window * 2;
    let sample = || meter.sample_slow_path(most).map_err(kernel)?.ok_or(CannotTell::Interrupted);
    let (mut fast, mut slow) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        settle()?;
        let window = count()?;
        if let Some(why) = overload(plan.ratio, window.busiest) {
            return Err(why);
        }
        fast.push(window);
        let sample = sample()?;
        settle()?;
        slow.push(count()?);
        drop(sample);
    }
    let mut round = Round::of_turns(&fast, &slow)?;
    round.merging = plan.merging && plan.names.iter().any(|name| may_merge(name));
    let sample = sample()?;
    settle()?;
    let before = meter.read(&plan.slots).map_err(kernel)?;
    let programs = plan.programs.measure(plan.window);
    let after = meter.read(&plan.slots).map_err(kernel)?;
    drop(sample);
    let (programs, _) = programs.map_err(|error| CannotTell::Kernel {
        why: format!("cannot measure Shunt's own programs: {error}"),
    })?;
    let with_hooks = Round::new(&fast, &[Counted::between(&before, &after)])?;
    let ns: f64 = programs.iter().map(|program| program.time.as_nanos() as f64).sum();
    let runs: f64 = programs.iter().map(|program| program.runs as f64).sum();
    round.set_hooks(ns / with_hooks.slow_pkts, runs / with_hooks.slow_pkts * clock_ns());
    Ok(round)
}

/// What reading the clock takes.
fn clock_ns() -> f64 {
    let start = Instant::now();
    for _ in 0..CLOCK_READINGS {
        std::hint::black_box(Instant::now());
    }
    start.elapsed().as_nanos() as f64 / f64::from(CLOCK_READINGS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_have_enough_packets_and_stay_short() {
        assert_eq!(window(60_000.0), Duration::from_millis(10));
        assert_eq!(window(500.0), WINDOW_MAX);
        assert_eq!(window(5e6), WINDOW_MIN);
    }
}
