use super::*;

#[test]
fn quantiles_are_those_of_r() {
    // quantile(c(15, 20, 35, 40, 50), c(0, .05, .25, .3, .4, .5, .95, 1))
    let values = [50.0, 15.0, 40.0, 20.0, 35.0];
    for (share, want) in [
        (0.0, 15.0),
        (0.05, 16.0),
        (0.25, 20.0),
        (0.3, 23.0),
        (0.4, 29.0),
        (0.5, 35.0),
        (0.95, 48.0),
        (1.0, 50.0),
    ] {
        let got = quantile(&values, share).unwrap();
        assert!((got - want).abs() < 1e-9, "{share}: {got}");
    }
    assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    assert_eq!((median(&[]), quantile(&values, 1.1), quantile(&values, f64::NAN)), (None, None, None));
}

#[test]
fn a_nearest_rank_is_a_value_of_the_sample() {
    let values: Vec<u64> = (1..=200).collect();
    assert_eq!([0, 50, 99, 100].map(|percent| nearest_rank(&values, percent)), [1, 100, 198, 200].map(Some));
    assert_eq!((nearest_rank(&[7], 99), nearest_rank::<u64>(&[], 50)), (Some(7), None));
}

#[test]
fn one_outlier_does_not_move_the_deviation() {
    // mad(c(1, 1, 2, 2, 4, 6, 9), constant = 1)
    assert_eq!(median_deviation(&[1.0, 1.0, 2.0, 2.0, 4.0, 6.0, 9.0]), Some(1.0));
    assert_eq!(median_deviation(&[1.0, 1.0, 2.0, 2.0, 4.0, 6.0, 9e9]), Some(1.0));
    assert_eq!(median_deviation(&[]), None);
}

fn spread(low: f64, high: f64, kind: SpreadKind) -> Spread {
    Spread { low, high, kind }
}

#[test]
fn an_interval_is_of_95_percent_from_six_runs_on() {
    use SpreadKind::{Confidence95, Range};
    let one_to = |n: u32| (1..=n).map(f64::from).collect::<Vec<_>>();
    assert_eq!(median_interval(&one_to(5)), Some(spread(1.0, 5.0, Range)));
    assert_eq!(median_interval(&one_to(6)), Some(spread(1.0, 6.0, Confidence95)));
    assert_eq!(median_interval(&one_to(9)), Some(spread(2.0, 8.0, Confidence95)));
    assert_eq!(median_interval(&[]), None);
    let (value, within) = ratio_of_samples(&[10.0, 11.0, 12.0], &[5.0; 3], 1).unwrap();
    assert_eq!((value, within), (2.2, spread(2.0, 2.4, Range)));
    let (value, within) = ratio_of_samples(&one_to(6), &[1.0; 6], 1).unwrap();
    // Of 36 ratios, six are 1, and five are left out at each end.
    assert_eq!((value, within), (3.5, spread(1.0, 6.0, Confidence95)));
}

#[test]
fn a_disturbance_of_both_runs_of_a_pair_cancels_out() {
    let to = [100.0, 900.0, 300.0, 10.0];
    let of = to.map(|value| value * 0.5);
    let (value, within) = ratio_of_pairs(&of, &to, 1).unwrap();
    assert_eq!((value, within.low, within.high), (0.5, 0.5, 0.5));
    for (of, to) in [(&[1.0][..], &[0.0][..]), (&[], &[]), (&[1.0, 2.0], &[1.0])] {
        assert_eq!(ratio_of_pairs(of, to, 1), None);
    }
    assert_eq!((ratio_of_samples(&[], &[1.0], 1), ratio_of_samples(&[1.0], &[0.0], 1)), (None, None));
}

#[test]
fn shares_of_0_have_a_difference() {
    let (value, within) = difference_of_pairs(&[14.0, 15.0, 16.0], &[0.0; 3], 1).unwrap();
    assert_eq!((value, within.low, within.high), (15.0, 14.0, 16.0));
    let (value, within) = difference_of_samples(&[0.0; 4], &[0.0; 9], 1).unwrap();
    assert_eq!((value, within.low, within.high), (0.0, 0.0, 0.0));
    assert_eq!(difference_of_pairs(&[1.0], &[], 1), None);
}

/// Of how many of many simulated measurements the interval contains the true value, in percent.
fn coverage(mut interval: impl FnMut(&mut fastrand::Rng) -> (Spread, f64)) -> f64 {
    const MEASUREMENTS: u32 = 5_000;
    let mut random = fastrand::Rng::with_seed(1);
    let covers = (0..MEASUREMENTS).filter(|_| {
        let (Spread { low, high, kind }, truth) = interval(&mut random);
        assert_eq!(kind, SpreadKind::Confidence95);
        (low..=high).contains(&truth)
    });
    covers.count() as f64 / f64::from(MEASUREMENTS) * 100.0
}

/// A time with a long tail, whose median is ln 2.
fn waiting(random: &mut fastrand::Rng) -> f64 {
    -(1.0 - random.f64()).ln()
}

#[test]
fn intervals_cover_the_truth_in_95_percent() {
    // The standard error of the simulation is 0.3 %.
    const LEAST: f64 = 94.1;
    let draw = |random: &mut fastrand::Rng, n: usize| (0..n).map(|_| waiting(random)).collect::<Vec<_>>();
    for n in [6, 7, 9, 20] {
        let of_median = coverage(|random| (median_interval(&draw(random, n)).unwrap(), 2.0_f64.ln()));
        assert!(of_median > LEAST, "median of {n}: {of_median} %");
        let of_pairs = coverage(|random| {
            let (to, noise) = (draw(random, n), draw(random, n));
            let of: Vec<f64> = to.iter().zip(noise).map(|(to, noise)| to * (1.5 + noise)).collect();
            (ratio_of_pairs(&of, &to, 1).unwrap().1, 1.5 + 2.0_f64.ln())
        });
        assert!(of_pairs > LEAST, "{n} pairs: {of_pairs} %");
        let of_samples = coverage(|random| {
            let of: Vec<f64> = draw(random, n).iter().map(|value| value * 1.5).collect();
            (ratio_of_samples(&of, &draw(random, 6), 1).unwrap().1, 1.5)
        });
        assert!(of_samples > LEAST, "{n} and 6: {of_samples} %");
    }
    // The intervals are not wider than they must be, either: the next value would be too narrow.
    let nine = coverage(|random| (median_interval(&draw(random, 9)).unwrap(), 2.0_f64.ln()));
    assert!((95.0..97.0).contains(&nine), "96.1 % by the binomial distribution: {nine} %");
}

#[test]
fn the_interval_of_a_loss_covers_the_truth_in_95_percent() {
    // Exact, by the probability of each number of lost packets.
    const SENT: u64 = 400;
    for share in [0.002, 0.0376, 0.5, 0.7] {
        let mut chance = (1.0_f64 - share).powi(SENT as i32);
        let mut covered = 0.0;
        for lost in 0..=SENT {
            let Spread { low, high, .. } = share_interval(lost, SENT).unwrap();
            covered += if (low..=high).contains(&share) { chance } else { 0.0 };
            chance *= (SENT - lost) as f64 / (lost + 1) as f64 * share / (1.0 - share);
        }
        assert!((0.95..0.999_9).contains(&covered), "{share}: {covered}");
    }
}
