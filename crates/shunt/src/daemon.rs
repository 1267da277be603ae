//! The process of the daemon: find the program, start it, wait for its end, kill it.

use anyhow::Context;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::de::DeserializeOwned;
use shunt_api::{Failure, FailureCode, Instance, RUNTIME_DIR_VARIABLE, STATE_DIR_VARIABLE, cannot_write};
use std::{
    env,
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom},
    os::unix::{
        fs::{OpenOptionsExt, PermissionsExt},
        process::{CommandExt, ExitStatusExt},
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};
use tokio::time::{Instant, sleep};

/// The path of the `shuntd` executable. With the feature `daemon`, it is this program, started by that name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program(PathBuf);

/// A daemon that was started in the background.
#[derive(Debug)]
pub(crate) struct Started {
    child: Child,
    log: PathBuf,
    /// Offset in the log at which the lines of this daemon begin, in bytes.
    log_start: u64,
    /// What was made for the log.
    made: Made,
}

/// What did not exist before the log was opened.
#[derive(Debug, Clone, Copy, Default)]
struct Made {
    log: bool,
    directory: bool,
}

const NAME: &str = "shuntd";
/// The daemon begins each message for the operator with this; other lines are log lines.
const PREFIX: &str = "shuntd: ";
/// A log of this size is moved aside at the next start.
const LOG_KEPT_BYTES: u64 = 1 << 20;
const LOG_TAIL_BYTES: u64 = 64 * 1024;
/// How often a process or a socket is polled.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Whether this process was started as the daemon: under its name.
#[cfg(feature = "daemon")]
pub(crate) fn is_this_process() -> bool {
    env::args_os().next().is_some_and(|path| Path::new(&path).file_name() == Some(NAME.as_ref()))
}

impl Program {
    /// This program, which contains the daemon.
    #[cfg(feature = "daemon")]
    pub(crate) fn find() -> Result<Self, Failure> {
        let why = |error| Failure::new(FailureCode::Internal, format!("the path of this program: {error}"));
        env::current_exe().map(Self).map_err(why)
    }

    /// Looks in the directory of this program first, so that a build finds its own daemon, then in PATH.
    #[cfg(not(feature = "daemon"))]
    pub(crate) fn find() -> Result<Self, Failure> {
        let beside = env::current_exe().ok().and_then(|own| own.parent().map(Path::to_path_buf));
        let path = env::var_os("PATH").unwrap_or_default();
        Self::find_in(beside.into_iter().chain(env::split_paths(&path)))
    }

    #[cfg(any(test, not(feature = "daemon")))]
    fn find_in(dirs: impl Iterator<Item = PathBuf>) -> Result<Self, Failure> {
        let is_program = |file: &PathBuf| {
            fs::metadata(file).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
        };
        dirs.map(|dir| dir.join(NAME)).find(is_program).map(Self).ok_or_else(|| {
            let why = "cannot find shuntd in the directory of shunt or in PATH; install both together";
            Failure::new(FailureCode::Internal, why)
        })
    }

    /// The daemon's program with these arguments.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.process();
        command.args(args);
        command
    }

    fn process(&self) -> Command {
        let mut command = Command::new(&self.0);
        command.arg0(NAME);
        command
    }

    /// Replaces this process by the daemon. Returns only if that fails.
    pub(crate) fn exec(&self, args: &[OsString]) -> anyhow::Error {
        let error = self.process().args(args).exec();
        self.cannot_run(error)
    }

    /// Starts the daemon in the background, in its own process group, with standard output and error in the log of the
    /// instance.
    pub(crate) fn start(&self, instance: &Instance, args: &[OsString]) -> anyhow::Result<Started> {
        let path = instance.log_path(&runtime_dir());
        let (mut log, made) = open_log(&path).map_err(|error| {
            let failure = match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    Failure::new(FailureCode::NotRoot, "attaching to network devices needs root; use sudo")
                }
                _ => {
                    let why = cannot_write(&path, &error);
                    let text =
                        format!("{}: {why}; {RUNTIME_DIR_VARIABLE} names the directory", path.display());
                    Failure::new(FailureCode::Internal, text)
                }
            };
            anyhow::Error::new(error).context(failure)
        })?;
        let log_start = log.seek(SeekFrom::End(0))?;
        let child = self
            .process()
            .args(args)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .map_err(|error| self.cannot_run(error))?;
        Ok(Started { child, log: path, log_start, made })
    }

    /// Runs the daemon with an option that makes it print an answer as JSON and exit.
    pub(crate) fn ask<T: DeserializeOwned>(&self, option: &str, args: &[OsString]) -> anyhow::Result<T> {
        let out = self
            .process()
            .arg(option)
            .args(args)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| self.cannot_run(error))?;
        if !out.status.success() {
            let stderr = String::from_utf8_lossy(&out.stderr);
            return Err(exit_failure(out.status, &stderr, &format!("shuntd {option}")).into());
        }
        serde_json::from_slice(&out.stdout).with_context(|| {
            let why = format!(
                "unexpected output of shuntd {option}; shunt and shuntd may be of different versions"
            );
            Failure::new(FailureCode::Internal, why)
        })
    }

    /// Removes programs, maps and qdiscs that a daemon which died may have left behind.
    pub(crate) fn clean_up(&self, instance: &Instance) -> anyhow::Result<()> {
        let out = self
            .process()
            .args(["--cleanup", "--instance", instance.as_str()])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| self.cannot_run(error))?;
        if out.status.success() {
            return Ok(());
        }
        let stderr = String::from_utf8_lossy(&out.stderr);
        Err(exit_failure(out.status, &stderr, "shuntd --cleanup").into())
    }

    fn cannot_run(&self, error: io::Error) -> anyhow::Error {
        let failure = Failure::new(FailureCode::Internal, format!("{}: {error}", self.0.display()));
        anyhow::Error::new(error).context(failure)
    }
}

