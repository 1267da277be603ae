use super::*;
use crate::{CampaignStep, Conditions};

/// Runs at these minutes.
fn reading(unit: &str, runs: &[(u32, f64)]) -> Reading {
    let run =
        |&(minute, value)| Run { at: Some(format!("2026-01-01T00:{minute:02}:00.000Z")), ..Run::from(value) };
    Reading::from_runs(unit, runs.iter().map(run).collect()).unwrap()
}

fn results(readings: &[(&str, Reading)]) -> Results {
    let mut results = Results::new("throughput", Conditions::default());
    results.readings = readings.iter().map(|(name, reading)| (name.to_string(), reading.clone())).collect();
    results
}

fn compared(a: Reading, b: Reading) -> Compared {
    let comparison = Comparison::new(("a", &results(&[("rate", a)])), ("b", &results(&[("rate", b)])), 1);
    comparison.readings[0].clone()
}

/// In every second minute, the other one in between, while the machine gets slower and slower.
fn in_turn(unit: &str, factor: f64, first: u32) -> Reading {
    let noise = [1.001, 0.999, 1.0, 1.002, 0.998, 1.0, 1.001];
    let runs: Vec<_> = noise
        .iter()
        .zip(0..)
        .map(|(noise, n)| (first + 2 * n, factor * noise * 1000.0 * 0.95_f64.powi(n as i32)))
        .collect();
    reading(unit, &runs)
}

#[test]
fn a_small_gain_shows_through_a_common_drift() {
    let got = compared(in_turn("pps", 1.0, 0), in_turn("pps", 1.02, 1));
    assert_eq!((got.pairing, got.verdict, got.runs), (Pairing::Interleaved, Verdict::Better, (7, 7)));
    let spread = got.spread.unwrap();
    assert!(spread.low > 1.015 && spread.high < 1.025 && got.ratio == Some(1.02), "{got:?}");
    assert_eq!(compared(in_turn("us", 1.0, 0), in_turn("us", 1.02, 1)).verdict, Verdict::Worse);
    assert_eq!(compared(in_turn("us", 1.0, 0), in_turn("us", 0.98, 1)).verdict, Verdict::Better);
    assert_eq!(compared(in_turn("flows", 1.0, 0), in_turn("flows", 0.98, 1)).verdict, Verdict::Differs);
}

#[test]
fn equal_results_show_no_difference() {
    let mut b = in_turn("pps", 1.0, 1);
    b.runs.reverse();
    b.runs.iter_mut().for_each(|run| run.at = None);
    let got = compared(in_turn("pps", 1.0, 0), b);
    assert_eq!((got.pairing, got.verdict), (Pairing::InSequence, Verdict::NoDifference));
    assert_eq!(compared(in_turn("pps", 1.0, 0), in_turn("pps", 1.0, 1)).verdict, Verdict::NoDifference);
}

#[test]
fn runs_of_one_file_after_the_other_are_in_sequence() {
    let (a, b) = (in_turn("pps", 1.0, 0), in_turn("pps", 2.0, 20));
    assert_eq!(compared(a, b).pairing, Pairing::InSequence);
    let (one, two) = (reading("pps", &[(0, 1.0)]), reading("pps", &[(1, 1.0)]));
    assert_eq!(compared(one, two).pairing, Pairing::InSequence);
}

#[test]
fn five_pairs_are_too_few_to_say_anything() {
    let some = |factor: f64, first: u32, n: u32| {
        reading("pps", &(0..n).map(|i| (first + 2 * i, factor * f64::from(100 + i))).collect::<Vec<_>>())
    };
    let got = compared(some(1.0, 0, 5), some(2.0, 1, 5));
    assert_eq!((got.verdict, got.spread, got.ratio), (Verdict::TooFewRuns, None, Some(2.0)));
    assert_eq!(compared(some(1.0, 0, 6), some(2.0, 1, 6)).verdict, Verdict::Better);
    let got = compared(some(1.0, 0, 6), some(2.0, 1, 9));
    assert_eq!((got.pairing, got.verdict), (Pairing::Unpaired, Verdict::Better));
    assert_eq!(compared(some(0.0, 0, 6), some(2.0, 1, 6)).ratio, None);
}

