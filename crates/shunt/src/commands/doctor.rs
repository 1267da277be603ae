//! `shunt doctor`: finds what slows a port.
//!
//! Rules are applied to the settings and counters of ports, to the machine around them, and to what a second of the
//! present traffic shows. Each finding has its evidence, what it costs, what to do about it, where the rule comes from,
//! and how certain it is.

mod gain;
pub(super) mod record;
pub(crate) mod view;

use super::{arguments::duration, link::read, measure::measure_and_show, model};
use crate::{
    client::candidates,
    command::{Command, Context},
    failure::{bad_file, bad_json, traffic_failed, unreadable, unwritable, usage},
    output::Show,
};
use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use record::{are_recorded, is_record};
use shunt_api::{Failure, FailureCode};
use shunt_gen::{Rate, Shape, Sizes};
use shunt_inspect::{
    doctor::{Finding, Load, LoadStep, Pressure, System, diagnose, limit, measure_copies},
    link::{Interval, Link},
    reg::{RegisterSource, builtin, device_tree::DeviceTree, soc_of_machine},
};
use shunt_lab::{
    Conditions, Results, ResultsFile,
    sweep::SweepPlan,
    traffic::{Nics, Testbed, TrafficSpec},
};
use shunt_model::Case;
use std::{
    collections::BTreeMap,
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::sleep,
    time::{Duration, Instant},
};
use view::{Diagnosis, Examination, Found};

/// How long traffic is watched without --load.
const GLANCE: Duration = Duration::from_secs(1);
/// The rates of the sweep, as shares of the line.
const SHARES: [f64; 4] = [0.1, 0.25, 0.5, 0.95];
/// The line, if the driver does not report its speed.
const USUAL_BPS: f64 = 1e9;
const FULL_FRAME: u32 = 1518;
/// Addresses for benchmarks (RFC 2544); nobody needs to have them, since frames go to the port's MAC.
const ENDS: [(Ipv4Addr, u16); 2] =
    [(Ipv4Addr::new(198, 18, 0, 1), 1024), (Ipv4Addr::new(198, 19, 0, 1), 5001)];

/// Find what slows a port (settings, errors, interrupts, idle states, errata), and whether the router is the limit.
///
/// The first line says whether the router is the limit of the traffic that passes now: a core that drops packets, a
/// receive ring, a full line or queue, or nothing at this moment.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// The port [default: all ports that are up].
    #[arg(add = ArgValueCandidates::new(candidates::devices))]
    port: Option<String>,
    /// Look under load: with --peer, send a short sweep of rates from there to the port; otherwise watch the traffic
    /// that is there.
    #[arg(long)]
    load: bool,
    /// The device that sends the sweep: it is connected to the port by a cable, a switch, or a veth pair.
    #[arg(long, value_name = "PORT", requires = "load", requires = "port", add = ArgValueCandidates::new(candidates::devices))]
    peer: Option<String>,
    /// With --load, the time of each step of the sweep, or of watching [default: 1s, or 5s of watching].
    #[arg(long, visible_alias = "for", value_name = "TIME", requires = "load", value_parser = duration)]
    time: Option<Duration>,
    /// The board, for predictions of what a fix gains: a file, or a case of `shunt model cases` [default: by the device
    /// tree].
    #[arg(long, value_name = "CASE", add = model::case())]
    model: Option<String>,
    /// Write what was seen to this file, for --recorded.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Apply the rules to a file that --record wrote, perhaps on another machine.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["port", "load", "record"])]
    recorded: Option<PathBuf>,
}

/// A resolved `shunt doctor`.
#[derive(Debug)]
pub(crate) struct DoctorPlan {
    look: Look,
    /// The board, if it was named.
    board: Option<Box<Case>>,
}

#[derive(Debug)]
enum Look {
    Live { ports: Vec<String>, traffic: Traffic, record: Option<PathBuf> },
    Recorded(Vec<System>),
}

/// Traffic during the examination.
#[derive(Debug)]
pub(crate) enum Traffic {
    Watch(Duration),
    Sweep { peer: String, step: Duration },
}

impl Command for DoctorArgs {
    type Plan = DoctorPlan;
    const EXAMPLES: &str = "
        [shunt doctor]
        shunt doctor eth0 # what slows a port
        shunt doctor eth0 --load --peer eth1 # with traffic from the other end of its cable
    ";

    fn resolve(self, _: &Context) -> anyhow::Result<DoctorPlan> {
        Ok(DoctorPlan::resolve(self)?)
    }

