//! The daemon under test, started in the namespace of a router.

mod builder;
mod socket;
mod traces;

use crate::{NetNs, Process, Topology, wait_for};
use nix::sys::signal::Signal;
use serde::de::DeserializeOwned;
use shunt_api::{Connection, Count, Engine, ErrorBody, Failure, StaticRemoval, StaticTable, Status};
use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
    time::Duration,
};
use tempfile::TempDir;
use traces::Traces;

pub use builder::ShuntdBuilder;

/// How long a condition may take to become true.
const PATIENCE: Duration = Duration::from_secs(10);

/// Configuration with which no packet takes the slow path for a re-proof while a test counts single packets.
pub const SELDOM_PROVED: &str = "reprove = \"30s\"";

/// Starts a daemon that uses one engine on all ports.
///
/// # Panics
/// If the daemon does not start.
#[must_use]
#[track_caller]
pub fn daemon(lab: &Topology, engine: Engine) -> Shuntd {
    daemon_with(lab, engine, "")
}

/// Starts a daemon that uses one engine on all ports and has these lines in its configuration file.
///
/// # Panics
/// If the daemon does not start.
#[must_use]
#[track_caller]
pub fn daemon_with(lab: &Topology, engine: Engine, config: &str) -> Shuntd {
    Shuntd::on(lab.router()).engine(&engine.to_string()).config(config).start()
}

/// A running `shuntd` in a router's namespace, with a unique instance name and a directory of its own.
///
/// Dropping this stops the daemon, and panics if the daemon leaves anything behind. If the test has failed already, the
/// log is printed instead.
#[derive(Debug)]
pub struct Shuntd {
    process: Option<Process>,
    program: String,
    instance: String,
    directory: TempDir,
    netns: String,
    before: Traces,
}

