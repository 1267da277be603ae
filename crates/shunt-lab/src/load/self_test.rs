//! The meter, tried with load that is known.
//!
//! A thread on each CPU is busy for a part of each period and sleeps for the rest. How much load that is, its own CPU time
//! says (CLOCK_THREAD_CPUTIME_ID) over the time that went by. The thread also reads the meter, at the end of a period, so that
//! both are of the same stretch of time.

use super::{
    Calibration, LoadError, Meter,
    soaker::{self, Sample, Soaker},
};
use crate::{Conditions, Doubt, statistics::median};
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::{
    hint::black_box,
    io, thread,
    time::{Duration, Instant},
};

const INJECTED: [f64; 3] = [0.25, 0.5, 0.75];
/// Shorter than a few ticks, as packets come.
const PERIOD: Duration = Duration::from_millis(10);
const PERIODS_PER_WINDOW: u32 = 25;
const QUIET_WINDOWS: usize = 5;
const MOST_WINDOWS: usize = 30;
/// What the scheduler may have given to others in a window that counts.
const QUIET: f64 = 0.003;

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
    /// What the meter said.
    pub measured_percent: f64,
    /// Their difference: the median of the windows.
    pub error_points: f64,
    /// The difference to all that the scheduler did not give to the meter, others than the busy thread included.
    pub error_by_scheduler_points: Option<f64>,
    /// How many windows there were.
    pub windows: usize,
    /// How many of them nobody else disturbed. If there are any, only these count.
    pub quiet_windows: usize,
}

#[derive(Debug, Clone, Copy)]
struct Window {
    injected: f64,
    measured: f64,
    /// What the meter's thread had by the scheduler's account. That is exact here, since it never runs while this is read.
    soaked: Option<f64>,
}

impl SelfTest {
    /// Takes some seconds, more on a machine that is not quiet.
    ///
    /// # Errors
    /// When the meter cannot be started.
    pub fn run(cpus: Option<&[usize]>) -> Result<Self, LoadError> {
        let mut meter = Meter::start(cpus)?;
        let mut steps = Vec::new();
        for share in INJECTED {
            // All at once, as traffic loads CPUs, and so that each is at the clock it has when all are busy.
            let all: Result<Vec<SelfTestStep>, LoadError> = thread::scope(|scope| {
                let threads: Vec<_> =
                    meter.soakers.iter().map(|soaker| scope.spawn(move || inject(soaker, share))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(panicked()))).collect()
            });
            steps.extend(all?);
        }
        let load = meter.read()?;
        let mut doubts = load.doubts;
        for step in steps.iter().filter(|step| step.quiet_windows == 0) {
            doubts.push(Doubt::Disturbed { cpu: step.cpu, percent: step.error_points.abs() });
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

fn inject(soaker: &Soaker, share: f64) -> Result<SelfTestStep, LoadError> {
    let cpu = soaker.cpu();
    let failed = |source| LoadError::System { what: format!("pinning a thread to CPU {cpu}"), source };
    soaker::pin(cpu).map_err(failed)?;
    // The first one begins wherever the thread was started.
    window(soaker, share);
    let mut windows = Vec::new();
    let quiet = |windows: &[Window]| windows.iter().filter(|window| window.is_quiet()).count();
    while windows.len() < MOST_WINDOWS && quiet(&windows) < QUIET_WINDOWS {
        windows.push(window(soaker, share));
    }
    Ok(SelfTestStep::of_windows(cpu, &windows))
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
        self.soaked.is_some_and(|soaked| 1.0 - soaked - self.injected < QUIET)
    }

    fn error_points(self) -> f64 {
        (self.measured - self.injected) * 100.0
    }
}

impl SelfTestStep {
    fn of_windows(cpu: usize, windows: &[Window]) -> Self {
        let quiet: Vec<Window> = windows.iter().copied().filter(|window| window.is_quiet()).collect();
        let counted = if quiet.is_empty() { windows } else { &quiet };
        let middle =
            |of: fn(&Window) -> f64| median(&counted.iter().map(of).collect::<Vec<_>>()).unwrap_or_default();
        let by_scheduler: Vec<f64> = counted
            .iter()
            .filter_map(|window| Some((window.measured - (1.0 - window.soaked?)) * 100.0))
            .collect();
        Self {
            cpu,
            injected_percent: middle(|window| window.injected * 100.0),
            measured_percent: middle(|window| window.measured * 100.0),
            error_points: middle(|window| window.error_points()),
            error_by_scheduler_points: median(&by_scheduler),
            windows: windows.len(),
            quiet_windows: quiet.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_that_others_disturbed_count_only_where_there_are_no_others() {
        let window = |measured, soaked| Window { injected: 0.5, measured, soaked: Some(soaked) };
        let (loud, quiet) = (window(0.75, 0.25), window(0.51, 0.499));
        let step = SelfTestStep::of_windows(3, &[loud, quiet, loud]);
        assert_eq!((step.cpu, step.windows, step.quiet_windows), (3, 3, 1));
        assert!((step.error_points - 1.0).abs() < 1e-9, "{step:?}");
        let step = SelfTestStep::of_windows(3, &[loud, loud]);
        assert!((step.error_points - 25.0).abs() < 1e-9 && step.quiet_windows == 0, "{step:?}");
        assert!(step.error_by_scheduler_points.is_some_and(|points| points.abs() < 1e-9));
    }
}
