mod cards;
mod simulated;

use super::*;
use crate::{CampaignStep, Conditions, Doubt, Labels, MachineSample, PathLabel, Reading, Run};

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
    let comparison = Comparison::new(("a", &results(&[("rate", a)])), ("b", &results(&[("rate", b)])));
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
fn results_are_equal_only_if_the_whole_interval_is_within_the_margin() {
    assert_eq!(compared(in_turn("pps", 1.0, 0), in_turn("pps", 1.0, 1)).verdict, Verdict::Equal);
    let noisy = |first: u32, factor: f64| {
        let values = [1.0, 1.5, 0.8, 1.2, 0.9, 1.1].map(|noise| factor * noise);
        reading("pps", &(0..).zip(values).map(|(n, value)| (first + 2 * n, value)).collect::<Vec<_>>())
    };
    let mut b = noisy(1, 1.0);
    b.runs.rotate_left(2);
    (0..)
        .zip(&mut b.runs)
        .for_each(|(n, run)| run.at = Some(format!("2026-01-01T00:{:02}:00.000Z", 1 + 2 * n)));
    let got = compared(noisy(0, 1.0), b);
    assert_eq!((got.verdict, got.obstacle), (Verdict::CannotTell, Some(Obstacle::WideInterval)));
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
    assert_eq!((got.obstacle, got.spread, got.ratio), (Some(Obstacle::TooFewRuns), None, Some(2.0)));
    assert_eq!(compared(some(1.0, 0, 6), some(2.0, 1, 6)).verdict, Verdict::Better);
    // A run without counterpart is left out.
    let got = compared(some(1.0, 0, 6), some(2.0, 1, 9));
    assert_eq!((got.pairing, got.verdict, got.runs), (Pairing::Interleaved, Verdict::Better, (6, 9)));
    assert_eq!(compared(some(0.0, 0, 6), some(2.0, 1, 6)).ratio, None);
}

#[test]
fn a_reading_with_a_run_of_zero_is_compared_by_its_difference() {
    let with_zero = |first: u32, add: f64| {
        reading("ms", &(0..8).map(|i| (first + 2 * i, f64::from(i) + add)).collect::<Vec<_>>())
    };
    let got = compared(with_zero(0, 0.0), with_zero(1, 5.0));
    assert_eq!((got.verdict, got.ratio, got.difference), (Verdict::Worse, None, Some(5.0)));
    assert_eq!(compared(with_zero(0, 0.0), with_zero(1, 0.0)).verdict, Verdict::Equal);
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
    assert_eq!(compared(none(), shares([0.0; 6], 1)).verdict, Verdict::Equal);
    assert_eq!(compared(shares([14.0; 6], 0), none()).verdict, Verdict::Better);
}

#[test]
fn unmatched_readings_are_named_and_doubts_are_merged() {
    let (mut one, mut other) = (in_turn("pps", 1.0, 0), in_turn("pps", 1.0, 1));
    one.doubts = vec![Doubt::VirtualLinks, Doubt::OneCore];
    other.doubts = vec![Doubt::OneCore, Doubt::GeneratorBound];
    let a = results(&[("x", one), ("y", in_turn("pps", 1.0, 0)), ("z", in_turn("us", 1.0, 0))]);
    let b = results(&[("w", in_turn("pps", 1.0, 0)), ("x", other), ("z", in_turn("ms", 1.0, 0))]);
    let comparison = Comparison::new(("a", &a), ("b", &b));
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
    let named: Vec<_> = Comparison::new(("a", &a), ("b", &b))
        .conditions
        .into_iter()
        .map(|it| format!("{} {} {}", it.name, it.a, it.b))
        .collect();
    let campaign = "campaign.sha256 of 1 of 2";
    let command = "command shunt 1 shunt 2";
    assert_eq!(named, [campaign, command, "cpus.governor ondemand unknown", "engine unknown xdp"]);
}

