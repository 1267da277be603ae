//! Self-test of the meter with a known load.
//!
//! A thread on each CPU is busy for a part of each period and sleeps for the rest. Its CPU time
//! (CLOCK_THREAD_CPUTIME_ID) divided by the elapsed time is the injected load. The thread reads the meter at the end of
//! a period, so that both cover the same time. The scheduler reports how much time other threads had. It does not
//! report interrupts: the meter measures their share without the thread, and the same share is expected in the time
//! that is left to the meter.

use super::{
    Calibration, LoadError, Meter,
    soaker::{self, Sample, Soaker},
};
use crate::{Conditions, Doubt, statistics::median};
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::{
    hint::black_box,
    io,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

const INJECTED: [f64; 3] = [0.25, 0.5, 0.75];
/// A few ticks. Each period ends with a timer interrupt, which is load that the test did not inject: 40 us on a virtual
/// machine.
const PERIOD: Duration = Duration::from_millis(25);
const PERIODS_PER_WINDOW: u32 = 10;
const QUIET_WINDOWS: usize = 9;
const MOST_WINDOWS: usize = 30;
/// Share of time that other threads may have in a window that counts as quiet.
const QUIET: f64 = 0.003;
/// A window that leaves the meter less time than this says nothing about interrupts.
const MOST_BUSY: f64 = 0.9;

/// The result of a self-test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SelfTest {
    /// The greatest error of all steps, as an absolute value.
    pub max_error_points: f64,
    /// The steps: each load on each CPU.
    pub steps: Vec<SelfTestStep>,
    /// The calibration of each CPU.
    pub calibrations: Vec<Calibration>,
    /// Reasons why the errors may read too high.
    pub doubts: Vec<Doubt>,
    /// Conditions of the machine.
    pub conditions: Conditions,
}

/// One load on one CPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SelfTestStep {
    /// Number of the CPU.
    pub cpu: usize,
    /// CPU time of the busy thread, in percent.
    pub injected_percent: f64,
    /// CPU time of other threads except the meter, in percent.
    pub others_percent: f64,
    /// Share of interrupts in the remaining time, as the meter measured it without load, in percent.
    pub interrupts_percent: f64,
    /// Load by the meter, in percent.
    pub measured_percent: f64,
    /// Measured less expected load in percentage points: the median of the windows.
    pub error_points: f64,
    /// Number of windows.
    pub windows: usize,
    /// Number of windows without disturbance. If there are any, only they count.
    pub quiet_windows: usize,
}

/// The windows of one step.
#[derive(Debug)]
struct Windows {
    cpu: usize,
    all: Vec<Window>,
}

#[derive(Debug, Clone, Copy)]
struct Window {
    injected: f64,
    measured: f64,
    /// CPU time of the meter's thread by the scheduler. Exact here, since that thread never runs while this is read.
    soaked: Option<f64>,
}

impl SelfTest {
    /// Runs the self-test. Takes some seconds, and more on a busy machine. When `stop` is set, the test ends soon.
    ///
    /// # Errors
    /// Fails if the meter cannot be started or the test was stopped.
    pub fn run(cpus: Option<&[usize]>, stop: &AtomicBool) -> Result<Self, LoadError> {
        let mut meter = Meter::start(cpus)?;
        let interrupts: Vec<f64> =
            inject(&meter.soakers, 0.0, stop)?.iter().map(Windows::interrupts).collect();
        let mut steps = Vec::new();
        for share in INJECTED {
            let all = inject(&meter.soakers, share, stop)?;
            steps.extend(all.iter().zip(&interrupts).map(|(windows, interrupts)| windows.step(*interrupts)));
        }
        let load = meter.read()?;
        let mut doubts = load.doubts;
        for step in steps.iter().filter(|step| step.quiet_windows == 0) {
            doubts.push(Doubt::Disturbed { cpu: step.cpu, percent: step.others_percent });
        }
        Ok(Self {
            max_error_points: steps.iter().map(|step| step.error_points.abs()).fold(0.0, f64::max),
            steps,
            calibrations: meter.calibrations().map(|(_, calibration)| *calibration).collect(),
            doubts,
            conditions: load.conditions,
        })
    }
}

fn panicked() -> LoadError {
    LoadError::System {
        what: "a thread that injects load".to_owned(),
        source: io::Error::other("it panicked"),
    }
}

/// Runs on all CPUs at once, as traffic loads them, and so that each CPU has the clock that it has when all are busy.
fn inject(soakers: &[Soaker], share: f64, stop: &AtomicBool) -> Result<Vec<Windows>, LoadError> {
    thread::scope(|scope| {
        let threads: Vec<_> =
            soakers.iter().map(|soaker| scope.spawn(move || inject_one(soaker, share, stop))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(panicked()))).collect()
    })
}

fn inject_one(soaker: &Soaker, share: f64, stop: &AtomicBool) -> Result<Windows, LoadError> {
    let cpu = soaker.cpu();
    let failed = |source| LoadError::System { what: format!("pinning a thread to CPU {cpu}"), source };
    soaker::pin(cpu).map_err(failed)?;
    // The first window begins at an arbitrary point, so it does not count.
    window(soaker, share);
    let mut all = Vec::new();
    let quiet = |windows: &[Window]| windows.iter().filter(|window| window.is_quiet()).count();
    while all.len() < MOST_WINDOWS && quiet(&all) < QUIET_WINDOWS {
        if stop.load(Ordering::Relaxed) {
            return Err(LoadError::Interrupted);
        }
        all.push(window(soaker, share));
    }
    Ok(Windows { cpu, all })
}

