//! Measures the steps of the event loop: what a turn of the loop does between two waits.

use shunt_api::LongestStep;
use shunt_bpf::schedule;
use std::{
    cell::Cell,
    collections::VecDeque,
    future::poll_fn,
    pin::pin,
    time::{Duration, Instant},
};

/// The period that is reported.
const PERIOD: Duration = Duration::from_secs(60);

/// The longest step of each of the last seconds.
#[derive(Debug, Default)]
pub(crate) struct StepMeter(VecDeque<Step>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    name: &'static str,
    end: Instant,
    /// Wall time.
    took: Duration,
    /// CPU time of the thread.
    cpu: Duration,
}

/// When a step started.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepStart {
    wall: Instant,
    cpu: Duration,
}

impl StepStart {
    pub(crate) fn now() -> Self {
        Self { wall: Instant::now(), cpu: schedule::used() }
    }
}

/// Waits for `event`, and returns with it when the last poll of it started: a step includes reading what has happened.
pub(crate) async fn next_step<T>(event: impl Future<Output = T>) -> (T, StepStart) {
    let start = Cell::new(StepStart::now());
    let mut event = pin!(event);
    let event = poll_fn(|context| {
        start.set(StepStart::now());
        event.as_mut().poll(context)
    })
    .await;
    (event, start.get())
}

impl StepMeter {
    /// Records a step that ends now.
    pub(crate) fn record(&mut self, name: &'static str, start: StepStart) {
        let end = Instant::now();
        let cpu = schedule::used().saturating_sub(start.cpu);
        self.add(Step { name, end, took: end.duration_since(start.wall), cpu });
    }

    fn add(&mut self, step: Step) {
        while self.0.front().is_some_and(|first| step.end.duration_since(first.end) >= PERIOD) {
            self.0.pop_front();
        }
        match self.0.back_mut() {
            Some(last) if step.end.duration_since(last.end) < Duration::from_secs(1) => {
                if step.took > last.took {
                    *last = Step { end: last.end, ..step };
                }
            }
            _ => self.0.push_back(step),
        }
    }

    /// The longest step of the last minute; `None` before the first one.
    pub(crate) fn longest(&self) -> Option<LongestStep> {
        let longest = self.0.iter().max_by_key(|step| step.took)?;
        Some(LongestStep {
            name: longest.name.to_owned(),
            seconds: longest.took.as_secs_f64(),
            cpu_seconds: longest.cpu.as_secs_f64(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_step_is_forgotten_after_a_minute() {
        let start = Instant::now();
        let mut meter = StepMeter::default();
        let mut step = |at_ms: u64, name, took_ms| {
            let end = start + Duration::from_millis(at_ms);
            meter.add(Step { name, end, took: Duration::from_millis(took_ms), cpu: Duration::ZERO });
            meter.longest().unwrap().name
        };
        assert_eq!(step(0, "tick", 1), "tick");
        assert_eq!(step(500, "netlink", 7), "netlink");
        assert_eq!(step(900, "tick", 2), "netlink");
        assert_eq!(step(30_000, "call", 3), "netlink");
        assert_eq!(step(59_900, "tick", 1), "netlink");
        assert_eq!(step(60_000, "tick", 1), "call");
        assert_eq!(step(90_000, "tick", 2), "tick");
        assert!(meter.0.len() <= 61);
    }

    #[tokio::test]
    async fn a_wait_is_no_part_of_a_step() {
        let before = Instant::now();
        let ((), start) = next_step(tokio::time::sleep(Duration::from_millis(30))).await;
        assert!(start.wall >= before + Duration::from_millis(30));
    }
}
