//! The process of the next daemon, as the running one has it.

use super::{
    channel::Channel,
    messages::FromNext,
    pidfd::{open_process, wait_for_end},
};
use crate::signals::without_hangups;
use nix::sys::prctl::set_child_subreaper;
use rustix::{
    io::Errno,
    process::{Pid, Signal, WaitId, WaitIdOptions, getppid, pidfd_send_signal, waitid},
};
use std::{
    env,
    ffi::{OsStr, OsString},
    io::{self, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::{ffi::OsStrExt, process::CommandExt},
    },
    path::PathBuf,
    process::{Command, Stdio},
};
use tokio::time::{Instant, sleep_until};

/// The program and the arguments with which this daemon was started. An upgrade may replace the file meanwhile: the
/// next daemon is the new one.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    path: PathBuf,
    /// By which it was started: the program for small routers is the daemon under this name only.
    name: OsString,
    arguments: Vec<OsString>,
    /// The process that started this one; `None` if it is in another PID namespace.
    parent: Option<Pid>,
    /// Whether this process has followed another daemon, so that its parent has ended.
    follows: bool,
}

const LAUNCH: &str = "--launch-successor";
const AWAIT: &str = "--await-successor";
const SUCCESSOR: &str = "--successor";
/// The kernel appends this to the path of a program whose file was replaced.
const DELETED: &[u8] = b" (deleted)";

impl Program {
    /// The program of this process.
    ///
    /// # Errors
    /// If the kernel does not tell its path.
    pub(crate) fn of_this_process() -> io::Result<Self> {
        let path = env::current_exe()?;
        let bytes = path.as_os_str().as_bytes();
        let path = PathBuf::from(OsStr::from_bytes(bytes.strip_suffix(DELETED).unwrap_or(bytes)));
        let name = env::args_os().next().unwrap_or_else(|| path.clone().into_os_string());
        let is_own = |argument: &OsString| argument != SUCCESSOR && argument != LAUNCH;
        let arguments = env::args_os().skip(1).filter(is_own).collect();
        let follows = env::args_os().any(|argument| argument == SUCCESSOR);
        Ok(Self { path, name, arguments, parent: getppid(), follows })
    }

    /// Whether somebody watches this process, and would take its end for that of the daemon: a container's runtime,
    /// procd, a shell. systemd is told of the next daemon, and `shunt up` has ended by now.
    pub(crate) fn is_watched(&self) -> bool {
        let told = env::var_os("NOTIFY_SOCKET").is_some();
        std::process::id() == 1 || (!self.follows && !told && getppid() == self.parent)
    }

    /// Replaces this process by one that waits for the next daemon. Returns only if that fails.
    pub(super) fn become_waiting(&self) -> io::Error {
        self.command(AWAIT).exec()
    }

    /// Starts it with one more argument. Standard input is the channel to the running daemon.
    fn command(&self, argument: &str) -> Command {
        let mut command = Command::new(&self.path);
        command.arg0(&self.name).args(&self.arguments).arg(argument);
        command
    }

    fn named(&self) -> impl Fn(io::Error) -> io::Error + '_ {
        |error| io::Error::new(error.kind(), format!("{}: {error}", self.path.display()))
    }
}

/// Starts the daemon that takes over, with this process's standard input, and prints its process ID. When this process
/// ends, that one becomes a child of process 1, or of the daemon that stays.
///
/// # Errors
/// If it cannot be started.
pub(crate) fn launch_successor() -> io::Result<()> {
    let program = Program::of_this_process()?;
    let next = program.command(SUCCESSOR).stdout(Stdio::null()).spawn().map_err(program.named())?;
    writeln!(io::stdout(), "{}", next.id())
}

/// A daemon that is about to take over. Dropping it leaves the process alone.
#[derive(Debug)]
pub(crate) struct NextDaemon {
    pid: Pid,
    /// None if it had ended by then.
    process: Option<OwnedFd>,
    pub(crate) channel: Channel,
    /// When its next message is late.
    pub(crate) deadline: Instant,
}

/// Something about the next daemon.
#[derive(Debug)]
pub(crate) enum News {
    /// It said something.
    Said(FromNext),
    /// It has ended, or sent nonsense.
    Gone(String),
    /// It is late.
    Late,
}

impl NextDaemon {
    /// Starts it, with a deadline for its first message.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub(crate) fn start(program: &Program, deadline: Instant) -> io::Result<Self> {
        if program.is_watched() {
            set_child_subreaper(true)?;
        }
        let (channel, theirs) = Channel::pair()?;
        let mut command = program.command(LAUNCH);
        command
            // It is another process that systemd watches from then on.
            .env_remove("WATCHDOG_PID")
            .env_remove("LISTEN_PID")
            .stdin(theirs)
            .stderr(Stdio::inherit());
        // Both processes inherit the mask: a reload that is asked for before there is a handler must not end them.
        let launched = without_hangups(|| command.output())?.map_err(program.named())?;
        let pid = String::from_utf8_lossy(&launched.stdout).trim().parse().ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| {
            io::Error::other(format!("{}: it ended with {}", program.path.display(), launched.status))
        })?;
        // If it has ended, the channel tells why.
        Ok(Self { pid, process: open_process(pid)?, channel, deadline })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Waits for news. May be dropped at any time.
    pub(crate) async fn news(&self) -> News {
        tokio::select! {
            biased;
            said = self.channel.receive::<FromNext>() => match said {
                Ok(Some((message, _))) => News::Said(message),
                Ok(None) => News::Gone("it ended before it took over; see the log".to_owned()),
                Err(error) => News::Gone(format!("it sent an unexpected message: {error}")),
            },
            () = sleep_until(self.deadline) => News::Late,
        }
    }

    /// Sends the process a signal that was meant for the daemon, and came too late for this one.
    ///
    /// # Errors
    /// If the kernel does not send it.
    pub(crate) fn pass_on(&self, signal: nix::sys::signal::Signal) -> io::Result<()> {
        let Some(process) = &self.process else { return Ok(()) };
        let signal = Signal::from_named_raw(signal as i32).ok_or(Errno::INVAL)?;
        match pidfd_send_signal(process, signal) {
            // It has ended already.
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Kills the process, and waits until it has ended.
    ///
    /// # Errors
    /// If it cannot be killed.
    pub(crate) fn end(self) -> io::Result<()> {
        let Some(process) = self.process else { return Ok(()) };
        match pidfd_send_signal(&process, Signal::KILL) {
            // It has ended already.
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => return Err(error.into()),
        }
        wait_for_end(&process, None)?;
        // Fails unless it has become a child of this process.
        let _ = waitid(WaitId::PidFd(process.as_fd()), WaitIdOptions::EXITED);
        Ok(())
    }
}
