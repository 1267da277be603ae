//! A cgroup whose CPU time is used up.

use super::{Hosts, LONG, compute, likely};
use nix::unistd::gettid;
use shunt_testkit::{require_root, skip_missing_feature};
use std::{
    fs,
    path::{Path, PathBuf},
    thread,
};

/// A cgroup in which single threads can be limited: of the hierarchy `cpu` of version 1, or a threaded one of
/// version 2.
struct Cgroup {
    directory: PathBuf,
    threads: &'static str,
}

const VERSION_1: &str = "/sys/fs/cgroup/cpu";
const VERSION_2: &str = "/sys/fs/cgroup";

impl Cgroup {
    /// A millisecond of CPU time in 20.
    fn new() -> Option<Self> {
        let name = format!("shunt-slow-{}", std::process::id());
        if Path::new(VERSION_1).join("cpu.cfs_quota_us").exists() {
            let limits =
                [("cpu.cfs_period_us", "20000"), ("cpu.cfs_quota_us", "1000"), ("cpu.shares", "100000")];
            return Some(Self::with_limits(&Path::new(VERSION_1).join(name), "tasks", &limits));
        }
        let controllers = fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").unwrap_or_default();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        // Threads leave only the cgroup that becomes the domain of the threaded one.
        if !controllers.split_whitespace().any(|name| name == "cpu") || own.trim() != "0::/" {
            skip_missing_feature(
                "cgroup for threads",
                "--test lab -- throttled",
                "no hierarchy `cpu` of version 1, and this process is not in the root of version 2",
            );
            return None;
        }
        fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+cpu").unwrap();
        let limits = [("cgroup.type", "threaded"), ("cpu.max", "1000 20000"), ("cpu.weight", "10000")];
        Some(Self::with_limits(&Path::new(VERSION_2).join(name), "cgroup.threads", &limits))
    }

    fn with_limits(directory: &Path, threads: &'static str, limits: &[(&str, &str)]) -> Self {
        fs::create_dir(directory).unwrap();
        let cgroup = Self { directory: directory.to_owned(), threads };
        for (name, value) in limits {
            fs::write(directory.join(name), value).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
        cgroup
    }

    /// Moves the calling thread here.
    fn enter(&self) {
        fs::write(self.directory.join(self.threads), gettid().to_string()).unwrap();
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.directory);
    }
}

#[test]
fn a_throttled_cgroup_is_named() {
    if !require_root() {
        return;
    }
    let Some(cgroup) = Cgroup::new() else { return };
    let hosts = Hosts::new();
    let report = thread::scope(|scope| {
        hosts.serve(scope, "server", |_| cgroup.enter(), || compute(LONG / 5));
        hosts.ask(scope);
        hosts.trace()
    });
    let cause = likely(&report);
    assert_eq!((&cause["kind"], &cause["thread"]), (&"throttled".into(), &"server".into()), "{cause:#}");
    assert!(cgroup.directory.ends_with(cause["cgroup"].as_str().unwrap()), "{cause:#}");
}
