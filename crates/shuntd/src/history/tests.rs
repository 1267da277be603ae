use super::*;
use shunt_bpf::abi::{Counters, REASONS, ReasonKind};
use std::{collections::BTreeMap, fs, path::Path};

const DAY: Range = Range { for_s: HistoryTable::KEPT_S, rows: None };

fn file(directory: &Path) -> KeptFile {
    KeptFile::new(directory.join("default.history"), FILE_BYTES_MAX)
}

fn history(directory: &Path, since_boot: u64, since_1970: u64) -> History {
    History::load(file(directory), Clock::new(since_boot, since_1970), "1.0")
}

/// Counts a minute that ends now, with `packets` fast packets, a quarter as many slow ones, and 1000 bytes each.
fn count(history: &mut History, packets: u64) {
    let mut counters = Counters { tc_pkts: packets, slow_pkts: packets / 4, ..Counters::default() };
    counters.reasons[punts()[0]] = packets / 4;
    let device = |part| DeviceCounts {
        in_bytes: packets * 1000 / part,
        in_pkts: packets / part,
        out_bytes: packets * 500 / part,
        out_pkts: packets / 2 / part,
    };
    let devices = BTreeMap::from([("lan0".to_owned(), device(1)), ("wan0".to_owned(), device(2))]);
    let since = history.clock.since_boot().saturating_sub(Duration::from_secs(60));
    let counted = Counted { seconds: 60.0, counters, devices, saved_core_s: Some(6.0) };
    history.add_minute(since, &counted);
}

fn punts() -> Vec<usize> {
    REASONS.iter().filter(|reason| reason.kind == ReasonKind::Punt).map(|reason| reason.number).collect()
}

fn table(history: &History, range: Range) -> HistoryTable {
    history.answer(range).table()
}

fn events(history: &History) -> Vec<Happening> {
    table(history, DAY).events.into_iter().map(|event| event.what).collect()
}

#[test]
fn minutes_show_rates_shares_and_reasons() {
    let directory = tempfile::tempdir().unwrap();
    let mut history = history(directory.path(), 1000, 100_000);
    history.set_clock(Clock::new(1060, 100_060));
    count(&mut history, 6000);
    let rows = table(&history, DAY).rows;
    assert_eq!(rows.len(), 1);
    let row = &rows[0];
    assert_eq!((row.at, row.fast, row.slow, row.fast_share), (100_000, 6000, 1500, Some(0.8)));
    assert_eq!(row.saved_cores, Some(0.1));
    assert_eq!((row.in_bps, row.in_pps, row.out_bps, row.out_pps), (1_200_000, 150, 600_000, 75));
    let lan = row.ports["lan0"];
    assert_eq!((lan.in_bps, lan.in_pps, lan.out_bps, lan.out_pps), (800_000, 100, 400_000, 50));
    assert_eq!(row.reasons.values().copied().collect::<Vec<_>>(), [1500]);
}

#[test]
fn minutes_are_merged_into_rows_without_losing_or_counting_twice() {
    let directory = tempfile::tempdir().unwrap();
    let mut history = history(directory.path(), 0, 1_000_000);
    for minute in 1..=120 {
        history.set_clock(Clock::new(minute * 60, 1_000_000 + minute * 60));
        count(&mut history, 400);
    }
    for (rows, expected) in [(1, 1), (12, 12), (7, 7), (1000, 120)] {
        let merged = table(&history, Range { for_s: 7200, rows: Some(rows) }).rows;
        assert_eq!(merged.len(), expected, "{rows}");
        assert_eq!(merged.iter().map(|row| row.fast).sum::<u64>(), 120 * 400);
        assert!((merged.iter().map(|row| row.seconds).sum::<f64>() - 7200.0).abs() < 1e-6);
        assert!(merged.iter().all(|row| row.in_pps == 10 && row.ports["lan0"].in_pps == 7), "{merged:?}");
    }
    // A part of the time.
    assert_eq!(table(&history, Range { for_s: 600, rows: None }).rows.len(), 10);
}

