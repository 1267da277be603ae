use super::{
    simulated::{Behaviour, Router},
    *,
};
use std::convert::Infallible;

const RANGE: Range = Range { min_pps: 9_001.0, max_pps: 1.488e6 };
const GOALS: [Goal; 2] = [Goal::NDR, Goal::PDR];

fn searched(search: &mut dyn Search, router: &mut Router) -> (Vec<GoalResult>, usize) {
    let mut trials = 0;
    let results = run(search, |trial| {
        trials += 1;
        assert!(trials < 2_000, "it does not end: {trial:?}");
        assert!((RANGE.min_pps..=RANGE.max_pps).contains(&trial.load_pps), "{trial:?}");
        Ok::<_, Infallible>(router.measure(trial))
    });
    (results.unwrap(), trials)
}

fn mlr(behaviour: Behaviour, seed: u64) -> (Vec<GoalResult>, usize) {
    let mut search = MlrSearch::new(&GOALS, RANGE).unwrap();
    searched(&mut search, &mut Router::new(behaviour, seed))
}

/// How far the result is below the truth; one frame in 10^9 may be a rounding error of a load.
fn below(truth_pps: f64, result: &GoalResult) -> f64 {
    let below = 1.0 - result.throughput_pps.unwrap() / truth_pps;
    if below.abs() < 1e-9 { 0.0 } else { below }
}

fn random_capacity(random: &mut fastrand::Rng) -> f64 {
    (11_000.0 * (1.4e6_f64 / 11_000.0).powf(random.f64())).floor()
}

#[test]
fn ndr_is_within_half_a_percent_of_the_truth_in_some_forty_trials() {
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..300 {
        let capacity_pps = random_capacity(&mut random);
        let (results, trials) = mlr(Behaviour { capacity_pps, ..Behaviour::default() }, 0);
        let [ndr, pdr] = &results[..] else { panic!("{results:?}") };
        assert_eq!((ndr.irregular, pdr.irregular), (None, None));
        assert!((0.0..=0.005).contains(&below(capacity_pps, ndr)), "{capacity_pps}: {ndr:?}");
        assert!((-1e-3..=0.005).contains(&below(capacity_pps, pdr)), "{capacity_pps}: {pdr:?}");
        assert!(
            ndr.lower_pps <= pdr.lower_pps && trials <= 60,
            "{capacity_pps}: {trials} trials, {results:?}"
        );
    }
}

#[test]
fn the_throughput_of_a_router_that_collapses_is_found() {
    let mut random = fastrand::Rng::with_seed(2);
    for _ in 0..100 {
        let capacity_pps = random_capacity(&mut random);
        let behaviour = Behaviour { capacity_pps, collapse: 5.0, ..Behaviour::default() };
        let (results, trials) = mlr(behaviour, 0);
        let error = below(capacity_pps, &results[0]);
        assert!((0.0..=0.005).contains(&error) && trials <= 80, "{capacity_pps}: {trials}, {results:?}");
    }
}

#[test]
fn occasional_bursts_of_loss_do_not_move_the_result() {
    // Less than half of the seconds have a burst.
    let behaviour =
        Behaviour { capacity_pps: 5e5, bursts_per_s: 0.2, burst_frames: 50, ..Behaviour::default() };
    for seed in 0..50 {
        let (results, _) = mlr(behaviour, seed);
        assert_eq!(results[0].irregular, None);
        let error = below(5e5, &results[0]);
        assert!((0.0..=0.011).contains(&error), "{seed}: {results:?}");
    }
}

#[test]
fn a_loss_floor_leaves_no_ndr_but_a_pdr() {
    let (results, _) = mlr(Behaviour { capacity_pps: 8e5, loss_floor: 0.002, ..Behaviour::default() }, 3);
    assert_eq!(results[0].irregular, Some(Irregular::MinLoadFails));
    assert_eq!((results[0].lower_pps, results[0].upper_pps), (None, Some(RANGE.min_pps)));
    let pdr = &results[1];
    let error = below(8e5, pdr);
    assert!(pdr.irregular.is_none() && error.abs() < 0.01, "{pdr:?}");
}

#[test]
fn a_throughput_beyond_the_maximum_load_is_reported_as_irregular() {
    let (results, trials) = mlr(Behaviour { capacity_pps: 2e6, ..Behaviour::default() }, 0);
    for result in results {
        assert_eq!(result.irregular, Some(Irregular::MaxLoadPasses));
        assert_eq!((result.throughput_pps, result.upper_pps), (Some(RANGE.max_pps), None));
    }
    assert_eq!(trials, 11);
}

#[test]
fn the_warm_up_trial_is_not_kept() {
    let cold = Behaviour { capacity_pps: 7e5, warm_up_s: 2.0, ..Behaviour::default() };
    let mut search = MlrSearch::new(&GOALS, RANGE).unwrap().with_warm_up(2.0);
    let (results, trials) = searched(&mut search, &mut Router::new(cold, 0));
    assert!(below(7e5, &results[0]) <= 0.005, "{results:?}");
    assert_eq!(search.trials() + 1, trials);
}

