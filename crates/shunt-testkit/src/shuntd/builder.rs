//! How a test starts the daemon.

use super::{Shuntd, program, traces::Traces};
use crate::{NetNs, Process, wait_for};
use std::{
    env,
    fs::{self, File},
    process::{ExitStatus, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

/// Many daemons are started; the size that the daemon would choose takes hundreds of megabytes here.
const MAX_FLOWS: &str = "max_flows = 16384\n";

/// How long loading the programs may take. The verifier needs long on a machine that is busy or emulated.
const LOADING: Duration = Duration::from_secs(60);

static NEXT: AtomicU32 = AtomicU32::new(1);

/// Options with which to start a [`Shuntd`].
#[derive(Debug)]
#[must_use]
pub struct ShuntdBuilder<'a> {
    router: &'a NetNs,
    arguments: Vec<String>,
    config: String,
    max_flows: &'static str,
    variables: Vec<(String, String)>,
    program: Option<String>,
    stderr: Option<Stdio>,
}

impl<'a> ShuntdBuilder<'a> {
    pub(super) fn new(router: &'a NetNs) -> Self {
        Self {
            router,
            arguments: Vec::new(),
            config: String::new(),
            max_flows: MAX_FLOWS,
            variables: Vec::new(),
            program: None,
            stderr: None,
        }
    }

    /// Sets the engine: auto, tc or xdp.
    pub fn engine(self, name: &str) -> Self {
        self.argument("--engine").argument(name)
    }

    /// Adds a port. Without any, the daemon takes all ports that forward.
    pub fn port(self, name: &str) -> Self {
        self.argument("--port").argument(name)
    }

    /// Adds a command-line argument.
    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Adds lines to the configuration file.
    pub fn config(mut self, lines: &str) -> Self {
        self.config.push_str(lines);
        self.config.push('\n');
        self
    }

    /// Leaves the size of the flow table to the daemon, as for a measurement.
    pub fn usual_max_flows(mut self) -> Self {
        self.max_flows = "";
        self
    }

    /// Adds a variable to the environment.
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts this program instead of the one that `SHUNTD` names or that is next to the test program.
    pub fn program(mut self, path: &str) -> Self {
        self.program = Some(path.to_owned());
        self
    }

    /// Sends the log elsewhere than to the file that [`Shuntd::log`] reads.
    pub fn stderr(mut self, to: impl Into<Stdio>) -> Self {
        self.stderr = Some(to.into());
        self
    }

    /// Starts the daemon and waits until it answers, when its ports are attached.
    ///
    /// # Panics
    /// If the daemon ends or does not answer.
    #[track_caller]
    pub fn start(self) -> Shuntd {
        match self.try_start() {
            Ok(shuntd) => shuntd,
            Err((status, log)) => panic!("shuntd: {status}: {log}"),
        }
    }

    /// Starts the daemon and waits until it answers or ends. If it ends, returns its exit status and its log.
    ///
    /// # Panics
    /// If the daemon cannot be started, or neither answers nor ends.
    #[track_caller]
    pub fn try_start(self) -> Result<Shuntd, (ExitStatus, String)> {
        let before = Traces::find(self.router.name());
        let directory = tempfile::tempdir().unwrap_or_else(|e| panic!("no directory for shuntd: {e}"));
        let instance = format!("t{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let config = directory.path().join("shunt.toml");
        let log = directory.path().join("stderr");
        let size = if self.config.contains("max_flows") { "" } else { self.max_flows };
        // For trying all tests with another setting.
        let more = env::var("SHUNT_TEST_CONFIG").unwrap_or_default();
        let written =
            fs::write(&config, format!("{size}{}{more}\n", self.config)).and_then(|()| File::create(&log));
        let stderr = written.unwrap_or_else(|e| panic!("{}: {e}", directory.path().display()));
        let program = self.program.unwrap_or_else(|| program("SHUNTD", "shuntd"));
        let mut command = self.router.command(&program);
        command
            .args(["--instance", &instance, "--config"])
            .arg(&config)
            .args(&self.arguments)
            .env("SHUNT_RUNTIME_DIR", directory.path())
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdout(Stdio::null())
            .stderr(self.stderr.unwrap_or_else(|| stderr.into()));
        let process = Some(Process::start(command));
        let netns = self.router.name().to_owned();
        let mut shuntd = Shuntd { process, program, instance, directory, netns, before };
        let ready = wait_for(LOADING, || match shuntd.process.as_mut().and_then(Process::ended) {
            Some(status) => Some(Err(status)),
            None => shuntd.request("GET", "/v1/status", "").ok().map(|_| Ok(())),
        });
        match ready {
            Some(Ok(())) => Ok(shuntd),
            Some(Err(status)) => {
                shuntd.process = None;
                let left = shuntd.left_behind();
                assert_eq!(left, None, "left behind by a shuntd that ended with {}", shuntd.log());
                Err((status, shuntd.log()))
            }
            None => panic!("shuntd does not answer: {}", shuntd.log()),
        }
    }
}
