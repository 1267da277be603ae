//! What may be told from which rounds.

use super::{estimate::Estimate, *};
use shunt_api::Savings;
use shunt_bpf::{NetReading, abi::reason::COST_SAMPLE};

const NOW: u64 = 1_795_968_312;
const SINCE_BOOT: Duration = Duration::from_secs(90_000);
/// What the rounds of these tests are made of, in ns a packet.
const FAST: f64 = 250.0;
const SLOW: f64 = 1350.0;

/// Fast packets of tc, of 1000 bytes.
fn traffic(pps: u64, seconds: u64) -> Counters {
    let tc_pkts = pps * seconds;
    Counters { tc_pkts, tc_bytes: tc_pkts * 1000, ..Counters::default() }
}

/// A round with so many packets of each path, whose slow path took `more` ns than usual for each.
fn round(packets: f64, more: f64) -> Round {
    let mut round = Round {
        fast_ns: packets * FAST,
        fast_pkts: packets,
        slow_ns: packets * (SLOW + more),
        slow_pkts: packets,
        ..Round::default()
    };
    round.set_hooks(120.0, 20.0);
    round
}

/// Rounds that differ by up to `spread` ns.
fn rounds(count: usize, spread: f64) -> Vec<Round> {
    (0..count).map(|n| round(1000.0, spread * ((n % 3) as f64 - 1.0))).collect()
}

fn book(directory: &tempfile::TempDir, machine: &str) -> SavingsBook {
    let file = KeptFile::new(directory.path().join("default.savings"), FILE_BYTES_MAX);
    SavingsBook::load(file, machine.to_owned(), true)
}

/// A book with enough rounds of 100,000 packets/s.
fn filled(directory: &tempfile::TempDir) -> SavingsBook {
    let mut book = book(directory, "this one");
    assert_eq!(book.add_interval(NOW, &traffic(100_000, 10), 10.0), None);
    let (kind, _) = Traffic::of(&traffic(100_000, 10), 10.0).unwrap();
    for round in rounds(ROUNDS_MIN, 30.0) {
        book.add_round(NOW, kind, Ok(round));
    }
    book
}

#[test]
fn the_difference_of_both_paths_is_told_without_shunts_own_programs() {
    let estimate = Estimate::of(&rounds(9, 30.0), false).unwrap();
    // 9 rounds, a third of them each at -30, 0 and 30: the mean has an error of 8.66, and t of 8 degrees is 2.306. The
    // doubt of the programs is added, and below, 8 % of the slow path: the kernel calls the programs.
    let half = 2.306 * 8.66 + 20.0;
    let high = SLOW - 100.0 - FAST + half;
    let low = SLOW - 100.0 - FAST - half - 0.08 * (SLOW - 100.0);
    assert!(
        (estimate.saved.high - high).abs() < 0.1 && (estimate.saved.low - low).abs() < 0.1,
        "{estimate:?}"
    );
    assert!((estimate.saved.value - (low + high) / 2.0).abs() < 0.1, "{estimate:?}");
    assert!(
        (estimate.slow_ns - estimate.saved.value - FAST).abs() < 1e-6
            && (estimate.fast_ns - FAST).abs() < 1e-6
    );
    // With XDP, a driver makes frames that Linux alone does not need.
    let xdp = Estimate::of(&rounds(9, 30.0), true).unwrap();
    assert!((xdp.saved.high - high).abs() < 0.1 && (xdp.saved.low - (low - FAST)).abs() < 0.1, "{xdp:?}");
    assert_eq!(Estimate::of(&rounds(2, 0.0), false), None);
}

