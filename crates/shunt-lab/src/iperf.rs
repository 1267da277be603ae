//! iperf3 between two namespaces, and its JSON.

mod output;

pub use crate::labels::{Direction, FlowDirection};
use crate::{
    net::{NetNs, Process, wait_for},
    traffic::Error,
};
pub use output::{Arrived, Datagrams};
use serde::Serialize;
use std::{
    fs::{self, File},
    io,
    net::IpAddr,
    os::unix::process::CommandExt,
    process::{Command, ExitStatus, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};
use tempfile::TempDir;

const PROGRAM: &str = "iperf3";
/// The oldest version whose JSON has the received UDP data apart from the sent data.
const OLDEST: (u32, u32) = (3, 11);
/// Port of the server.
const PORT: u16 = 5201;
/// Buffers per second of TCP at a limited rate.
const PER_S: u64 = 1000;
/// Time limit for the server to listen.
const LISTENS: Duration = Duration::from_secs(10);
/// Time for connecting and for exchanging results, beside the duration of the test.
const GRACE: Duration = Duration::from_secs(10);

/// Data flows between these shares of the test's duration; connecting comes first.
const DATA_FLOWS: [f64; 2] = [0.15, 0.95];

/// The installed iperf3, whose version is supported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Iperf {
    version: String,
}

/// A test.
#[derive(Debug, Clone, Copy)]
pub struct Test<'h> {
    /// The host that connects.
    pub client: &'h NetNs,
    /// The host that listens.
    pub server: &'h NetNs,
    /// Address of the server.
    pub to: IpAddr,
    /// Protocol and datagram size.
    pub load: Load,
    /// Number of streams at the same time.
    pub streams: u32,
    /// Direction of the data.
    pub direction: Direction,
    /// Offered payload in bit/s in each direction; None for as much as the sender can.
    pub rate_bps: Option<u64>,
    /// Duration in seconds; iperf3 takes whole seconds only.
    pub seconds: u32,
}

/// The traffic of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// One TCP stream in each direction.
    Tcp,
    /// As `Tcp`, by writes of this many bytes.
    TcpWrites(u32),
    /// UDP datagrams of this many bytes.
    Udp(u32),
}

impl Iperf {
    /// Finds the installed iperf3.
    ///
    /// # Errors
    /// Fails if iperf3 is not installed or is too old.
    pub fn find() -> Result<Self, Error> {
        let output = Command::new(PROGRAM).arg("--version").stdin(Stdio::null()).output().map_err(|e| {
            Error::Asked(match e.kind() {
                io::ErrorKind::NotFound => {
                    format!("{PROGRAM} is not installed, but needed to send; `apt install {PROGRAM}`")
                }
                _ => format!("{PROGRAM}: {e}"),
            })
        })?;
        Self::parse_version(&String::from_utf8_lossy(&output.stdout))
    }

    fn parse_version(stdout: &str) -> Result<Self, Error> {
        let first = stdout.lines().next().unwrap_or_default();
        let version = first.strip_prefix("iperf ").and_then(|rest| rest.split_whitespace().next());
        let numbers = version.and_then(|version| {
            let mut numbers = version.split('.').map(|number| number.trim_end_matches('+').parse().ok());
            Some((numbers.next()??, numbers.next()??))
        });
        let (oldest, wanted) = (OLDEST.1, "is needed, since older versions do not report received data");
        match (version, numbers) {
            (Some(version), Some(numbers)) if numbers.0 == OLDEST.0 && numbers >= OLDEST => {
                Ok(Self { version: version.to_owned() })
            }
            (Some(version), Some(_)) => {
                Err(Error::Asked(format!("{PROGRAM} has version {version}; 3.{oldest} or later {wanted}")))
            }
            _ => Err(Error::Asked(format!(
                "{PROGRAM} --version prints `{}`; iperf 3.{oldest} or later {wanted}",
                output::shortened(first)
            ))),
        }
    }

