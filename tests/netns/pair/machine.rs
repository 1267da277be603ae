//! A router with directories of its own, for daemons of the distribution with their usual paths.

use shunt_testkit::{NetNs, Process, wait_until};
use std::{
    fs::{self, File, OpenOptions},
    path::{Path, PathBuf},
    process::Command,
    time::SystemTime,
};
use tempfile::TempDir;

/// What daemons write to, and where they read their configuration. Nothing of it stays.
const MOUNTS: &str = r#"
set -e
for directory in /run /var/tmp /var/log /etc/keepalived /etc/conntrackd /etc/frr /var/lib/frr; do
    test ! -d $directory || mount -t tmpfs none $directory
done
mkdir /run/lock
if getent passwd frr > /dev/null; then
    mkdir /run/frr /var/tmp/frr && chown frr:frr /run/frr /var/tmp/frr
fi
touch "$0/ready"
exec sleep infinity
"#;

/// A network namespace whose processes see their own /run, /var/log, and configuration files. They end with it.
pub struct Machine {
    holder: Process,
    directory: TempDir,
    pub ns: NetNs,
}

impl Machine {
    pub fn new(label: &str) -> Self {
        let ns = NetNs::new(label);
        let directory = tempfile::tempdir().unwrap();
        let mut command = ns.command("bash");
        command.args(["-c", MOUNTS, &directory.path().to_string_lossy()]);
        command.stderr(File::create(directory.path().join("log")).unwrap());
        let holder = Process::start(command);
        let machine = Self { holder, directory, ns };
        wait_until("the machine has its directories", || machine.directory.path().join("ready").exists());
        machine
    }

    /// Turns forwarding on.
    pub fn router(label: &str) -> Self {
        let machine = Self::new(label);
        machine.ns.sysctl("ipv4/ip_forward", 1);
        machine
    }

    /// Writes a file where only processes of this machine see it.
    pub fn write(&self, path: &str, text: &str, mode: u32) {
        let source = self.directory.path().join("file");
        fs::write(&source, text).unwrap();
        self.run(&format!("cp {} {path} && chmod {mode:o} {path}", source.display()));
    }

    /// Runs a shell script, which must succeed, and returns its standard output.
    pub fn run(&self, script: &str) -> String {
        let output = self.enter("sh").args(["-c", script]).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{}: `{script}`: {out}{err}\n{}", self.ns.name(), self.log());
        out
    }

    /// Starts a program, whose output goes to the machine's log. Words are split at blanks.
    pub fn start(&self, line: &str) -> Process {
        let mut words = line.split_whitespace();
        let mut command = self.enter(words.next().unwrap());
        let log = OpenOptions::new().append(true).open(self.log_path()).unwrap();
        command.args(words).stdout(log.try_clone().unwrap()).stderr(log);
        Process::start(command)
    }

    /// Output of the programs so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// When a file was written last; `None` if there is none.
    pub fn written(&self, path: &str) -> Option<SystemTime> {
        let path = format!("/proc/{}/root{path}", self.holder.pid());
        fs::metadata(Path::new(&path)).and_then(|file| file.modified()).ok()
    }

    fn log_path(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    /// A command in the namespaces of the machine.
    fn enter(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--net", "--target", &self.holder.pid().to_string(), program]);
        command
    }
}
