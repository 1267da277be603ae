//! The texts of `shunt bench matrix` and `shunt bench rxtx`. Doubts stand above the numbers.

use crate::{
    commands::compare::view::{change, interval, marked},
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

/// For each further variant, a table of both directions next to the first variant, and how sure the changes are.
pub(crate) fn rxtx(report: &Report) -> String {
    let mut text = doubts(report);
    let (first, others) = match report.columns.split_first() {
        Some((first, others)) => (first.as_str(), others),
        None => ("", &[][..]),
    };
    // Lines below the tables say why a variant was not measured.
    let is_measured = |column: &&String| {
        let mut readings =
            report.cells.iter().map(|cell| report.reading(cell, way(cell), column, measured(cell)));
        readings.any(|reading| reading.is_some())
    };
    let others: Vec<&String> = others.iter().filter(is_measured).collect();
    if others.is_empty() {
        text += &variant_tables(report, first, None);
    }
    for (nth, other) in others.into_iter().enumerate() {
        text += if nth > 0 { "\n" } else { "" };
        text += &variant_tables(report, first, Some(other));
    }
    text += &missing_readings(report);
    let udp = report.cells.iter().find(|cell| cell.protocol == Protocol::Udp);
    let rate = udp.and_then(|cell| cell.offered_bps(report.speed)).unwrap_or(0);
    text += &format!(
        "RX is from the WAN to the LAN, TX from the LAN to the WAN; Mbit/s are of TCP, losses of UDP at {} of payload. \
         Runs of {} s. {}.\n",
        units::bits_per_second(rate),
        report.seconds,
        cpu_note(report)
    );
    text + &line_note(report, "")
}

/// The medians with the CPU load and the change; below them, the ranges of the runs with the interval of the change,
/// and the change of the CPU load.
fn variant_tables(report: &Report, first: &str, other: Option<&String>) -> String {
    let columns: Vec<&str> = [first].into_iter().chain(other.map(String::as_str)).collect();
    let mut cells: Vec<&Cell> = report.cells.iter().collect();
    cells.sort_by_key(|cell| (cell.protocol, way(cell) == FlowDirection::Forward));
    let mut medians = vec![vec![String::new()]];
    medians[0].extend(columns.iter().flat_map(|name| [(*name).to_owned(), "CPU %".to_owned()]));
    medians[0].extend(other.iter().flat_map(|_| ["change".to_owned(), String::new()]));
    let mut ranges = vec![vec!["runs from-to".to_owned()]];
    ranges[0].extend(columns.iter().map(|name| (*name).to_owned()));
    ranges[0].extend(other.map(|_| "change, 95 %".to_owned()));
    let mut loads = vec![["CPU load", "change", "95 %", ""].map(str::to_owned).to_vec()];
    for cell in cells {
        let (unit, shown): (_, fn(f64) -> String) = match cell.protocol {
            Protocol::Tcp => ("Mbit/s", mbps),
            Protocol::Udp => ("lost %", loss),
        };
        let test = format!("{} {unit}", received_or_sent(cell));
        let (mut row, mut range_row) = (vec![test.clone()], vec![test.clone()]);
        for column in &columns {
            let reading = |quantity| report.reading(cell, way(cell), column, quantity);
            let main = reading(measured(cell));
            row.push(or_dash(main.map(|reading| shown(reading.value))));
            row.push(or_dash(reading(Quantity::CpuLoad).map(|reading| units::rounded(reading.value))));
            range_row.push(or_dash(main.and_then(|reading| range(reading, shown))));
        }
        if let Some(column) = other {
            let gain = |quantity| report.gain(cell, way(cell), column, quantity);
            let within = |gain: &Compared| Some(interval(gain, gain.spread?));
            let main = gain(measured(cell));
            row.extend([or_dash(main.as_ref().map(change)), main.as_ref().map_or(String::new(), marked)]);
            range_row.push(or_dash(main.as_ref().and_then(within)));
            let load = gain(Quantity::CpuLoad);
            loads.extend(load.map(|gain| vec![test, change(&gain), or_dash(within(&gain)), marked(&gain)]));
        }
        medians.push(row);
        ranges.push(range_row);
    }
    let mut text = align(if other.is_some() { "<>>>>><" } else { "<>" }, &medians);
    if report.results.readings.values().any(|reading| reading.runs.len() > 1) {
        text += &align("<>", &ranges);
    }
    text + &if loads.len() > 1 { align("<>><", &loads) } else { String::new() }
}

/// The direction as the host on the LAN has it.
fn received_or_sent(cell: &Cell) -> &'static str {
    match way(cell) {
        FlowDirection::Forward => "TX",
        FlowDirection::Reverse => "RX",
    }
}

fn goodput_table(report: &Report) -> String {
    let first = report.columns.first().map_or("", String::as_str);
    let mut heads = traffic_heads(report);
    for column in &report.columns {
        heads.extend([format!("{column} Mbit/s"), "from-to".to_owned()]);
        heads.extend(report.speed.map(|_| "line".to_owned()));
        heads.extend(["CPU %", "stat %"].map(str::to_owned));
        heads.extend((column != first).then(|| format!("x {first}")));
    }
    let mut rows = vec![heads];
    for cell in &report.cells {
        for way in cell.direction.ways() {
            let mut row = labels(report, cell, *way);
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
    align(&alignment(report), &rows)
}

fn udp_table(report: &Report) -> String {
    let mut heads = traffic_heads(report);
    for column in &report.columns {
        heads.extend([format!("{column} lost %"), "from-to".to_owned(), "jitter ms".to_owned()]);
    }
    let mut rows = vec![heads];
    for cell in report.cells.iter().filter(|cell| cell.protocol == Protocol::Udp) {
        for way in cell.direction.ways() {
            let mut row = labels(report, cell, *way);
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
    align(&alignment(report), &rows)
}

/// A value that may be chosen, with the head of its column.
type Chosen = (&'static str, fn(&Cell) -> Option<u32>);

/// The columns of values that were chosen for some traffic.
fn chosen(report: &Report) -> impl Iterator<Item = Chosen> {
    let all: [Chosen; 2] = [("MTU", |cell| cell.mtu), ("write", |cell| cell.write_bytes)];
    all.into_iter().filter(|(_, of)| report.cells.iter().any(|cell| of(cell).is_some()))
}

fn traffic_heads(report: &Report) -> Vec<String> {
    let chosen = chosen(report).map(|(head, _)| head);
    ["", "IP", "NAT", "VLAN"].into_iter().chain(chosen).chain(["direction"]).map(str::to_owned).collect()
}

fn alignment(report: &Report) -> String {
    format!("<<<<{}<>", ">".repeat(chosen(report).count()))
}

fn labels(report: &Report, cell: &Cell, way: FlowDirection) -> Vec<String> {
    let name_if = |is: bool, name: &str| if is { name.to_owned() } else { "-".to_owned() };
    let direction = match cell.direction {
        Direction::Duplex => format!("duplex {}", arrow(way)),
        one_way => one_way.name().to_owned(),
    };
    let family = if cell.v6 { "IPv6" } else { "IPv4" };
    let protocol = cell.protocol.name().to_owned();
    let mut row = vec![protocol, family.to_owned(), name_if(cell.nat, "NAT"), name_if(cell.vlan, "VLAN")];
    row.extend(chosen(report).map(|(_, of)| or_dash(of(cell).map(|bytes| bytes.to_string()))));
    row.push(direction);
    row
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
