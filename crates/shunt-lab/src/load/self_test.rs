//! The meter, tried with load that is known.
//!
//! A thread on each CPU is busy for a part of each period and sleeps for the rest. How much load that is, its own CPU time
//! says (CLOCK_THREAD_CPUTIME_ID) over the time that went by. The thread also reads the meter, at the end of a period, so that
//! both are of the same stretch of time. What others had of the CPU meanwhile, the scheduler says. Interrupts are load that it
//! does not know: what the meter finds of them without the thread is expected to go on in the time that is left to the meter.

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
/// A few ticks. Each ends with a timer, whose interrupt is load that nobody injected: 40 us on a virtual machine.
const PERIOD: Duration = Duration::from_millis(25);
const PERIODS_PER_WINDOW: u32 = 10;
const QUIET_WINDOWS: usize = 9;
const MOST_WINDOWS: usize = 30;
/// What the scheduler may have given to others in a window that counts.
const QUIET: f64 = 0.003;
/// A window that leaves the meter less says nothing about interrupts.
const MOST_BUSY: f64 = 0.9;

/// How far the meter is off.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SelfTest {
    /// The greatest of all steps, whatever its sign.
    pub max_error_points: f64,
    /// On each CPU, each load.
    pub steps: Vec<SelfTestStep>,
    /// Of each CPU.
    pub calibrations: Vec<Calibration>,
    /// Why the errors may be too great.
    pub doubts: Vec<Doubt>,
    /// Of the machine.
    pub conditions: Conditions,
}

/// One load on one CPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SelfTestStep {
    /// Which.
    pub cpu: usize,
    /// The CPU time of the thread that is busy, as a share.
    pub injected_percent: f64,
    /// What the scheduler gave to threads besides that one and the meter.
    pub others_percent: f64,
    /// What interrupts had of the time that was left, by the meter before there was load.
    pub interrupts_percent: f64,
    /// What the meter said.
    pub measured_percent: f64,
    /// By how much that is more than all of these: the median of the windows.
    pub error_points: f64,
    /// How many windows there were.
    pub windows: usize,
    /// How many of them nobody else disturbed. If there are any, only these count.
    pub quiet_windows: usize,
}

/// Those of one step.
#[derive(Debug)]
struct Windows {
    cpu: usize,
    all: Vec<Window>,
}

#[derive(Debug, Clone, Copy)]
struct Window {
    injected: f64,
    measured: f64,
    /// What the meter's thread had by the scheduler's account. That is exact here, since it never runs while this is read.
    soaked: Option<f64>,
}

impl SelfTest {
    /// Takes some seconds, more on a machine that is not quiet. When `stop` is set it ends soon.
    ///
    /// # Errors
    /// When the meter cannot be started, or it was stopped.
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

/// On all CPUs at once, as traffic loads them, and so that each is at the clock it has when all are busy.
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
    // The first one begins wherever the thread was started.
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

/// The CPU time of the calling thread.
fn busy_time() -> Duration {
    // The clock of the calling thread is always there.
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

    /// What threads had of the CPU that are not the meter's.
    fn busy(self) -> f64 {
        self.soaked.map_or(self.injected, |soaked| 1.0 - soaked)
    }

    fn others(self) -> f64 {
        self.busy() - self.injected
    }

    /// Their share of the time that threads leave.
    fn interrupts(self) -> f64 {
        (self.measured - self.busy()) / (1.0 - self.busy())
    }

    fn error(self, interrupts: f64) -> f64 {
        self.measured - self.busy() - (1.0 - self.busy()) * interrupts
    }
}

impl Windows {
    /// The median of those that nobody disturbed, or else of all.
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
    fn windows_that_others_disturbed_count_only_where_there_are_no_others() {
        let window = |measured, soaked| Window { injected: 0.5, measured, soaked: Some(soaked) };
        let (loud, quiet) = (window(0.78, 0.25), window(0.51, 0.5));
        let calm = step(&[loud, quiet, loud], 0.0);
        assert_eq!((calm.cpu, calm.windows, calm.quiet_windows), (3, 3, 1));
        assert!((calm.error_points - 1.0).abs() < 1e-9, "{calm:?}");
        // What others had is load as well, so the meter is off by less than it is from what was injected.
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
    fn a_cpu_that_others_have_tells_nothing_of_interrupts() {
        let taken = Window { injected: 0.0, measured: 1.0, soaked: Some(0.001) };
        assert_eq!(Windows { cpu: 0, all: vec![taken; 4] }.interrupts(), 0.0);
    }
}
