use super::*;
use crate::{Conditions, Run, iperf::Direction, labels::earlier_names};

const CELL: Cell = Cell::PLAIN;

fn file(readings: &[(&str, &[f64])]) -> ResultsFile {
    let mut file = ResultsFile::in_memory(Results::new("goodput matrix", Conditions::default()));
    for (name, runs) in readings {
        for (round, value) in runs.iter().enumerate() {
            let at = Some(format!("2026-01-01T00:{round:02}:00.000Z"));
            file.add(name, "Mbit/s", Run { at, ..Run::from(*value) }).unwrap();
        }
    }
    file
}

fn report(file: &ResultsFile, columns: &[&str]) -> Report {
    let columns = columns.iter().map(|name| (*name).to_owned()).collect();
    let results = file.results().clone();
    Report { columns, cells: vec![CELL], seconds: 1, speed: None, dut: false, results, failure: None }
}

#[test]
fn readings_have_distinct_names() {
    let tagged = Cell { protocol: Protocol::Udp, v6: true, nat: true, vlan: true, ..CELL };
    let duplex = Cell { direction: Direction::Duplex, ..tagged };
    for (cell, way, quantity, name) in [
        (CELL, FlowDirection::Forward, Quantity::Goodput, "TCP IPv4 forward tc"),
        (tagged, FlowDirection::Forward, Quantity::Loss, "UDP IPv6 NAT VLAN forward tc loss"),
        (duplex, FlowDirection::Reverse, Quantity::Jitter, "UDP IPv6 NAT VLAN duplex reverse tc jitter"),
        (duplex, FlowDirection::Reverse, Quantity::CpuLoad, "UDP IPv6 NAT VLAN duplex tc CPU"),
        (duplex, FlowDirection::Forward, Quantity::ProcStat, "UDP IPv6 NAT VLAN duplex tc /proc/stat"),
    ] {
        assert_eq!(cell.reading(way, "tc", quantity), name);
    }
}

#[test]
fn the_limit_is_the_payload_that_the_line_carries() {
    // 1 Gbit/s by NXP's table, and with the TCP timestamps that Linux sends.
    let gigabit = LinkSpeed::new(1_000_000_000);
    for (protocol, v6, vlan, mbps) in [
        (Protocol::Udp, false, false, 957.1),
        (Protocol::Udp, true, true, 941.6),
        (Protocol::Tcp, false, false, 941.5),
        (Protocol::Tcp, true, true, 926.1),
    ] {
        let limit = Cell { protocol, v6, vlan, ..CELL }.limit(gigabit).unwrap();
        assert!((limit.value - mbps).abs() < 0.1, "{limit:?}");
    }
    let limit = Cell { vlan: true, ..CELL }.limit(gigabit).unwrap();
    assert_eq!(limit.of, "1Gbit/s, VLAN/IPv4/TCP in frames of 1522 bytes");
    assert_eq!(CELL.limit(None), None);
}

#[test]
fn the_offered_rate_is_limited_by_the_request_and_the_line() {
    let (slow, fast) = (LinkSpeed::new(10_000_000), LinkSpeed::new(1_000_000_000));
    let asked = Cell { rate_bps: Some(60_000_000), ..CELL };
    assert_eq!((CELL.offered_bps(None), asked.offered_bps(None)), (None, Some(60_000_000)));
    assert_eq!(asked.offered_bps(fast), Some(60_000_000));
    assert_eq!((CELL.offered_bps(slow), asked.offered_bps(slow)), (Some(9_367_750), Some(9_367_750)));
}

#[test]
fn writes_and_mtus_have_names_limits_and_a_series_of_their_own() {
    let udp = Cell { protocol: Protocol::Udp, write_bytes: Some(64), ..CELL };
    let jumbo = Cell { mtu: Some(9000), write_bytes: Some(8192), ..udp };
    assert_eq!(
        [udp, jumbo].map(|cell| cell.to_string()),
        ["UDP IPv4 write 64 forward", "UDP IPv4 MTU 9000 write 8192 forward"]
    );
    // 64 bytes in frames of 110 bytes and 20 between them: 961,538 per second.
    let limit = udp.limit(LinkSpeed::new(1_000_000_000)).unwrap();
    assert!((limit.value - 64.0 * 8.0 / 130.0 / 8.0 * 1000.0).abs() < 0.1, "{limit:?}");
    assert_eq!(udp.labels(FlowDirection::Forward, None, Quantity::Goodput).frame_bytes, Some(110));
    assert_eq!((udp.load(), CELL.load()), (crate::iperf::Load::Udp(64), crate::iperf::Load::Tcp));
    let tcp = Cell { write_bytes: Some(64), ..CELL };
    assert_eq!(tcp.load(), crate::iperf::Load::TcpWrites(64));
    assert_eq!(tcp.labels(FlowDirection::Forward, None, Quantity::Goodput).frame_bytes, None);
    let position = tcp.position(FlowDirection::Forward, "tc", Quantity::CpuLoad).unwrap();
    assert_eq!((position.of.as_str(), position.line.as_str()), ("TCP IPv4 forward CPU", "tc"));
    assert_eq!((position.along.as_str(), position.value), ("write size", 64.0));
    assert_eq!(CELL.position(FlowDirection::Forward, "tc", Quantity::Goodput), None);
    assert_eq!((jumbo.lack(), tcp.lack(), udp.lack()), (None, None, None));
    let lack = Cell { mtu: None, ..jumbo }.lack().unwrap();
    assert!(
        lack.contains("8192 bytes would be sent in fragments") && lack.contains("room for 1472"),
        "{lack}"
    );
    assert!(Cell { v6: true, mtu: Some(576), ..CELL }.lack().unwrap().contains("1280"));
    assert_eq!(groups(&[CELL, jumbo, tcp]), [vec![CELL, tcp], vec![jumbo]]);
}

