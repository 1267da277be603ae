//! A network namespace that exists as long as its value.

use nix::sched::{CloneFlags, setns, unshare};
use std::{fs::File, os::fd::AsRawFd, process::Command, thread};

pub struct NetNs(File);

impl NetNs {
    /// Creates a namespace. Without root, prints that the test is skipped and returns `None`.
    pub fn new() -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            assert!(std::env::var_os("SHUNT_NO_SKIP").is_none(), "not root, and SHUNT_NO_SKIP is set");
            eprintln!("SKIP: needs root for a network namespace");
            return None;
        }
        let make = || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            Self(File::open("/proc/thread-self/ns/net").unwrap())
        };
        let ns = thread::spawn(make).join().unwrap();
        ns.sh("ip link set lo up");
        Some(ns)
    }

    /// Runs a task on a thread in the namespace.
    pub fn enter<R: Send>(&self, task: impl FnOnce() -> R + Send) -> R {
        let inside = || {
            setns(&self.0, CloneFlags::CLONE_NEWNET).unwrap();
            task()
        };
        thread::scope(|scope| match scope.spawn(inside).join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }

    /// Runs a shell script in the namespace, and returns its output.
    pub fn sh(&self, script: &str) -> String {
        self.enter(|| sh(script))
    }

    /// The name of the namespace for `ip link set ... netns`.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

/// Runs a shell script in the calling thread's namespace, and returns its output.
pub fn sh(script: &str) -> String {
    let output = Command::new("sh").args(["-ec", script]).output().unwrap();
    assert!(output.status.success(), "{script}\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
