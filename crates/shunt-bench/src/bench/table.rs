//! The table of the bench's ratios.

use super::TARGETS;
use crate::table_cells::{bound, four_digits, reading};
use shunt_lab::Results;
use std::fmt::Write;

/// Description, ratio, numerator, denominator and unit of each line.
const LINES: [(&str, &str, &str, &str, &str); 16] = [
    ("xdp engine against the slow path", "cpu_xdp_vs_slow", "packets: xdp", "packets: slow", "ns"),
    ("tc engine against the slow path", "cpu_tc_vs_slow", "packets: tc", "packets: slow", "ns"),
    ("xdp engine against a bare redirect", "cpu_xdp_vs_bare_redirect", "packets: xdp", "packets: bare", "ns"),
    (
        "xdp, 100,000 flows in turn against 1,000",
        "cpu_100k_vs_1k_flows",
        "flows: 100000",
        "flows: 1000",
        "ns",
    ),
    (
        "xdp, 100,000 shuffled flows against 1,000",
        "cpu_100k_shuffled_vs_1k_flows",
        "flows: 100000-shuffled",
        "flows: 1000",
        "ns",
    ),
    (
        "slow path with Shunt up and nothing learned, against without Shunt",
        "slow_path_cpu_with_vs_without",
        "idle: idle",
        "idle: slow",
        "ns",
    ),
    (
        "the same with programs that return at once in place of Shunt's",
        "slow_path_cpu_hooks_vs_without",
        "idle: hooks",
        "idle: slow",
        "ns",
    ),
    (
        "bridged: xdp engine against Linux's bridge",
        "bridged_cpu_xdp_vs_slow",
        "bridged: xdp",
        "bridged: slow",
        "ns",
    ),
    (
        "bridged: tc engine against Linux's bridge",
        "bridged_cpu_tc_vs_slow",
        "bridged: tc",
        "bridged: slow",
        "ns",
    ),
    (
        "new TCP connections per second, with Shunt against without",
        "new_connections_with_vs_without",
        "connections: tc",
        "connections: slow",
        "per second",
    ),
    (
        "the same per second of router CPU, shuntd's included",
        "new_connections_per_router_cpu_with_vs_without",
        "connections per router CPU: tc",
        "connections per router CPU: slow",
        "per second",
    ),
    (
        "the same with programs that return at once and a listener in place of Shunt",
        "new_connections_per_router_cpu_listener_vs_without",
        "connections per router CPU: listener",
        "connections per router CPU: slow",
        "per second",
    ),
    ("TCP goodput, tc engine, all offloads on", "tcp_goodput_tc_vs_slow", "tcp: tc", "tcp: slow", "Gbit/s"),
    ("the same by iperf3", "tcp_goodput_tc_vs_slow_iperf3", "tcp-iperf3: tc", "tcp-iperf3: slow", "Gbit/s"),
    (
        "the same by iperf3, with frames of the MTU from the hosts",
        "tcp_goodput_tc_vs_slow_mtu_frames",
        "tcp-mtu: tc",
        "tcp-mtu: slow",
        "Gbit/s",
    ),
    (
        "the same with a tc program that redirects without reading, in place of Shunt",
        "tcp_goodput_bare_tc_vs_slow_mtu_frames",
        "tcp-mtu: bare-tc",
        "tcp-mtu: slow",
        "Gbit/s",
    ),
];

pub fn ratios(results: &Results) -> anyhow::Result<String> {
    let mut text = "| what | ratio (range) | medians | target |\n| --- | --- | --- | --- |\n".to_owned();
    for (what, name, of, to, unit) in LINES {
        let pairs = reading(results, of)?.runs.iter().zip(&reading(results, to)?.runs);
        let ratios: Vec<f64> = pairs.map(|(of, to)| of.value / to.value).collect();
        let low = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let high = ratios.iter().copied().fold(0.0, f64::max);
        let [of, to] = [reading(results, of)?, reading(results, to)?].map(|side| four_digits(side.value));
        let value = reading(results, name)?.value;
        let target = TARGETS.iter().find(|(target, _)| *target == name);
        let target = target.map_or(String::new(), |(_, target)| bound(*target, value));
        writeln!(text, "| {what} | {value:.3} ({low:.3} to {high:.3}) | {of} / {to} {unit} | {target} |")?;
    }
    Ok(text)
}
