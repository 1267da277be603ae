//! A soaker: a thread that does rounds of work on one CPU whenever nothing else runs there.

use super::{
    LoadError,
    calibration::{Calibration, ROUNDS_PER_BATCH, Worker},
    group::IdleGroup,
};
use nix::{
    sched::{CpuSet, sched_setaffinity},
    unistd::{Pid, gettid},
};
use shunt_traffic::schedule;
use std::{
    fs, io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// A thread that has not calibrated by then got almost none of its CPU.
const READY_TIME: Duration = Duration::from_secs(30);
/// Nice value, so that /proc/stat counts the soaker as `nice`.
const NICE: i32 = 19;
/// Time that the scheduler gives to SCHED_IDLE per time of one ordinary task: weights 3 and 1024.
const TAKEN_PER_WAITED: f64 = 3.0 / 1024.0;
/// Fewer batches than this say nothing about speed.
const LEAST_BATCHES: u64 = 3;

/// Counters that only rise, so that a reader needs no lock: it would wait for a thread that hardly runs.
#[derive(Debug, Default)]
struct Counters {
    rounds: AtomicU64,
    batches: AtomicU64,
    /// Sums over all batches.
    own_ns: AtomicU64,
    register_ns: AtomicU64,
    memory_ns: AtomicU64,
    stop: AtomicBool,
}

#[derive(Debug)]
pub(super) struct Soaker {
    cpu: usize,
    tid: Pid,
    calibration: Calibration,
    bytes_per_round: u64,
    counters: Arc<Counters>,
    thread: Option<JoinHandle<()>>,
    group: Option<Arc<IdleGroup>>,
}

/// A soaker that is calibrating.
#[derive(Debug)]
pub(super) struct Starting {
    cpu: usize,
    counters: Arc<Counters>,
    thread: Option<JoinHandle<()>>,
    group: Option<Arc<IdleGroup>>,
    ready: Receiver<Result<Ready, LoadError>>,
}

#[derive(Debug)]
struct Ready {
    tid: Pid,
    calibration: Calibration,
    bytes_per_round: u64,
}

/// A soaker's counters at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    pub(super) at: Instant,
    rounds: u64,
    batches: u64,
    own_ns: u64,
    register_ns: u64,
    memory_ns: u64,
    /// CPU time by the scheduler; None if the scheduler does not report it.
    ran_ns: Option<u64>,
}

/// The use of a CPU between two samples, as shares of time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Share {
    pub(super) load: f64,
    pub(super) speed: f64,
    pub(super) memory_slowdown: f64,
    pub(super) soaked: Option<f64>,
    pub(super) taken: f64,
    pub(super) bytes_per_second: f64,
}

impl Soaker {
    pub(super) fn begin(cpu: usize, group: Option<Arc<IdleGroup>>) -> Result<Starting, LoadError> {
        let counters = Arc::new(Counters::default());
        let (sender, ready) = mpsc::channel();
        let (shared, own_group) = (counters.clone(), group.clone());
        let soak = move || {
            let mut worker = None;
            let started = (|| {
                pin(cpu).map_err(failed(format!("pinning a thread to CPU {cpu}")))?;
                let worker = worker.insert(Worker::new());
                let stopped = || shared.stop.load(Ordering::Relaxed);
                let calibration = worker.calibrate(stopped).ok_or(LoadError::Busy { cpu })?;
                // Lower the priority only after the calibration: it would never end on a CPU that is in use.
                go_last(group.as_deref())?;
                Ok(Ready { tid: gettid(), calibration, bytes_per_round: worker.bytes_per_round() })
            })();
            let well = started.is_ok();
            // If another soaker failed, the receiver is gone and the result is not needed.
            if let (true, Ok(()), Some(worker)) = (well, sender.send(started), &mut worker) {
                shared.soak(worker);
            }
            // The last owner that drops the group removes it. This may be this thread, which must have left the group
            // before.
            if let Some(group) = &group {
                group.dismiss(gettid());
            }
        };
        let thread = thread::Builder::new().name(format!("shunt-soak-{cpu}")).spawn(soak);
        let thread =
            thread.map_err(|source| LoadError::System { what: "starting a thread".to_owned(), source })?;
        Ok(Starting { cpu, counters, thread: Some(thread), group: own_group, ready })
    }

    pub(super) fn cpu(&self) -> usize {
        self.cpu
    }

    pub(super) fn calibration(&self) -> &Calibration {
        &self.calibration
    }

    pub(super) fn sample(&self) -> Sample {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Sample {
            at: Instant::now(),
            rounds: count(&self.counters.rounds),
            batches: count(&self.counters.batches),
            own_ns: count(&self.counters.own_ns),
            register_ns: count(&self.counters.register_ns),
            memory_ns: count(&self.counters.memory_ns),
            ran_ns: ran_ns(self.tid),
        }
    }

    pub(super) fn share(&self, then: &Sample, now: &Sample) -> Share {
        let mut share = now.share_since(then, &self.calibration);
        let wall = now.at.duration_since(then.at).as_secs_f64();
        share.bytes_per_second = (self.bytes_per_round * (now.rounds - then.rounds)) as f64 / wall;
        share
    }
}

