//! The process of the next daemon, as the running one has it.

use super::{channel::Channel, messages::FromNext};
use crate::hangups::without_hangups;
use std::{
    env,
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    process::{Child, Command, ExitStatus},
};
use tokio::time::{Instant, sleep_until};

/// The program and the arguments with which this daemon was started. An upgrade may replace the file meanwhile: the
/// next daemon is the new one.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
}

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
        let arguments = env::args_os().skip(1).filter(|argument| argument != SUCCESSOR).collect();
        Ok(Self { path, arguments })
    }
}

/// A daemon that is about to take over. Dropping it leaves the process alone.
#[derive(Debug)]
pub(crate) struct NextDaemon {
    child: Child,
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
        let (channel, theirs) = Channel::pair()?;
        let mut command = Command::new(&program.path);
        command
            .args(&program.arguments)
            .arg(SUCCESSOR)
            // It is another process that systemd watches from then on.
            .env_remove("WATCHDOG_PID")
            .env_remove("LISTEN_PID")
            .stdin(theirs);
        // It inherits the mask: a reload that is asked for before it has a handler must not end it.
        let child = without_hangups(|| command.spawn())?
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", program.path.display())))?;
        Ok(Self { child, channel, deadline })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
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

    /// Kills the process, and waits until it has ended.
    ///
    /// # Errors
    /// If it cannot be killed.
    pub(crate) fn end(mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        self.child.wait()
    }
}