/// Runs of a file that was made after another, on a machine in this state.
fn in_sequence(values: &[f64], first: u32, others_percent: f64, work_us: f64) -> Results {
    let runs: Vec<_> = (first..).zip(values).map(|(minute, value)| (minute, *value)).collect();
    let mut results = results(&[("rate", reading("pps", &runs))]);
    let sample = |run: &Run| MachineSample { at: run.at.clone().unwrap(), others_percent, work_us };
    results.machine = results.readings["rate"].runs.iter().map(sample).collect();
    results
}

fn verdict(a: &Results, b: &Results) -> (Verdict, Option<Obstacle>) {
    let Compared { verdict, obstacle, .. } = Comparison::new(("a", a), ("b", b)).readings[0];
    (verdict, obstacle)
}

const QUIET: (f64, f64) = (0.5, 10_000.0);

#[test]
fn files_made_one_after_the_other_are_compared_on_a_quiet_machine_only() {
    let noise = [1.001, 0.999, 1.0, 1.002, 0.998, 1.0];
    let a = in_sequence(&noise, 0, QUIET.0, QUIET.1);
    let b =
        |factor: f64, (others, work_us)| in_sequence(&noise.map(|value| value * factor), 20, others, work_us);
    let cannot = |obstacle| (Verdict::CannotTell, Some(obstacle));
    for (factor, machine, want) in [
        (1.1, QUIET, (Verdict::Better, None)),
        (0.9, QUIET, (Verdict::Worse, None)),
        (1.03, QUIET, (Verdict::Equal, None)),
        (1.055, (0.5, 10_200.0), cannot(Obstacle::MayBeDrift)),
        (1.1, (0.5, 10_200.0), (Verdict::Better, None)),
        (1.1, (0.5, 10_800.0), cannot(Obstacle::MayBeDrift)),
        (4.2, (0.5, 30_000.0), cannot(Obstacle::MachineChanged)),
        (4.2, (0.5, 3_000.0), cannot(Obstacle::MachineChanged)),
        (4.2, (30.0, 10_000.0), cannot(Obstacle::MachineBusy)),
    ] {
        assert_eq!(verdict(&a, &b(factor, machine)), want, "{factor} {machine:?}");
    }
    // Without a record of the machine, nothing is concluded.
    let mut earlier = b(4.2, QUIET);
    earlier.machine.clear();
    assert_eq!(verdict(&a, &earlier), cannot(Obstacle::MachineUnknown));
    // Fixed work takes another time on another CPU.
    let mut other = b(4.2, (0.5, 30_000.0));
    other.conditions.cpus.model = Some("Cortex-A53".to_owned());
    assert_eq!(verdict(&a, &other), (Verdict::Better, None));
}

#[test]
fn one_engine_in_each_file_is_compared_by_frame_size() {
    let of = |engine, sizes: &[u32]| {
        let name = |size| format!("{engine} {size}");
        let mut all = results(&[]);
        for size in sizes {
            let mut rate = in_turn("pps", f64::from(*size), 0);
            rate.labels = Labels { engine: Some(engine), frame_bytes: Some(*size), ..Labels::default() };
            all.readings.insert(name(*size), rate);
        }
        all.readings.insert("load".to_owned(), in_turn("%", 1.0, 0));
        all
    };
    let (slow, tc) = (of(PathLabel::Slow, &[64, 128]), of(PathLabel::Tc, &[64, 1518]));
    let names = |a: &Results, b: &Results| {
        let comparison = Comparison::new(("a", a), ("b", b));
        let names: Vec<String> = comparison.readings.into_iter().map(|reading| reading.name).collect();
        (names.join(", "), comparison.alone.join(", "))
    };
    let text = |text: &str| text.to_owned();
    assert_eq!(
        names(&slow, &tc),
        (text("load, slow 64 / tc 64"), text("slow 128: only in A, tc 1518: only in B"))
    );
    // With two engines in a file, it is not clear which is meant.
    let mut both = tc.clone();
    both.readings.extend(of(PathLabel::Xdp, &[64]).readings);
    assert_eq!(names(&slow, &both).0, "load");
    // Labels that two readings share are ambiguous.
    let mut twice = tc.clone();
    twice.readings.insert("tc 64 again".to_owned(), tc.readings["tc 64"].clone());
    assert_eq!(names(&slow, &twice).0, "load");
}
