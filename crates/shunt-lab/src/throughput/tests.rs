use super::*;
use crate::Conditions;
use std::path::Path;

const RANGE: Range = Range { min_pps: 9_001.0, max_pps: 1.488e6 };

static RUNS: AtomicBool = AtomicBool::new(false);

fn memory() -> ResultsFile {
    ResultsFile::in_memory(Results::new("throughput", Conditions::default()))
}

fn simulated(name: &str, capacity_pps: f64) -> Simulated {
    Simulated::new(name.to_owned(), Behaviour { capacity_pps, ..Behaviour::default() }, 1)
}

fn file(path: &Path) -> ResultsFile {
    ResultsFile::resume(path.to_owned(), Results::new("throughput", Conditions::default())).unwrap()
}

#[test]
fn routers_are_searched_in_turn_and_each_search_is_saved() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.json");
    let mut devices = [simulated("slow", 3e5), simulated("fast", 9e5)];
    let plan = ThroughputPlan::mlrsearch(RANGE, 3, true).unwrap();
    let report = plan.perform(&mut devices, file(&path), &RUNS).unwrap();
    let order: Vec<_> = report.searches.iter().map(|it| (it.device.as_str(), it.run)).collect();
    assert_eq!(order, [("slow", 1), ("fast", 1), ("slow", 2), ("fast", 2), ("slow", 3), ("fast", 3)]);
    let results = Results::read(&path).unwrap();
    let names: Vec<_> = results.readings.keys().map(String::as_str).collect();
    assert_eq!(names, ["ndr fast", "ndr slow", "pdr fast", "pdr slow"]);
    for (name, capacity) in [("ndr fast", 9e5), ("ndr slow", 3e5)] {
        let reading = &results.readings[name];
        assert!((0.99..=1.0 + 1e-9).contains(&(reading.value / capacity)), "{reading:?}");
        let doubts = [Doubt::Simulated, Doubt::TooShort { seconds: 0.5, wanted: 1.0 }];
        assert_eq!((reading.runs.len(), &reading.doubts[..]), (3, &doubts[..]));
    }
}

#[test]
fn a_throughput_beyond_the_range_is_doubted_or_missing() {
    let dir = tempfile::tempdir().unwrap();
    let file = file(&dir.path().join("r.json"));
    let mut devices = [simulated("beyond", 2e6), simulated("none", 1e3)];
    let plan = ThroughputPlan::mlrsearch(RANGE, 1, false).unwrap();
    let report = plan.perform(&mut devices, file, &RUNS).unwrap();
    assert_eq!(report.searches[0].doubts, [Doubt::Simulated, Doubt::GeneratorBound]);
    assert_eq!(report.results.readings["ndr beyond"].runs[0].details["irregular"], "max-load-passes");
    assert_eq!(report.results.missing["ndr none"], Irregular::MinLoadFails.to_string());
    assert!(!report.results.readings.contains_key("ndr none"));
}

#[test]
fn a_failed_trial_ends_the_bench_and_keeps_finished_searches() {
    struct Broken(Simulated, u32);
    impl Device for Broken {
        type Error = io::Error;
        fn name(&self) -> &str {
            self.0.name()
        }
        fn doubts(&self) -> Vec<Doubt> {
            Vec::new()
        }
        fn serve(&mut self, work: &mut Work<'_, io::Error>) -> io::Result<()> {
            let left = &mut self.1;
            self.0.serve(&mut |measure| {
                work(&mut |trial| {
                    *left = left.checked_sub(1).ok_or_else(|| io::Error::other("link down"))?;
                    measure(trial)
                })
            })
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.json");
    let mut devices = [Broken(simulated("one", 5e5), 60)];
    let plan = ThroughputPlan::mlrsearch(RANGE, 9, true).unwrap();
    let why = plan.perform(&mut devices, file(&path), &RUNS).unwrap_err();
    assert_eq!(why.to_string(), "link down");
    let results = Results::read(&path).unwrap();
    assert!(!results.complete && !results.readings["ndr one"].runs.is_empty());
}

/// A router whose second search is stopped.
struct StoppedIn<'s> {
    router: Simulated,
    left: u32,
    stop: &'s AtomicBool,
}

impl Device for StoppedIn<'_> {
    type Error = io::Error;

    fn name(&self) -> &str {
        self.router.name()
    }

    fn doubts(&self) -> Vec<Doubt> {
        self.router.doubts()
    }

    fn serve(&mut self, work: &mut Work<'_, io::Error>) -> io::Result<()> {
        self.left -= 1;
        let stopped = self.left == 0;
        self.stop.store(stopped, Ordering::Relaxed);
        self.router.serve(&mut |measure| {
            work(&mut |trial| if stopped { Err(io::Error::other("stopped")) } else { measure(trial) })
        })
    }
}

