//! Network namespaces of our own.

use super::{Process, wait_for};
use nix::{
    sched::{CloneFlags, setns},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};

/// Directory of iproute2's namespaces.
const DIRECTORY: &str = "/run/netns";

static NEXT: AtomicU32 = AtomicU32::new(1);

/// A network namespace, deleted on drop with all that is inside.
#[derive(Debug)]
pub struct NetNs {
    name: String,
    keep: bool,
}

impl NetNs {
    /// Creates a namespace named `shunt-<label>-<pid>-<n>` with its loopback up.
    ///
    /// # Panics
    /// Panics if the namespace cannot be created, which needs root and iproute2.
    #[track_caller]
    pub fn new(label: &str) -> Self {
        Self::try_new(label).unwrap_or_else(|e| panic!("{e}"))
    }

    /// As [`NetNs::new`].
    ///
    /// # Errors
    /// Fails if the namespace cannot be created, which needs root and iproute2.
    pub fn try_new(label: &str) -> io::Result<Self> {
        let name = format!("{}{}", prefix(label), NEXT.fetch_add(1, Ordering::Relaxed));
        run_with_input(Command::new("ip").args(["netns", "add", &name]), "")?;
        let netns = Self { name, keep: false };
        // Make addresses usable at once, and send no router solicitations.
        for sysctl in ["all/accept_dad", "default/accept_dad", "default/router_solicitations"] {
            netns.try_sysctl(&format!("ipv6/conf/{sysctl}"), 0)?;
        }
        ip(&format!("-n {} link set lo up", netns.name))?;
        Ok(netns)
    }

    /// The name in `ip netns`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The namespace's file.
    pub fn path(&self) -> PathBuf {
        Path::new(DIRECTORY).join(&self.name)
    }

    /// Leaves the namespace in place when this value is dropped.
    pub fn keep(&mut self) {
        self.keep = true;
    }

    /// Runs a shell command line inside, and returns its standard output.
    ///
    /// # Errors
    /// Fails if the command cannot be started or fails; the error has the command line and its standard error.
    pub fn try_run(&self, line: &str) -> io::Result<String> {
        let output = self.command("sh").args(["-c", line]).stdin(Stdio::null()).output()?;
        answer(output).map_err(|reason| io::Error::other(format!("{}: `{line}`: {reason}", self.name)))
    }

    /// Runs a shell command line inside, and returns its standard output.
    ///
    /// # Panics
    /// Panics if the command fails.
    #[track_caller]
    pub fn run(&self, line: &str) -> String {
        self.try_run(line).unwrap_or_else(|e| panic!("{e}"))
    }

    /// A command that runs `program` inside.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Starts a program inside in the background, and discards its output. Words are split at blanks.
    ///
    /// # Panics
    /// Panics if the program cannot be started or `line` is empty.
    #[track_caller]
    pub fn spawn(&self, line: &str) -> Process {
        let mut words = line.split_whitespace();
        let program = words.next().unwrap_or_else(|| panic!("a command line without a program"));
        let mut command = self.command(program);
        command.args(words).stdout(Stdio::null()).stderr(Stdio::null());
        Process::start(command)
    }

    /// Runs a closure on a new thread inside the namespace. Sockets that it opens stay in the namespace. /sys is still
    /// that of the caller; use [`NetNs::run`] for /sys.
    ///
    /// # Panics
    /// Panics if the closure panics or the namespace cannot be entered.
    #[track_caller]
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let result = thread::scope(|scope| {
            scope
                .spawn(|| {
                    self.enter();
                    work()
                })
                .join()
        });
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Moves the calling thread into the namespace for good, for threads that serve a namespace all their life.
    ///
    /// # Panics
    /// Panics if the namespace cannot be entered.
    pub fn enter(&self) {
        let path = self.path();
        let entered = File::open(&path).and_then(|file| Ok(setns(file, CloneFlags::CLONE_NEWNET)?));
        entered.unwrap_or_else(|e| panic!("cannot enter namespace {}: {e}", path.display()));
    }

    /// Loads an nftables ruleset in addition to the present one.
    ///
    /// # Panics
    /// Panics if nft refuses the ruleset.
    #[track_caller]
    pub fn nft(&self, ruleset: &str) {
        run_with_input(self.command("nft").args(["-f", "-"]), ruleset).unwrap_or_else(|e| panic!("{e}"));
    }

    /// Sets a sysctl below /proc/sys/net, named by its path: `ipv4/ip_forward`.
    ///
    /// # Panics
    /// Panics if the sysctl cannot be written.
    #[track_caller]
    pub fn sysctl(&self, name: &str, value: impl ToString) {
        self.try_sysctl(name, value).unwrap_or_else(|e| panic!("{e}"));
    }

