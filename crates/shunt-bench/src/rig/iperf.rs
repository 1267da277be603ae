//! iperf3 between the hosts of a topology, with the result in packets as well.

use anyhow::Context;
use serde::Serialize;
use shunt_lab::iperf::{Direction, Iperf, Load, Test};
use shunt_testkit::{Host, NetNs};
use std::{sync::atomic::AtomicBool, time::Duration};

/// The data that a router forwarded in a test.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Arrived {
    /// Goodput in bit/s. Includes datagrams that the receiving socket dropped for lack of room: the router has
    /// forwarded them.
    pub bits_per_second: f64,
    /// Datagrams, or TCP segments of a full MTU, per second.
    pub packets_per_second: f64,
    /// Duration in seconds.
    pub seconds: f64,
}

/// TCP payload of a full segment with timestamps.
const SEGMENT_BYTES: f64 = 1448.0;

/// Runs one test from `client` to the IPv4 or IPv6 address of `server`, as fast as the sender can.
pub fn run(
    client: &Host,
    server: &Host,
    v6: bool,
    load: Load,
    streams: u32,
    duration: Duration,
) -> anyhow::Result<Arrived> {
    let seconds = duration.as_secs_f64().ceil() as u32;
    let to = if v6 { server.v6.into() } else { server.v4.into() };
    let received = || received_packets(&server.ns, server.nic);
    let (client, server) = (&client.ns, &server.ns);
    let direction = Direction::Forward;
    let test = Test { client, server, to, load, streams, direction, rate_bps: None, seconds };
    let before = received()?;
    let arrived = Iperf::find()?.run(&test, &AtomicBool::new(false), &mut |_| {})?;
    let arrived = arrived.and_then(|ways| ways.first().copied()).context("iperf3 was stopped")?;
    let packets = received()? - before;
    let seconds = arrived.seconds;
    let (bits_per_second, packets_per_second) = match load {
        Load::Tcp | Load::TcpWrites(_) => {
            (arrived.bits_per_second, arrived.bits_per_second / 8.0 / SEGMENT_BYTES)
        }
        Load::Udp(bytes) => (packets as f64 * 8.0 * f64::from(bytes) / seconds, packets as f64 / seconds),
    };
    Ok(Arrived { bits_per_second, packets_per_second, seconds })
}

/// Number of packets that a device has received.
pub fn received_packets(ns: &NetNs, ifname: &str) -> anyhow::Result<u64> {
    let text = ns.try_run(&format!("cat /sys/class/net/{ifname}/statistics/rx_packets"))?;
    text.trim().parse().with_context(|| format!("rx_packets of {ifname}: `{text}`"))
}
