//! iperf3 between two namespaces, and what its JSON says.

mod said;

use crate::{
    net::{NetNs, Process, wait_for},
    traffic::Error,
};
pub use said::{Arrived, Datagrams};
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
/// The first one whose JSON tells what arrived of UDP apart from what was sent.
const OLDEST: (u32, u32) = (3, 11);
/// Port of the server.
const PORT: u16 = 5201;
/// Buffers of TCP at a set rate.
const PER_S: u64 = 1000;
/// For a server that is to listen.
const LISTENS: Duration = Duration::from_secs(10);
/// For connecting, and for exchanging results at the end, beside the time of the test itself.
const GRACE: Duration = Duration::from_secs(10);

/// From when until when data flows, in shares of the time: it begins with connecting.
const DATA_FLOWS: [f64; 2] = [0.15, 0.95];

/// One that is installed, and whose JSON is understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Iperf {
    version: String,
}

/// One test.
#[derive(Debug, Clone, Copy)]
pub struct Test<'h> {
    /// Connects.
    pub client: &'h NetNs,
    /// Is connected to.
    pub server: &'h NetNs,
    /// Its address.
    pub to: IpAddr,
    /// What is sent.
    pub load: Load,
    /// Which way.
    pub direction: Direction,
    /// How much payload is offered, in bit/s of each way; none: as much as the sender can.
    pub rate_bps: Option<u64>,
    /// How long. iperf3 knows whole seconds only.
    pub seconds: u32,
}

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// One TCP stream each way.
    Tcp,
    /// Datagrams of this many bytes.
    Udp(u32),
}

/// Where data goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// From the client to the server.
    Forward,
    /// From the server to the client (`-R`).
    Reverse,
    /// Both ways at once (`--bidir`).
    Duplex,
}

/// One way of a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// From the client to the server.
    Forward,
    /// From the server to the client.
    Reverse,
}

impl Iperf {
    /// The one that is installed.
    ///
    /// # Errors
    /// When there is none, or one whose JSON is not understood.
    pub fn find() -> Result<Self, Error> {
        let output = Command::new(PROGRAM).arg("--version").stdin(Stdio::null()).output().map_err(|e| {
            Error::Asked(match e.kind() {
                io::ErrorKind::NotFound => {
                    format!("{PROGRAM} is not installed, and does the sending; `apt install {PROGRAM}`")
                }
                _ => format!("{PROGRAM}: {e}"),
            })
        })?;
        Self::of(&String::from_utf8_lossy(&output.stdout))
    }

    fn of(said: &str) -> Result<Self, Error> {
        let first = said.lines().next().unwrap_or_default();
        let version = first.strip_prefix("iperf ").and_then(|rest| rest.split_whitespace().next());
        let numbers = version.and_then(|version| {
            let mut numbers = version.split('.').map(|number| number.trim_end_matches('+').parse().ok());
            Some((numbers.next()??, numbers.next()??))
        });
        let (oldest, wanted) = (OLDEST.1, "is needed, whose JSON tells what arrived");
        match (version, numbers) {
            (Some(version), Some(numbers)) if numbers.0 == OLDEST.0 && numbers >= OLDEST => {
                Ok(Self { version: version.to_owned() })
            }
            (Some(version), Some(_)) => Err(Error::Asked(format!(
                "{PROGRAM} is of version {version}, and one of 3.{oldest} or later {wanted}"
            ))),
            _ => Err(Error::Asked(format!(
                "{PROGRAM} --version says `{}`, and an iperf 3.{oldest} or later {wanted}",
                said::shortened(first)
            ))),
        }
    }

    /// As it names itself.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Runs one test: what arrived each way, in the order of [`Direction::ways`]. None when `stop` was set meanwhile. `look` is
    /// called twice while data flows, if it flows for so long.
    ///
    /// # Errors
    /// When it fails, does not end in time, or says what is not understood. Nothing of it is left running.
    pub fn run(
        &self,
        test: &Test<'_>,
        stop: &AtomicBool,
        look: &mut dyn FnMut(),
    ) -> Result<Option<Vec<Arrived>>, Error> {
        let directory = tempfile::tempdir()?;
        let to = test.to;
        let _server = test.listen(stop)?;
        let mut client = test.connect(&directory)?;
        let time = Duration::from_secs(u64::from(test.seconds));
        let (began, mut looks) = (Instant::now(), DATA_FLOWS.iter().peekable());
        let patience = time + GRACE;
        let ended = wait_for(patience, || {
            if looks.next_if(|share| began.elapsed() >= time.mul_f64(**share)).is_some() {
                look();
            }
            match stop.load(Ordering::Relaxed) {
                true => Some(None),
                false => client.ended().map(Some),
            }
        });
        match ended {
            Some(Some(status)) => {
                let said = fs::read_to_string(directory.path().join("out"))?;
                let complaint = fs::read_to_string(directory.path().join("err"))?;
                self.understand(&said, &complaint, status, test).map(Some)
            }
            Some(None) => Ok(None),
            None => Err(Error::Machine(format!(
                "{PROGRAM} to {to} did not end within {} s and was ended",
                patience.as_secs()
            ))),
        }
    }

    fn understand(
        &self,
        said: &str,
        complaint: &str,
        status: ExitStatus,
        test: &Test<'_>,
    ) -> Result<Vec<Arrived>, Error> {
        said::understand(said, test.direction).map_err(|why| {
            let complaint = complaint.trim();
            let complaint =
                if complaint.is_empty() { String::new() } else { format!("; it complained: {complaint}") };
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
                "{PROGRAM} as a server at {to} does not listen after {} s",
                LISTENS.as_secs()
            ))),
        }
    }

    fn connect(&self, directory: &TempDir) -> Result<Process, Error> {
        let mut command = in_background(self.client);
        // Without reports in between, which would be most of the JSON.
        command.args(["--json", "--interval", "0", "--port", &PORT.to_string(), "--client"]);
        command.arg(self.to.to_string());
        // iperf3 offers 1 Mbit/s of UDP unless it is told otherwise; 0 is all that it can.
        command.args(["--time", &self.seconds.to_string()]);
        command.args(["--bitrate", &self.rate_bps.unwrap_or(0).to_string()]);
        match (self.load, self.rate_bps) {
            (Load::Udp(bytes), _) => command.args(["--udp", "--length", &bytes.to_string()]),
            // It sends whole buffers, of 128 kB unless told otherwise, which at a low rate are bursts.
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

/// Somebody does at the port, in the namespace of this thread.
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

/// Ctrl-C is for us, and not for it as well.
fn in_background(host: &NetNs) -> Command {
    let mut command = host.command(PROGRAM);
    command.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    command
}

impl Direction {
    /// One or two.
    pub const fn ways(self) -> &'static [Way] {
        match self {
            Self::Forward => &[Way::Forward],
            Self::Reverse => &[Way::Reverse],
            Self::Duplex => &[Way::Forward, Way::Reverse],
        }
    }

    /// `forward`, `reverse`, `duplex`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Reverse => "reverse",
            Self::Duplex => "duplex",
        }
    }
}

#[cfg(test)]
mod tests;