fn window(soaker: &Soaker, share: f64) -> Window {
    let (begin, busy_before) = (soaker.sample(), busy_time());
    let mut period = begin.at;
    for _ in 0..PERIODS_PER_WINDOW {
        spin_until(period + PERIOD.mul_f64(share));
        period += PERIOD;
        thread::sleep(period.saturating_duration_since(Instant::now()));
    }
    let busy = busy_time().saturating_sub(busy_before);
    Window::between(soaker, &begin, &soaker.sample(), busy)
}

fn spin_until(end: Instant) {
    let mut x = 1_u64;
    while Instant::now() < end {
        for _ in 0..100 {
            x = black_box(x.rotate_left(7) ^ 0x5bd1_e995);
        }
    }
}

/// CPU time of the calling thread.
fn busy_time() -> Duration {
    // This clock exists for every thread.
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

impl Window {
    fn between(soaker: &Soaker, begin: &Sample, end: &Sample, busy: Duration) -> Self {
        let share = soaker.share(begin, end);
        let injected = busy.as_secs_f64() / end.at.duration_since(begin.at).as_secs_f64();
        Self { injected, measured: share.load, soaked: share.soaked }
    }

    fn is_quiet(self) -> bool {
        self.soaked.is_some() && self.others() < QUIET
    }

    /// CPU time of all threads but the meter's.
    fn busy(self) -> f64 {
        self.soaked.map_or(self.injected, |soaked| 1.0 - soaked)
    }

    fn others(self) -> f64 {
        self.busy() - self.injected
    }

    /// Share of interrupts in the time that threads leave.
    fn interrupts(self) -> f64 {
        (self.measured - self.busy()) / (1.0 - self.busy())
    }

    fn error(self, interrupts: f64) -> f64 {
        self.measured - self.busy() - (1.0 - self.busy()) * interrupts
    }
}

impl Windows {
    /// The median of the quiet windows, or of all windows if none was quiet.
    fn middle(&self, of: impl Fn(Window) -> f64) -> f64 {
        let quiet = self.quiet() > 0;
        let counted = self.all.iter().filter(|window| window.is_quiet() || !quiet);
        median(&counted.map(|window| of(*window)).collect::<Vec<_>>()).unwrap_or_default()
    }

    fn quiet(&self) -> usize {
        self.all.iter().filter(|window| window.is_quiet()).count()
    }

    fn interrupts(&self) -> f64 {
        let all = self.all.iter().copied().filter(|window| window.busy() < MOST_BUSY).collect();
        Self { cpu: self.cpu, all }.middle(Window::interrupts)
    }

    fn step(&self, interrupts: f64) -> SelfTestStep {
        SelfTestStep {
            cpu: self.cpu,
            injected_percent: self.middle(|window| window.injected) * 100.0,
            others_percent: self.middle(Window::others) * 100.0,
            interrupts_percent: interrupts * 100.0,
            measured_percent: self.middle(|window| window.measured) * 100.0,
            error_points: self.middle(|window| window.error(interrupts)) * 100.0,
            windows: self.all.len(),
            quiet_windows: self.quiet(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(all: &[Window], interrupts: f64) -> SelfTestStep {
        Windows { cpu: 3, all: all.to_vec() }.step(interrupts)
    }

    #[test]
    fn disturbed_windows_count_only_if_no_window_is_quiet() {
        let window = |measured, soaked| Window { injected: 0.5, measured, soaked: Some(soaked) };
        let (loud, quiet) = (window(0.78, 0.25), window(0.51, 0.5));
        let calm = step(&[loud, quiet, loud], 0.0);
        assert_eq!((calm.cpu, calm.windows, calm.quiet_windows), (3, 3, 1));
        assert!((calm.error_points - 1.0).abs() < 1e-9, "{calm:?}");
        // Time of other threads is load, too, so the meter's error is less than its difference from the injected load.
        let disturbed = step(&[loud, loud], 0.0);
        assert_eq!((disturbed.others_percent, disturbed.quiet_windows), (25.0, 0));
        assert!((disturbed.error_points - 3.0).abs() < 1e-9, "{disturbed:?}");
    }

    #[test]
    fn interrupts_are_load_in_the_time_that_threads_leave() {
        let before =
            Windows { cpu: 0, all: vec![Window { injected: 0.0, measured: 0.02, soaked: Some(1.0) }] };
        let interrupts = before.interrupts();
        let step = step(&[Window { injected: 0.75, measured: 0.76, soaked: Some(0.25) }], interrupts);
        assert!((step.error_points - 0.5).abs() < 1e-9, "{step:?}");
        assert!((step.interrupts_percent - 2.0).abs() < 1e-9);
    }

    #[test]
    fn a_busy_cpu_gives_no_share_of_interrupts() {
        let taken = Window { injected: 0.0, measured: 1.0, soaked: Some(0.001) };
        assert_eq!(Windows { cpu: 0, all: vec![taken; 4] }.interrupts(), 0.0);
    }
}
