//! `shunt restart` of a daemon that somebody other than systemd watches: the process that was started stays, waits for
//! the daemons that follow, and passes signals on. A container ends with this process, and procd starts another one.

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use shunt_api::RestartKind;
use shunt_testkit::{Shuntd, Topology, program, require_root, rulesets, silent_router, wait_for, wait_until};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Command, Output},
    thread,
    time::Duration,
};

/// What became of the flows, and the process ID of the next daemon.
#[track_caller]
fn restarted(shuntd: &Shuntd, output: &Output) -> (u32, RestartKind) {
    assert!(output.status.success(), "{}\n{}", String::from_utf8_lossy(&output.stderr), shuntd.log());
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    (value["pid"].as_u64().unwrap() as u32, serde_json::from_value(value).unwrap())
}

#[track_caller]
fn restart(shuntd: &Shuntd) -> (u32, RestartKind) {
    restarted(shuntd, &shuntd.shunt(&["restart", "--json"]))
}

/// The state and the parent of a process; `None` if there is none.
fn state_and_parent(pid: u32) -> Option<(String, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}

/// Whether a process has ended, even if nobody has asked how.
pub(crate) fn has_ended(pid: u32) -> bool {
    state_and_parent(pid).is_none_or(|(state, _)| state == "Z")
}

fn children(pid: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
    pids.filter(|child| state_and_parent(*child).is_some_and(|(_, parent)| parent == pid)).collect()
}

fn daemon(lab: &Topology) -> Shuntd {
    Shuntd::on(lab.router()).engine("tc").start()
}

#[test]
fn the_process_that_was_started_stays_and_passes_signals_on() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    let shuntd = daemon(&lab);
    let first = shuntd.pid();
    let mut pid = first;
    for _ in 0..2 {
        let (next, kind) = restart(&shuntd);
        assert!(matches!(kind, RestartKind::TakenOver { .. }) && next != pid, "{kind:?}: {}", shuntd.log());
        pid = next;
    }
    assert_eq!(shuntd.status().pid, pid);
    wait_until("the last daemon is the only child", || children(first) == [pid]);
    let files = fs::read_dir(format!("/proc/{first}/fd")).unwrap().flatten();
    let files: Vec<_> = files.filter_map(|file| fs::read_link(file.path()).ok()).collect();
    let is_held = |file: &PathBuf| {
        ["anon_inode:", "socket:"].iter().any(|kind| file.to_string_lossy().starts_with(kind))
    };
    assert!(!files.iter().any(is_held), "the process that waits has {files:?}");

    shuntd.signal(Signal::SIGHUP);
    wait_until("the signal has made the last daemon read its file", || {
        shuntd
            .status()
            .config
            .is_some_and(|config| config.last_reload.is_some_and(|last| last.by == "SIGHUP"))
    });
    // By SIGTERM to the first process, which ends with the last daemon.
    shuntd.stop();
    assert_eq!(state_and_parent(pid), None);
}

#[test]
fn the_process_that_was_started_ends_as_the_last_daemon_has() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    let shuntd = daemon(&lab);
    let (pid, _) = restart(&shuntd);
    kill(Pid::from_raw(pid as i32), Signal::SIGKILL).unwrap();
    let why = shuntd.try_stop().unwrap_err();
    assert!(why.contains("exit status: 137"), "{why}");
}

#[test]
fn the_process_that_was_started_stays_if_flows_are_not_handed_over() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    let shuntd =
        Shuntd::on(lab.router()).engine("tc").variable("SHUNT_PRETEND_MISSING", "same-layout").start();
    let (pid, kind) = restart(&shuntd);
    assert!(matches!(kind, RestartKind::Clean { .. }), "{kind:?}");
    assert_eq!((shuntd.status().pid, children(shuntd.pid())), (pid, vec![pid]));
    shuntd.stop();
}

fn is_stopped(pid: &u32) -> bool {
    state_and_parent(*pid).is_some_and(|(state, _)| state == "T")
}