#[test]
fn finished_searches_are_reported_after_a_stop() {
    let plan = ThroughputPlan::mlrsearch(RANGE, 9, true).unwrap();
    let stopped_in = |nth| {
        let stop = AtomicBool::new(false);
        let mut devices = [StoppedIn { router: simulated("one", 5e5), left: nth, stop: &stop }];
        plan.perform(&mut devices, memory(), &stop)
    };
    assert_eq!(stopped_in(3).unwrap().searches.len(), 2);
    assert_eq!(stopped_in(1).unwrap_err().to_string(), "stopped");
}

#[test]
fn the_first_trial_warms_up_also_for_rfc_2544() {
    let cold = Behaviour { capacity_pps: 7e5, warm_up_s: 1.0, ..Behaviour::default() };
    let plan = ThroughputPlan::rfc2544(RANGE, 1, 60.0).unwrap();
    let report = plan.perform(&mut [Simulated::new("one".to_owned(), cold, 1)], memory(), &RUNS).unwrap();
    let result = &report.searches[0].results[0];
    assert!((0.995 * 7e5..=7e5).contains(&result.throughput_pps.unwrap()), "{result:?}");
    assert_eq!(report.searches[0].seconds, 60.0 * f64::from(report.searches[0].trials));
    assert!(ThroughputPlan::rfc2544(RANGE, 1, 0.0).is_err());
}

#[test]
fn a_generator_that_sends_less_than_offered_is_doubted() {
    /// A router whose generator reaches no more than this rate.
    struct Weak(f64, f64);
    impl Device for Weak {
        type Error = io::Error;
        fn name(&self) -> &str {
            "weak"
        }
        fn doubts(&self) -> Vec<Doubt> {
            Vec::new()
        }
        fn serve(&mut self, work: &mut Work<'_, io::Error>) -> io::Result<()> {
            let Self(sends, forwards) = *self;
            work(&mut |trial| {
                let offered = trial.load_pps.min(sends) * trial.duration_s;
                let forwarded = offered.min(forwards * trial.duration_s);
                let latency_us = Some(LatencyUs { p50: trial.load_pps, ..LatencyUs::default() });
                Ok(TrialFigures {
                    outcome: trial.outcome(1, offered as u64, forwarded as u64),
                    latency_us,
                    dut_load: None,
                })
            })
        }
    }
    let plan = ThroughputPlan::mlrsearch(RANGE, 1, false).unwrap();
    for (sends, forwards, doubts) in
        [(5e5, 6e5, &[Doubt::GeneratorBound][..]), (6e5, 5e5, &[]), (2e6, 5e5, &[])]
    {
        let report = plan.perform(&mut [Weak(sends, forwards)], memory(), &RUNS).unwrap();
        let searched = &report.searches[0];
        assert_eq!(searched.doubts, doubts, "{sends} {forwards}");
        let percents: Vec<_> = searched.latency.iter().map(|at| at.percent).collect();
        assert_eq!((percents, searched.latency[1].loss_ratio), (vec![10, 50, 90], 0.0));
        let at = &searched.latency[2];
        let share = at.load_pps / searched.results[1].throughput_pps.unwrap();
        assert!((share - 0.9).abs() < 1e-9 && at.latency_us.unwrap().p50 == at.load_pps, "{at:?}");
    }
}
