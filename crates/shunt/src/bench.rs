//! `shunt bench`: what is measured, of which routers.

mod concurrent;
mod connections;
mod goodput;
mod size;
mod sweep;

use crate::{
    agent::{remote::Remote, token::Token},
    cli::{BenchCommand, NdrArgs, NdrOf, PlaceArgs},
    perform::told,
    render::Answer,
};
use anyhow::Context;
use concurrent::ConcurrentBench;
use goodput::GoodputBench;
use shunt_api::{Failure, FailureCode};
use shunt_gen::{Shape, Sizes};
use shunt_lab::{
    Conditions, Kept, Progress, ReadError, Results,
    dut::Inside,
    search::{Goal, Range, Wrong, simulated::Behaviour},
    throughput::{Device, Engine, Generated, Plan, Report, Simulated},
    traffic::{Error, Nics, Place, Wanted, require_root},
};
use shunt_wire::line::LinkSpeed;
use size::SizeBench;
use std::{
    env, io,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use sweep::SweepBench;

const ENGINES: [&str; 3] = ["slow", "tc", "xdp"];
/// What 1 Gbit/s carries of 64-byte frames.
const SIMULATED_MAX_PPS: f64 = 1_488_095.0;

/// What a trial or a step takes beside its time: packets before it, and those under way at its end.
const BESIDE: Duration = Duration::from_millis(600);
/// How long a search takes between namespaces, and how many trials one by halving takes.
const QUICK_EXPECTED: Duration = Duration::from_secs(60);
const SEARCH_EXPECTED: Duration = Duration::from_secs(300);
const TRIALS_EXPECTED: u32 = 12;

/// A command of `shunt bench`, resolved.
#[derive(Debug)]
pub(crate) enum Measurement {
    Ndr(NdrBench),
    Concurrent(ConcurrentBench),
    Size(SizeBench),
    Sweep(SweepBench),
    Matrix(GoodputBench),
    Rxtx(GoodputBench),
}

/// What a measurement has from whoever asked for it.
pub(crate) struct Setting<'s> {
    /// When it is set, the measurement ends with what there is.
    pub(crate) stop: &'s Arc<AtomicBool>,
    pub(crate) conditions: Conditions,
    pub(crate) show: &'s mut dyn FnMut(Progress),
}

impl Measurement {
    pub(crate) fn resolve(typed: &BenchCommand) -> anyhow::Result<Self> {
        Ok(match typed {
            BenchCommand::Ndr(ndr) if ndr.what == NdrOf::Concurrent => {
                Self::Concurrent(ConcurrentBench::resolve(ndr)?)
            }
            BenchCommand::Ndr(ndr) => Self::Ndr(NdrBench::resolve(ndr)?),
            BenchCommand::Size(size) => Self::Size(SizeBench::resolve(size)?),
            BenchCommand::Sweep(sweep) => Self::Sweep(SweepBench::resolve(sweep)?),
            BenchCommand::Matrix(matrix) => Self::Matrix(GoodputBench::matrix(matrix)?),
            BenchCommand::Rxtx(rxtx) => Self::Rxtx(GoodputBench::rxtx(rxtx)?),
        })
    }

    /// About how long it takes.
    pub(crate) fn expected(&self) -> Duration {
        match self {
            Self::Ndr(bench) => bench.expected(),
            Self::Concurrent(bench) => bench.expected(),
            Self::Size(bench) => bench.expected(),
            Self::Sweep(bench) => bench.expected(),
            Self::Matrix(bench) | Self::Rxtx(bench) => bench.expected(),
        }
    }

    /// Whether it may be measured by this process. What does not exist takes no root.
    pub(crate) fn check_root(&self) -> Result<(), Failure> {
        match self {
            Self::Ndr(NdrBench { routers: Routers::Simulated(_), .. }) => Ok(()),
            _ => require_root().map_err(told),
        }
    }

    pub(crate) fn perform(self, setting: Setting) -> anyhow::Result<Answer> {
        Ok(match self {
            Self::Ndr(bench) => Answer::Throughput(Box::new(bench.perform(setting)?)),
            Self::Concurrent(bench) => Answer::Concurrent(Box::new(bench.perform(setting)?)),
            Self::Size(bench) => Answer::FrameSize(Box::new(bench.perform(setting)?)),
            Self::Sweep(bench) => Answer::Sweep(Box::new(bench.perform(setting)?)),
            Self::Matrix(bench) => Answer::Matrix(Box::new(bench.perform(setting)?)),
            Self::Rxtx(bench) => Answer::Rxtx(Box::new(bench.perform(setting)?)),
        })
    }
}

/// What will be measured.
#[derive(Debug)]
pub(crate) struct NdrBench {
    method: Method,
    min_pps: f64,
    max_pps: Option<f64>,
    routers: Routers,
    seed: u64,
    keep: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy)]