    /// As [`NetNs::sysctl`].
    ///
    /// # Errors
    /// Fails if the sysctl cannot be written.
    pub fn try_sysctl(&self, name: &str, value: impl ToString) -> io::Result<()> {
        let (path, value) = (Path::new("/proc/sys/net").join(name), value.to_string());
        let written = self.within(|| fs::write(&path, value));
        written.map_err(|e| io::Error::new(e.kind(), format!("{}: {}: {e}", self.name, path.display())))
    }

    /// Makes one CPU handle all packets that an interface receives, in the order of arrival (RPS). By default, the CPU
    /// that sends to a veth also receives, and a sender that moves to another CPU is overtaken by its own packets.
    ///
    /// # Panics
    /// Panics if there is no such interface.
    #[track_caller]
    pub fn receive_on(&self, ifname: &str, cpu: usize) {
        self.run(&format!("echo {:x} > /sys/class/net/{ifname}/queues/rx-0/rps_cpus", 1_u64 << cpu));
    }

    /// The index of an interface.
    ///
    /// # Panics
    /// Panics if there is no such interface.
    #[track_caller]
    pub fn ifindex(&self, ifname: &str) -> u32 {
        self.try_ifindex(ifname).unwrap_or_else(|e| panic!("{e}"))
    }

    /// As [`NetNs::ifindex`].
    ///
    /// # Errors
    /// Fails if there is no such interface.
    pub fn try_ifindex(&self, ifname: &str) -> io::Result<u32> {
        let index = self.within(|| nix::net::if_::if_nametoindex(ifname));
        index.map_err(|e| io::Error::other(format!("{}: {ifname}: {e}", self.name)))
    }
}

impl Drop for NetNs {
    fn drop(&mut self) {
        if !self.keep {
            delete(&self.name);
        }
    }
}

/// Deletes all namespaces that this process created and did not delete yet, after a SIGTERM to all processes inside.
/// For the end by a signal or by a panic that aborts, which drop nothing.
pub fn delete_namespaces_of_this_process() {
    let middle = format!("-{}-", std::process::id());
    let Ok(entries) = fs::read_dir(DIRECTORY) else { return };
    for name in entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()) {
        if name.starts_with("shunt-") && name.contains(&middle) {
            signal_all(&name, Signal::SIGTERM);
            if wait_for(Duration::from_secs(2), || pids_in(&name).is_empty().then_some(())).is_none() {
                signal_all(&name, Signal::SIGKILL);
            }
            delete(&name);
        }
    }
}

/// Runs `ip` with these words.
pub(super) fn ip(words: &str) -> io::Result<()> {
    run_with_input(Command::new("ip").args(words.split_whitespace()), "")
}

/// Runs `ip` commands inside, one per line.
pub(super) fn ip_batch(netns: &NetNs, lines: &[String]) -> io::Result<()> {
    run_with_input(Command::new("ip").args(["-n", &netns.name, "-batch", "-"]), &lines.join("\n"))
}

/// The processes inside, except this one, which may have a thread there.
fn pids_in(name: &str) -> Vec<Pid> {
    let output = Command::new("ip").args(["netns", "pids", name]).output();
    let stdout =
        output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let pids = stdout.lines().filter_map(|line| line.trim().parse().ok()).map(Pid::from_raw);
    pids.filter(|pid| *pid != nix::unistd::getpid()).collect()
}

fn signal_all(name: &str, signal: Signal) {
    for pid in pids_in(name) {
        // The process may have ended by itself.
        let _ = kill(pid, signal);
    }
}

fn prefix(label: &str) -> String {
    format!("shunt-{label}-{}-", std::process::id())
}

fn delete(name: &str) {
    if let Err(e) = Command::new("ip").args(["netns", "del", name]).output() {
        let _ = writeln!(io::stderr(), "{name} was left behind: {e}");
    }
}

/// Runs a command with this standard input; an error has its output.
fn run_with_input(command: &mut Command, input: &str) -> io::Result<()> {
    let line = format!("{command:?}");
    let mut run = || -> io::Result<Output> {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input.as_bytes())?;
        }
        child.wait_with_output()
    };
    let result = run().map_err(|e| e.to_string()).and_then(answer);
    result.map(drop).map_err(|reason| io::Error::other(format!("{line}: {reason}\n{input}")))
}

fn answer(output: Output) -> Result<String, String> {
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}: {}{}", output.status, stderr.trim_end(), stdout.trim_end()))
}
