//! The lab's throughput search, compared with the reference implementation of MLRsearch on the same simulated routers.

use serde::Deserialize;
use serde_json::{Value, json};
use shunt_lab::{
    search::{
        Goal, MlrSearch, Range, Search, Trial, run,
        simulated::{Behaviour, Router},
    },
    statistics::median,
};
use shunt_testkit::{skip_fetched, tree::root};
use std::{
    convert::Infallible,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
};

const SCRIPT: &str = "tests/search/reference.py";
/// Made by `make mlrsearch`.
const PYTHON: &str = "target/mlrsearch/bin/python";
const RANGE: Range = Range { min_pps: 9_001.0, max_pps: 1.488e6 };
const GOALS: [Goal; 2] = [Goal::NDR, Goal::PDR];

#[derive(Debug, Clone, Copy, Deserialize)]
struct Found {
    lower_pps: Option<f64>,
    upper_pps: Option<f64>,
    throughput_pps: Option<f64>,
}

#[derive(Debug)]
struct Searched {
    found: Vec<Found>,
    trials: usize,
    seconds: f64,
}

/// Whether the reference implementation is installed; if not, calls [`skip_fetched`].
#[track_caller]
fn require_reference() -> bool {
    let status =
        Command::new(root().join(PYTHON)).args(["-c", "import MLRsearch"]).stderr(Stdio::null()).status();
    let installed = status.is_ok_and(|status| status.success());
    if !installed {
        skip_fetched(&format!("no MLRsearch for {PYTHON}: make mlrsearch"));
    }
    installed
}

/// The reference implementation in a process of its own, which takes half a second to start.
struct Reference {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Reference {
    fn start() -> Self {
        let mut child = Command::new(root().join(PYTHON))
            .arg(root().join(SCRIPT))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python starts");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, stdin, stdout }
    }

    fn tell(&mut self, message: &Value) {
        let stdin = self.stdin.as_mut().expect("open until the end");
        writeln!(stdin, "{message}").expect("the script reads its standard input");
    }

