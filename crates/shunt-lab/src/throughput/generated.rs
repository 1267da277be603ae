//! Routers that forward real frames of the generator.

use super::{Counted, Device, TrialFigures, Work, connections};
use crate::{
    Doubt, Labels, Limit, Nic, PathLabel, ResultsFile,
    dut::{self, Dut, LoadMeter},
    net::NetNs,
    search::{Outcome, Trial},
    traffic::{Directed, Error, Figures, Session, Testbed, TrafficSpec, Variant, masquerade, session, track},
};
use shunt_api::{Instance, PacketTotals, RUNTIME_DIR_VARIABLE, STATE_DIR_VARIABLE, Status, runtime_dir};
use shunt_gen::Schedule;
use std::{
    env, fs,
    io::{self, Write},
    mem::ManuallyDrop,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Longest time until the external engine serves its ports.
const EXTERNAL_START: Duration = Duration::from_secs(10);

/// A router between two ports of the generator.
#[derive(Debug)]
pub struct Generated {
    /// Name of the router.
    pub name: String,
    /// The traffic. Rate, duration and warm-up are those of the trials.
    pub spec: TrafficSpec,
    /// The test bed.
    pub testbed: Testbed,
    /// Engine in a router of our own; None for Linux without Shunt.
    pub engine: Option<Engine>,
    /// Ends the measurement at the next trial.
    pub stop: Arc<AtomicBool>,
    /// The network devices that have taken part.
    pub nics: Vec<Nic>,
    /// The most that the line carries in one direction; None if unknown.
    pub limit: Option<Limit>,
    /// The DUT, if its load is to be read.
    pub dut: Option<Dut>,
    /// Whether to measure the load of a router of our own.
    pub own_load: bool,
}

/// Shunt in the router.
#[derive(Debug, Clone)]
pub struct Engine {
    /// Path of the program `shunt`.
    pub program: PathBuf,
    /// Name of the engine.
    pub name: String,
}

/// A running Shunt, taken down on drop.
pub(crate) struct RunningShunt<'n> {
    engine: &'n Engine,
    router: &'n NetNs,
    /// What the instance keeps for its next start, which never comes; `None` once it is removed.
    state: Option<TempDir>,
}

impl Engine {
    /// Whether a process forwards, by polling.
    pub(crate) fn is_external(&self) -> bool {
        self.name == shunt_api::Engine::External.to_string()
    }
}

impl Generated {
    /// The highest rate of the generator with nothing in between, or of the line, in frames/s of one direction.
    ///
    /// # Errors
    /// Fails if the operating system returns an error or the measurement was stopped.
    pub fn generator_max_pps(&self) -> Result<f64, Error> {
        session(&self.spec, &self.testbed, &self.stop, |session| {
            let most = Schedule { pps: None, burst: self.spec.burst, packets: None, duration: None };
            let line = session.limit().map_or(f64::INFINITY, |limit| limit.value);
            let floor = session.floor(&most)?;
            unless_stopped(&self.stop)?;
            Ok::<_, Error>(floor.max_pps.min(line))
        })
    }
}

impl Device for Generated {
    type Error = Error;

    fn name(&self) -> &str {
        &self.name
    }

    fn doubts(&self) -> Vec<Doubt> {
        let virtual_links = self.nics.iter().any(|nic| nic.driver.as_deref() == Some("veth"));
        if virtual_links { vec![Doubt::VirtualLinks] } else { Vec::new() }
    }

    fn nics(&self) -> &[Nic] {
        &self.nics
    }

    fn counted(&self) -> Counted {
        if self.spec.answered { Counted::Connections } else { Counted::Frames }
    }

    fn labels(&self) -> Labels {
        let engine = (self.testbed == Testbed::Own).then(|| PathLabel::from_name(&self.name)).flatten();
        Labels { engine, ..self.spec.labels(&self.testbed) }
    }

    fn is_own(&self) -> bool {
        self.testbed == Testbed::Own
    }

    fn variant(&self) -> Variant {
        self.spec.variant_with_sizes()
    }

    fn limit(&self) -> Option<Limit> {
        self.limit.clone()
    }

    fn serve(&mut self, work: &mut Work<'_, Error>) -> Result<(), Error> {
        let Self { spec, testbed, engine, stop, nics, limit, dut, own_load, .. } = self;
        session(spec, testbed, stop, |session| {
            *nics = session.nics().to_vec();
            *limit = session.limit().filter(|_| !spec.answered);
            if let Some(router) = session.router() {
                track(router)?;
                if spec.answered {
                    masquerade(router)?;
                }
            }
            session.open_tcp()?;
            let up = RunningShunt::beside(session, engine.as_ref())?;
            let meter = LoadMeter::for_router(session, dut, *own_load)?;
            let done = work(&mut measure(session, spec, stop, &meter));
            if let Some(up) = up {
                up.down()?;
            }
            done
        })
    }
}