#[test]
fn an_unfinished_search_reports_its_bounds() {
    let mut search = MlrSearch::new(&GOALS, RANGE).unwrap().within(20.0);
    let (results, trials) = searched(&mut search, &mut Router::new(Behaviour::default(), 0));
    assert_eq!((results[0].irregular, trials), (Some(Irregular::Unfinished), 20));
    assert!(results[0].lower_pps.is_some());
}

#[test]
fn the_goal_of_rfc_2544_takes_five_minutes_of_short_and_long_trials() {
    let mut search = MlrSearch::new(&[Goal::RFC2544], RANGE).unwrap();
    let (results, trials) = searched(&mut search, &mut Router::new(Behaviour::default(), 0));
    assert!((0.0..=0.005).contains(&below(1e6, &results[0])) && trials <= 5, "{trials}, {results:?}");
    let mut search = MlrSearch::new(&[Goal { initial_s: 1.0, ..Goal::RFC2544 }], RANGE).unwrap();
    let mut router = Router::new(Behaviour::default(), 0);
    let mut total_s = 0.0;
    let results = run(&mut search, |trial| {
        total_s += trial.duration_s;
        Ok::<_, Infallible>(router.measure(trial))
    });
    assert!((0.0..=0.005).contains(&below(1e6, &results.unwrap()[0])));
    assert!(total_s < 150.0, "{total_s} s");
}

#[test]
fn binary_search_finds_the_throughput_to_its_resolution() {
    let mut random = fastrand::Rng::with_seed(4);
    for _ in 0..300 {
        let capacity_pps = random_capacity(&mut random);
        let mut search = BinarySearch::new(Goal::RFC2544, RANGE).unwrap();
        let mut router = Router::new(Behaviour { capacity_pps, ..Behaviour::default() }, 0);
        let (results, trials) = searched(&mut search, &mut router);
        let error = below(capacity_pps, &results[0]);
        assert!((0.0..=0.005).contains(&error) && trials <= 16, "{capacity_pps}: {trials}, {results:?}");
    }
    for (capacity_pps, irregular) in [(2e6, Irregular::MaxLoadPasses), (5e3, Irregular::MinLoadFails)] {
        let mut search = BinarySearch::new(Goal::RFC2544, RANGE).unwrap();
        let mut router = Router::new(Behaviour { capacity_pps, ..Behaviour::default() }, 0);
        assert_eq!(searched(&mut search, &mut router).0[0].irregular, Some(irregular));
    }
}

#[test]
fn unsent_frames_are_lost_except_a_thousandth() {
    let trial = Trial { load_pps: 1e6, duration_s: 1.0 };
    for (offered, forwarded, loss_ratio) in [
        (1_000_000, 1_000_000, 0.0),
        (999_000, 999_000, 0.0),
        // A frame that was sent and not received is always lost.
        (999_000, 998_999, 1.0 / 999_000.0),
        (998_990, 998_990, 10.0 / 999_000.0),
        (1_000_100, 1_000_000, 100.0 / 1_000_100.0),
        // Duplicates must not make the loss negative.
        (1_000_000, 1_000_001, 0.0),
    ] {
        let outcome = trial.outcome(1, offered, forwarded);
        assert!((outcome.loss_ratio() - loss_ratio).abs() < 1e-12, "{outcome:?}");
    }
    assert_eq!(trial.outcome(2, 2_000_000, 1_500_000).lost(), 500_000);
    assert_eq!(trial.outcome(2, 2_000_000, 1_500_000).loss_ratio(), 0.25);
}

/// The outcome of a trial whose sender was held up: it sends a tenth, and the router loses half of a bunch.
fn held_up(trial: Trial) -> Outcome {
    let offered = (trial.load_pps * trial.duration_s / 10.0) as u64;
    Outcome { sender_late: true, ..trial.outcome(1, offered, offered / 2) }
}

/// Both kinds of search of a router that forwards 500,000 frames/s. `is_late` says whether the sender is held up in a
/// trial, by its number and load.
fn searched_beside_a_load(is_late: impl Fn(usize, f64) -> bool) -> [(Vec<GoalResult>, usize); 2] {
    let mlr: Box<dyn Search> = Box::new(MlrSearch::new(&GOALS, RANGE).unwrap());
    let binary: Box<dyn Search> = Box::new(BinarySearch::new(Goal::RFC2544, RANGE).unwrap());
    [mlr, binary].map(|mut search| {
        let mut router = Router::new(Behaviour { capacity_pps: 5e5, ..Behaviour::default() }, 0);
        let mut trials = 0;
        let results = run(&mut *search, |trial| {
            trials += 1;
            let late = is_late(trials, trial.load_pps);
            Ok::<_, Infallible>(if late { held_up(trial) } else { router.measure(trial) })
        });
        (results.unwrap(), trials)
    })
}