impl Starting {
    /// Waits for the calibration.
    pub(super) fn ready(mut self) -> Result<Soaker, LoadError> {
        let cpu = self.cpu;
        let Ready { tid, calibration, bytes_per_round } = match self.ready.recv_timeout(READY_TIME) {
            Ok(started) => started?,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                return Err(LoadError::Busy { cpu });
            }
        };
        let (counters, thread, group) = (self.counters.clone(), self.thread.take(), self.group.take());
        Ok(Soaker { cpu, tid, calibration, bytes_per_round, counters, thread, group })
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        // Do not join: the thread may never get to run. It ends after its next round.
        if self.thread.is_some() {
            self.counters.stop.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for Soaker {
    fn drop(&mut self) {
        self.counters.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Without the right to raise the priority, do not wait: the thread ends after its next round.
            if go_first(self.tid, self.group.as_deref()).is_ok() {
                // A thread that panicked has ended, too.
                let _ = thread.join();
            }
        }
    }
}

impl Counters {
    fn soak(&self, worker: &mut Worker) {
        while !self.stop.load(Ordering::Relaxed) {
            let batch = worker.batch(|| {
                self.rounds.fetch_add(1, Ordering::Relaxed);
            });
            self.own_ns.fetch_add(batch.own_ns, Ordering::Relaxed);
            self.register_ns.fetch_add(batch.register_ns, Ordering::Relaxed);
            self.memory_ns.fetch_add(batch.memory_ns, Ordering::Relaxed);
            self.batches.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Sample {
    fn share_since(&self, then: &Self, calibration: &Calibration) -> Share {
        let wall_ns = self.at.duration_since(then.at).as_nanos().max(1) as f64;
        let batches = self.batches - then.batches;
        let Calibration { mut round_ns, mut register_ns, mut memory_ns, .. } = *calibration;
        if batches >= LEAST_BATCHES {
            let of_a_batch = |now: u64, then: u64| (now - then) as f64 / batches as f64;
            round_ns = of_a_batch(self.own_ns, then.own_ns) / ROUNDS_PER_BATCH as f64;
            register_ns = of_a_batch(self.register_ns, then.register_ns);
            memory_ns = of_a_batch(self.memory_ns, then.memory_ns);
        }
        let slowdown = register_ns / calibration.register_ns;
        let idle = (self.rounds - then.rounds) as f64 * round_ns / wall_ns;
        let ran = self.ran_ns.zip(then.ran_ns);
        let soaked = ran.map(|(now, then)| now.saturating_sub(then) as f64 / wall_ns);
        // A soaker never sleeps, so it waits whenever it does not run. The time that it took from others in the
        // meantime is load, too.
        let waited = soaked.map_or(0.0, |soaked| (1.0 - soaked).max(0.0));
        let taken = waited * TAKEN_PER_WAITED;
        Share {
            load: (1.0 - idle + taken).clamp(0.0, 1.0),
            speed: 1.0 / slowdown,
            memory_slowdown: memory_ns / calibration.memory_ns / slowdown - 1.0,
            soaked,
            taken,
            bytes_per_second: 0.0,
        }
    }
}

fn ran_ns(tid: Pid) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/self/task/{tid}/schedstat")).ok()?;
    let ran_ns = text.split_whitespace().next()?.parse().ok()?;
    // Without CONFIG_SCHED_INFO all numbers in the file are 0.
    (ran_ns > 0).then_some(ran_ns)
}

fn failed(what: String) -> impl FnOnce(io::Error) -> LoadError {
    move |source| LoadError::System { what, source }
}

/// Makes the calling thread yield to all others.
fn go_last(group: Option<&IdleGroup>) -> Result<(), LoadError> {
    if let Some(group) = group {
        group.admit(gettid()).map_err(failed(group.to_string()))?;
    }
    schedule::go_last().map_err(failed("setting SCHED_IDLE".to_owned()))?;
    rustix::process::setpriority_process(None, NICE)
        .map_err(|errno| failed("setting nice".to_owned())(errno.into()))
}

/// Gives a thread priority over all other work of its CPU: a thread with the lowest priority would not notice that it
/// must end.
fn go_first(tid: Pid, group: Option<&IdleGroup>) -> io::Result<()> {
    if let Some(group) = group {
        group.dismiss(tid);
    }
    schedule::go_until_waiting(tid)
}

/// Pins the calling thread.
pub(super) fn pin(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::tests::alone;

    const CALIBRATION: Calibration =
        Calibration { round_ns: 25_000.0, spread: 0.0, windows: 12, register_ns: 5000.0, memory_ns: 5000.0 };

    /// The share after one second with this number of rounds, these times of the pieces (five pieces in each round) and
    /// this CPU time.
    fn share(rounds: u64, register_ns: u64, memory_ns: u64, ran_ns: Option<u64>) -> Share {
        let at = Instant::now();
        let then = Sample {
            at,
            rounds: 7,
            batches: 1,
            own_ns: 9,
            register_ns: 5000,
            memory_ns: 5000,
            ran_ns: ran_ns.map(|_| 1),
        };
        let now = Sample {
            at: at + Duration::from_secs(1),
            rounds: 7 + rounds,
            batches: 101,
            own_ns: 9 + 100 * ROUNDS_PER_BATCH as u64 * (4 * register_ns + memory_ns),
            register_ns: 5000 + 100 * register_ns,
            memory_ns: 5000 + 100 * memory_ns,
            ran_ns: ran_ns.map(|ns| 1 + ns),
        };
        now.share_since(&then, &CALIBRATION)
    }

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-9, "{a} is not {b}");
    }