    /// The version, as iperf3 prints it.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Runs a test, and returns the result of each way in the order of [`Direction::ways`]; None if `stop` was set
    /// meanwhile. Calls `look` twice while data flows, if it flows long enough, with the time since the client started.
    ///
    /// # Errors
    /// Fails if iperf3 fails, does not end in time, or prints something unexpected. No process is left running.
    pub fn run(
        &self,
        test: &Test<'_>,
        stop: &AtomicBool,
        look: &mut dyn FnMut(Duration),
    ) -> Result<Option<Vec<Arrived>>, Error> {
        let directory = tempfile::tempdir()?;
        let to = test.to;
        let _server = test.listen(stop)?;
        let mut client = test.connect(&directory)?;
        let time = Duration::from_secs(u64::from(test.seconds));
        let (began, mut looks) = (Instant::now(), DATA_FLOWS.iter().peekable());
        let patience = time + GRACE;
        let ended = wait_for(patience, || {
            let since = began.elapsed();
            if looks.next_if(|share| since >= time.mul_f64(**share)).is_some() {
                look(since);
            }
            match stop.load(Ordering::Relaxed) {
                true => Some(None),
                false => client.ended().map(Some),
            }
        });
        match ended {
            Some(Some(status)) => {
                let stdout = fs::read_to_string(directory.path().join("out"))?;
                let complaint = fs::read_to_string(directory.path().join("err"))?;
                self.parse(&stdout, &complaint, status, test).map(Some)
            }
            Some(None) => Ok(None),
            None => Err(Error::Machine(format!(
                "{PROGRAM} to {to} did not end within {} s and was killed",
                patience.as_secs()
            ))),
        }
    }

    fn parse(
        &self,
        stdout: &str,
        complaint: &str,
        status: ExitStatus,
        test: &Test<'_>,
    ) -> Result<Vec<Arrived>, Error> {
        output::parse(stdout, test.direction).map_err(|why| {
            let complaint = complaint.trim();
            let complaint =
                if complaint.is_empty() { String::new() } else { format!("; stderr: {complaint}") };
            let status = if status.success() { String::new() } else { format!(" ({status})") };
            Error::Machine(format!("{PROGRAM} {}{status}: {why}{complaint}", self.version))
        })
    }
}

impl Test<'_> {
    fn listen(&self, stop: &AtomicBool) -> Result<Process, Error> {
        let to = self.to;
        let mut command = in_background(self.server);
        command.args(["--server", "--one-off", "--bind", &to.to_string(), "--port", &PORT.to_string()]);
        let mut server = Process::try_start(command)?;
        let listening = || self.server.within(is_listening);
        let settled = wait_for(LISTENS, || {
            (listening() || stop.load(Ordering::Relaxed) || server.ended().is_some()).then_some(())
        });
        match (settled, server.ended()) {
            (Some(()), None) => Ok(server),
            (_, Some(status)) => Err(Error::Machine(format!("{PROGRAM} as a server at {to}: {status}"))),
            (None, None) => Err(Error::Machine(format!(
                "{PROGRAM} as a server does not listen at {to} after {} s",
                LISTENS.as_secs()
            ))),
        }
    }

    fn connect(&self, directory: &TempDir) -> Result<Process, Error> {
        let mut command = in_background(self.client);
        // No interval reports, which would be most of the JSON.
        command.args(["--json", "--interval", "0", "--port", &PORT.to_string(), "--client"]);
        command.arg(self.to.to_string());
        // By default iperf3 offers 1 Mbit/s of UDP; 0 stands for no limit.
        command.args(["--time", &self.seconds.to_string(), "--parallel", &self.streams.to_string()]);
        command.args(["--bitrate", &self.rate_bps.unwrap_or(0).to_string()]);
        match (self.load, self.rate_bps) {
            (Load::Udp(bytes), _) => command.args(["--udp", "--length", &bytes.to_string()]),
            (Load::TcpWrites(bytes), _) => command.args(["--length", &bytes.to_string()]),
            // iperf3 sends whole buffers, of 128 kB by default, which are bursts at a low rate.
            (Load::Tcp, Some(rate)) => {
                let bytes = (rate / 8 / PER_S).clamp(1000, 128 << 10);
                command.args(["--length", &bytes.to_string()])
            }
            (Load::Tcp, None) => &mut command,
        };
        match self.direction {
            Direction::Forward => &mut command,
            Direction::Reverse => command.arg("--reverse"),
            Direction::Duplex => command.arg("--bidir"),
        };
        let file = |name: &str| File::create(directory.path().join(name));
        command.stdout(file("out")?).stderr(file("err")?);
        Ok(Process::try_start(command)?)
    }
}

/// Whether a process listens on the port in this thread's namespace.
fn is_listening() -> bool {
    const LISTEN: &str = "0A";
    let port = format!(":{PORT:04X}");
    let has = |table: String| {
        table.lines().any(|line| {
            let mut words = line.split_whitespace();
            words.nth(1).is_some_and(|local| local.ends_with(&port)) && words.nth(1) == Some(LISTEN)
        })
    };
    ["tcp", "tcp6"]
        .iter()
        .any(|name| fs::read_to_string(format!("/proc/thread-self/net/{name}")).is_ok_and(has))
}

/// iperf3 must not receive Ctrl-C from the terminal: this process handles it.
fn in_background(host: &NetNs) -> Command {
    let mut command = host.command(PROGRAM);
    command.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    command
}

#[cfg(test)]
mod tests;
