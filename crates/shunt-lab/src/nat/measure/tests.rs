use super::*;
use std::time::Duration;

const GOAL: Goal =
    Goal { loss_ratio: 0.0, exceed_ratio: 0.5, width: 0.01, initial_s: 1.0, final_s: 1.0, sum_s: 5.0 };
const RANGE: Range = Range { min_pps: 1000.0, max_pps: 2e6 };

/// A router that takes a fixed time for each new connection and each frame, and has a queue.
struct Simulated {
    connection: Duration,
    frame: Duration,
    queue: u64,
    table: u64,
    entries: u64,
    /// Entries of the last phase 1 that are deleted while the table is under load.
    expire: u64,
    delete: Duration,
    command: Duration,
    /// Trials until one loses a frame for no reason.
    hiccup: Option<u32>,
    opened: u32,
    /// Share of the frames that an ordinary sender does not send in time, and one that runs before other threads.
    unsent: [f64; 2],
    before_others: bool,
}

impl Simulated {
    fn new() -> Self {
        Self {
            connection: Duration::from_micros(10),
            frame: Duration::from_micros(2),
            queue: 0,
            table: 1_000_000,
            entries: 0,
            expire: 0,
            delete: Duration::from_micros(1),
            command: Duration::from_millis(3),
            hiccup: None,
            opened: 0,
            unsent: [0.0; 2],
            before_others: false,
        }
    }

    /// Frames of `count` that pass at a rate: those that are served meanwhile, and those that fit the queue.
    fn passed(&self, count: u64, pps: f64, each: Duration) -> u64 {
        let served = (count as f64 / pps / each.as_secs_f64()).floor() as u64 + 1;
        count.min(served + self.queue)
    }
}

impl Gateway for Simulated {
    fn empty(&mut self) -> Result<Duration, Error> {
        let entries = std::mem::take(&mut self.entries);
        Ok(self.command + self.delete * entries as u32)
    }

    fn open(&mut self, connections: u32, pace: Pace) -> Result<Opened, Error> {
        let (Pace::Exactly(pps) | Pace::AtMost(pps)) = pace;
        let unsent = self.unsent[usize::from(self.before_others)];
        let sent = (f64::from(connections) * (1.0 - unsent)) as u64;
        self.opened += 1;
        let lost = u64::from(self.hiccup.is_some_and(|nth| self.opened.is_multiple_of(nth)));
        self.entries = self.passed(sent, pps, self.connection).min(self.table) - lost;
        let held_up = sent < u64::from(connections);
        Ok(Opened { sent, held_up, established: self.entries, tracked: Some(self.entries) })
    }

    fn change_priority(&mut self) {
        self.before_others = !self.before_others;
    }

    fn validate(&mut self) -> Result<u64, Error> {
        Ok(self.entries)
    }

    fn load(&mut self, trial: Trial) -> Result<Outcome, Error> {
        self.entries -= self.expire;
        let sent = (trial.load_pps * trial.duration_s) as u64;
        let passed = self.passed(2 * sent, 2.0 * trial.load_pps, self.frame);
        Ok(trial.outcome(2, 2 * sent, passed))
    }

    fn fast_packets(&self) -> Result<Option<(u64, u64)>, Error> {
        Ok(None)
    }
}

fn rate(simulated: &mut Simulated) -> f64 {
    let found = establishment(simulated, 20_000, GOAL, RANGE).unwrap();
    assert_eq!((found.result.irregular, found.tracked_difference), (None, Some(0.0)));
    assert!(!found.sender_bound);
    found.result.throughput_pps.unwrap()
}

#[test]
fn a_known_delay_for_each_connection_is_found_within_two_percent() {
    for micros in [3, 10, 71, 250] {
        let mut simulated = Simulated { connection: Duration::from_micros(micros), ..Simulated::new() };
        let truth = 1e6 / micros as f64;
        let found = rate(&mut simulated);
        assert!((found / truth - 1.0).abs() < 0.02, "{found} for {truth}");
    }
}

#[test]
fn a_sender_that_is_held_up_does_not_lower_the_rate() {
    for unsent in [[0.0005, 0.3], [0.3, 0.0005]] {
        let found = rate(&mut Simulated { unsent, ..Simulated::new() });
        assert!((found / 1e5 - 1.0).abs() < 0.02, "{unsent:?}: {found}");
    }
    let held_up = &mut Simulated { unsent: [0.3; 2], ..Simulated::new() };
    let found = establishment(held_up, 20_000, GOAL, RANGE).unwrap();
    assert!(found.sender_bound && found.result.throughput_pps.is_none(), "{:?}", found.result);
}

#[test]
fn a_queue_raises_the_rate_by_its_share_of_the_connections_and_a_hiccup_does_not_lower_it() {
    let truth = 1e5;
    let queued = rate(&mut Simulated { queue: 2000, ..Simulated::new() });
    assert!((queued / (truth / 0.9) - 1.0).abs() < 0.02, "{queued}");
    let disturbed = rate(&mut Simulated { hiccup: Some(4), ..Simulated::new() });
    assert!((disturbed / truth - 1.0).abs() < 0.02, "{disturbed}");
}

#[test]
fn the_tear_down_rate_leaves_out_the_time_of_the_command() {
    let torn = tear_down(&mut Simulated::new(), 20_000, 5000.0).unwrap();
    assert_eq!((torn.connections, torn.empty_s), (20_000, 0.003));
    assert!((torn.per_second().unwrap() / 1e6 - 1.0).abs() < 1e-9, "{torn:?}");
    // Ten connections take less time than the command: nothing can be told.
    assert_eq!(tear_down(&mut Simulated::new(), 10, 5000.0).unwrap().per_second(), None);
}

#[test]
fn the_size_of_the_table_is_found_exactly() {
    let template = CapacitySearch { min: 100, max: 50_000, hint: None, width: 0.0, held: None, failed: None };
    for hint in [None, Some(4321), Some(9999)] {
        let mut simulated = Simulated { table: 4321, ..Simulated::new() };
        let search = CapacitySearch { hint, ..template };
        let found = capacity(&mut simulated, search, 5000.0).unwrap();
        assert_eq!((found.held, found.failed, found.tracked), (Some(4321), Some(4322), Some(4321)));
    }
}

#[test]
fn throughput_needs_all_sessions_before_and_after() {
    let goal = Goal { initial_s: 0.5, final_s: 0.5, sum_s: 1.0, ..GOAL };
    let of = |simulated: &mut Simulated| throughput(simulated, 1000, 5000.0, goal, RANGE).unwrap();
    let found = of(&mut Simulated::new());
    let pps = found.result.and_then(|result| result.throughput_pps).unwrap();
    assert!((pps / 250_000.0 - 1.0).abs() < 0.02, "{pps}");
    assert_eq!((found.left, found.fast_share), (1000, None));
    let small = of(&mut Simulated { table: 999, ..Simulated::new() });
    assert_eq!((small.result, small.left), (None, 999));
    let forgetful = of(&mut Simulated { expire: 1, ..Simulated::new() });
    assert!(forgetful.left < 1000);
}