#[test]
fn a_reading_with_a_run_of_zero_is_compared_by_its_difference() {
    let with_zero = |first: u32, add: f64| {
        reading("ms", &(0..8).map(|i| (first + 2 * i, f64::from(i) + add)).collect::<Vec<_>>())
    };
    let got = compared(with_zero(0, 0.0), with_zero(1, 5.0));
    assert_eq!((got.verdict, got.ratio, got.difference), (Verdict::Worse, None, Some(5.0)));
    assert_eq!(compared(with_zero(0, 0.0), with_zero(1, 0.0)).verdict, Verdict::NoDifference);
}

#[test]
fn shares_are_compared_by_their_difference() {
    let shares = |values: [f64; 6], first: u32| {
        let runs: Vec<_> = (0..).zip(values).map(|(n, value)| (first + 2 * n, value)).collect();
        reading("%", &runs)
    };
    let none = || shares([0.0; 6], 0);
    let lossy = compared(none(), shares([14.0, 14.5, 13.5, 14.0, 14.0, 14.5], 1));
    assert_eq!((lossy.ratio, lossy.difference, lossy.verdict), (None, Some(14.0), Verdict::Worse));
    let spread = lossy.spread.unwrap();
    assert!((13.5..=14.0).contains(&spread.low) && (14.0..=14.5).contains(&spread.high), "{spread:?}");
    assert_eq!(compared(none(), shares([0.0; 6], 1)).verdict, Verdict::NoDifference);
    assert_eq!(compared(shares([14.0; 6], 0), none()).verdict, Verdict::Better);
}

#[test]
fn unmatched_readings_are_named_and_doubts_are_merged() {
    let (mut one, mut other) = (in_turn("pps", 1.0, 0), in_turn("pps", 1.0, 1));
    one.doubts = vec![Doubt::VirtualLinks, Doubt::OneCore];
    other.doubts = vec![Doubt::OneCore, Doubt::GeneratorBound];
    let a = results(&[("x", one), ("y", in_turn("pps", 1.0, 0)), ("z", in_turn("us", 1.0, 0))]);
    let b = results(&[("w", in_turn("pps", 1.0, 0)), ("x", other), ("z", in_turn("ms", 1.0, 0))]);
    let comparison = Comparison::new(("a", &a), ("b", &b), 1);
    assert_eq!(comparison.alone, ["y: only in A", "z: us in A, ms in B", "w: only in B"]);
    let doubts = [Doubt::VirtualLinks, Doubt::OneCore, Doubt::GeneratorBound];
    assert_eq!((comparison.readings.len(), &comparison.readings[0].doubts[..]), (1, &doubts[..]));
}

#[test]
fn differing_conditions_are_named_except_transient_ones() {
    let (mut a, mut b) = (results(&[]), results(&[]));
    for (results, governor, khz, engine) in
        [(&mut a, Some("ondemand"), 1, None), (&mut b, None, 2, Some("xdp"))]
    {
        results.conditions.cpus.governor = governor.map(str::to_owned);
        results.conditions.cpus.khz = Some(khz);
        results.conditions.load_at_start = Some(khz.to_string());
        results.conditions.engine = engine.map(str::to_owned);
        let (text, sha256) = (khz.to_string(), format!("of {khz}"));
        results.conditions.campaign = Some(CampaignStep { text, sha256, ..CampaignStep::default() });
        results.conditions.command = vec!["shunt".to_owned(), khz.to_string()];
    }
    let named: Vec<_> = Comparison::new(("a", &a), ("b", &b), 1)
        .conditions
        .into_iter()
        .map(|it| format!("{} {} {}", it.name, it.a, it.b))
        .collect();
    let campaign = "campaign.sha256 of 1 of 2";
    let command = "command shunt 1 shunt 2";
    assert_eq!(named, [campaign, command, "cpus.governor ondemand unknown", "engine unknown xdp"]);
}