#[test]
fn no_throughput_follows_from_an_upper_bound_at_which_the_sender_was_held_up() {
    // The sender is held up at all loads from far below the capacity on.
    for (results, _) in searched_beside_a_load(|_, load_pps| load_pps > 1e5) {
        for result in results {
            assert_eq!((result.irregular, result.throughput_pps), (Some(Irregular::SenderLate), None));
            // The lower bound holds all the same.
            assert!(result.lower_pps.is_some_and(|pps| pps <= 1e5), "{result:?}");
        }
    }
    // At every load.
    for (results, trials) in searched_beside_a_load(|_, _| true) {
        assert!(trials <= 12, "{trials}");
        for result in results {
            assert_eq!((result.irregular, result.throughput_pps), (Some(Irregular::SenderLate), None));
            assert_eq!(result.lower_pps, None);
        }
    }
}

#[test]
fn a_sender_that_was_held_up_now_and_then_does_not_lower_the_result() {
    for every in [4, 7, 15] {
        for (results, _) in searched_beside_a_load(|trial, _| trial % every == 0) {
            for result in results {
                // Either the truth, or none; never less.
                match result.throughput_pps {
                    Some(pps) => assert!((0.99 * 5e5..=1.001 * 5e5).contains(&pps), "{every}: {result:?}"),
                    None => assert_eq!(result.irregular, Some(Irregular::SenderLate), "{every}"),
                }
            }
        }
    }
    // The first trial, at the maximum load, which no result depends on.
    for (results, _) in searched_beside_a_load(|trial, _| trial == 1) {
        assert!(results.iter().all(|result| result.throughput_pps.is_some()), "{results:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_router() {
    let behaviour = Behaviour {
        loss_floor: 1e-5,
        jitter: 0.01,
        bursts_per_s: 0.5,
        burst_frames: 9,
        ..Behaviour::default()
    };
    assert_eq!(mlr(behaviour, 7), mlr(behaviour, 7));
    assert_ne!(mlr(behaviour, 7), mlr(behaviour, 8));
    let mut router = Router::new(Behaviour { loss_floor: 1e-3, ..Behaviour::default() }, 1);
    let trial = Trial { load_pps: 5e5, duration_s: 100.0 };
    let lost = router.measure(trial).loss_ratio();
    assert!((lost - 1e-3).abs() < 2e-5, "{lost}");
}

#[test]
fn impossible_goals_and_ranges_are_refused() {
    let refusal = |goal: Goal, range| MlrSearch::new(&[goal], range).unwrap_err().to_string();
    for (goal, why) in [
        (Goal { loss_ratio: 1.0, ..Goal::NDR }, "loss ratio 1: it must be from 0 to less than 1"),
        (Goal { exceed_ratio: -0.1, ..Goal::NDR }, "exceed ratio -0.1: it must be from 0 to less than 1"),
        (Goal { width: 0.0, ..Goal::NDR }, "width 0: it must be more than 0 and less than 1"),
        (Goal { initial_s: f64::NAN, ..Goal::NDR }, "initial trial duration NaN: it must be more than 0"),
        (
            Goal { final_s: 0.5, ..Goal::NDR },
            "final trial duration 0.5: it must be no shorter than the initial one",
        ),
        (
            Goal { sum_s: 0.5, ..Goal::NDR },
            "duration sum 0.5: it must be no shorter than the final trial duration",
        ),
    ] {
        assert_eq!(refusal(goal, RANGE), why);
    }
    let range = |min_pps, max_pps| refusal(Goal::NDR, Range { min_pps, max_pps });
    assert_eq!(range(0.5, 10.0), "minimum load 0.5: it must be enough for one frame in the shortest trial");
    assert_eq!(range(10.0, 10.0), "maximum load 10: it must be above the minimum load");
    assert_eq!(MlrSearch::new(&[], RANGE).unwrap_err(), Wrong::NoGoal);
}

#[test]
fn a_behaviour_is_parsed_from_names_and_numbers() {
    let behaviour: Behaviour = "capacity_pps=7e5,burst_frames=9,hysteresis=0.1".parse().unwrap();
    assert_eq!(
        behaviour,
        Behaviour { capacity_pps: 7e5, burst_frames: 9, hysteresis: 0.1, ..Behaviour::default() }
    );
    assert_eq!("".parse(), Ok(Behaviour::default()));
    for (text, why) in [
        ("capacity_pps", "`capacity_pps` is not NAME=NUMBER"),
        ("jitter=much", "`much` is not a number"),
        ("jitter=inf", "`inf` is not a number"),
        ("loss_floor=1.5", "loss_floor 1.5: it must be from 0 to 1"),
        ("capacity_pps=-1", "capacity_pps -1: it must be from 0 to 1000000000"),
    ] {
        assert_eq!(text.parse::<Behaviour>().unwrap_err(), why);
    }
    assert!(
        "colour=1".parse::<Behaviour>().unwrap_err().starts_with("unknown field `colour`, expected one of")
    );
}
