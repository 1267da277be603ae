//! The daemon under test.

mod socket;
mod traces;

use crate::{NetNs, Process, wait_for};
use nix::sys::signal::Signal;
use serde::de::DeserializeOwned;
use shunt_api::{Connection, Count, ErrorBody, Failure, StaticRemoval, StaticTable, Status};
use std::{
    env,
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};
use tempfile::TempDir;
use traces::Traces;

/// How long a fact may take to come true.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long loading the programs may take: the verifier has much to do, on a machine that may be busy or emulated.
const LOADING: Duration = Duration::from_secs(60);

static NEXT: AtomicU32 = AtomicU32::new(1);

/// How to start a [`Shuntd`].
#[derive(Debug)]
#[must_use]
pub struct ShuntdBuilder<'a> {
    router: &'a NetNs,
    arguments: Vec<String>,
    config: String,
    variables: Vec<(String, String)>,
    program: Option<String>,
}

/// A `shuntd` in a router's namespace: an instance of its own, with its files in a directory of its own.
///
/// Dropping it stops it, and fails the test when it leaves anything behind; what it logged is printed when the test
/// has failed already.
#[derive(Debug)]
pub struct Shuntd {
    process: Option<Process>,
    instance: String,
    directory: TempDir,
    netns: String,
    before: Traces,
}

impl<'a> ShuntdBuilder<'a> {
    /// With this engine: auto, tc or xdp.
    pub fn engine(self, name: &str) -> Self {
        self.argument("--engine").argument(name)
    }

    /// With this port; without any, it takes those that forwarding uses.
    pub fn port(self, name: &str) -> Self {
        self.argument("--port").argument(name)
    }

    /// With one more argument.
    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// With these lines in its configuration file, which is empty otherwise.
    pub fn config(mut self, lines: &str) -> Self {
        self.config.push_str(lines);
        self.config.push('\n');
        self
    }

    /// With this variable in its environment.
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With this program in place of the one that [`ShuntdBuilder`] finds.
    pub fn program(mut self, path: &str) -> Self {
        self.program = Some(path.to_owned());
        self
    }

    /// Starts it and waits until it answers: its ports are attached then.
    ///
    /// # Panics
    /// When it ends, or does not answer.
    #[track_caller]
    pub fn start(self) -> Shuntd {
        match self.try_start() {
            Ok(shuntd) => shuntd,
            Err((status, said)) => panic!("shuntd: {status}: {said}"),
        }
    }

    /// Starts it and waits until it answers, or ends: then its exit status and what it said.
    ///
    /// # Panics
    /// When it does neither, or cannot be run at all.
    #[track_caller]
    pub fn try_start(self) -> Result<Shuntd, (ExitStatus, String)> {
        let before = Traces::of(self.router.name());
        let directory = tempfile::tempdir().unwrap_or_else(|e| panic!("no directory for shuntd: {e}"));
        let instance = format!("t{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let config = directory.path().join("shunt.toml");
        let log = directory.path().join("stderr");
        let written = fs::write(&config, &self.config).and_then(|()| File::create(&log));
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
            .stderr(stderr);
        let process = Some(Process::start(command));
        let netns = self.router.name().to_owned();
        let mut shuntd = Shuntd { process, instance, directory, netns, before };
        let ready = wait_for(LOADING, || match shuntd.process.as_mut().and_then(Process::ended) {
            Some(status) => Some(Err(status)),
            None => shuntd.request("GET", "/v1/status", "").ok().map(|_| Ok(())),
        });
        match ready {
            Some(Ok(())) => Ok(shuntd),
            Some(Err(status)) => {
                shuntd.process = None;
                let left = shuntd.left_behind();
                assert_eq!(left, None, "left behind by a shuntd that said {}", shuntd.log());
                Err((status, shuntd.log()))
            }
            None => panic!("shuntd does not answer: {}", shuntd.log()),
        }
    }
}

impl Shuntd {
    /// A daemon for this router, to be started.
    pub fn on(router: &NetNs) -> ShuntdBuilder<'_> {
        ShuntdBuilder {
            router,
            arguments: Vec::new(),
            config: String::new(),
            variables: Vec::new(),
            program: None,
        }
    }