    fn search(&mut self, goals: &[Goal], range: Range, router: &mut Router) -> Searched {
        self.tell(&json!({"goals": goals, "range": range}));
        let (mut trials, mut seconds) = (0, 0.0);
        loop {
            let mut line = String::new();
            let length = self.stdout.read_line(&mut line).expect("a line");
            assert!(length > 0, "the script ended before its result");
            let message: Value = serde_json::from_str(&line).expect("JSON");
            if message.is_array() {
                let found = serde_json::from_value(message).expect("a list of results");
                return Searched { found, trials, seconds };
            }
            let trial: Trial = serde_json::from_value(message).expect("a trial");
            self.tell(&json!(router.measure(trial)));
            trials += 1;
            seconds += trial.duration_s;
        }
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let ended = self.child.wait();
        assert!(thread::panicking() || ended.is_ok_and(|status| status.success()), "the script failed");
    }
}

fn by_ours(goals: &[Goal], range: Range, router: &mut Router) -> Searched {
    let mut search = MlrSearch::new(goals, range).expect("valid goals");
    let mut seconds = 0.0;
    let results = run(&mut search as &mut dyn Search, |trial| {
        seconds += trial.duration_s;
        Ok::<_, Infallible>(router.measure(trial))
    });
    let found = results.unwrap_or_else(|never| match never {}).into_iter().map(|result| Found {
        lower_pps: result.lower_pps,
        upper_pps: result.upper_pps,
        throughput_pps: result.throughput_pps,
    });
    Searched { found: found.collect(), trials: search.trials(), seconds }
}

fn both(reference: &mut Reference, goals: &[Goal], behaviour: Behaviour, seed: u64) -> [Searched; 2] {
    let router = || Router::new(behaviour, seed);
    [by_ours(goals, RANGE, &mut router()), reference.search(goals, RANGE, &mut router())]
}

fn throughputs(searched: &Searched) -> Vec<f64> {
    searched.found.iter().map(|found| found.throughput_pps.unwrap_or(0.0)).collect()
}

/// The relative difference; 0 if both are 0.
fn relative_difference(a: f64, b: f64) -> f64 {
    if a == b { 0.0 } else { (a / b - 1.0).abs() }
}

/// Searches many routers by both. Asserts that the medians of the throughput over the seeds differ by at most `width`,
/// and that our search takes at most `more` times as many trials.
fn compare(
    reference: &mut Reference,
    (name, behaviour): (&str, Behaviour),
    seeds: std::ops::Range<u64>,
    width: f64,
    more: f64,
) {
    let pairs: Vec<_> = seeds.map(|seed| both(reference, &GOALS, behaviour, seed)).collect();
    for goal in 0..GOALS.len() {
        let of = |who: usize| -> f64 {
            let all: Vec<_> = pairs.iter().map(|pair| throughputs(&pair[who])[goal]).collect();
            median(&all).expect("at least one router")
        };
        let (ours, theirs) = (of(0), of(1));
        eprintln!(
            "{name}: goal {goal}: ours {ours:.1}, reference {theirs:.1}, {:.3} % apart",
            100.0 * relative_difference(ours, theirs)
        );
        assert!(
            relative_difference(ours, theirs) <= width,
            "{name}, goal {goal}: ours {ours}, reference {theirs}"
        );
    }
    let trials = |who: usize| pairs.iter().map(|pair| pair[who].trials).sum::<usize>() as f64;
    eprintln!("{name}: {} routers, trials: ours {}, reference {}", pairs.len(), trials(0), trials(1));
    assert!(trials(0) <= more * trials(1), "{name}: trials: ours {}, reference {}", trials(0), trials(1));
}

#[test]
fn the_published_example_comes_out_the_same() {
    if !require_reference() {
        return;
    }
    // The results that the package's manual prints, bit by bit, so the pipe changes nothing.
    let range = Range { min_pps: 1e3, max_pps: 1e9 };
    let goals = GOALS.map(|goal| Goal { exceed_ratio: 0.005, ..goal });
    let theirs = Reference::start().search(&goals, range, &mut Router::new(Behaviour::default(), 0));
    assert_eq!(throughputs(&theirs), [997_497.602_939_238_2, 1_000_000.673_073_042_9]);
    let ours = by_ours(&goals, range, &mut Router::new(Behaviour::default(), 0));
    eprintln!("ours {ours:?}\nreference {theirs:?}");
    for (ours, theirs) in throughputs(&ours).into_iter().zip(throughputs(&theirs)) {
        assert!(relative_difference(ours, theirs) <= 0.005, "ours {ours}, reference {theirs}");
    }
    assert!(ours.trials <= theirs.trials + 5, "trials: ours {}, reference {}", ours.trials, theirs.trials);
}

#[test]
fn both_find_the_same_throughput_at_any_capacity() {
    if !require_reference() {
        return;
    }
    let mut random = fastrand::Rng::with_seed(5);
    let (mut ours_trials, mut their_trials) = (0, 0);
    let mut reference = Reference::start();
    for _ in 0..40 {
        let capacity_pps = (10_000.0 * 140_f64.powf(random.f64())).floor();
        let [ours, theirs] =
            both(&mut reference, &GOALS, Behaviour { capacity_pps, ..Behaviour::default() }, 0);
        for (ours, theirs) in throughputs(&ours).into_iter().zip(throughputs(&theirs)) {
            assert!(
                relative_difference(ours, theirs) <= 0.0051,
                "{capacity_pps}: ours {ours}, reference {theirs}"
            );
        }
        for who in [&ours, &theirs] {
            assert!(
                who.found.iter().all(|found| found.lower_pps < found.upper_pps),
                "{capacity_pps}: {who:?}"
            );
        }
        ours_trials += ours.trials;
        their_trials += theirs.trials;
    }
    eprintln!("40 routers, trials: ours {ours_trials}, reference {their_trials}");
    assert!(ours_trials * 10 <= their_trials * 11, "trials: ours {ours_trials}, reference {their_trials}");
}

#[test]
fn both_find_the_same_throughput_with_noise() {
    if !require_reference() {
        return;
    }
    let router = Behaviour { capacity_pps: 7e5, ..Behaviour::default() };
    let cases = [
        ("bursts", Behaviour { bursts_per_s: 0.2, burst_frames: 40, ..router }),
        ("loss floor", Behaviour { loss_floor: 2e-7, ..router }),
        ("jitter", Behaviour { jitter: 0.01, ..router }),
        ("hysteresis", Behaviour { hysteresis: 0.05, ..router }),
        ("collapse", Behaviour { collapse: 3.0, ..router }),
        ("warm-up", Behaviour { warm_up_s: 3.0, ..router }),
    ];
    let mut reference = Reference::start();
    for case in cases {
        compare(&mut reference, case, 0..15, 0.005, 1.25);
    }
}

#[test]
fn long_trials_take_comparable_time() {
    if !require_reference() {
        return;
    }
    let short_first = Goal { initial_s: 1.0, ..Goal::RFC2544 };
    let tst009 = Goal { exceed_ratio: 0.5, sum_s: 120.0, ..Goal::RFC2544 };
    let mut reference = Reference::start();
    for goals in [[Goal::RFC2544], [short_first], [tst009]] {
        let [ours, theirs] = both(&mut reference, &goals, Behaviour::default(), 0);
        eprintln!("{goals:?}: ours {ours:?}, reference {theirs:?}");
        assert!(
            relative_difference(throughputs(&ours)[0], throughputs(&theirs)[0]) <= 0.0051,
            "{ours:?}, {theirs:?}"
        );
        assert!(
            ours.seconds <= 1.25 * theirs.seconds,
            "{goals:?}: ours {} s, reference {} s",
            ours.seconds,
            theirs.seconds
        );
    }
}

#[test]
fn both_report_no_result_for_the_same_routers() {
    if !require_reference() {
        return;
    }
    let mut reference = Reference::start();
    for (capacity_pps, loss_floor) in [(2e6, 0.0), (5e3, 0.0), (8e5, 0.002)] {
        let pair =
            both(&mut reference, &GOALS, Behaviour { capacity_pps, loss_floor, ..Behaviour::default() }, 1);
        let missing = pair.each_ref().map(|searched| {
            let which = |found: &Found| (found.lower_pps.is_some(), found.upper_pps.is_some());
            searched.found.iter().map(which).collect::<Vec<_>>()
        });
        assert_eq!(missing[0], missing[1], "{capacity_pps}: {pair:?}");
    }
}