    #[test]
    fn load_is_the_work_that_was_not_done() {
        for (rounds, load) in [(40_000, 0.0), (30_000, 0.25), (10_000, 0.75), (0, 1.0)] {
            close(share(rounds, 5000, 5000, None).load, load);
        }
        // Slightly more work than calibrated must not give a negative load.
        close(share(40_100, 5000, 5000, None).load, 0.0);
        close(share(10, 5000, 5000, Some(500_000_000)).soaked.unwrap(), 0.5);
    }

    #[test]
    fn a_slower_clock_is_a_speed_and_not_load() {
        let half = share(10_000, 10_000, 10_000, None);
        close(half.load, 0.5);
        close(half.speed, 0.5);
        close(half.memory_slowdown, 0.0);
    }

    #[test]
    fn slower_memory_is_neither_load_nor_speed() {
        let crowded = share(20_000, 5000, 10_000, None);
        close(crowded.load, 0.4);
        close(crowded.speed, 1.0);
        close(crowded.memory_slowdown, 1.0);
    }

    #[test]
    fn a_cpu_that_is_always_in_use_is_fully_loaded() {
        // Next to a task that never sleeps, the scheduler gives SCHED_IDLE 3 of 1027.
        let rounds = (40_000.0 * 3.0 / 1027.0) as u64;
        let ran_ns = (1e9 * 3.0 / 1027.0) as u64;
        let full = share(rounds, 5000, 5000, Some(ran_ns));
        assert!(full.load > 0.9999, "{full:?}");
        assert!((full.taken - 3.0 / 1027.0).abs() < 1e-4);
    }

    #[test]
    fn a_soaker_without_cpu_time_ends_at_once() {
        let _alone = alone();
        let group = crate::load::group::idle_group().map(Arc::new);
        let soaker = Soaker::begin(0, group).unwrap().ready().unwrap();
        let (over, most) = (AtomicBool::new(false), Duration::from_secs(20));
        thread::scope(|scope| {
            let (tell, pushing) = mpsc::channel();
            for tell in [tell.clone(), tell.clone(), tell] {
                let over = &over;
                scope.spawn(move || {
                    pin(0).unwrap();
                    tell.send(rustix::process::setpriority_process(None, -20)).unwrap();
                    let begun = Instant::now();
                    while !over.load(Ordering::Relaxed) && begun.elapsed() < most {}
                });
            }
            if pushing.iter().any(|result| result.is_err()) {
                over.store(true, Ordering::Relaxed);
                eprintln!("SKIP: no right to push others aside");
                return;
            }
            let rounds = || soaker.counters.rounds.load(Ordering::Relaxed);
            // The thread has used up its share.
            let (begun, mut before) = (Instant::now(), rounds());
            thread::sleep(Duration::from_millis(500));
            while rounds() != before && begun.elapsed() < most / 4 {
                before = rounds();
                thread::sleep(Duration::from_millis(500));
            }
            let asked = Instant::now();
            drop(soaker);
            over.store(true, Ordering::Relaxed);
            assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
        });
    }

    #[test]
    fn a_soaker_that_is_not_awaited_removes_its_group() {
        let Some(group) = crate::load::group::idle_group() else {
            eprintln!("SKIP: no right to make a control group of version 1");
            return;
        };
        let _alone = alone();
        let path = group.path().to_owned();
        let starting = Soaker::begin(0, Some(Arc::new(group))).unwrap();
        // The soaker runs in the group when another one fails.
        starting.ready.recv().unwrap().unwrap();
        drop(starting);
        let end = Instant::now() + Duration::from_secs(30);
        while path.exists() && Instant::now() < end {
            thread::sleep(Duration::from_millis(20));
        }
        assert!(!path.exists(), "{}", path.display());
    }

    #[test]
    fn a_soaker_is_pinned_idle_and_nice() {
        let _alone = alone();
        let soaker = Soaker::begin(0, None).unwrap().ready().unwrap();
        let stat = fs::read_to_string(format!("/proc/self/task/{}/stat", soaker.tid)).unwrap();
        // Fields of proc(5) after the name: 3 is the state, 19 nice, 39 the processor, 41 the policy.
        let fields: Vec<&str> = stat[stat.rfind(')').unwrap() + 2..].split_whitespace().collect();
        const SCHED_IDLE: &str = "5";
        assert_eq!((fields[16], fields[36], fields[38]), ("19", "0", SCHED_IDLE));
        assert!(soaker.calibration.round_ns > 1000.0);
    }
}
