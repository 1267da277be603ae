//! Latency and CPU time per packet at one load.

use crate::{
    Doubt, ResultsFile, Run,
    dut::{self, Dut, LoadMeter},
    load::{Load, RunTime},
    search::Goal,
    throughput::{Engine, RunningShunt, unless_stopped},
    traffic::{Directed, Error, Figures, LatencyUs, Session, Testbed, TrafficSpec, session, track},
};
use serde_json::json;
use shunt_gen::Schedule;
use std::{
    io,
    sync::atomic::AtomicBool,
    thread,
    time::{Duration, Instant},
};

/// Load of the latency and the CPU time, in percent of the NDR.
pub const LOAD_PERCENT: u32 = 50;
/// Flows start one after the other during this time, which is that between two proofs of a flow: their proofs, and
/// what else happens at the start of a flow, do not fall together.
const STAGGER: Duration = Duration::from_secs(2);
/// Packets of each flow until then, enough for a fast path to learn it.
const FIRST_PACKETS: f64 = 4.0;
/// Time over which the load of an idle DUT is measured.
const IDLE: Duration = Duration::from_millis(500);
const LOOK_EACH: Duration = Duration::from_millis(20);
/// Share of the time that a router may wait for its CPU without a doubt.
const WAITED: f64 = 0.05;
/// The CPU time of threads is that of so many short runs. A sender on a busy machine is sooner on time for a short run.
const SLICES: u32 = 10;
/// So many times as many slices are tried before the figure is missing.
const ATTEMPTS: u32 = 3;

/// What is measured, and where.
pub(super) struct Bench<'p> {
    pub(super) spec: &'p TrafficSpec,
    pub(super) testbed: &'p Testbed,
    pub(super) dut: &'p Option<Dut>,
}

/// The figures at a load, or why there are none.
pub(super) struct LoadPoint {
    load_pps: f64,
    loss_ratio: f64,
    latency_us: Result<LatencyUs, String>,
    cpu: Result<CpuTime, String>,
}

/// CPU time of the router per packet.
#[derive(Debug, Clone, PartialEq)]
struct CpuTime {
    ns_per_packet: f64,
    /// Share of one core.
    core_percent: f64,
    doubts: Vec<Doubt>,
}

impl Bench<'_> {
    pub(super) fn measure(
        &self,
        engine: Option<&Engine>,
        load_pps: f64,
        time: Duration,
        stop: &AtomicBool,
    ) -> Result<LoadPoint, Error> {
        session(self.spec, self.testbed, stop, |session| {
            if let Some(router) = session.router() {
                track(router)?;
            }
            let up = RunningShunt::beside(session, engine)?;
            self.start_flows(session)?;
            let schedule = Schedule { pps: Some(load_pps), duration: Some(time), ..schedule(self.spec) };
            let idle = self.idle_load(stop)?;
            let meter = LoadMeter::for_router(session, self.dut, false)?;
            let (directed, load) = dut::run(session, &schedule, &meter, || Ok(()))?;
            unless_stopped(stop)?;
            let is_late = directed.iter().any(Directed::is_held_up);
            let figures = Figures::sum(&directed);
            let cpu = match idle.zip(load) {
                Some(_) if is_late => Err(HELD_UP.to_owned()),
                Some((idle, load)) => Ok(CpuTime::of_dut(&idle, &load, figures.received_pps())),
                None => own_cpu_time(session, &schedule, engine)?,
            };
            unless_stopped(stop)?;
            up.map(RunningShunt::down).transpose()?;
            let latency_us = match figures.latency_us {
                _ if is_late => Err(HELD_UP.to_owned()),
                None => Err("cannot tell: no packet arrived".to_owned()),
                Some(latency) => Ok(latency),
            };
            Ok(LoadPoint { load_pps, loss_ratio: figures.loss_ratio, latency_us, cpu })
        })
    }

    /// Sends the first packets of all flows, one flow after the other.
    fn start_flows(&self, session: &mut Session<'_>) -> Result<(), Error> {
        let pps = f64::from(self.spec.flows()) * FIRST_PACKETS / STAGGER.as_secs_f64();
        session.run(&Schedule { pps: Some(pps), duration: Some(STAGGER), ..schedule(self.spec) }).map(drop)
    }

    /// The load of the DUT without traffic; None without an agent.
    fn idle_load(&self, stop: &AtomicBool) -> Result<Option<Load>, Error> {
        let Some(dut) = self.dut else { return Ok(None) };
        let (mark, began) = (dut.mark()?, Instant::now());
        while began.elapsed() < IDLE {
            unless_stopped(stop)?;
            thread::sleep(LOOK_EACH);
        }
        dut.load_since(mark).map(Some)
    }
}