fn measure<'m>(
    session: &'m mut Session<'_>,
    spec: &'m TrafficSpec,
    stop: &'m AtomicBool,
    meter: &'m LoadMeter<'_>,
) -> impl FnMut(Trial) -> Result<TrialFigures, Error> + 'm {
    move |trial| {
        unless_stopped(stop)?;
        let duration = Some(Duration::from_secs_f64(trial.duration_s));
        let schedule = Schedule { pps: Some(trial.load_pps), burst: spec.burst, packets: None, duration };
        let translating = session.router().filter(|_| spec.answered);
        let prepare = || translating.map_or(Ok(()), connections::forget);
        let (directed, dut_load) = dut::run(session, &schedule, meter, prepare)?;
        let mut sum = Figures::sum(&directed);
        if let Some(router) = translating {
            // An answered packet that is not tracked did not open a connection.
            sum.received = sum.received.min(connections::tracked(router)?);
        }
        let sender_late = directed.iter().any(Directed::is_held_up);
        let outcome = Outcome { sender_late, ..trial.outcome(directed.len() as u32, sum.sent, sum.received) };
        Ok(TrialFigures { outcome, latency_us: sum.latency_us, dut_load })
    }
}

/// Records the devices of a bench, and makes a router of our own track connections.
pub(crate) fn take_part(session: &mut Session<'_>, file: &mut ResultsFile) -> Result<(), Error> {
    file.set_nics(session.nics());
    session.router().map_or(Ok(()), track)?;
    session.open_tcp()
}

pub(crate) fn unless_stopped(stop: &AtomicBool) -> Result<(), Error> {
    match stop.load(Ordering::Relaxed) {
        true => Err(Error::Asked("interrupted before the first search was complete".to_owned())),
        false => Ok(()),
    }
}

impl<'n> RunningShunt<'n> {
    /// As [`RunningShunt::new`], for a session that sends through it.
    pub(crate) fn beside<'s: 'n>(
        session: &mut Session<'s>,
        engine: Option<&'n Engine>,
    ) -> Result<Option<Self>, Error> {
        if engine.is_some_and(Engine::is_external) {
            session.stay_ordinary();
        }
        Self::new(session.router(), engine)
    }

    /// None if the router is not our own or Linux forwards.
    pub(crate) fn new(router: Option<&'n NetNs>, engine: Option<&'n Engine>) -> Result<Option<Self>, Error> {
        let Some((router, engine)) = router.zip(engine) else { return Ok(None) };
        let up = Self { engine, router, state: Some(TempDir::new()?) };
        up.ask(&["up", "--engine", &engine.name, "--port", "r0", "--port", "r1"])?;
        if engine.is_external() {
            up.wait_for_external()?;
        }
        Ok(Some(up))
    }

    /// Until the external engine serves all ports, their packets leave by tc.
    fn wait_for_external(&self) -> Result<(), Error> {
        let since = Instant::now();
        loop {
            let ports = self.status()?.ports;
            let Some(other) = ports.iter().find(|port| port.engine != shunt_api::Engine::External) else {
                return Ok(());
            };
            if since.elapsed() > EXTERNAL_START {
                let why =
                    format!("the external engine does not serve {}: {}", other.name, other.engine_reason);
                return Err(Error::Machine(why));
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn status(&self) -> Result<Status, Error> {
        serde_json::from_slice(&self.ask(&["status", "--json"])?)
            .map_err(|why| Error::Machine(format!("shunt status --json: {why}")))
    }

    pub(crate) fn down(self) -> Result<(), Error> {
        let mut up = ManuallyDrop::new(self);
        let downed = up.ask(&["down"]);
        drop(up.state.take());
        downed?;
        // Nobody else knows this instance, and its log is needed only after a failure.
        Ok(fs::remove_file(up.instance()?.log_path(&runtime_dir(env::var_os(RUNTIME_DIR_VARIABLE))))?)
    }

    /// Packets on the fast path, and all packets that the router received.
    pub(crate) fn packets(&self) -> Result<(u64, u64), Error> {
        let PacketTotals { fast, slow, dropped, .. } = self.status()?.packets;
        Ok((fast, fast + slow + dropped))
    }

    /// The doubt that too few packets were fast since `then`, if there were any.
    pub(crate) fn slow_path_since(&self, then: (u64, u64)) -> Result<Option<Doubt>, Error> {
        let (fast, all) = self.packets()?;
        let all = all.saturating_sub(then.1);
        let share = fast.saturating_sub(then.0) as f64 / all.max(1) as f64;
        Ok(Doubt::slow_path(share).filter(|_| all > 0))
    }

    fn instance(&self) -> Result<Instance, Error> {
        let name = self.router.name();
        name.parse().map_err(|_| Error::Machine(format!("{name} is not a valid name of an instance")))
    }

    /// Runs the command, and returns its standard output.
    fn ask(&self, words: &[&str]) -> Result<Vec<u8>, Error> {
        let program = self.engine.program.to_string_lossy();
        let mut command = self.router.command(&program);
        if let Some(state) = &self.state {
            command.env(STATE_DIR_VARIABLE, state.path());
        }
        let output = command.args(["--instance", self.instance()?.as_str()]).args(words).output()?;
        match output.status.success() {
            true => Ok(output.stdout),
            false => Err(Error::Machine(error_text(&output.stderr))),
        }
    }
}

impl Drop for RunningShunt<'_> {
    fn drop(&mut self) {
        if let Err(why) = self.ask(&["down"]) {
            let _ = writeln!(io::stderr(), "{why}");
        }
    }
}

/// The program's error message without the program's name.
fn error_text(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let text = text.trim();
    text.strip_prefix("shunt: ").unwrap_or(text).to_owned()
}