struct Method {
    rfc2544: Option<Duration>,
    quick: bool,
    runs: u32,
}

#[derive(Debug)]
enum Routers {
    Simulated(Vec<Behaviour>),
    Real { wanted: Box<Wanted>, place: Place, engines: Engines, dut: Inside },
}

impl NdrBench {
    fn resolve(typed: &NdrArgs) -> anyhow::Result<Self> {
        let method = Method { rfc2544: typed.rfc2544, quick: typed.quick, runs: typed.runs };
        let max_pps = match typed.what {
            NdrOf::Frames if typed.simulate.is_empty() => typed.max_load,
            NdrOf::Frames => typed.max_load.or(Some(SIMULATED_MAX_PPS)),
            NdrOf::Connections | NdrOf::TcpConnections | NdrOf::Concurrent => {
                Some(connections::most(typed.max_load, method.trial_s())?)
            }
        };
        let routers = match typed.simulate[..] {
            [] => real(typed, max_pps, method.trial_s())?,
            _ => Routers::Simulated(typed.simulate.clone()),
        };
        let (min_pps, seed, keep) = (typed.min_load, typed.seed, typed.keep.clone());
        let bench = Self { method, min_pps, max_pps, routers, seed, keep };
        // Before an hour of measuring, as far as it can be told.
        bench.plan(max_pps.unwrap_or(f64::MAX))?;
        Ok(bench)
    }

    fn perform(self, setting: Setting) -> anyhow::Result<Report> {
        let Setting { stop, conditions, .. } = setting;
        let (max_pps, seed) = (self.max_pps, self.seed);
        match &self.routers {
            Routers::Simulated(behaviours) => {
                let mut devices: Vec<_> = (1..)
                    .zip(behaviours)
                    .map(|(n, behaviour)| Simulated::new(format!("simulated-{n}"), *behaviour, seed))
                    .collect();
                let plan = self.plan(max_pps.unwrap_or(SIMULATED_MAX_PPS))?;
                // What a router that exists does, and what a simulated one does, are different things, and share no file.
                self.search(&plan, "throughput of simulated routers", stop, conditions, &mut devices)
            }
            Routers::Real { wanted, place, engines, dut } => {
                let device = |(name, engine): &(String, Option<Engine>)| Generated {
                    name: name.clone(),
                    wanted: (**wanted).clone(),
                    place: place.clone(),
                    engine: engine.clone(),
                    stop: stop.clone(),
                    nics: Vec::new(),
                    limit: None,
                    dut: dut.clone(),
                };
                let mut devices: Vec<_> = engines.iter().map(device).collect();
                let max_pps = match (max_pps, devices.first()) {
                    (None, Some(device)) => device.generator_max_pps().map_err(told)?,
                    (given, _) => given.unwrap_or(SIMULATED_MAX_PPS),
                };
                let what = match (wanted.answered, wanted.shape.tcp) {
                    (true, None) => "connection rate",
                    (true, Some(_)) => "TCP connection rate",
                    (false, _) => "throughput",
                };
                let report = self.search(&self.plan(max_pps)?, what, stop, conditions, &mut devices);
                report.map_err(|why| why.downcast().map_or_else(|why| why, |why| told(why).into()))
            }
        }
    }

    fn expected(&self) -> Duration {
        let Method { rfc2544, quick, runs } = self.method;
        let search = match (rfc2544, quick) {
            (Some(trial), _) => trial * TRIALS_EXPECTED,
            (None, quick) => {
                if quick {
                    QUICK_EXPECTED
                } else {
                    SEARCH_EXPECTED
                }
            }
        };
        match &self.routers {
            Routers::Simulated(_) => Duration::ZERO,
            Routers::Real { engines, .. } => search * runs * engines.len() as u32,
        }
    }

    fn plan(&self, max_pps: f64) -> Result<Plan, Failure> {
        let range = Range { min_pps: self.min_pps, max_pps };
        let Method { rfc2544, quick, runs } = self.method;
        let plan = match rfc2544 {
            Some(trial) => Plan::rfc2544(range, runs, trial.as_secs_f64()),
            None => Plan::mlrsearch(range, runs, quick),
        };
        plan.map_err(|why: Wrong| Failure::new(FailureCode::Usage, why.to_string()))
    }

    fn search<D: Device>(
        &self,
        plan: &Plan,
        what: &str,
        stop: &AtomicBool,
        mut conditions: Conditions,
        devices: &mut [D],
    ) -> anyhow::Result<Report>
    where
        D::Error: std::error::Error + Send + Sync + 'static,
    {
        conditions.seed = Some(self.seed);
        let results = Results::new(what, conditions.clone());
        let mut kept = self.keep.clone().map(|path| go_on(path, results)).transpose()?;
        let report = plan.perform(devices, kept.as_mut(), conditions);
        end(kept, report.is_ok() && !stop.load(Ordering::Relaxed))?;
        Ok(report?)
    }
}