#[test]
fn memory_is_bounded_and_a_day_of_sixteen_ports_fits_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let mut history = history(directory.path(), 0, 1_000_000);
    let punts = punts();
    for minute in 1..=3000u64 {
        history.set_clock(Clock::new(minute * 60, 1_000_000 + minute * 60));
        let mut counters = Counters { tc_pkts: u64::MAX / 3000, ..Counters::default() };
        punts.iter().for_each(|reason| counters.reasons[*reason] = u64::MAX / 4000);
        let busy = DeviceCounts {
            in_bytes: u64::MAX / 64,
            in_pkts: u64::MAX / 64,
            out_bytes: u64::MAX / 64,
            out_pkts: u64::MAX / 64,
        };
        let devices = (0..40).map(|port| (format!("interface{port:05}"), busy)).collect();
        let since = Duration::from_secs(minute * 60 - 60);
        history
            .add_minute(since, &Counted { seconds: 60.5, counters, devices, saved_core_s: Some(60.5 / 3.0) });
        history.note(Happening::Fault { what: format!("fault {minute} {}", "x".repeat(80)) });
    }
    assert!(history.minutes.len() <= MINUTES_MAX);
    assert!(history.memory_bytes() < 2 << 20, "{}", history.memory_bytes());
    history.replacement(true).write().unwrap();
    let again = History::load(file(directory.path()), history.clock, "1.0");
    assert_eq!(table(&again, DAY).rows, table(&history, DAY).rows);
    assert_eq!(table(&again, DAY).rows[0].ports.len(), HistoryTable::PORTS_MAX);
}

#[test]
fn a_restart_keeps_the_history_and_tells_a_stop_from_a_crash() {
    let directory = tempfile::tempdir().unwrap();
    let mut first = history(directory.path(), 100, 1_000_000);
    first.set_clock(Clock::new(160, 1_000_060));
    count(&mut first, 400);
    first.note(Happening::Stopped { by: "signal".to_owned(), flows: None });
    first.replacement(false).write().unwrap();
    // The machine starts again.
    let mut second = history(directory.path(), 20, 1_000_200);
    let started = |after_crash| Happening::Started { version: "1.0".to_owned(), after_crash };
    let stopped = Happening::Stopped { by: "signal".to_owned(), flows: None };
    assert_eq!(events(&second), [started(false), stopped.clone(), started(false)]);
    second.set_clock(Clock::new(80, 1_000_260));
    count(&mut second, 400);
    second.replacement(true).write().unwrap();
    let third = history(directory.path(), 100, 1_000_300);
    assert_eq!(events(&third).last(), Some(&started(true)));
    let rows = table(&third, DAY).rows;
    assert_eq!(rows.iter().map(|row| row.at).collect::<Vec<_>>(), [1_000_000, 1_000_200]);
}

#[test]
fn a_clock_that_is_set_moves_the_rows_of_this_daemon_and_is_an_event() {
    let directory = tempfile::tempdir().unwrap();
    let mut first = history(directory.path(), 100, 1_000_000);
    first.set_clock(Clock::new(160, 1_000_060));
    count(&mut first, 400);
    first.replacement(false).write().unwrap();
    // A machine without a clock of its own starts in 1970.
    let mut second = history(directory.path(), 10, 10);
    second.set_clock(Clock::new(70, 70));
    count(&mut second, 800);
    assert_eq!(table(&second, DAY).rows.len(), 2, "nothing is lost before the clock is set");
    second.set_clock(Clock::new(130, 1_000_190));
    count(&mut second, 1200);
    let rows: Vec<_> = table(&second, DAY).rows.iter().map(|row| (row.at, row.fast)).collect();
    assert_eq!(rows, [(1_000_000, 400), (1_000_070, 800), (1_000_130, 1200)]);
    assert_eq!(events(&second).last(), Some(&Happening::ClockSet { by_s: 1_000_060 }));
    // Set back by an hour: the rows move with the clock, and none is there twice.
    second.set_clock(Clock::new(131, 996_591));
    let rows = table(&second, DAY).rows;
    assert_eq!(rows.iter().map(|row| row.fast).sum::<u64>(), 2400);
    assert_eq!(events(&second).iter().filter(|what| matches!(what, Happening::ClockSet { .. })).count(), 2);
    // A clock that is a little off is followed without an event.
    second.set_clock(Clock::new(191, 996_652));
    assert_eq!(events(&second).iter().filter(|what| matches!(what, Happening::ClockSet { .. })).count(), 2);
}

#[test]
fn a_file_of_an_older_version_is_read_and_a_damaged_or_newer_one_set_aside() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("default.history");
    let older = r#"{"format":1,"minutes":[{"at":1000,"s":60,"packets":[1,2,3],"all":[4,5,6,7]}]}"#;
    fs::write(&path, older).unwrap();
    let history_now = history(directory.path(), 10, 1100);
    let rows = table(&history_now, DAY).rows;
    assert_eq!((rows.len(), rows[0].fast), (1, 1));
    for wrong in ["{\"format\":1,\"minutes\":[{\"at\":", "{\"format\":2}", ""] {
        fs::write(&path, wrong).unwrap();
        let history = history(directory.path(), 10, 1100);
        assert!(table(&history, DAY).rows.is_empty());
        assert_eq!(events(&history).len(), 1);
        assert_eq!(fs::read_to_string(directory.path().join("default.history.damaged")).unwrap(), wrong);
    }
}
