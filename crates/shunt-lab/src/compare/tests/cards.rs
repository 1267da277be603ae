//! How often two cards of the same router are said to differ in anything, by simulation: with the noise of measurements
//! on a quiet machine, with much more, and while the speed of the machine moves.

use super::{simulated::recorded_noise, *};
use crate::{card, statistics::RUNS_WANTED};
use fastrand::Rng;

const READINGS: usize = 9;
const CARDS: u32 = 300;

/// A card whose rounds are a minute apart. `noise` is that of one run of a reading, by its number, and the speed of the
/// machine is that of the round.
fn simulated_card(
    first_minute: usize,
    factor: f64,
    speed: &mut dyn FnMut() -> f64,
    noise: &mut dyn FnMut(usize) -> f64,
) -> Results {
    let (mut runs, mut machine) = (vec![Vec::new(); READINGS], Vec::new());
    for round in 0..RUNS_WANTED {
        let at = format!("2026-01-01T00:{:02}:00.000Z", first_minute + round);
        let speed = speed();
        for (nth, runs) in runs.iter_mut().enumerate() {
            runs.push(Run { at: Some(at.clone()), ..Run::from(1e6 * factor * speed * noise(nth)) });
        }
        machine.push(MachineSample { at, others_percent: 0.0, work_us: 10_000.0 / speed });
    }
    let named = |(nth, runs)| (format!("ndr {nth} slow"), Reading::from_runs("pps", runs).unwrap());
    let readings = runs.into_iter().enumerate().map(named).collect();
    Results { readings, machine, ..Results::new(card::WHAT, Conditions::default()) }
}

/// The number of pairs of cards in which B is said to differ from A in at least one reading.
fn differing_cards(
    pairs: u32,
    factor: f64,
    speed: &mut dyn FnMut() -> f64,
    noise: &mut dyn FnMut(usize) -> f64,
) -> usize {
    let mut differs = || {
        let a = simulated_card(0, 1.0, speed, noise);
        let b = simulated_card(RUNS_WANTED, factor, speed, noise);
        let comparison = Comparison::new(("a", &a), ("b", &b));
        assert!(comparison.readings.iter().all(|reading| reading.together == READINGS));
        comparison.readings.iter().any(|reading| matches!(reading.verdict, Verdict::Better | Verdict::Worse))
    };
    (0..pairs).filter(|_| differs()).count()
}

/// A normally distributed number (Box-Muller).
fn normal(random: &mut Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.f64()).cos()
}

#[test]
fn a_card_compared_with_itself_shows_no_difference_in_20_of_20() {
    let (recorded, mut random) = (recorded_noise(), Rng::with_seed(3));
    let mut noise = |nth: usize| {
        let of = &recorded[nth % recorded.len()];
        of[random.usize(..of.len())]
    };
    assert_eq!(differing_cards(20, 1.0, &mut || 1.0, &mut noise), 0);
    // A router that is slower by 15 % is told.
    let told = differing_cards(20, 0.85, &mut || 1.0, &mut noise);
    assert!(told >= 19, "{told}");
}

#[test]
fn a_noisy_card_differs_from_itself_in_less_than_one_of_twenty() {
    // Runs of the busiest machines differ by tens of percent.
    for deviation in [0.05, 0.15, 0.4] {
        let mut random = Rng::with_seed(4);
        let mut noise = |_| (deviation * normal(&mut random)).exp();
        let wrong = differing_cards(CARDS, 1.0, &mut || 1.0, &mut noise);
        assert!(wrong * 20 <= CARDS as usize, "{deviation}: {wrong} of {CARDS}");
    }
}

#[test]
fn a_machine_whose_speed_moves_between_two_cards_makes_no_difference() {
    let (mut random, mut log_speed) = (Rng::with_seed(5), 0.0_f64);
    let mut speed = || {
        log_speed = (log_speed + 0.1 * (random.f64() - 0.5)).clamp(-0.7, 0.0);
        log_speed.exp()
    };
    let mut of_run = Rng::with_seed(6);
    let mut noise = |_| (0.03 * normal(&mut of_run)).exp();
    let wrong = differing_cards(CARDS, 1.0, &mut speed, &mut noise);
    assert!(wrong * 20 <= CARDS as usize, "{wrong} of {CARDS}");
}
