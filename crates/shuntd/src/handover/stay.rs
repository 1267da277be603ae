//! Who watches the process of a daemon, other than systemd, takes its end for the end of the daemon: a container's
//! runtime ends the container, and procd starts another daemon. So this process stays after a restart. It waits for the
//! daemons that follow, which become its children, and passes signals on to them.

use super::Program;
use nix::{
    errno::Errno,
    sys::{
        signal::{SigSet, Signal, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::{Pid, getpid},
};
use std::{fs, io, process::ExitCode};

/// Signals that are passed on.
const PASSED_ON: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];

/// Waits as [`await_successor`] does, as a process with nothing in memory.
///
/// # Errors
/// If signals cannot be received, or children not be listed.
pub(crate) fn stay(program: &Program) -> io::Result<ExitCode> {
    // They wait while this process is replaced.
    awaited().thread_block()?;
    // The program's file may be gone.
    let error = program.become_waiting();
    tracing::warn!("cannot give up the memory of the daemon before: {error}");
    await_successor()
}

/// Waits until no daemon is left that has followed this process. Returns the exit code of the last one; as in a shell,
/// a signal that ended it counts from 128.
///
/// # Errors
/// If signals cannot be received, or children not be listed.
pub(crate) fn await_successor() -> io::Result<ExitCode> {
    let awaited = awaited();
    awaited.thread_block()?;
    let mut code = 0;
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => {}
            Ok(status) => {
                code = exit_code(status).unwrap_or(code);
                continue;
            }
            Err(Errno::ECHILD) => return Ok(ExitCode::from(code)),
            Err(error) => return Err(error.into()),
        }
        let signal = awaited.wait()?;
        if signal != Signal::SIGCHLD {
            for child in children()? {
                // Fails if it has just ended.
                let _ = kill(child, signal);
            }
        }
    }
}

fn awaited() -> SigSet {
    PASSED_ON.into_iter().chain([Signal::SIGCHLD]).collect()
}

/// The exit code; `None` if the process has not ended.
fn exit_code(status: WaitStatus) -> Option<u8> {
    match status {
        WaitStatus::Exited(_, code) => u8::try_from(code).ok(),
        WaitStatus::Signaled(_, signal, _) => u8::try_from(128 + signal as i32).ok(),
        _ => None,
    }
}

/// The children of this process. Some kernels have no `/proc/PID/task/TID/children`.
fn children() -> io::Result<Vec<Pid>> {
    let own = getpid().as_raw();
    let processes = fs::read_dir("/proc")?.flatten();
    let pids = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
    let is_child = |pid: &i32| {
        fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| parent(&stat) == Some(own))
    };
    Ok(pids.filter(is_child).map(Pid::from_raw).collect())
}

/// The parent in a `/proc/PID/stat`: the second field after the name, which may contain anything.
fn parent(stat: &str) -> Option<i32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_parent_is_found_behind_any_name() {
        assert_eq!(parent("7 (a) b) S 42 7 7 0 -1"), Some(42));
        assert_eq!(parent("7 (shuntd) R"), None);
    }

    #[test]
    fn children_are_those_of_this_process() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_raw(child.id() as i32);
        let found = children().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.contains(&pid) && !found.contains(&getpid()), "{pid}: {found:?}");
    }

    #[test]
    fn a_signal_that_ended_the_daemon_is_in_the_exit_code() {
        assert_eq!(exit_code(WaitStatus::Exited(Pid::this(), 3)), Some(3));
        assert_eq!(exit_code(WaitStatus::Signaled(Pid::this(), Signal::SIGKILL, false)), Some(137));
        assert_eq!(exit_code(WaitStatus::StillAlive), None);
    }
}