const HELD_UP: &str = "cannot tell: the sender was held up; repeat it on an idle machine";

fn schedule(spec: &TrafficSpec) -> Schedule {
    Schedule { pps: None, burst: spec.burst, packets: None, duration: None }
}

/// The CPU time of the threads that poll the ports of a router of our own, at the same load.
fn own_cpu_time(
    session: &mut Session<'_>,
    schedule: &Schedule,
    engine: Option<&Engine>,
) -> Result<Result<CpuTime, String>, Error> {
    if engine.is_some_and(Engine::is_external) {
        let why = "cannot tell: the external engine polls, so its core is busy whatever the load";
        return Ok(Err(why.to_owned()));
    }
    if session.router().is_none() {
        return Ok(Err("cannot tell: nothing reports the load of the router; give --dut-agent".to_owned()));
    }
    let threads = match session.poll_by_threads() {
        Ok(threads) => threads,
        Err(why) => return Ok(Err(format!("cannot tell: {why}"))),
    };
    let ran =
        || threads.iter().try_fold(RunTime::default(), |sum, one| Ok::<_, io::Error>(sum + one.run_time()?));
    let slice = Schedule { duration: schedule.duration.map(|time| time / SLICES), ..*schedule };
    // Threads that have just started poll with cold caches, as the first packets do.
    session.run(&Schedule { duration: slice.duration.map(|time| time / 2), ..slice })?;
    let mut counted = Counted::default();
    for _ in 0..SLICES * ATTEMPTS {
        let before = ran()?;
        let directed = session.run(&slice)?;
        let run_time = ran()?.since(before);
        if !directed.iter().any(Directed::is_held_up) {
            counted.add(run_time, &Figures::sum(&directed));
        }
        if counted.slices == SLICES {
            return Ok(CpuTime::of_threads(&counted));
        }
    }
    Ok(Err(HELD_UP.to_owned()))
}

/// What the router's threads did in the slices whose sender was on time.
#[derive(Debug, Default, Clone, Copy)]
struct Counted {
    slices: u32,
    run_time: RunTime,
    packets: u64,
    seconds: f64,
}

impl Counted {
    fn add(&mut self, run_time: RunTime, figures: &Figures) {
        self.slices += 1;
        self.run_time = self.run_time + run_time;
        self.packets += figures.received;
        self.seconds += figures.seconds;
    }
}

impl CpuTime {
    /// None if no packet arrived, or the kernel keeps no account of threads.
    fn of_threads(&Counted { run_time, packets, seconds, .. }: &Counted) -> Result<Self, String> {
        if packets == 0 || run_time.ran_ns == 0 {
            return Err("cannot tell: the router's threads polled no packet".to_owned());
        }
        let wall_ns = seconds * 1e9;
        let waited = run_time.waited_ns as f64 / wall_ns;
        Ok(Self {
            ns_per_packet: run_time.ran_ns as f64 / packets as f64,
            core_percent: run_time.ran_ns as f64 / wall_ns * 100.0,
            doubts: (waited > WAITED)
                .then_some(Doubt::RouterWaited { percent: waited * 100.0 })
                .into_iter()
                .collect(),
        })
    }

