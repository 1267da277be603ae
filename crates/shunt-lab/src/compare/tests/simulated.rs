//! How often a comparison is right, by simulation: with the noise of measurements on a quiet machine, and beside a
//! machine whose speed moves.

use super::*;
use crate::statistics::RUNS_WANTED;

const RECORDED: &str = include_str!("../../../../../lab/results/bench-epyc-veth-6.18.json");
const COMPARISONS: u32 = 200;

/// The runs of the readings of router CPU per packet, divided by their median: they differ by up to 5 %.
pub(super) fn recorded_noise() -> Vec<Vec<f64>> {
    let results = Results::parse(RECORDED).unwrap();
    let is_quiet = |name: &&String| name.starts_with("packets: ") || name.starts_with("bridged: ");
    let divided = |name: &String| {
        let reading = &results.readings[name];
        reading.values().iter().map(|value| value / reading.value).collect()
    };
    let noise: Vec<Vec<f64>> = results.readings.keys().filter(is_quiet).map(divided).collect();
    assert_eq!(noise.len(), 7);
    noise
}

/// How the files of a comparison were made.
#[derive(Clone, Copy)]
enum Order {
    InTurn,
    InSequence,
}

/// Simulates comparisons, and returns the share of those in which B is said to be better or worse. `speed` is the speed
/// of the machine in the next run, and `noise` that of the run itself.
fn claims(
    order: Order,
    factor: f64,
    random: &mut fastrand::Rng,
    speed: &mut dyn FnMut(&mut fastrand::Rng) -> f64,
    noise: &mut dyn FnMut(&mut fastrand::Rng) -> f64,
) -> f64 {
    let mut claimed = 0;
    for _ in 0..COMPARISONS {
        let (mut runs, mut samples) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        for nth in 0..2 * RUNS_WANTED {
            let side = match order {
                Order::InTurn => nth % 2,
                Order::InSequence => nth / RUNS_WANTED,
            };
            let at = format!("2026-01-01T00:{nth:02}:00.000Z");
            let speed = speed(random);
            let by = if side == 1 { factor } else { 1.0 };
            runs[side].push(Run { at: Some(at.clone()), ..Run::from(1e6 * by * speed * noise(random)) });
            samples[side].push(MachineSample { at, others_percent: 0.0, work_us: 10_000.0 / speed });
        }
        let [a, b] = [0, 1].map(|side| {
            let reading = Reading::from_runs("pps", runs[side].clone()).unwrap();
            Results { machine: samples[side].clone(), ..results(&[("rate", reading)]) }
        });
        claimed += u32::from(matches!(verdict(&a, &b).0, Verdict::Better | Verdict::Worse));
    }
    f64::from(claimed) / f64::from(COMPARISONS)
}

/// The mean of the claims over the noise of all recorded readings.
fn claims_with_recorded_noise(order: Order, factor: f64) -> f64 {
    let mut random = fastrand::Rng::with_seed(1);
    let recorded = recorded_noise();
    let of_reading = |of: &Vec<f64>| {
        let noise = &mut |random: &mut fastrand::Rng| of[random.usize(..of.len())];
        claims(order, factor, &mut random, &mut |_| 1.0, noise)
    };
    recorded.iter().map(of_reading).sum::<f64>() / recorded.len() as f64
}

#[test]
fn a_tenth_is_told_and_equal_runs_are_not_on_a_quiet_machine() {
    for order in [Order::InTurn, Order::InSequence] {
        for factor in [0.9, 1.1] {
            let told = claims_with_recorded_noise(order, factor);
            assert!(told >= 0.9, "{factor}: {told}");
        }
        let wrong = claims_with_recorded_noise(order, 1.0);
        assert!(wrong <= 0.05, "{wrong}");
    }
}

#[test]
fn a_machine_whose_speed_moves_makes_no_difference() {
    // The speed drifts between a quarter and the whole, from run to run and even more over time.
    for step in [0.02, 0.1, 0.3] {
        for order in [Order::InTurn, Order::InSequence] {
            let mut random = fastrand::Rng::with_seed(2);
            let mut log_speed = -0.7_f64;
            let speed = &mut |random: &mut fastrand::Rng| {
                log_speed = (log_speed + step * (2.0 * random.f64() - 1.0)).clamp(-1.4, 0.0);
                log_speed.exp()
            };
            let noise = &mut |random: &mut fastrand::Rng| 1.0 + 0.02 * (random.f64() - 0.5);
            let wrong = claims(order, 1.0, &mut random, speed, noise);
            assert!(wrong <= 0.05, "{step}: {wrong}");
        }
    }
}
