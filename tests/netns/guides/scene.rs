//! The machines of a guide: a router with bare links `lan0` and `wan0`, and a host at each.

use crate::{
    likeness::missing,
    page::{Host, Page, Step},
};
use shunt_testkit::{NetNs, Process, Shunt, wait_for, wait_until};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};
use tempfile::TempDir;

/// Time limit for one command to print what the guide shows. A reader, too, would look again.
const PATIENCE: Duration = Duration::from_secs(60);

/// The router has files of its own below /etc, /run/shunt and /var/lib/shunt, so a guide may use the default instance
/// and its configuration.
const ROUTER: &str = r#"
set -e
cp -a /etc "$0/etc" && mount --bind "$0/etc" /etc
mkdir -p /run/shunt "$0/run" && mount --bind "$0/run" /run/shunt
mkdir -p /var/lib/shunt "$0/state" && mount --bind "$0/state" /var/lib/shunt
rm -rf /etc/shunt && mkdir /etc/shunt
mount -t tmpfs none /run/netns
touch "$0/ready"
exec sleep infinity
"#;

/// Three machines, for one guide.
pub struct Scene {
    router: NetNs,
    lan: NetNs,
    wan: NetNs,
    directory: TempDir,
    /// Holds the router's mounts.
    holder: Option<Process>,
}

impl Scene {
    /// The router has no address, no rules, and does not forward. The hosts have addresses; the one in the LAN uses
    /// 192.168.1.1 as its gateway.
    pub fn new() -> Self {
        let [router, lan, wan] = ["router", "lan", "wan"].map(NetNs::new);
        for (host, port) in [(&lan, "lan0"), (&wan, "wan0")] {
            let (router, host) = (router.name(), host.name());
            let link = format!("ip link add {port} netns {router} type veth peer name eth0 netns {host}");
            assert!(Command::new("sh").args(["-c", &link]).status().unwrap().success(), "{link}");
        }
        lan.run("ip address add 192.168.1.2/24 dev eth0 && ip link set eth0 up && ip route add default via 192.168.1.1");
        // Then a veth takes XDP frames, as a NIC does, and the engine depends on qdiscs and traffic.
        for host in [&lan, &wan] {
            host.run("ethtool -K eth0 gro on");
        }
        wan.run("ip address add 198.51.100.1/24 dev eth0 && ip link set eth0 up");
        let directory = tempfile::tempdir().unwrap();
        let mut holder = router.command("bash");
        holder.args(["-c", ROUTER, &directory.path().to_string_lossy()]);
        let holder = Some(Process::start(holder));
        let ready = directory.path().join("ready");
        wait_until("the router has its directories", || ready.exists());
        Self { router, lan, wan, directory, holder }
    }

    /// Runs commands on the router that the guide takes for granted.
    pub fn prepare(&self, script: &str) {
        let (done, printed) = self.run(Host::Router, &format!("set -e; {script}"));
        assert!(done, "{script}: {printed}");
    }

    /// Whether commands succeed on the router.
    pub fn has(&self, script: &str) -> bool {
        self.run(Host::Router, script).0
    }

    /// Writes the files and runs the commands of a page; the page is wrong if one fails or does not print what the page
    /// shows.
    pub fn follow(&self, name: &str, page: &Page) {
        let mut commands = 0;
        for step in &page.steps {
            match step {
                Step::File { path, text, .. } => self.write(path, text),
                Step::Command { line, host, command, output } => {
                    commands += 1;
                    self.check(&format!("docs/guide/{name}:{line}: `{command}`"), *host, command, output);
                }
            }
        }
        assert!(commands > 2, "docs/guide/{name}: only {commands} commands run");
        page.not_run.iter().for_each(|why| println!("docs/guide/{name}: a block is not run: {why}"));
    }

    fn check(&self, what: &str, host: Host, command: &str, shown: &[String]) {
        let mut first = None;
        let right = wait_for(PATIENCE, || {
            let (done, printed) = self.run(host, command);
            let problem = match missing(shown, &printed) {
                _ if !done => Some(format!("it failed:\n{printed}")),
                Some(line) => Some(format!("it did not print `{line}`, but:\n{printed}")),
                None => None,
            };
            let is_right = problem.is_none();
            first = first.take().or(problem);
            is_right.then_some(())
        });
        assert!(right.is_some(), "{what}: {}", first.unwrap_or_default());
        if command.contains("iperf3 -s") {
            wait_until("iperf3 listens", || self.run(host, "ss -Htln sport = :5201").1.contains("5201"));
        }
    }

    fn write(&self, path: &Path, text: &str) {
        let source = self.directory.path().join("file");
        fs::write(&source, text).unwrap();
        self.prepare(&format!("mkdir -p $(dirname {1}) && cp {0} {1}", source.display(), path.display()));
    }

    /// Whether the command succeeded, and what it printed on both outputs.
    fn run(&self, host: Host, command: &str) -> (bool, String) {
        let output = self.directory.path().join("output");
        let file = fs::File::create(&output).unwrap();
        let mut shell = match host {
            Host::Lan => self.lan.command("bash"),
            Host::Wan => self.wan.command("bash"),
            Host::Router => {
                let mut enter = Command::new("nsenter");
                let holder = self.holder.as_ref().unwrap().pid();
                enter.args(["--mount", "--net", "--target", &holder.to_string(), "bash"]);
                enter
            }
        };
        shell.args(["-c", command]).current_dir(self.directory.path()).env("PATH", path());
        shell.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        let status = shell.status().unwrap();
        (status.success(), fs::read_to_string(&output).unwrap())
    }
}

/// The program under test comes first; it finds the daemon next to itself, or by the variable SHUNTD.
fn path() -> String {
    let program = PathBuf::from(Shunt::program());
    let directory = program.parent().unwrap_or(Path::new(".")).display();
    format!("{directory}:{}", env::var("PATH").unwrap_or_default())
}

impl Drop for Scene {
    fn drop(&mut self) {
        // Servers and daemons that the guide started would outlive the namespaces.
        for netns in [&self.lan, &self.wan, &self.router] {
            let kill = format!("ip netns pids {} | xargs -r kill", netns.name());
            let _ = Command::new("sh").args(["-c", &kill]).status();
        }
        drop(self.holder.take());
    }
}