    /// By the CPU meter of the agent: the load that traffic adds, of all CPUs together.
    fn of_dut(idle: &Load, load: &Load, pps: f64) -> Self {
        let cores = |load: &Load| load.cpus.iter().map(|cpu| cpu.load_percent).sum::<f64>();
        let core_percent = (cores(load) - cores(idle)).max(0.0);
        Self {
            ns_per_packet: core_percent / 100.0 * 1e9 / pps.max(1.0),
            core_percent,
            doubts: load.doubts.clone(),
        }
    }
}

impl LoadPoint {
    /// A load at which nothing could be measured, with the reason.
    pub(super) fn unknown(why: &str) -> Self {
        let [latency_us, cpu] = [(); 2].map(|()| why.to_owned());
        Self { load_pps: 0.0, loss_ratio: 0.0, latency_us: Err(latency_us), cpu: Err(cpu) }
    }

    /// Whether a figure is missing because the sender was held up.
    pub(super) fn was_held_up(&self) -> bool {
        let reasons = [self.latency_us.as_ref().err(), self.cpu.as_ref().err()];
        reasons.into_iter().flatten().any(|why| why == HELD_UP)
    }

    /// Adds the readings of `device`, which are the frame size and the router.
    pub(super) fn save(&self, file: &mut ResultsFile, device: &str, doubts: &[Doubt]) -> io::Result<()> {
        let Self { load_pps, loss_ratio, latency_us, cpu } = self;
        let mut doubts = doubts.to_vec();
        if *loss_ratio > Goal::PDR.loss_ratio {
            doubts.push(Doubt::Lost { percent: loss_ratio * 100.0 });
        }
        let details = |more: serde_json::Value| {
            let mut all = json!({ "load_pps": load_pps, "loss_ratio": loss_ratio });
            if let (Some(all), Some(more)) = (all.as_object_mut(), more.as_object()) {
                all.extend(more.clone());
            }
            all.as_object().cloned().unwrap_or_default()
        };
        let name = |of: &str| format!("{of} at {LOAD_PERCENT} % of the NDR {device}");
        for (of, value) in [
            ("latency p50", latency_us.as_ref().map(|us| us.p50)),
            ("latency p99", latency_us.as_ref().map(|us| us.p99)),
        ] {
            let run = value.map(|value| Run { value, at: None, details: details(json!({})) });
            add(file, (&name(of), "us"), run.map_err(Clone::clone), &doubts)?;
        }
        let more: Vec<Doubt> = cpu.iter().flat_map(|cpu| cpu.doubts.clone()).collect();
        let run = cpu.as_ref().map(|cpu| Run {
            value: cpu.ns_per_packet,
            at: None,
            details: details(json!({ "core_percent": cpu.core_percent })),
        });
        doubts.extend(more);
        add(file, (&name("CPU time"), "ns/packet"), run.map_err(Clone::clone), &doubts)
    }
}