#[test]
fn an_interval_has_the_true_value_in_about_95_of_100_cases() {
    // A generator of numbers that are spread as those of a normal distribution.
    let mut state = 0x1234_5678_9abc_def1_u64;
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    let mut hits = 0;
    for _ in 0..2000 {
        let mut rounds = Vec::new();
        for _ in 0..8 {
            let noise: f64 = (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
            let mut round = round(500.0 + 1000.0 * uniform(), 100.0 * noise);
            round.set_hooks(0.0, 0.0);
            rounds.push(round);
        }
        let Estimate { saved, fast_ns, .. } = Estimate::of(&rounds, false).unwrap();
        // The interval without the doubt about calls of programs.
        let middle = (saved.low + saved.high + 0.08 * fast_ns) / 1.92;
        let low = saved.low + 0.08 * (middle + fast_ns);
        hits += u32::from((low..=saved.high).contains(&(SLOW - FAST)));
    }
    assert!((1820..=1960).contains(&hits), "{hits} of 2000");
}

#[test]
fn a_round_that_something_else_disturbed_is_left_out_but_not_a_quarter_of_them() {
    let mut all = rounds(9, 30.0);
    all.push(round(1000.0, 90_000.0));
    let estimate = Estimate::of(&all, false).unwrap();
    assert!((estimate.saved.value - 950.0).abs() < 30.0, "{estimate:?}");
    all.extend([round(1000.0, 90_000.0); 4]);
    let estimate = Estimate::of(&all, false).unwrap();
    assert!(estimate.saved.relative() > 0.5, "{estimate:?}");
}

#[test]
fn cores_follow_the_packets_and_a_week_is_told_for_the_known_part() {
    let directory = tempfile::tempdir().unwrap();
    let mut book = filled(&directory);
    let view = book.view(NOW, SINCE_BOOT);
    let cores = view.now_cores.unwrap();
    assert!((cores.value - 0.095).abs() < 0.001 && cores.low < 0.09 && cores.high > 0.1, "{cores:?}");
    // A million packets of 0.95 us each.
    let hours = view.week_core_hours.unwrap();
    assert!((hours.value * 3600.0 - 0.95).abs() < 0.01, "{hours:?}");
    assert!((view.week_known_share - 1.0).abs() < 1e-9);
    assert!((view.week_counted_hours * 3600.0 - 10.0).abs() < 1e-9);
    // Traffic of another kind, of which nothing is known: the week is told for a third of the packets, which is too
    // little.
    assert_eq!(book.add_interval(NOW, &traffic(2000, 1000), 1000.0), None);
    let view = book.view(NOW, SINCE_BOOT);
    assert_eq!(view.now_unknown, Some(few_rounds(0)));
    assert!(view.week_core_hours.is_none() && (view.week_known_share - 1.0 / 3.0).abs() < 1e-9);
    // In a week, all of that is over.
    assert_eq!(
        book.add_interval(NOW + Savings::WEEK_S + 3600, &traffic(100_000, 10), 10.0).map(f64::round),
        Some(1.0)
    );
    let view = book.view(NOW + Savings::WEEK_S + 3600, SINCE_BOOT);
    assert!((view.week_known_share - 1.0).abs() < 1e-9, "{view:?}");
}

#[test]
fn without_ground_the_answer_is_cannot_tell() {
    let directory = tempfile::tempdir().unwrap();
    let mut book = book(&directory, "this one");
    let few = CannotTell::FewPackets { least_pps: Traffic::LEAST_PPS };
    assert_eq!(book.view(NOW, SINCE_BOOT).now_unknown, Some(CannotTell::TooEarly));
    book.add_interval(NOW, &traffic(100, 10), 10.0);
    assert_eq!(book.view(NOW, SINCE_BOOT).now_unknown, Some(few));
    let external = Counters { external_pkts: 1_000_000, ..traffic(100_000, 10) };
    book.add_interval(NOW, &external, 10.0);
    assert_eq!(book.view(NOW, SINCE_BOOT).now_unknown, Some(CannotTell::External));
    book.add_interval(NOW, &traffic(100_000, 10), 10.0);
    let (kind, _) = Traffic::of(&traffic(100_000, 10), 10.0).unwrap();
    let loaded = CannotTell::Loaded { busy: 0.3 };
    book.add_round(NOW, kind, Err(loaded.clone()));
    assert_eq!(book.view(NOW, SINCE_BOOT).now_unknown, Some(loaded));
    for more in [-3000.0, 3000.0, -2000.0, 2000.0, 1000.0, -1500.0] {
        book.add_round(NOW, kind, Ok(round(1000.0, more)));
    }
    let view = book.view(NOW, SINCE_BOOT);
    assert!(matches!(view.now_unknown, Some(CannotTell::Uncertain { low, .. }) if low < 0.0), "{view:?}");
    assert!(view.week_core_hours.is_none());
    book.off = true;
    assert_eq!(book.view(NOW, SINCE_BOOT).now_unknown, Some(CannotTell::Off));
    assert_eq!(book.due(Duration::from_secs(100), true), None);
}

#[test]
fn where_xdp_keeps_a_driver_from_merging_there_is_only_an_upper_bound() {
    let directory = tempfile::tempdir().unwrap();
    let mut book = book(&directory, "this one");
    let large = Counters { xdp_pkts: 1_000_000, xdp_bytes: 1_400_000_000, ..Counters::default() };
    book.add_interval(NOW, &large, 10.0);
    let (kind, _) = Traffic::of(&large, 10.0).unwrap();
    for round in rounds(ROUNDS_MIN, 30.0) {
        book.add_round(NOW, kind, Ok(Round { merging: true, ..round }));
    }
    let view = book.view(NOW, SINCE_BOOT);
    let Some(CannotTell::Merging { high }) = view.now_unknown else { panic!("{view:?}") };
    let costs = view.costs.unwrap();
    assert!(high > 0.1 && high < 0.11, "{high}");
    // Linux takes some time for a packet, nobody knows how much.
    assert!((costs.saved_ns.low + costs.fast_ns).abs() < 1e-6, "{costs:?}");
    assert!(view.now_cores.is_none() && view.week_core_hours.is_none(), "nobody knows the cost");
    assert_eq!(book.add_interval(NOW, &large, 10.0), None);
    // Of small packets, none is a part of a merged one.
    assert!(!kind.is_small());
}

#[test]
fn rounds_come_more_often_until_there_are_enough() {
    let directory = tempfile::tempdir().unwrap();
    let mut book = filled(&directory);
    let s = Duration::from_secs;
    assert!(book.due(s(100), false).is_some());
    assert_eq!(book.due(s(130), true), None);
    assert!(book.due(s(160), false).is_some());
    book.add_interval(NOW, &traffic(2000, 10), 10.0);
    assert_eq!(book.due(s(165), false), None);
    assert!(book.due(s(165), true).is_some() && book.due(s(175), false).is_some());
}

#[test]
fn linux_gets_no_traffic_that_it_could_not_carry() {
    assert_eq!(overload(RATIO, 0.05), None);
    assert_eq!(overload(RATIO, 0.1), Some(CannotTell::Loaded { busy: 0.1 }));
    let directory = tempfile::tempdir().unwrap();
    // Once it is known that Linux takes five times as much, more traffic is measured.
    assert!((filled(&directory).ratio() - 5.4).abs() < 0.2);
    assert_eq!(overload(5.4, 0.1), None);
}

#[test]
fn costs_are_kept_for_the_same_machine_only() {
    let directory = tempfile::tempdir().unwrap();
    let mut first = filled(&directory);
    first.replacement().write().unwrap();
    let again = book(&directory, "this one");
    assert_eq!((&again.rounds, &again.hours), (&first.rounds, &first.hours));
    let moved = book(&directory, "another one");
    assert!(moved.rounds.is_empty() && moved.hours == Hours::default());
}

/// Two readings, `ms` apart, between which a CPU spent `net_us` for packets.
fn window(ms: u64, net_us: u64, port: Counters) -> Counted {
    let reading = |at, net, ports| NetReading { at, cpus: vec![Duration::ZERO, net], ports: vec![ports] };
    let before = reading(Duration::from_secs(9), Duration::from_micros(5), Counters::default());
    let after =
        reading(Duration::from_secs(9) + Duration::from_millis(ms), Duration::from_micros(5 + net_us), port);
    Counted::between(&before, &after)
}

fn slow(packets: u64, frames: u64, bytes: u64) -> Counters {
    let mut counters = Counters { sampled_bytes: bytes, sampled_frames: frames, ..Counters::default() };
    counters.reasons[COST_SAMPLE] = packets;
    counters
}

#[test]
fn packets_of_both_paths_are_counted_alike() {
    let fast = window(10, 250, Counters { tc_pkts: 100, tc_bytes: 400_000, ..Counters::default() });
    assert!((fast.busiest - 0.025).abs() < 1e-9);
    // Half as many aggregates of twice the size: as many packets, for tc.
    let halves = window(10, 1000, slow(50, 400, 400_000));
    let tc = Round::new(&[fast], std::slice::from_ref(&halves)).unwrap();
    assert!((tc.slow_pkts - 100.0).abs() < 1e-9 && (tc.difference_ns() - 7500.0).abs() < 1e-6, "{tc:?}");
    // For XDP, frames.
    let fast = window(10, 100, Counters { xdp_pkts: 400, xdp_bytes: 400_000, ..Counters::default() });
    let xdp = Round::new(std::slice::from_ref(&fast), &[halves]).unwrap();
    assert!((xdp.slow_pkts - 400.0).abs() < 1e-9 && (xdp.ratio() - 10.0).abs() < 1e-9, "{xdp:?}");
    assert_eq!(
        Round::new(std::slice::from_ref(&fast), &[window(10, 900, slow(100, 100, 100_000))]),
        Err(CannotTell::Unsteady)
    );
    let leaky = Counters { xdp_pkts: 100, ..slow(300, 300, 300_000) };
    assert_eq!(
        Round::new(std::slice::from_ref(&fast), &[window(10, 900, leaky)]),
        Err(CannotTell::Interrupted)
    );
    let few = Round::new(&[fast], &[window(10, 900, slow(10, 10, 10_000))]);
    assert_eq!(few, Err(CannotTell::Unsteady));
}

#[test]
fn kinds_of_traffic_differ_by_engine_rate_and_size() {
    let kind = |counted: Counters| Traffic::of(&counted, 10.0).unwrap().0;
    let usual = kind(traffic(100_000, 10));
    assert_eq!(kind(traffic(110_000, 10)), usual);
    assert_ne!(kind(traffic(10_000, 10)), usual);
    let small = Counters { tc_bytes: 60_000_000, ..traffic(100_000, 10) };
    assert_ne!(kind(small), usual);
    let xdp = Counters { xdp_pkts: 1_000_000, xdp_bytes: 1_000_000_000, ..Counters::default() };
    assert_ne!(kind(xdp), usual);
    assert_eq!(usual.to_string().parse(), Ok(usual));
    for bad in ["", "tc", "tc-1", "tc-1-x", "ack-1-1", "tc-1-1-1", "tc-999-1"] {
        assert!(bad.parse::<Traffic>().is_err(), "{bad}");
    }
}