    async fn run(plan: DoctorPlan, _: &Context, show: Show<'_>) -> anyhow::Result<()> {
        plan.run(show).await
    }
}

impl DoctorPlan {
    fn resolve(typed: DoctorArgs) -> Result<Self, Failure> {
        let DoctorArgs { port, load, peer, time, model, record, recorded } = typed;
        let board = model.as_deref().map(model::read).transpose()?.map(Box::new);
        if let Some(path) = recorded {
            let text = fs::read_to_string(&path).map_err(|error| unreadable(&path, &error))?;
            let systems = serde_json::from_str(&text);
            let systems: Vec<System> =
                systems.map_err(|error| bad_json(&path, "a record of `shunt doctor --record`", &error))?;
            if !are_recorded(&systems) {
                let why = "not a record of `shunt doctor --record`: it has no port; name a file that --record wrote";
                return Err(bad_file(&path, why));
            }
            return Ok(Self { look: Look::Recorded(systems), board });
        }
        if port.is_some() && port == peer {
            return Err(usage("--peer: the port cannot send to itself"));
        }
        let traffic = match peer {
            Some(peer) => Traffic::Sweep { peer, step: time.unwrap_or(Duration::from_secs(1)) },
            None if load => Traffic::Watch(time.unwrap_or(Duration::from_secs(5))),
            None => Traffic::Watch(GLANCE),
        };
        let ports = port.map_or_else(Link::all, |port| vec![port]);
        if let Some(path) = record.as_deref().filter(|path| path.is_file() && !is_record(path)) {
            return Err(bad_file(path, "exists already and is not a record: name another file"));
        }
        Ok(Self { look: Look::Live { ports, traffic, record }, board })
    }

    async fn run(self, show: Show<'_>) -> anyhow::Result<()> {
        let board = self.board;
        let (ports, traffic, record) = match self.look {
            Look::Recorded(systems) => return show(&answer(systems, board.as_deref())),
            Look::Live { ports, traffic, record } => (ports, traffic, record),
        };
        let only = ports.len() == 1;
        let mut systems = Vec::new();
        for port in &ports {
            let link = read(port).await?;
            if link.up || only {
                systems.push(System::read(link));
            }
        }
        if systems.is_empty() {
            return Err(Failure::new(FailureCode::PortMissing, "no port is up; name one").into());
        }
        if let Traffic::Sweep { peer, .. } = &traffic {
            read(peer).await?;
        }
        measure_and_show(show, move |stop| {
            let mut systems = look(systems, &traffic, stop)?;
            let copies = measure_copies();
            for system in &mut systems {
                system.copies = copies.clone();
                system.registers = registers(&system.link);
            }
            if let Some(path) = record {
                let json = serde_json::to_string_pretty(&systems)? + "\n";
                fs::write(&path, json).map_err(|error| unwritable(&path, &error))?;
            }
            Ok(answer(systems, board.as_deref()))
        })
        .await
    }
}

fn answer(systems: Vec<System>, board: Option<&Case>) -> Examination {
    let limit = limit(&systems);
    let diagnosis = |system: System| {
        let board = board.cloned().or_else(|| gain::case_of(&system));
        let found = |finding: Finding| {
            let gain = board.as_ref().and_then(|board| gain::of_fix(&finding.rule, &system, board));
            Found { finding, gain }
        };
        Diagnosis {
            port: system.link.nic.name.clone(),
            findings: diagnose(&system).into_iter().map(found).collect(),
            load: system.load,
            lacking: system.link.lacking,
        }
    };
    Examination { limit, ports: systems.into_iter().map(diagnosis).collect() }
}