impl Started {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The failure that ended the daemon; none while it runs. Exit code 0 is a failure, too: the daemon should have
    /// kept running. A start that was refused leaves no log: the failure says all.
    pub(crate) fn failure(&mut self) -> anyhow::Result<Option<Failure>> {
        let Some(status) = self.child.try_wait()? else { return Ok(None) };
        let lines = tail(&self.log, self.log_start).with_context(|| self.log.display().to_string())?;
        let failure = exit_failure(status, &lines, &format!("shuntd (its log: {})", self.log.display()));
        if is_refusal(failure.code) {
            self.remove_log();
        }
        Ok(Some(failure))
    }

    /// Removes what was made for the log. An error is not reported: the reason why the daemon ended is.
    fn remove_log(&self) {
        if self.made.log {
            let _ = fs::remove_file(&self.log);
        }
        if let Some(directory) = self.log.parent().filter(|_| self.made.directory) {
            // Fails if there is something else in it by now.
            let _ = fs::remove_dir(directory);
        }
    }

    pub(crate) fn log(&self) -> &Path {
        &self.log
    }
}

/// Kills a process that no longer answers.
pub(crate) fn kill_process(pid: u32) {
    if let Ok(pid) = i32::try_from(pid) {
        // An error means that the process has ended already; the caller waits for that in any case.
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

/// Waits until a process has ended; it need not be a child. Returns false if it still runs after `within`.
pub(crate) async fn wait_gone(pid: u32, within: Duration) -> bool {
    let deadline = Instant::now() + within;
    while !is_gone(pid) {
        if Instant::now() >= deadline {
            return false;
        }
        sleep(POLL_INTERVAL).await;
    }
    true
}

// A zombie has released all its resources, so it counts as gone.
fn is_gone(pid: u32) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['Z', 'X'])),
        Err(_) => true,
    }
}

/// The directory of control sockets and logs, as `SHUNT_RUNTIME_DIR` says.
pub(crate) fn runtime_dir() -> PathBuf {
    shunt_api::runtime_dir(env::var_os(RUNTIME_DIR_VARIABLE))
}

/// The directory of what instances keep, as `SHUNT_STATE_DIR` says.
pub(crate) fn state_dir() -> PathBuf {
    shunt_api::state_dir(env::var_os(STATE_DIR_VARIABLE), env::var_os(RUNTIME_DIR_VARIABLE))
}

/// Whether the daemon refused what was asked of it. After any other end, its log may say more.
fn is_refusal(code: FailureCode) -> bool {
    !matches!(code, FailureCode::Internal | FailureCode::KernelTooOld)
}

fn open_log(path: &Path) -> io::Result<(File, Made)> {
    let dir = runtime_dir();
    let directory = !dir.is_dir();
    if directory {
        fs::create_dir_all(&dir)?;
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755))?;
    }
    // The daemon stops writing at 16 MiB, so both files together are bounded.
    if fs::metadata(path).is_ok_and(|log| log.len() >= LOG_KEPT_BYTES) {
        fs::rename(path, path.with_extension("log.1"))?;
    }
    let mut options = OpenOptions::new();
    options.append(true).mode(0o600);
    match options.clone().create_new(true).open(path) {
        Ok(log) => Ok((log, Made { log: true, directory })),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Ok((options.create(true).open(path)?, Made { log: false, directory }))
        }
        Err(error) => Err(error),
    }
}

/// The log from this offset on, but at most its last [`LOG_TAIL_BYTES`].
fn tail(path: &Path, start: u64) -> io::Result<String> {
    let mut log = File::open(path)?;
    let len = log.metadata()?.len();
    log.seek(SeekFrom::Start(start.max(len.saturating_sub(LOG_TAIL_BYTES))))?;
    let mut bytes = Vec::new();
    log.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The last message that the daemon wrote for the operator, or else its exit status and last line.
fn exit_failure(status: ExitStatus, output: &str, program: &str) -> Failure {
    let code = status.code().and_then(|code| u8::try_from(code).ok()).and_then(FailureCode::from_exit_code);
    let code = code.unwrap_or(FailureCode::Internal);
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("{program} ended with exit code {code}"),
        (None, signal) => format!("{program} was ended by signal {}", signal.unwrap_or_default()),
    };
    let lines = || output.lines().map(str::trim_end).rev().filter(|line| !line.is_empty());
    let message = lines().find_map(|line| line.strip_prefix(PREFIX)).map(str::to_owned);
    let message = message.unwrap_or_else(|| match lines().next() {
        Some(line) => format!("{how}: {line}"),
        None => how,
    });
    Failure::new(code, message)
}

#[cfg(test)]
mod tests;