    /// Its instance name.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// Where its files are; a test may put its own there. All of it goes with this value.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Its control socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join(format!("{}.sock", self.instance))
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("stderr")).unwrap_or_default()
    }

    /// Its process id.
    ///
    /// # Panics
    /// When it has been stopped.
    #[track_caller]
    pub fn pid(&self) -> u32 {
        self.process().pid()
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// When it has been stopped.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        self.process().signal(signal).unwrap_or_else(|e| panic!("shuntd: {signal}: {e}"));
    }

    /// Kills it, so that it cannot tidy up. Its files stay until [`Shuntd::cleanup`] or the end of this value.
    ///
    /// # Panics
    /// When it has been stopped.
    #[track_caller]
    pub fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
        let process = self.process.take().unwrap_or_else(|| panic!("shuntd has been stopped"));
        let _ = process.finish();
    }

    /// Runs `shuntd --cleanup` for this instance.
    ///
    /// # Panics
    /// When it cannot be run.
    #[track_caller]
    pub fn cleanup(&self) -> Output {
        self.run(&program("SHUNTD", "shuntd"), &["--cleanup"])
    }

    /// Runs the command `shunt` for this instance.
    ///
    /// # Panics
    /// When it cannot be run.
    #[track_caller]
    pub fn shunt(&self, arguments: &[&str]) -> Output {
        self.run(&program("SHUNT", "shunt"), arguments)
    }

    /// Asks the control socket: the number of the HTTP status, and the body.
    ///
    /// # Errors
    /// When nobody answers.
    pub fn request(&self, method: &str, path: &str, body: &str) -> std::io::Result<(u16, String)> {
        socket::request(&self.socket(), method, path, body)
    }

    /// Its state.
    ///
    /// # Panics
    /// When it does not say.
    #[track_caller]
    pub fn status(&self) -> Status {
        self.good("GET", "/v1/status", "")
    }

    /// Its connections. Rates are over the life of each.
    ///
    /// # Panics
    /// When it does not say.
    #[track_caller]
    pub fn flows(&self) -> Vec<Connection> {
        self.good("GET", "/v1/flows?rate_over_ms=0", "")
    }

    /// Retires all learned flows; how many there were.
    ///
    /// # Panics
    /// When it refuses.
    #[track_caller]
    pub fn flush(&self) -> u64 {
        self.good::<Count>("POST", "/v1/flush", "").count
    }

    /// Puts in routes and flows by hand; how many.
    ///
    /// # Errors
    /// When it refuses.
    ///
    /// # Panics
    /// When it does not answer.
    #[track_caller]
    pub fn load(&self, table: &StaticTable) -> Result<u64, Failure> {
        self.ask::<Count>("POST", "/v1/static", &text_of(table)).map(|answer| answer.count)
    }

    /// Removes what was put in by hand; how many.
    ///
    /// # Errors
    /// When it refuses.
    ///
    /// # Panics
    /// When it does not answer.
    #[track_caller]
    pub fn unload(&self, what: &StaticRemoval) -> Result<u64, Failure> {
        self.ask::<Count>("DELETE", "/v1/static", &text_of(what)).map(|answer| answer.count)
    }

    /// What was put in by hand.
    ///
    /// # Panics
    /// When it does not say.
    #[track_caller]
    pub fn statics(&self) -> StaticTable {
        self.good("GET", "/v1/static", "")
    }

    /// Waits until `fact` holds of its state; the state then.
    ///
    /// # Panics
    /// When it does not hold within ten seconds; `what` names it.
    #[track_caller]
    pub fn wait_until(&self, what: &str, mut fact: impl FnMut(&Status) -> bool) -> Status {
        let seen = wait_for(PATIENCE, || Some(self.status()).filter(&mut fact));
        seen.unwrap_or_else(|| panic!("waited ten seconds in vain until {what}: {:#?}", self.status()))
    }

    /// Waits for a connection for which `wanted` holds.
    ///
    /// # Panics
    /// When there is none within ten seconds; `what` names it.
    #[track_caller]
    pub fn wait_for_flow(&self, what: &str, mut wanted: impl FnMut(&Connection) -> bool) -> Connection {
        let seen = wait_for(PATIENCE, || self.flows().into_iter().find(&mut wanted));
        seen.unwrap_or_else(|| panic!("waited ten seconds in vain for {what}: {:#?}", self.flows()))
    }

    /// What is there that was not there before it started: its socket, programs, clsact qdiscs. None when all is as it was;
    /// the kernel gets some time for that.
    pub fn left_behind(&self) -> Option<String> {
        let mut left = String::new();
        let gone = wait_for(PATIENCE, || {
            let now = Traces::of(&self.netns);
            let socket = self.socket().exists();
            left = format!("socket: {socket}, before: {:?}, now: {now:?}", self.before);
            (now == self.before && !socket).then_some(())
        });
        gone.is_none().then_some(left)
    }

    /// Stops it with SIGTERM and looks at what it leaves behind.
    ///
    /// # Panics
    /// When it ends with a failure, or leaves anything behind.
    #[track_caller]
    pub fn stop(mut self) {
        if let Err(why) = self.end() {
            panic!("{why}\n{}", self.log());
        }
    }

    /// The same; what went wrong, or is left behind.
    ///
    /// # Errors
    /// When there is such a thing.
    pub fn try_stop(mut self) -> Result<(), String> {
        self.end()
    }

    fn end(&mut self) -> Result<(), String> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        if process.ended().is_none() {
            process.signal(Signal::SIGTERM).map_err(|e| format!("shuntd: SIGTERM: {e}"))?;
        }
        let Some(status) = wait_for(PATIENCE, || process.ended()) else {
            return Err("shuntd does not end by SIGTERM".to_owned());
        };
        if !status.success() {
            return Err(format!("shuntd: {status}"));
        }
        self.left_behind().map_or(Ok(()), Err)
    }

    #[track_caller]
    fn process(&self) -> &Process {
        self.process.as_ref().unwrap_or_else(|| panic!("shuntd has been stopped"))
    }

    #[track_caller]
    fn run(&self, program: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.netns, program])
            .args(arguments)
            .args(["--instance", &self.instance])
            .env("SHUNT_RUNTIME_DIR", self.directory.path())
            .stdin(Stdio::null());
        command.output().unwrap_or_else(|e| panic!("{program}: {e}"))
    }

    #[track_caller]
    fn good<T: DeserializeOwned>(&self, method: &str, path: &str, body: &str) -> T {
        self.ask(method, path, body).unwrap_or_else(|e| panic!("{method} {path}: {e}"))
    }

    #[track_caller]
    fn ask<T: DeserializeOwned>(&self, method: &str, path: &str, body: &str) -> Result<T, Failure> {
        let answer = self.request(method, path, body);
        let (status, text) = answer.unwrap_or_else(|e| panic!("{method} {path}: {e}\n{}", self.log()));
        let strange = |e| panic!("{method} {path}: {status}: {text}: {e}");
        if status == 200 {
            Ok(serde_json::from_str(&text).unwrap_or_else(strange))
        } else {
            let ErrorBody { error } = serde_json::from_str(&text).unwrap_or_else(|e| {
                panic!("{method} {path}: {status}: {text}: {e}");
            });
            Err(error)
        }
    }
}

impl Drop for Shuntd {
    fn drop(&mut self) {
        let ended = self.end();
        if thread::panicking() {
            // For whoever reads why the test has failed; there may be nobody.
            let _ = writeln!(std::io::stderr(), "shuntd said:\n{}{ended:?}", self.log());
        } else if let Err(why) = ended {
            panic!("{why}\n{}", self.log());
        }
    }
}

/// A program of ours: named by a variable, or beside the test program.
#[track_caller]
pub(crate) fn program(variable: &str, name: &str) -> String {
    if let Some(path) = env::var(variable).ok().filter(|path| !path.is_empty()) {
        return path;
    }
    let here = env::current_exe().unwrap_or_else(|e| panic!("this program's own path: {e}"));
    let found =
        here.ancestors().skip(1).take(2).map(|directory| directory.join(name)).find(|path| path.is_file());
    let found = found.unwrap_or_else(|| {
        panic!(
            "no {name} beside {}: build it with `cargo build -p {name}`, or set {variable}",
            here.display()
        )
    });
    found.to_string_lossy().into_owned()
}

#[track_caller]
fn text_of(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|e| panic!("not JSON: {e}"))
}