#[test]
fn traffic_with_the_same_router_is_measured_together() {
    let (nat, vlan) = (Cell { nat: true, ..CELL }, Cell { vlan: true, ..CELL });
    let six = Cell { v6: true, ..CELL };
    assert_eq!(groups(&[CELL, nat, six, vlan, nat]), [vec![CELL, six], vec![nat, nat], vec![vlan]]);
}

#[test]
fn columns_are_compared_with_the_first() {
    let file = file(&[
        ("TCP IPv4 forward slow", &[400.0, 410.0, 390.0, 400.0, 405.0, 395.0]),
        ("TCP IPv4 forward tc", &[800.0, 820.0, 780.0, 800.0, 810.0, 790.0]),
        ("TCP IPv4 forward xdp", &[800.0, 820.0]),
    ]);
    let columns = ["slow", "tc", "xdp"].map(str::to_owned);
    let ratios = ratios(&columns, &[CELL], file.results());
    // A run without its counterpart is left out of the ratio.
    let names: Vec<&str> = ratios.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["TCP IPv4 forward tc to slow"]);
    assert_eq!((ratios[0].1.value, ratios[0].1.spread.low, &ratios[0].1.unit[..]), (2.0, 2.0, "1"));
    let report = report(&file, &["slow", "tc", "xdp"]);
    let gain = |column| report.gain(&CELL, FlowDirection::Forward, column, Quantity::Goodput);
    assert_eq!(gain("tc").unwrap().verdict, crate::Verdict::Better);
    assert_eq!(gain("xdp").unwrap().obstacle, Some(crate::Obstacle::TooFewRuns));
    assert!(gain("slow").is_none());
}

#[test]
fn runs_that_differ_by_more_than_a_tenth_are_noisy() {
    let file = file(&[("a", &[100.0, 109.0]), ("b", &[100.0, 130.0, 120.0])]);
    assert_eq!(noisy(file.results()), [("b".to_owned(), 25.0)]);
}

#[test]
fn doubts_of_a_kind_are_counted_once() {
    let mut file = file(&[("a", &[1.0]), ("b", &[1.0])]);
    file.add_doubt("a", Doubt::SlowPath { percent: 12.0 });
    file.add_doubt("a", Doubt::SlowPath { percent: 13.0 });
    file.add_doubt("b", Doubt::SlowPath { percent: 14.0 });
    let [first, second] = [0, 1].map(|cpu| Doubt::Clock { cpu, percent: 90.0 });
    file.add_doubt("b", first.clone());
    file.add_doubt("b", second);
    let report = report(&file, &["slow"]);
    assert_eq!(report.doubts(), [(&Doubt::SlowPath { percent: 12.0 }, "a", 2), (&first, "b", 1)]);
}

#[test]
fn an_earlier_name_has_the_labels_that_its_reading_gets_today() {
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        for direction in [Direction::Forward, Direction::Reverse, Direction::Duplex] {
            for (v6, nat, vlan) in [(false, true, false), (true, false, true)] {
                let cell = Cell { protocol, v6, nat, vlan, direction, ..CELL };
                for way in direction.ways() {
                    for quantity in [Quantity::Goodput, Quantity::Loss, Quantity::CpuLoad] {
                        for path in PathLabel::ALL {
                            let name = cell.reading(*way, path.name(), quantity);
                            let today =
                                Labels { frame_bytes: None, ..cell.labels(*way, Some(path), quantity) };
                            assert_eq!(earlier_names::labels(&name), Some(today), "{name}");
                        }
                    }
                }
            }
        }
    }
}
