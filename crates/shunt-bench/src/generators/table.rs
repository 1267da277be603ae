//! The tables of the generator: beside other generators, and by offered rate.

use crate::table_cells::reading;
use shunt_lab::{Reading, Results};
use std::fmt::Write;

/// Description and reading of each generator, with the ratio that the line shows.
const GENERATORS: [(&str, &str, &str); 4] = [
    ("xdp-trafficgen udp, into a program that counts", "xdp-trafficgen udp", ""),
    (
        "the sender of `shunt gen`, into the same program: number, stamp and checksum in each packet",
        "the sender of shunt gen",
        "the sender of shunt gen / xdp-trafficgen udp",
    ),
    (
        "`shunt gen` whole: each packet is checked on arrival, on the same CPU",
        "shunt gen",
        "shunt gen / xdp-trafficgen udp",
    ),
    ("iperf3 -u -b 0 -l 18", "iperf3 -u", ""),
];

/// Offered rates in kpps.
const OFFERED: [u32; 6] = [10, 450, 900, 1800, 2700, 3600];
/// The highest rate that the generator reached on this machine, in kpps; measured in the same session.
const MOST_KPPS: f64 = 4550.0;

pub fn rates(results: &Results) -> anyhow::Result<String> {
    let mut text =
        "| generator | median | against xdp-trafficgen (95 % confidence) |\n| --- | --- | --- |\n".to_owned();
    for (what, name, ratio) in GENERATORS {
        let value = reading(results, name)?.value / 1e6;
        let ratio = match (ratio, name) {
            ("", "iperf3 -u") => {
                format!("`shunt gen` sends {}", times(reading(results, "shunt gen / iperf3 -u")?, 1))
            }
            ("", _) => "1".to_owned(),
            (ratio, _) => times(reading(results, ratio)?, 2),
        };
        writeln!(text, "| {what} | {value:.2} Mpps | {ratio} |")?;
    }
    Ok(text)
}

fn times(ratio: &Reading, digits: usize) -> String {
    let (low, high) = (ratio.spread.low, ratio.spread.high);
    let text = format!("{:.digits$} ({low:.digits$} to {high:.digits$})", ratio.value);
    if digits == 1 { text.replacen(" (", " times as much (", 1) } else { text }
}

pub fn offered(results: &Results) -> anyhow::Result<String> {
    let mut text = "| offered |".to_owned();
    for kpps in OFFERED {
        write!(
            text,
            " {} |",
            if kpps < 900 { format!("{kpps} kpps") } else { format!("{:.1} Mpps", f64::from(kpps) / 1e3) }
        )?;
    }
    text += "\n| --- |";
    text += &" --- |".repeat(OFFERED.len());
    let sent = |kpps: u32, percent: fn(&Reading) -> f64| -> anyhow::Result<String> {
        Ok(format!(
            "{:.4}",
            percent(reading(results, &format!("sent at {kpps} kpps"))?) / f64::from(kpps) / 10.0
        ))
    };
    let range = |what: &str, kpps: u32| -> anyhow::Result<String> {
        let spread = reading(results, &format!("{what} at {kpps} kpps"))?.spread;
        Ok(format!("{} to {}", microseconds(spread.low), microseconds(spread.high)))
    };
    let mut line = |what: &str, cell: &dyn Fn(u32) -> anyhow::Result<String>| -> anyhow::Result<()> {
        write!(text, "\n| {what} |")?;
        OFFERED.iter().try_for_each(|kpps| Ok(write!(text, " {} |", cell(*kpps)?)?))
    };
    line("share of the highest rate", &|kpps| {
        let percent = f64::from(kpps) / MOST_KPPS * 100.0;
        Ok(if percent < 1.0 { format!("{percent:.1} %") } else { format!("{percent:.0} %") })
    })?;
    line("sent, median, % of offered", &|kpps| sent(kpps, |reading| reading.value))?;
    line("sent, least, % of offered", &|kpps| sent(kpps, |reading| reading.spread.low))?;
    line("latency p50, median", &|kpps| {
        let value = reading(results, &format!("latency p50 at {kpps} kpps"))?.value;
        Ok(format!("{} us", microseconds(value)))
    })?;
    line("latency p50, range of the runs, us", &|kpps| range("latency p50", kpps))?;
    line("latency p99, range of the runs, us", &|kpps| range("latency p99", kpps))?;
    Ok(text)
}

fn microseconds(value: f64) -> String {
    if value < 15.5 { format!("{value:.1}") } else { format!("{value:.0}") }
}
