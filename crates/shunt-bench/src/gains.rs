//! The table of README: what Shunt gains, and what it costs where it does not help.

use crate::table_cells::{four_digits, reading};
use anyhow::{Context, ensure};
use shunt_lab::{
    Reading, Results, Spread, SpreadKind,
    statistics::{ratio_of_pairs, ratio_of_samples},
};
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
        let [linux, shunt] = [reading(results, linux)?, reading(results, shunt)?];
        let name = match unit {
            Unit::Cpu => "ns of CPU per packet",
            Unit::Goodput => "Gbit/s",
            Unit::Connections => "per second",
        };
        let gain = gain(unit, ratio(shunt, linux)?);
        let [linux, shunt] = [linux, shunt].map(|reading| four_digits(reading.value));
        writeln!(text, "| {what} | {linux} {name} | {shunt} | {gain} |")?;
    }
    let (kernel, cpu) = (&results.conditions.kernel, &results.conditions.cpus.model);
    ensure!(kernel.is_some() && cpu.is_some(), "the results name no kernel or no CPU");
    let version = kernel.iter().flat_map(|release| release.split('-').next()).collect::<String>();
    let date = results.began.split('T').next().unwrap_or_default();
    let runs = reading(results, LINES[0].1)?.runs.len();
    writeln!(
        text,
        "\nConditions: Linux {version}, veth links, one CPU ({}) of a virtual machine,\nmedians of {runs} runs in turn, gains with their 95 % intervals, {date}.",
        cpu.iter().cloned().collect::<String>()
    )?;
    Ok(text)
}

/// Shunt's value divided by that of Linux alone, with its interval: by pairs of runs in turn, if each run has its
/// counterpart.
fn ratio(shunt: &Reading, linux: &Reading) -> anyhow::Result<(f64, Spread)> {
    let (shunt, linux) = (shunt.values(), linux.values());
    let ratio = ratio_of_pairs(&shunt, &linux, 1).or_else(|| ratio_of_samples(&shunt, &linux, 1));
    let (value, spread) = ratio.context("a run is 0")?;
    ensure!(spread.kind == SpreadKind::Confidence95, "too few runs for an interval of the gain");
    Ok((value, spread))
}

/// The difference in words, with its interval; none if the interval includes no difference, or less than one that
/// matters.
fn gain(unit: Unit, (ratio, Spread { low, high, .. }): (f64, Spread)) -> String {
    let is_none = (low <= 1.0 && high >= 1.0) || (ratio - 1.0).abs() < NONE;
    match unit {
        _ if is_none => "none".to_owned(),
        Unit::Cpu if ratio > 1.0 => {
            format!("none: {} more ({} to {})", percent(ratio), percent(low), percent(high))
        }
        Unit::Cpu => format!("{:.1} times less ({:.1} to {:.1})", 1.0 / ratio, 1.0 / high, 1.0 / low),
        Unit::Goodput | Unit::Connections => {
            format!("{ratio:.2} times as much ({low:.2} to {high:.2})")
        }
    }
}

fn percent(ratio: f64) -> String {
    format!("{:.0} %", (ratio - 1.0) * 100.0)
}

/// How much more time packets of the slow path take with Shunt up.
pub fn slow_path_time(results: &Results) -> anyhow::Result<String> {
    let (more, _) = ratio(reading(results, "idle: idle")?, reading(results, "idle: slow")?)?;
    Ok(percent(more))
}
