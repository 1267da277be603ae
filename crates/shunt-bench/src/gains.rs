//! The table of README: what Shunt gains, and what it costs where it does not help.

use crate::table_cells::{four_digits, reading};
use anyhow::ensure;
use shunt_lab::Results;
use std::fmt::Write;

/// Unit of a line. Less CPU time is better; more goodput and more connections are.
#[derive(Clone, Copy)]
enum Unit {
    Cpu,
    Goodput,
    Connections,
}

/// Description, reading of Linux alone, reading of Shunt, and unit.
const LINES: [(&str, &str, &str, Unit); 7] = [
    ("UDP, 64 bytes, 1,000 flows, engine xdp", "packets: slow", "packets: xdp", Unit::Cpu),
    ("the same, engine tc", "packets: slow", "packets: tc", Unit::Cpu),
    ("UDP, 64 bytes, 100,000 flows in turn, engine xdp", "packets: slow", "flows: 100000", Unit::Cpu),
    ("the same, in random order", "packets: slow", "flows: 100000-shuffled", Unit::Cpu),
    ("one TCP stream with offloads, engine tc", "tcp: slow", "tcp: tc", Unit::Goodput),
    ("new TCP connections", "connections: slow", "connections: tc", Unit::Connections),
    ("packets that stay slow although Shunt is up", "idle: slow", "idle: idle", Unit::Cpu),
];
/// Differences below this share are none.
const NONE: f64 = 0.02;

pub fn gains(results: &Results) -> anyhow::Result<String> {
    let mut text = "| traffic through a router with NAT and ten rules | Linux alone | Shunt | gain |\n\
        | --- | --- | --- | --- |\n"
        .to_owned();
    for (what, linux, shunt, unit) in LINES {
        let [linux, shunt] = [reading(results, linux)?.value, reading(results, shunt)?.value];
        let name = match unit {
            Unit::Cpu => "ns of CPU per packet",
            Unit::Goodput => "Gbit/s",
            Unit::Connections => "per second",
        };
        let gain = gain(unit, linux, shunt);
        writeln!(text, "| {what} | {} {name} | {} | {gain} |", four_digits(linux), four_digits(shunt))?;
    }
    let (kernel, cpu) = (&results.conditions.kernel, &results.conditions.cpus.model);
    ensure!(kernel.is_some() && cpu.is_some(), "the results name no kernel or no CPU");
    let version = kernel.iter().flat_map(|release| release.split('-').next()).collect::<String>();
    let date = results.began.split('T').next().unwrap_or_default();
    let runs = reading(results, LINES[0].1)?.runs.len();
    writeln!(
        text,
        "\nConditions: Linux {version}, veth links, one CPU ({}) of a virtual machine,\nmedians of {runs} runs in turn, {date}.",
        cpu.iter().cloned().collect::<String>()
    )?;
    Ok(text)
}

/// The difference of two medians in words, so that the columns of a line agree.
fn gain(unit: Unit, linux: f64, shunt: f64) -> String {
    let ratio = shunt / linux;
    match unit {
        _ if (ratio - 1.0).abs() < NONE => "none".to_owned(),
        Unit::Cpu if ratio > 1.0 => format!("none: {} more", percent(ratio)),
        Unit::Cpu => format!("{:.1} times less", 1.0 / ratio),
        Unit::Goodput | Unit::Connections => format!("{ratio:.2} times as much"),
    }
}

fn percent(ratio: f64) -> String {
    format!("{:.0} %", (ratio - 1.0) * 100.0)
}

/// How much more time packets of the slow path take with Shunt up.
pub fn slow_path_time(results: &Results) -> anyhow::Result<String> {
    Ok(percent(reading(results, "idle: idle")?.value / reading(results, "idle: slow")?.value))
}