/// Adds what happens to each port while there is traffic.
fn look(mut systems: Vec<System>, traffic: &Traffic, stop: &Arc<AtomicBool>) -> anyhow::Result<Vec<System>> {
    let mut intervals: Vec<Interval> = systems.iter().map(|system| Interval::begin(&system.link)).collect();
    let pressure = Pressure::begin(systems.iter().map(|system| system.link.nic.name.as_str()));
    let (mut steps, mut doubts) = (Vec::new(), Vec::new());
    match traffic {
        Traffic::Watch(time) => {
            let until = Instant::now() + *time;
            while Instant::now() < until && !stop.load(Ordering::Relaxed) {
                sleep(Duration::from_millis(50).min(until.saturating_duration_since(Instant::now())));
            }
        }
        Traffic::Sweep { peer, step } => {
            let port = &systems[0].link.nic;
            let results = Results::new("UDP rate sweep", Conditions::of_this_machine());
            let plan = sweep_plan(peer, &port.name, port.speed_mbps, *step);
            let report =
                plan.perform(ResultsFile::in_memory(results), stop, &mut |_| ()).map_err(traffic_failed)?;
            doubts = report.doubts;
            for step in report.steps {
                let loss = step.directions.iter().map(|one| one.figures.loss_ratio).fold(0.0, f64::max);
                steps.push(LoadStep { offered_bps: step.offered_bps, loss_ratio: loss });
            }
        }
    }
    let cpus = pressure.cpus();
    for (system, interval) in systems.iter_mut().zip(&mut intervals) {
        let (seconds, rates) = interval.end();
        let queues = pressure.queues(&system.link.nic.name);
        let (steps, doubts) = (steps.clone(), doubts.clone());
        system.load = Some(Load { seconds, rates, steps, doubts, cpus: cpus.clone(), queues });
        system.link.counters = Link::counters(&system.link.nic.name);
    }
    Ok(systems)
}

fn sweep_plan(peer: &str, port: &str, speed_mbps: Option<u64>, step: Duration) -> SweepPlan {
    let [from, to] = ENDS.map(SocketAddr::from);
    let sizes = Sizes::fixed(FULL_FRAME).unwrap_or_else(|_| unreachable!());
    let spec = TrafficSpec::for_shape(Shape::udp(from, to, sizes));
    let line = speed_mbps.map_or(USUAL_BPS, |mbps| mbps as f64 * 1e6);
    let nics =
        Nics { tx: peer.to_owned(), rx: port.to_owned(), gateway: None, rx_gateway: None, next_hop: None };
    SweepPlan {
        spec: TrafficSpec { rate: Rate::L2(line), ..spec },
        testbed: Testbed::Nics(nics),
        engine: None,
        rates_bps: SHARES.map(|share| (line * share) as u64).to_vec(),
        step,
        watched: Vec::new(),
        dut: None,
        own_load: false,
        registers: None,
    }
}

/// The registers that rules look at, from the driver's dump; none if there is no dump or no definition.
fn registers(link: &Link) -> BTreeMap<String, u64> {
    if link.nic.driver.as_deref() != Some("fec") {
        return BTreeMap::new();
    }
    let soc = DeviceTree::of_this_machine().as_ref().and_then(soc_of_machine);
    let Some(all) = soc.and_then(|soc| builtin(&soc).ok()) else { return BTreeMap::new() };
    // Rules know the register by the name that chips with one MAC give it; the dump is that of this port.
    let wanted = ["RCR", "RSEM", "RSFL"].map(|name| {
        (format!("ENET_{name}"), all.registers.iter().find(|one| one.name.ends_with(&format!("_{name}"))))
    });
    let found = wanted.into_iter().filter_map(|(name, register)| Some((name, register?)));
    let read = |(name, register)| {
        let values = RegisterSource::Ethtool(link.nic.name.clone()).read(&all, &[register]).ok()?;
        Some((name, values.into_iter().next()?.ok()?))
    };
    found.filter_map(read).collect()
}

#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests {
    use super::{super::arguments::parse_args, *};

    #[test]
    fn a_sweep_needs_a_peer_and_watching_does_not() {
        let plan = |words: &str| parse_args::<DoctorArgs>(words).ok().map(DoctorPlan::resolve);
        let sweep = plan("eth0 --load --peer eth1 --time 500ms").unwrap().unwrap();
        let Look::Live { traffic: Traffic::Sweep { peer, step }, .. } = sweep.look else { panic!() };
        assert_eq!((peer.as_str(), step), ("eth1", Duration::from_millis(500)));
        let watch = plan("eth0 --load").unwrap().unwrap();
        assert!(
            matches!(watch.look, Look::Live { traffic: Traffic::Watch(time), .. } if time.as_secs() == 5)
        );
        assert!(plan("eth0 --load --peer eth0").unwrap().is_err());
        assert!(plan("--load --peer eth0").is_none() && plan("eth0 --peer eth1").is_none());
    }

    #[test]
    fn the_sweep_ends_below_the_line() {
        let plan = sweep_plan("a", "b", Some(100), Duration::from_secs(1));
        assert_eq!(plan.rates_bps, [10_000_000, 25_000_000, 50_000_000, 95_000_000]);
    }
}
