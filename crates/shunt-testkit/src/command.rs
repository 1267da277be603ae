//! The command `shunt` as people run it, and the daemon that it starts.

use crate::{NetNs, Process, shuntd::program};
use nix::sys::signal::Signal;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};
use tempfile::TempDir;

static NEXT: AtomicU32 = AtomicU32::new(1);

/// `shunt --instance NAME` in a namespace, with a runtime directory of its own. `shunt down` ends what runs when this is
/// dropped.
#[derive(Debug)]
pub struct Shunt {
    directory: TempDir,
    netns: String,
    instance: String,
    prefix: Vec<String>,
    variables: Vec<(String, String)>,
}

/// What a command said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Its exit code; none after a signal.
    pub code: Option<i32>,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

impl Shunt {
    /// The command in this namespace, for an instance of a name of its own.
    ///
    /// # Panics
    /// When there is no place for its files.
    #[track_caller]
    pub fn on(netns: &NetNs) -> Self {
        let directory = tempfile::tempdir().unwrap_or_else(|e| panic!("no directory for shunt: {e}"));
        let instance = format!("c{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let netns = netns.name().to_owned();
        Self { directory, netns, instance, prefix: Vec::new(), variables: Vec::new() }
    }

    /// With this variable in the environment.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Run by another program, such as `setpriv`. Words are split at blanks.
    #[must_use]
    pub fn by(mut self, prefix: &str) -> Self {
        self.prefix = prefix.split_whitespace().map(str::to_owned).collect();
        self
    }

    /// The name of the instance.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// The runtime directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Writes a file into a directory that goes with this value; its path.
    ///
    /// # Panics
    /// When it cannot be written.
    #[track_caller]
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::write(&path, text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        path
    }

    /// Runs it with these words, split at blanks, and waits for its end.
    ///
    /// # Panics
    /// When it cannot be run.
    #[track_caller]
    pub fn run(&self, words: &str) -> Said {
        self.run_program("SHUNT", "shunt", words)
    }

    /// Runs `shuntd` in its place.
    ///
    /// # Panics
    /// When it cannot be run.
    #[track_caller]
    pub fn run_daemon(&self, words: &str) -> Said {
        self.run_program("SHUNTD", "shuntd", words)
    }

    /// Runs it and expects it to be done; its standard output.
    ///
    /// # Panics
    /// When it fails.
    #[track_caller]
    pub fn done(&self, words: &str) -> String {
        let said = self.run(words);
        assert_eq!(said.code, Some(0), "shunt {words}: {}{}", said.err, said.out);
        said.out
    }

    /// Starts it and lets it run.
    ///
    /// # Panics
    /// When it cannot be started.
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
    fn run_program(&self, variable: &str, name: &str, words: &str) -> Said {
        let program = program(variable, name);
        let mut command = self.command(&program, words);
        let output = command.output().unwrap_or_else(|e| panic!("{program}: {e}"));
        Said::of(&output)
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

/// A command that runs. Dropping it ends it.
#[derive(Debug)]
pub struct Running {
    process: Process,
    out: PathBuf,
    err: PathBuf,
}

impl Running {
    /// What it has written to standard output so far.
    pub fn out(&self) -> String {
        fs::read_to_string(&self.out).unwrap_or_default()
    }

    /// What it has written to standard error so far.
    pub fn err(&self) -> String {
        fs::read_to_string(&self.err).unwrap_or_default()
    }

    /// Its exit code, once it has ended; none within that after a signal.
    pub fn ended(&mut self) -> Option<Option<i32>> {
        self.process.ended().map(|status| status.code())
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// When it has ended.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal).unwrap_or_else(|e| panic!("shunt: {signal}: {e}"));
    }
}

impl Said {
    fn of(output: &Output) -> Self {
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
