//! The texts of `shunt bench matrix` and `shunt bench rxtx`. Doubts stand above the numbers.

use crate::{
    commands::compare::view::{change, conclusion, interval},
    render::{Answer, Format, columns::align, units},
};
use shunt_api::{Failure, FailureCode};
use shunt_lab::{
    Compared, Reading,
    goodput::{Cell, Protocol, Quantity, Report},
    iperf::{Direction, FlowDirection},
};

/// What `shunt bench matrix` measured.
#[derive(Debug)]
pub(crate) struct Matrix(pub(crate) Report);

/// What `shunt bench rxtx` measured.
#[derive(Debug)]
pub(crate) struct Rxtx(pub(crate) Report);

impl Answer for Matrix {
    fn text(&self, _: Format) -> String {
        matrix(&self.0)
    }

    fn json(&self) -> serde_json::Result<String> {
        self.0.results.to_json()
    }

    fn failure(&self) -> Option<Failure> {
        failure(&self.0)
    }
}

impl Answer for Rxtx {
    fn text(&self, _: Format) -> String {
        rxtx(&self.0)
    }

    fn json(&self) -> serde_json::Result<String> {
        self.0.results.to_json()
    }

    fn failure(&self) -> Option<Failure> {
        failure(&self.0)
    }
}

fn failure(report: &Report) -> Option<Failure> {
    report.failure.clone().map(|why| Failure::new(FailureCode::Usage, why))
}

/// One row for each kind of traffic and each way, with columns for each engine.
pub(crate) fn matrix(report: &Report) -> String {
    let mut text = doubts(report) + &goodput_table(report);
    if report.cells.iter().any(|cell| cell.protocol == Protocol::Udp) {
        text += &udp_table(report);
    }
    text += &missing_readings(report);
    text += &format!(
        "Payload that arrived: the median and the range of runs of {} s. {}; stat % is that of /proc/stat.\n",
        report.seconds,
        cpu_note(report)
    );
    text + &line_note(report, "; line is the share of its payload")
}

/// One row for each variant, then the gains against the first variant.
pub(crate) fn rxtx(report: &Report) -> String {
    let mut heads = vec!["variant".to_owned()];
    for cell in &report.cells {
        let (unit, range) = match cell.protocol {
            Protocol::Tcp => ("Mbit/s", "from-to"),
            Protocol::Udp => ("lost %", "from-to"),
        };
        heads.push(format!("{} {} {unit}", cell.protocol.name(), arrow(way(cell))));
        heads.extend([range, "CPU %"].map(str::to_owned));
    }
    let mut rows = vec![heads];
    for column in &report.columns {
        let mut row = vec![column.clone()];
        for cell in &report.cells {
            let reading = |quantity| report.reading(cell, way(cell), column, quantity);
            let (main, load) = (reading(measured(cell)), reading(Quantity::CpuLoad));
            let shown = if cell.protocol == Protocol::Udp { loss } else { mbps };
            row.push(or_dash(main.map(|reading| shown(reading.value))));
            row.push(or_dash(main.and_then(|reading| range(reading, shown))));
            row.push(or_dash(load.map(|reading| units::rounded(reading.value))));
        }
        rows.push(row);
    }
    let mut text = doubts(report) + &align("<>", &rows) + &gains(report) + &missing_readings(report);
    let udp = report.cells.iter().find(|cell| cell.protocol == Protocol::Udp);
    let rate = udp.and_then(|cell| cell.offered_bps(report.speed)).unwrap_or(0);
    text += &format!(
        "> is from the LAN to the WAN. Runs of {} s; UDP at {} of payload. {}.\n",
        report.seconds,
        units::bits_per_second(rate),
        cpu_note(report)
    );
    text + &line_note(report, "")
}