/// Sends SIGTERM to the process that was started, at a moment of a restart at which a process of the two is stopped.
/// Returns how the first process has ended.
#[track_caller]
fn ends_by_a_signal_at(step: &str, pretended: &str) -> Result<(), String> {
    let lab = silent_router(rulesets::OPEN);
    let shuntd = Shuntd::on(lab.router())
        .engine("tc")
        .variable("SHUNT_HANDOVER_FAULT", &format!("stop:{step}"))
        .variable("SHUNT_PRETEND_MISSING", pretended)
        .start();
    let first = shuntd.pid();
    let stopped = thread::scope(|scope| {
        // It finds no daemon in the end.
        scope.spawn(|| shuntd.shunt(&["restart"]));
        let stopped =
            wait_for(Duration::from_secs(60), || children(first).into_iter().chain([first]).find(is_stopped));
        let stopped = stopped.unwrap_or_else(|| panic!("nothing stops at {step}: {}", shuntd.log()));
        shuntd.signal(Signal::SIGTERM);
        kill(Pid::from_raw(stopped as i32), Signal::SIGCONT).unwrap();
        wait_until("all processes have ended", || children(first).is_empty() && has_ended(first));
        stopped
    });
    assert_eq!(stopped == first, step.starts_with("former"), "another process was stopped");
    assert_eq!(shuntd.left_behind(), None);
    shuntd.try_stop()
}

#[test]
fn a_signal_to_end_during_a_restart_ends_both_daemons() {
    if !require_root() {
        return;
    }
    // The next daemon owns everything, and the one before waits for it.
    assert_eq!(ends_by_a_signal_at("next-done", "nothing"), Ok(()));
    // It is about to start without flows, and the one before has detached everything.
    assert_eq!(ends_by_a_signal_at("former-detached", "same-layout"), Ok(()));
}

#[test]
fn a_signal_to_end_while_the_daemon_starts_is_no_failure() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    // It has loaded its programs, and attached none.
    let starts = Shuntd::on(lab.router()).engine("tc").variable("SHUNT_HANDOVER_FAULT", "stop:loaded");
    let own = std::process::id();
    let ended = thread::scope(|scope| {
        let starting = scope.spawn(|| starts.try_start());
        let stopped =
            wait_for(Duration::from_secs(60), || children(own).into_iter().find(is_stopped)).unwrap();
        for signal in [Signal::SIGTERM, Signal::SIGCONT] {
            kill(Pid::from_raw(stopped as i32), signal).unwrap();
        }
        starting.join().unwrap()
    });
    // It has left nothing behind, else this panics.
    let (status, log) = ended.unwrap_err();
    assert!(status.success(), "{status}: {log}");
}

#[test]
fn a_next_daemon_that_fails_is_no_zombie_of_the_one_that_stays() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    let shuntd = Shuntd::on(lab.router()).engine("tc").variable("SHUNT_HANDOVER_FAULT", "next-ready").start();
    let pid = shuntd.pid();
    let output = shuntd.shunt(&["restart"]);
    assert!(!output.status.success(), "{output:?}");
    wait_until("the next daemon is gone", || children(pid).is_empty());
    assert_eq!(shuntd.status().pid, pid);
    shuntd.stop();
}

#[test]
fn a_container_whose_first_process_is_the_daemon_outlives_a_restart() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    let scratch = tempfile::tempdir().unwrap();
    let script = scratch.path().join("container");
    let line = format!("exec unshare --pid --fork --mount-proc {} \"$@\"", program("SHUNTD", "shuntd"));
    fs::write(&script, format!("#!/bin/sh\n{line}\n")).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let shuntd = Shuntd::on(lab.router()).engine("tc").program(&script.to_string_lossy()).start();
    assert_eq!(shuntd.status().pid, 1, "it is the first process of its namespace");
    let [inner] = children(shuntd.pid())[..] else { panic!("unshare has no child") };
    for _ in 0..2 {
        let output = Command::new("nsenter")
            .args(["--target", &inner.to_string(), "--pid", "--mount", "--net", &program("SHUNT", "shunt")])
            .args(["restart", "--json", "--instance", shuntd.instance()])
            .env("SHUNT_RUNTIME_DIR", shuntd.directory())
            .output()
            .unwrap();
        let (pid, kind) = restarted(&shuntd, &output);
        assert!(matches!(kind, RestartKind::TakenOver { .. }) && pid != 1, "{kind:?}");
        assert_eq!(shuntd.status().pid, pid);
    }
    kill(Pid::from_raw(inner as i32), Signal::SIGTERM).unwrap();
    // unshare ends as its child has.
    wait_until("the container has ended", || has_ended(shuntd.pid()));
    shuntd.stop();
}
