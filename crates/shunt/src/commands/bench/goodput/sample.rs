//! Reports of `shunt bench matrix` and `shunt bench rxtx`.

use shunt_lab::{
    Conditions, Doubt, Results, ResultsFile, Run,
    goodput::{Cell, Protocol, Quantity, Report},
    iperf::{Direction, FlowDirection},
};

/// The load of four CPUs of which one is full: by the meter, and by /proc/stat.
const CPU: [f64; 2] = [25.4, 25.1];

/// Two engines on a line of 1 Gbit/s, with the rates of an i.MX 8, on a kernel without VLAN devices.
pub(crate) fn matrix() -> Report {
    let cell = |protocol, direction, v6, nat| Cell { protocol, v6, nat, direction, ..Cell::PLAIN };
    let tcp = cell(Protocol::Tcp, Direction::Forward, false, true);
    let both = cell(Protocol::Tcp, Direction::Duplex, true, false);
    let udp = cell(Protocol::Udp, Direction::Reverse, false, false);
    let mut kept = begun("goodput matrix");
    for (cell, way, column, runs) in [
        (tcp, FlowDirection::Forward, "slow", [295.0, 301.5, 287.0]),
        (tcp, FlowDirection::Forward, "tc", [939.0, 940.5, 930.0]),
        (both, FlowDirection::Forward, "slow", [187.0, 180.0, 190.0]),
        (both, FlowDirection::Forward, "tc", [843.0, 840.0, 847.0]),
        (both, FlowDirection::Reverse, "slow", [188.0, 184.0, 190.0]),
        (both, FlowDirection::Reverse, "tc", [804.0, 800.0, 811.0]),
        (udp, FlowDirection::Reverse, "slow", [475.0, 474.0, 476.0]),
        (udp, FlowDirection::Reverse, "tc", [952.0, 952.0, 952.0]),
    ] {
        let limit = limit(&cell);
        add(&mut kept, &cell.reading(way, column, Quantity::Goodput), "Mbit/s", &runs);
        kept.set_limit(&cell.reading(way, column, Quantity::Goodput), limit);
        let [load, stat] = CPU;
        if way == cell.direction.ways()[0] {
            add(&mut kept, &cell.reading(way, column, Quantity::CpuLoad), "%", &[load; 3]);
            add(&mut kept, &cell.reading(way, column, Quantity::ProcStat), "%", &[stat; 3]);
        }
    }
    for (column, lost, jitter) in [("slow", [50.3, 50.1, 50.6], 0.021), ("tc", [0.039, 0.0, 0.04], 0.0121)] {
        add(&mut kept, &udp.reading(FlowDirection::Reverse, column, Quantity::Loss), "%", &lost);
        add(&mut kept, &udp.reading(FlowDirection::Reverse, column, Quantity::Jitter), "ms", &[jitter; 3]);
    }
    kept.add_doubt(
        &tcp.reading(FlowDirection::Forward, "slow", Quantity::CpuLoad),
        Doubt::Clock { cpu: 1, percent: 97.2 },
    );
    let why = "this kernel has no VLAN devices (CONFIG_VLAN_8021Q): ip: 2: Error: Unknown device type.";
    for direction in ["forward", "reverse"] {
        kept.add_missing(&format!("TCP IPv4 VLAN {direction}"), why.to_owned());
    }
    kept.add_missing("TCP IPv6 duplex tc, run 2", "iperf3 3.12: the server has terminated".to_owned());
    let speed = "1G".parse().ok();
    report(kept, &["slow", "tc"], vec![tcp, both, udp], speed)
}

/// Variants of a driver of an AVR32 board.
pub(crate) fn rxtx() -> Report {
    let cell = |protocol, direction, rate_bps| Cell { protocol, direction, rate_bps, ..Cell::PLAIN };
    let tcp = [Direction::Forward, Direction::Reverse].map(|way| cell(Protocol::Tcp, way, None));
    let udp = [Direction::Forward, Direction::Reverse].map(|way| cell(Protocol::Udp, way, Some(60_000_000)));
    let mut kept = begun("goodput by variant");
    let spread = [1.0, 1.01, 0.99, 1.0, 1.005, 0.995];
    for (column, values) in [("before", [69.1, 54.6, 0.0, 14.0]), ("no-copy", [65.5, 66.1, 0.0, 0.039])] {
        for (cell, value) in tcp.iter().chain(&udp).zip(values) {
            let (quantity, unit) = match cell.protocol {
                Protocol::Tcp => (Quantity::Goodput, "Mbit/s"),
                Protocol::Udp => (Quantity::Loss, "%"),
            };
            let way = cell.direction.ways()[0];
            add(&mut kept, &cell.reading(way, column, quantity), unit, &spread.map(|by| value * by));
            add(&mut kept, &cell.reading(way, column, Quantity::CpuLoad), "%", &spread.map(|by| CPU[0] * by));
        }
    }
    kept.add_missing("typo", "`ethtol` ended with exit status: 127: sh: ethtol: not found".to_owned());
    let mut report = report(kept, &["before", "no-copy", "typo"], [tcp, udp].concat(), None);
    report.failure = report.results.missing.get("typo").cloned();
    report
}

pub(crate) fn begun(what: &str) -> ResultsFile {
    let mut results = Results::new(what, Conditions::default());
    results.began = "2026-01-02T03:04:05Z".to_owned();
    results.conditions.cpus.count = 4;
    ResultsFile::in_memory(results)
}

fn add(kept: &mut ResultsFile, name: &str, unit: &str, runs: &[f64]) {
    for (n, value) in runs.iter().enumerate() {
        let at = Some(format!("2026-01-02T03:{n:02}:00.000Z"));
        kept.add(name, unit, Run { at, ..Run::from(*value) }).unwrap();
        kept.add_doubt(name, Doubt::VirtualLinks);
    }
}

fn limit(cell: &Cell) -> shunt_lab::Limit {
    let value = match (cell.protocol, cell.v6) {
        (Protocol::Tcp, false) => 941.5,
        (Protocol::Tcp, true) => 928.5,
        (Protocol::Udp, _) => 957.1,
    };
    shunt_lab::Limit { value, of: "1Gbit/s".to_owned() }
}

fn report(
    kept: ResultsFile,
    columns: &[&str],
    cells: Vec<Cell>,
    speed: Option<shunt_wire::line::LinkSpeed>,
) -> Report {
    let columns = columns.iter().map(|name| (*name).to_owned()).collect();
    Report { columns, cells, seconds: 2, speed, dut: false, results: kept.finish().unwrap(), failure: None }
}
