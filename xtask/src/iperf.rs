//! iperf3 between the hosts of a topology.

use anyhow::{Context, bail};
use serde::Serialize;
use serde_json::Value;
use shunt_testkit::{Host, wait_until};
use std::{net::IpAddr, process::Stdio, time::Duration};

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Load {
    /// One TCP stream.
    Tcp,
    /// Datagrams of this many bytes, as fast as the sender can.
    Udp(u16),
}

/// What arrived.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Arrived {
    /// Goodput.
    pub bits_per_second: f64,
    /// Datagrams per second, or segments of a full MTU.
    pub packets_per_second: f64,
    /// Over how long.
    pub seconds: f64,
}

/// Port of the server.
const PORT: u16 = 5201;
/// TCP payload of a full segment, timestamps on.
const SEGMENT_BYTES: f64 = 1448.0;

/// Runs one test from `client` to `server`, to its IPv4 or IPv6 address.
pub fn run(
    client: &Host,
    server: &Host,
    v6: bool,
    load: Load,
    duration: Duration,
) -> anyhow::Result<Arrived> {
    let to: IpAddr = if v6 { server.v6.into() } else { server.v4.into() };
    let _server = server.ns.spawn(&format!("iperf3 --server --one-off --bind {to} --port {PORT}"));
    wait_until("iperf3 listens", || {
        server.ns.try_run(&format!("ss -Hltn sport = :{PORT}")).is_ok_and(|said| !said.trim().is_empty())
    });
    let seconds = duration.as_secs_f64();
    let mut command = client.ns.command("iperf3");
    command.args(["--json", "--port", &PORT.to_string(), "--client", &to.to_string()]);
    command.args(["--time", &format!("{}", seconds.ceil())]);
    if let Load::Udp(bytes) = load {
        command.args(["--udp", "--bitrate", "0", "--length", &bytes.to_string()]);
    }
    let output = command.stdin(Stdio::null()).output().context("iperf3")?;
    let said: Value = serde_json::from_slice(&output.stdout).context("iperf3 --json")?;
    if let Some(error) = said.get("error").and_then(Value::as_str) {
        bail!("iperf3 to {to}: {error}");
    }
    let number = |pointer: &str| said.pointer(pointer).and_then(Value::as_f64);
    let missing = || format!("iperf3 to {to}: no result");
    match load {
        Load::Tcp => {
            let rate = number("/end/sum_received/bits_per_second").with_context(missing)?;
            let seconds = number("/end/sum_received/seconds").with_context(missing)?;
            Ok(Arrived { bits_per_second: rate, packets_per_second: rate / 8.0 / SEGMENT_BYTES, seconds })
        }
        Load::Udp(bytes) => {
            // `sum` counts what was sent; what was lost on the way is counted by the server.
            let sent = number("/end/sum/packets").with_context(missing)?;
            let lost = number("/end/sum/lost_packets").with_context(missing)?;
            let seconds = number("/end/sum/seconds").with_context(missing)?;
            let rate = (sent - lost) / seconds;
            Ok(Arrived { bits_per_second: rate * 8.0 * f64::from(bytes), packets_per_second: rate, seconds })
        }
    }
}