impl Method {
    /// Of the longest trials.
    fn trial_s(&self) -> f64 {
        let searched = if self.quick { Goal::QUICK_NDR.final_s } else { Goal::NDR.final_s };
        self.rfc2544.map_or(searched, |trial| trial.as_secs_f64())
    }
}

fn real(typed: &NdrArgs, most: Option<f64>, trial_s: f64) -> anyhow::Result<Routers> {
    let mut wanted = wanted(typed.place.speed, typed.both, typed.size.clone());
    if matches!(typed.what, NdrOf::Connections | NdrOf::TcpConnections) {
        connections::ask_for(&mut wanted, typed, most.unwrap_or_default() * trial_s)?;
    }
    let (place, engines) = place(between(&typed.place), &typed.engines)?;
    Ok(Routers::Real { wanted: Box::new(wanted), place, engines, dut: inside(&typed.place)? })
}

/// UDP of one flow.
fn wanted(speed: Option<LinkSpeed>, both: bool, sizes: Sizes) -> Wanted {
    let [from, to] = [1024, 5001].map(|port| SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)));
    Wanted { speed, both, ..Wanted::of(Shape::udp(from, to, sizes)) }
}

/// The devices that a router is between, if they were given.
fn between(typed: &PlaceArgs) -> Option<Nics> {
    let (tx, rx) = typed.tx.clone().zip(typed.rx.clone())?;
    Some(Nics { tx, rx, gateway: typed.gateway, rx_gateway: typed.rx_gateway, next_hop: None })
}

fn inside(typed: &PlaceArgs) -> Result<Inside, Failure> {
    asked(typed.dut_agent.as_deref(), typed.dut_token_file.as_deref())
}

/// The DUT, if it is to tell of itself.
fn asked(agent: Option<&str>, token_file: Option<&Path>) -> Result<Inside, Failure> {
    let Some(url) = agent else { return Ok(None) };
    let token = Token::read(token_file, "--dut-token-file")?;
    Ok(Some(Arc::new(Remote::find(url, token)?)))
}

/// What forwards, by its name; none: Linux, or whatever is between the devices.
type Engines = Vec<(String, Option<Engine>)>;

/// Where the router is, and what forwards there by turns.
fn place(between: Option<Nics>, engines: &[String]) -> anyhow::Result<(Place, Engines)> {
    if let Some(nics) = between {
        for name in [&nics.tx, &nics.rx] {
            is_there(name)?;
        }
        return Ok((Place::Nics(nics), vec![("dut".to_owned(), None)]));
    }
    let program = env::current_exe().context("finding the program shunt")?;
    let names = if engines.is_empty() { ENGINES.map(str::to_owned).to_vec() } else { engines.to_vec() };
    let engine = |name: &String| Engine { program: program.clone(), name: name.clone() };
    let with = names.iter().map(|name| (name.clone(), (name != "slow").then(|| engine(name))));
    Ok((Place::Own, with.collect()))
}

fn is_there(device: &str) -> Result<(), Failure> {
    match Path::new("/sys/class/net").join(device).exists() {
        true => Ok(()),
        false => Err(told(Error::NoDevice(device.to_owned()))),
    }
}

/// Measures, shows how far it has come, and keeps what comes out if there is a file for it; the file is whole unless it was stopped.
pub(crate) fn measured<R>(
    what: &str,
    keep: Option<PathBuf>,
    Setting { stop, conditions, show }: Setting,
    measure: impl FnOnce(Option<&mut Kept>, Conditions, &mut dyn FnMut(Progress)) -> Result<R, Error>,
) -> anyhow::Result<R> {
    let results = Results::new(what, conditions.clone());
    let mut kept = keep.map(|path| go_on(path, results)).transpose()?;
    let report = measure(kept.as_mut(), conditions, show);
    end(kept, report.is_ok() && !stop.load(Ordering::Relaxed))?;
    Ok(report.map_err(told)?)
}

/// Writes what else is known of what was kept; it may not be all.
fn end(kept: Option<Kept>, whole: bool) -> io::Result<()> {
    match kept {
        Some(kept) if whole => kept.finish().map(drop),
        Some(kept) => kept.leave(),
        None => Ok(()),
    }
}

fn go_on(path: PathBuf, results: Results) -> Result<Kept, Failure> {
    let name = path.display().to_string();
    Kept::go_on(path, results).map_err(|why| match why {
        ReadError::File { .. } => Failure::new(FailureCode::BadConfig, why.to_string()),
        _ => Failure::new(FailureCode::BadConfig, format!("{name}: {why}")),
    })
}