fn goodput_table(report: &Report) -> String {
    let first = report.columns.first().map_or("", String::as_str);
    let mut heads = ["", "IP", "NAT", "VLAN", "direction"].map(str::to_owned).to_vec();
    for column in &report.columns {
        heads.extend([format!("{column} Mbit/s"), "from-to".to_owned()]);
        heads.extend(report.speed.map(|_| "line".to_owned()));
        heads.extend(["CPU %", "stat %"].map(str::to_owned));
        heads.extend((column != first).then(|| format!("x {first}")));
    }
    let mut rows = vec![heads];
    for cell in &report.cells {
        for way in cell.direction.ways() {
            let mut row = labels(cell, *way);
            for column in &report.columns {
                let reading = |quantity| report.reading(cell, *way, column, quantity);
                let goodput = reading(Quantity::Goodput);
                row.push(or_dash(goodput.map(|reading| mbps(reading.value))));
                row.push(or_dash(goodput.and_then(|reading| range(reading, mbps))));
                if report.speed.is_some() {
                    let share = goodput.and_then(|reading| reading.share(reading.value));
                    row.push(or_dash(share.map(units::percent)));
                }
                // The load is that of both ways together; show it once.
                let is_first = cell.direction.ways().first() == Some(way);
                let load = |quantity| match is_first {
                    true => or_dash(reading(quantity).map(|reading| units::rounded(reading.value))),
                    false => String::new(),
                };
                row.extend([load(Quantity::CpuLoad), load(Quantity::ProcStat)]);
                if column != first {
                    let gain = report.gain(cell, *way, column, Quantity::Goodput);
                    row.push(or_dash(gain.as_ref().and_then(ratio)));
                }
            }
            rows.push(row);
        }
    }
    align("<<<<<>", &rows)
}

fn udp_table(report: &Report) -> String {
    let mut heads = ["", "IP", "NAT", "VLAN", "direction"].map(str::to_owned).to_vec();
    for column in &report.columns {
        heads.extend([format!("{column} lost %"), "from-to".to_owned(), "jitter ms".to_owned()]);
    }
    let mut rows = vec![heads];
    for cell in report.cells.iter().filter(|cell| cell.protocol == Protocol::Udp) {
        for way in cell.direction.ways() {
            let mut row = labels(cell, *way);
            for column in &report.columns {
                let reading = |quantity| report.reading(cell, *way, column, quantity);
                let lost = reading(Quantity::Loss);
                row.push(or_dash(lost.map(|reading| loss(reading.value))));
                row.push(or_dash(lost.and_then(|reading| range(reading, loss))));
                row.push(or_dash(reading(Quantity::Jitter).map(|reading| format!("{:.3}", reading.value))));
            }
            rows.push(row);
        }
    }
    align("<<<<<>", &rows)
}

fn labels(cell: &Cell, way: FlowDirection) -> Vec<String> {
    let name_if = |is: bool, name: &str| if is { name.to_owned() } else { "-".to_owned() };
    let direction = match cell.direction {
        Direction::Duplex => format!("duplex {}", arrow(way)),
        one_way => one_way.name().to_owned(),
    };
    let family = if cell.v6 { "IPv6" } else { "IPv4" };
    let protocol = cell.protocol.name().to_owned();
    vec![protocol, family.to_owned(), name_if(cell.nat, "NAT"), name_if(cell.vlan, "VLAN"), direction]
}

fn gains(report: &Report) -> String {
    let Some((first, others)) = report.columns.split_first() else { return String::new() };
    if others.is_empty() {
        return String::new();
    }
    let mut rows = vec![[&format!("to {first}"), "", "change", "95 %", ""].map(str::to_owned).to_vec()];
    for column in others {
        for cell in &report.cells {
            let Some(gain) = report.gain(cell, way(cell), column, measured(cell)) else { continue };
            let what = if cell.protocol == Protocol::Udp { " lost" } else { "" };
            let within = gain.spread.map(|spread| interval(&gain, spread));
            let traffic = format!("{} {}{what}", cell.protocol.name(), arrow(way(cell)));
            rows.push(vec![column.clone(), traffic, change(&gain), or_dash(within), conclusion(&gain)]);
        }
    }
    align("<<><", &rows)
}