impl Shuntd {
    /// Prepares a daemon for this router.
    pub fn on(router: &NetNs) -> ShuntdBuilder<'_> {
        ShuntdBuilder::new(router)
    }

    /// Name of the instance.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// Directory of the daemon's files, to which a test may add its own. Deleted when this value is dropped.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Path of the control socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join(format!("{}.sock", self.instance))
    }

    /// The log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("stderr")).unwrap_or_default()
    }

    /// Process id.
    ///
    /// # Panics
    /// If the daemon has been killed.
    #[track_caller]
    pub fn pid(&self) -> u32 {
        self.process().pid()
    }

    /// Sends a signal to the daemon.
    ///
    /// # Panics
    /// If the daemon has been killed.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        self.process().signal(signal).unwrap_or_else(|e| panic!("shuntd: {signal}: {e}"));
    }

    /// Kills the daemon with SIGKILL. Its files stay until [`Shuntd::cleanup`] or the end of this value.
    ///
    /// # Panics
    /// If the daemon has been killed before.
    #[track_caller]
    pub fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
        let process = self.process.take().unwrap_or_else(|| panic!("shuntd has been stopped"));
        let _ = process.finish();
    }

    /// Runs `shuntd --cleanup` for this instance.
    ///
    /// # Panics
    /// If `shuntd` cannot be started.
    #[track_caller]
    pub fn cleanup(&self) -> Output {
        self.run(&self.program, &["--cleanup"])
    }

    /// Runs the command `shunt` for this instance.
    ///
    /// # Panics
    /// If `shunt` cannot be started.
    #[track_caller]
    pub fn shunt(&self, arguments: &[&str]) -> Output {
        self.run(&program("SHUNT", "shunt"), arguments)
    }

    /// Sends a request to the control socket; returns the HTTP status and the body.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn request(&self, method: &str, path: &str, body: &str) -> std::io::Result<(u16, String)> {
        socket::request(&self.socket(), method, path, body)
    }

    /// The daemon's status.
    ///
    /// # Panics
    /// If the request fails.
    #[track_caller]
    pub fn status(&self) -> Status {
        self.good("GET", "/v1/status", "")
    }

    /// The daemon's status.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn try_status(&self) -> std::io::Result<Status> {
        let (_, text) = self.request("GET", "/v1/status", "")?;
        serde_json::from_str(&text).map_err(std::io::Error::other)
    }

    /// The connections in the flow table. Rates are averages over the life of each connection.
    ///
    /// # Panics
    /// If the request fails.
    #[track_caller]
    pub fn flows(&self) -> Vec<Connection> {
        self.good("GET", "/v1/flows?rate_over_ms=0", "")
    }

    /// Retires all learned flows; returns their number.
    ///
    /// # Panics
    /// If the request fails.
    #[track_caller]
    pub fn flush(&self) -> u64 {
        self.good::<Count>("POST", "/v1/flush", "").count
    }

    /// Adds static routes and flows; returns their number.
    ///
    /// # Errors
    /// If the daemon refuses them.
    ///
    /// # Panics
    /// If the daemon does not answer.
    #[track_caller]
    pub fn load(&self, table: &StaticTable) -> Result<u64, Failure> {
        self.ask::<Count>("POST", "/v1/static", &to_json(table)).map(|answer| answer.count)
    }

    /// Removes static routes and flows; returns their number.
    ///
    /// # Errors
    /// If the daemon refuses.
    ///
    /// # Panics
    /// If the daemon does not answer.
    #[track_caller]
    pub fn unload(&self, what: &StaticRemoval) -> Result<u64, Failure> {
        self.ask::<Count>("DELETE", "/v1/static", &to_json(what)).map(|answer| answer.count)
    }

    /// The static routes and flows.
    ///
    /// # Panics
    /// If the request fails.
    #[track_caller]
    pub fn statics(&self) -> StaticTable {
        self.good("GET", "/v1/static", "")
    }

    /// Waits until `condition` holds for the status, and returns that status.
    ///
    /// # Panics
    /// If the condition does not hold within ten seconds. The message is "not within ten seconds: " and `what`.
    #[track_caller]
    pub fn wait_until(&self, what: &str, mut condition: impl FnMut(&Status) -> bool) -> Status {
        let seen = wait_for(PATIENCE, || Some(self.status()).filter(&mut condition));
        seen.unwrap_or_else(|| panic!("not within ten seconds: {what}: {:#?}", self.status()))
    }

    /// Waits for a connection for which `condition` holds.
    ///
    /// # Panics
    /// If there is none within ten seconds. The message is "not within ten seconds: " and `what`.
    #[track_caller]
    pub fn wait_for_flow(&self, what: &str, mut condition: impl FnMut(&Connection) -> bool) -> Connection {
        let seen = wait_for(PATIENCE, || self.flows().into_iter().find(&mut condition));
        seen.unwrap_or_else(|| panic!("not within ten seconds: {what}: {:#?}", self.flows()))
    }

    /// Compares the socket, programs and clsact qdiscs with those from before the start. Waits up to ten seconds until
    /// they are equal; otherwise returns a description of both.
    pub fn left_behind(&self) -> Option<String> {
        let mut left = String::new();
        let gone = wait_for(PATIENCE, || {
            let now = Traces::find(&self.netns);
            let socket = self.socket().exists();
            left = format!("socket: {socket}, before: {:?}, now: {now:?}", self.before);
            (now == self.before && !socket).then_some(())
        });
        gone.is_none().then_some(left)
    }

    /// Stops the daemon with SIGTERM.
    ///
    /// # Panics
    /// If the daemon fails or leaves anything behind.
    #[track_caller]
    pub fn stop(mut self) {
        if let Err(why) = self.end() {
            panic!("{why}\n{}", self.log());
        }
    }

    /// Stops the daemon with SIGTERM.
    ///
    /// # Errors
    /// If the daemon fails or leaves anything behind.
    pub fn try_stop(mut self) -> Result<(), String> {
        self.end()
    }

    fn end(&mut self) -> Result<(), String> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        if process.ended().is_none() {
            process.signal(Signal::SIGTERM).map_err(|e| format!("shuntd: SIGTERM: {e}"))?;
        }
        let Some(status) = wait_for(PATIENCE, || process.ended()) else {
            return Err("shuntd did not end within ten seconds of SIGTERM".to_owned());
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
            // A closed standard error must not cause a second panic.
            let _ = writeln!(std::io::stderr(), "log of shuntd:\n{}{ended:?}", self.log());
        } else if let Err(why) = ended {
            panic!("{why}\n{}", self.log());
        }
    }
}

/// Path of `shunt` or `shuntd`: the value of an environment variable, or the program next to the test program.
///
/// # Panics
/// If there is none.
#[track_caller]
pub fn program(variable: &str, name: &str) -> String {
    if let Some(path) = env::var(variable).ok().filter(|path| !path.is_empty()) {
        return path;
    }
    let here = env::current_exe().unwrap_or_else(|e| panic!("this program's own path: {e}"));
    let found =
        here.ancestors().skip(1).take(2).map(|directory| directory.join(name)).find(|path| path.is_file());
    let found = found.unwrap_or_else(|| {
        panic!(
            "no {name} next to {}: build it with `cargo build -p {name}`, or set {variable} to its path",
            here.display()
        )
    });
    found.to_string_lossy().into_owned()
}

#[track_caller]
fn to_json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|e| panic!("not JSON: {e}"))
}
