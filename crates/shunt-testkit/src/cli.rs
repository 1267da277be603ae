//! The command `shunt` as people run it, and the daemon that `shunt up` starts.

use crate::{NetNs, Process, shuntd::program};
use nix::sys::signal::Signal;
use shunt_api::Status;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};
use tempfile::TempDir;

static NEXT: AtomicU32 = AtomicU32::new(1);

/// `shunt --instance NAME` in a namespace, with a runtime directory of its own. Dropping this runs `shunt down` if a
/// daemon runs.
#[derive(Debug)]
pub struct Shunt {
    directory: TempDir,
    netns: String,
    instance: String,
    prefix: Vec<String>,
    variables: Vec<(String, String)>,
}

/// Exit code and output of a command that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOutput {
    /// The exit code; `None` if a signal ended the command.
    pub code: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Shunt {
    /// Prepares the command in this namespace, for an instance with a unique name.
    ///
    /// # Panics
    /// If the directory for its files cannot be made.
    #[track_caller]
    pub fn on(netns: &NetNs) -> Self {
        let directory = tempfile::tempdir().unwrap_or_else(|e| panic!("no directory for shunt: {e}"));
        let instance = format!("c{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let netns = netns.name().to_owned();
        Self { directory, netns, instance, prefix: Vec::new(), variables: Vec::new() }
    }

    /// Adds a variable to the environment of each command.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Runs the command by another program, such as `setpriv`. The prefix is split at blanks.
    #[must_use]
    pub fn by(mut self, prefix: &str) -> Self {
        self.prefix = prefix.split_whitespace().map(str::to_owned).collect();
        self
    }

    /// Path of the program `shunt`.
    ///
    /// # Panics
    /// If `shunt` has not been built.
    #[track_caller]
    pub fn program() -> String {
        program("SHUNT", "shunt")
    }

    /// Gives the instance this name.
    #[must_use]
    pub fn named(mut self, instance: &str) -> Self {
        instance.clone_into(&mut self.instance);
        self
    }

    /// Name of the instance.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// The runtime directory, which is deleted when this value is dropped.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Writes a file into the runtime directory and returns its path.
    ///
    /// # Panics
    /// If the file cannot be written.
    #[track_caller]
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::write(&path, text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        path
    }

    /// Runs `shunt` with these words, split at blanks, and waits for its end.
    ///
    /// # Panics
    /// If `shunt` cannot be started.
    #[track_caller]
    pub fn run(&self, words: &str) -> CommandOutput {
        self.run_program("SHUNT", "shunt", words)
    }

    /// Runs `shuntd` with these words, split at blanks, and waits for its end.
    ///
    /// # Panics
    /// If `shuntd` cannot be started.
    #[track_caller]
    pub fn run_daemon(&self, words: &str) -> CommandOutput {
        self.run_program("SHUNTD", "shuntd", words)
    }

    /// Runs `shunt`, which must succeed, and returns its standard output.
    ///
    /// # Panics
    /// If the exit code is not 0.
    #[track_caller]
    pub fn done(&self, words: &str) -> String {
        let output = self.run(words);
        assert_eq!(output.code, Some(0), "shunt {words}: {}{}", output.err, output.out);
        output.out
    }

    /// What `shunt status` says of the instance, which must run.
    ///
    /// # Panics
    /// If it does not run.
    #[track_caller]
    pub fn status(&self) -> Status {
        serde_json::from_str(&self.done("status --json")).unwrap_or_else(|e| panic!("shunt status: {e}"))
    }

    /// Starts `shunt` and lets it run.
    ///
    /// # Panics
    /// If `shunt` cannot be started.
    #[track_caller]
    pub fn start(&self, words: &str) -> Running {
        let file = |end: &str| self.file(&format!("{}.{end}", NEXT.fetch_add(1, Ordering::Relaxed)), "");
        let (out, err) = (file("out"), file("err"));
        let open = |path: &Path| fs::File::create(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let mut command = self.command(&program("SHUNT", "shunt"), words);
        command.stdout(open(&out)).stderr(open(&err));
        Running { process: Process::start(command), out, err }
    }

    #[track_caller]
    fn run_program(&self, variable: &str, name: &str, words: &str) -> CommandOutput {
        let program = program(variable, name);
        let mut command = self.command(&program, words);
        let output = command.output().unwrap_or_else(|e| panic!("{program}: {e}"));
        CommandOutput::new(&output)
    }

    fn command(&self, program: &str, words: &str) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.netns])
            .args(&self.prefix)
            .arg(program)
            .args(words.split_whitespace())
            .args(["--instance", &self.instance])
            .env("SHUNT_RUNTIME_DIR", self.directory.path())
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        command
    }
}

/// A command that runs. Dropping this kills it.
#[derive(Debug)]
pub struct Running {
    process: Process,
    out: PathBuf,
    err: PathBuf,
}

impl Running {
    /// Standard output so far.
    pub fn out(&self) -> String {
        fs::read_to_string(&self.out).unwrap_or_default()
    }

    /// Standard error so far.
    pub fn err(&self) -> String {
        fs::read_to_string(&self.err).unwrap_or_default()
    }

    /// `None` while the command runs; then the exit code, or `Some(None)` if a signal ended the command.
    pub fn ended(&mut self) -> Option<Option<i32>> {
        self.process.ended().map(|status| status.code())
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Sends a signal to the process.
    ///
    /// # Panics
    /// If the process has ended.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal).unwrap_or_else(|e| panic!("shunt: {signal}: {e}"));
    }
}

impl CommandOutput {
    fn new(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }
}

impl Drop for Shunt {
    fn drop(&mut self) {
        if self.directory.path().join(format!("{}.sock", self.instance)).exists() {
            self.prefix.clear();
            let _ = self.run("down");
        }
    }
}