/// The doubts of the report as a whole, and of its readings; doubts that several readings share are shown once.
fn doubts(report: &Report) -> String {
    let mut text = String::new();
    if !report.results.complete && report.failure.is_none() {
        text += "doubt: interrupted: only the runs until then are shown\n";
    }
    for (doubt, name, readings) in report.doubts() {
        text += &match readings {
            1 => format!("doubt: {name}: {doubt}\n"),
            all if all == report.results.readings.len() => format!("doubt: {doubt}\n"),
            _ => format!("doubt: {name} and {} more: {doubt}\n", readings - 1),
        };
    }
    text
}

fn missing_readings(report: &Report) -> String {
    // Many readings are often missing for the same reason.
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for (name, why) in &report.results.missing {
        match reasons.iter_mut().find(|(known, _)| known == why) {
            Some((_, names)) => names.push(name),
            None => reasons.push((why, vec![name])),
        }
    }
    reasons.iter().map(|(why, names)| format!("not measured: {}: {why}\n", names.join(", "))).collect()
}

fn cpu_note(report: &Report) -> String {
    let conditions = &report.results.conditions;
    match (report.dut, &conditions.dut) {
        (true, Some(dut)) => {
            format!("CPU % is the mean load of the {} CPUs of the DUT, by the meter", dut.cpus.count)
        }
        (true, None) => "CPU % is missing: the DUT did not report its load".to_owned(),
        (false, _) => {
            format!(
                "CPU % is the mean load of the {} CPUs of this machine, hosts included, by the meter",
                conditions.cpus.count
            )
        }
    }
}

fn line_note(report: &Report, share: &str) -> String {
    match report.speed {
        Some(speed) => {
            format!("At most what a line of {speed}bit/s carries was offered{share}.\n")
        }
        None => "The line speed is not known (a veth has none), so no shares of it are shown; give one with --speed.\n".to_owned(),
    }
}

fn ratio(gain: &Compared) -> Option<String> {
    let ratio = gain.ratio?;
    Some(match gain.spread {
        Some(spread) => format!("{ratio:.2} ({:.2}-{:.2})", spread.low, spread.high),
        None => format!("{ratio:.2}"),
    })
}

/// The range of the runs; none for a single run.
fn range(reading: &Reading, shown: fn(f64) -> String) -> Option<String> {
    let several = reading.runs.len() > 1;
    several.then(|| format!("{}-{}", shown(reading.spread.low), shown(reading.spread.high)))
}

fn mbps(value: f64) -> String {
    if value < 100.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

/// Three decimals below 1 %, because even a few lost packets in 100,000 matter.
fn loss(percent: f64) -> String {
    match percent {
        0.0 => "0".to_owned(),
        ..1.0 => format!("{percent:.3}"),
        _ => format!("{percent:.1}"),
    }
}

fn measured(cell: &Cell) -> Quantity {
    match cell.protocol {
        Protocol::Tcp => Quantity::Goodput,
        Protocol::Udp => Quantity::Loss,
    }
}

fn way(cell: &Cell) -> FlowDirection {
    cell.direction.ways().first().copied().unwrap_or(FlowDirection::Forward)
}

const fn arrow(way: FlowDirection) -> &'static str {
    match way {
        FlowDirection::Forward => ">",
        FlowDirection::Reverse => "<",
    }
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        commands::bench::goodput::sample,
        golden::{JSON, TEXT, assert_golden, show},
    };

    #[test]
    fn texts_match_their_golden_files() {
        let matrix = Matrix(sample::matrix());
        assert_golden("golden/bench-matrix.txt", &matrix, TEXT);
        assert_golden("golden/bench-matrix.json", &matrix, JSON);
        assert_golden("golden/bench-rxtx.txt", &Rxtx(sample::rxtx()), TEXT);
    }

    #[test]
    fn the_rate_of_udp_is_limited_to_what_the_line_carries() {
        let mut report = sample::rxtx();
        report.speed = "50M".parse().ok();
        let text = show(&Rxtx(report), TEXT);
        assert!(text.contains("UDP at 47.6 Mbit/s of payload"), "{text}");
        assert!(text.ends_with("At most what a line of 50Mbit/s carries was offered.\n"), "{text}");
    }
}
