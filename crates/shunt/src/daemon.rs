//! The daemon as a process: found, started, waited for, ended.

use anyhow::Context;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use shunt_api::{Failure, FailureCode, Instance, runtime_dir};
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

/// The file of the daemon's program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program(PathBuf);

/// A daemon that was started in the background.
#[derive(Debug)]
pub(crate) struct Started {
    child: Child,
    log: PathBuf,
    /// Where this daemon's lines begin.
    from: u64,
}

const NAME: &str = "shuntd";
/// What the daemon's lines for the operator begin with.
const PREFIX: &str = "shuntd: ";
const LOG_TAIL_BYTES: u64 = 64 * 1024;
pub(crate) const GLANCE: Duration = Duration::from_millis(20);

impl Program {
    /// Beside this program, so that a build finds its own daemon; else in PATH.
    pub(crate) fn find() -> Result<Self, Failure> {
        let beside = env::current_exe().ok().and_then(|own| own.parent().map(Path::to_path_buf));
        let path = env::var_os("PATH").unwrap_or_default();
        Self::find_in(beside.into_iter().chain(env::split_paths(&path)))
    }

    fn find_in(dirs: impl Iterator<Item = PathBuf>) -> Result<Self, Failure> {
        let is_program = |file: &PathBuf| {
            fs::metadata(file).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
        };
        dirs.map(|dir| dir.join(NAME)).find(is_program).map(Self).ok_or_else(|| {
            let why = "shuntd is neither beside shunt nor in PATH; install both together";
            Failure::new(FailureCode::Internal, why)
        })
    }

    /// Becomes the daemon. Returns only if that fails.
    pub(crate) fn become_it(&self, args: &[OsString]) -> anyhow::Error {
        let error = Command::new(&self.0).args(args).exec();
        self.cannot_run(error)
    }

    /// Starts the daemon in the background, in a process group of its own, with its lines going to the instance's log.
    pub(crate) fn start(&self, instance: &Instance, args: &[OsString]) -> anyhow::Result<Started> {
        let path = instance.log_path();
        let mut log = open_log(&path).map_err(|error| {
            let failure = match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    Failure::new(FailureCode::NotRoot, "attaching to network devices needs root; use sudo")
                }
                _ => Failure::new(FailureCode::Internal, format!("{}: {error}", path.display())),
            };
            anyhow::Error::new(error).context(failure)
        })?;
        let from = log.seek(SeekFrom::End(0))?;
        let child = Command::new(&self.0)
            .args(args)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .map_err(|error| self.cannot_run(error))?;
        Ok(Started { child, log: path, from })
    }

    /// Removes what a daemon that died may have left.
    pub(crate) fn clean_up(&self, instance: &Instance) -> anyhow::Result<()> {
        let out = Command::new(&self.0)
            .args(["--cleanup", "--instance", instance.as_str()])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| self.cannot_run(error))?;
        if out.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&out.stderr);
        Err(failure_of(out.status, &said, "shuntd --cleanup").into())
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

    /// What it failed of, once it has ended. That it ended without a failure is one too: it should have stayed.
    pub(crate) fn failure(&mut self) -> anyhow::Result<Option<Failure>> {
        let Some(status) = self.child.try_wait()? else { return Ok(None) };
        let said = tail(&self.log, self.from).with_context(|| self.log.display().to_string())?;
        Ok(Some(failure_of(status, &said, &format!("shuntd (its log: {})", self.log.display()))))
    }

    pub(crate) fn log(&self) -> &Path {
        &self.log
    }
}

/// Ends a process that does not listen any more.
pub(crate) fn force_end(pid: u32) {
    if let Ok(pid) = i32::try_from(pid) {
        // That it has ended by now is what was wanted; whoever called waits for that.
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

/// Waits for the end of a process that need not be a child. Whether it came in time.
pub(crate) async fn wait_gone(pid: u32, within: Duration) -> bool {
    let deadline = Instant::now() + within;
    while !is_gone(pid) {
        if Instant::now() >= deadline {
            return false;
        }
        sleep(GLANCE).await;
    }
    true
}

// A process that its parent has not yet asked for has let go of everything.
fn is_gone(pid: u32) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['Z', 'X'])),
        Err(_) => true,
    }
}

fn open_log(path: &Path) -> io::Result<File> {
    let dir = runtime_dir();
    if !dir.is_dir() {
        fs::create_dir_all(&dir)?;
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755))?;
    }
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

fn tail(path: &Path, from: u64) -> io::Result<String> {
    let mut log = File::open(path)?;
    let len = log.metadata()?.len();
    log.seek(SeekFrom::Start(from.max(len.saturating_sub(LOG_TAIL_BYTES))))?;
    let mut bytes = Vec::new();
    log.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The daemon's own last words, or how it ended if there are none.
fn failure_of(status: ExitStatus, said: &str, who: &str) -> Failure {
    let code = status.code().and_then(|code| u8::try_from(code).ok()).and_then(FailureCode::from_exit_code);
    let code = code.unwrap_or(FailureCode::Internal);
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("{who} ended with exit code {code}"),
        (None, signal) => format!("{who} was ended by signal {}", signal.unwrap_or_default()),
    };
    let lines = || said.lines().map(str::trim_end).rev().filter(|line| !line.is_empty());
    let told = lines().find_map(|line| line.strip_prefix(PREFIX)).map(str::to_owned);
    let message = told.unwrap_or_else(|| match lines().next() {
        Some(line) => format!("{how}: {line}"),
        None => how,
    });
    Failure::new(code, message)
}

#[cfg(test)]
mod tests;