/// Adds a value with its doubts, or the reason why there is none.
fn add(
    file: &mut ResultsFile,
    (name, unit): (&str, &str),
    value: Result<Run, String>,
    doubts: &[Doubt],
) -> io::Result<()> {
    match value {
        Ok(run) => {
            file.add(name, unit, run)?;
            doubts.iter().for_each(|doubt| file.add_doubt(name, doubt.clone()));
        }
        Err(why) => file.add_missing(name, why),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Conditions, Results, card::WHAT};
    use shunt_gen::Shape;
    use std::net::SocketAddr;

    #[test]
    fn cpu_time_is_that_of_the_threads_or_what_traffic_adds_to_an_idle_router() {
        let run_time = RunTime { ran_ns: 200_000_000, waited_ns: 60_000_000, slices: 9 };
        let counted = |packets| Counted { slices: 1, run_time, packets, seconds: 1.0 };
        let of_threads = CpuTime::of_threads(&counted(100_000)).unwrap();
        assert_eq!((of_threads.ns_per_packet, of_threads.core_percent), (2000.0, 20.0));
        assert_eq!(of_threads.doubts, [Doubt::RouterWaited { percent: 6.0 }]);
        assert!(CpuTime::of_threads(&counted(0)).is_err());
        assert!(CpuTime::of_threads(&Counted { run_time: RunTime::default(), ..counted(9) }).is_err());
        let load = |percents: [f64; 2]| {
            let cpu = |percent| {
                json!({"cpu": 0, "load_percent": percent, "error_points": 0.0, "speed_percent": 100.0,
                    "memory_slowdown_percent": 0.0, "soaked_percent": null, "taken_percent": 0.0,
                    "soaker_mbytes_per_second": 0.0, "proc_stat": crate::load::StatShares::default()})
            };
            let cpus: Vec<_> = percents.map(cpu).to_vec();
            let load = json!({"seconds": 1.0, "load_percent": 0.0, "cpus": cpus, "doubts": [],
                "conditions": Conditions::default()});
            serde_json::from_value::<Load>(load).unwrap()
        };
        // Two cores: 5 % without traffic, 55 % with 250,000 packets/s.
        let of_dut = CpuTime::of_dut(&load([2.0, 3.0]), &load([50.0, 5.0]), 250_000.0);
        assert_eq!((of_dut.core_percent, of_dut.ns_per_packet), (50.0, 2000.0));
        // Noise of an idle router is not negative time.
        assert_eq!(CpuTime::of_dut(&load([3.0, 3.0]), &load([2.0, 3.0]), 1e5).ns_per_packet, 0.0);
    }

    #[test]
    fn a_figure_that_is_not_known_is_missing_with_the_reason() {
        let mut file = ResultsFile::in_memory(Results::new(WHAT, Conditions::default()));
        let latency = LatencyUs { p50: 10.0, p99: 20.0, ..LatencyUs::default() };
        let point = LoadPoint {
            load_pps: 1e5,
            loss_ratio: 0.02,
            latency_us: Ok(latency),
            cpu: Err("why".to_owned()),
        };
        point.save(&mut file, "imix slow", &[Doubt::VirtualLinks]).unwrap();
        LoadPoint::unknown("no NDR").save(&mut file, "imix tc", &[]).unwrap();
        let Results { readings, missing, .. } = file.results();
        let p99 = &readings["latency p99 at 50 % of the NDR imix slow"];
        assert_eq!((p99.value, p99.unit.as_str()), (20.0, "us"));
        assert_eq!(p99.doubts, [Doubt::VirtualLinks, Doubt::Lost { percent: 2.0 }]);
        assert_eq!((readings.len(), missing.len()), (2, 4));
        assert_eq!(missing["CPU time at 50 % of the NDR imix slow"], "why");
        assert_eq!(missing["latency p50 at 50 % of the NDR imix tc"], "no NDR");
    }

    /// Linux in a namespace, at a rate that any machine manages.
    #[test]
    fn a_router_in_a_namespace_has_a_latency_and_a_cpu_time() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("SKIP: only root makes namespaces");
            return;
        }
        let [from, to] = [1024, 5001].map(|port| SocketAddr::from(([0; 4], port)));
        let mut spec = TrafficSpec::for_shape(Shape::udp(from, to, "imix".parse().unwrap()));
        (spec.shape.source_ports.count, spec.shape.flows) = (4, Some(4));
        let bench = Bench { spec: &spec, testbed: &Testbed::Own, dut: &None };
        let point = bench.measure(None, 5000.0, Duration::from_millis(300), &AtomicBool::new(false)).unwrap();
        // On a busy machine, the sender may be held up in all attempts; nothing else may be in the way.
        match point.latency_us {
            Ok(latency) => assert!(0.0 < latency.p50 && latency.p50 <= latency.p99, "{latency:?}"),
            Err(why) => assert_eq!(why, HELD_UP),
        }
        match point.cpu {
            Ok(cpu) => assert!((50.0..1e6).contains(&cpu.ns_per_packet) && cpu.core_percent > 0.0, "{cpu:?}"),
            Err(why) => assert_eq!(why, HELD_UP),
        }
    }
}
