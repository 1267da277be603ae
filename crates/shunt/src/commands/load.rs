//! `shunt load`: shows the CPU load at intervals, or tests the meter itself.

pub(crate) mod view;

use super::{
    arguments::{SHORTEST_INTERVAL, time_from},
    measure::measure_and_show,
};
use crate::{
    command::{Command, Context},
    failure::{cut_short, load_meter_failed},
    output::Show,
    signals::Signals,
};
use clap::Args;
use shunt_lab::load::{Meter, SelfTest};
use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};
use tokio::{
    select,
    time::{Instant, sleep_until},
};

/// Show the load of each CPU, including softirqs and interrupts.
///
/// On each CPU, a thread of the class SCHED_IDLE does work of known duration; the work that the thread cannot do is the
/// load. A calibration of about a second comes first, so start it before the traffic. While the command runs, CPUs do
/// not sleep, and a control group shunt-load-PID exists. The columns speed and memory are relative to the calibration;
/// meter is the share of time that the thread ran.
#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    /// The time that each line covers, at least 100ms.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time_from(SHORTEST_INTERVAL))]
    interval: Duration,
    /// End after this many intervals.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Only this CPU; may be given several times [default: all CPUs that this process may use].
    #[arg(long = "cpu", value_name = "CPU")]
    cpus: Vec<usize>,
    /// Test the accuracy of the meter with loads of 25, 50 and 75 % that it makes itself.
    #[arg(long, conflicts_with_all = ["interval", "count"])]
    self_test: bool,
}

impl Command for LoadArgs {
    type Plan = Self;
    const EXAMPLES: &str = "
        [shunt load]
        shunt load --count 3 # three lines of a second each
    ";

    fn resolve(self, _: &Context) -> anyhow::Result<Self> {
        Ok(self)
    }

    async fn run(plan: Self, _: &Context, show: Show<'_>) -> anyhow::Result<()> {
        let Self { interval, count, cpus, self_test } = plan;
        let cpus = (!cpus.is_empty()).then_some(cpus);
        if self_test {
            let test = move |stop: &Arc<AtomicBool>| {
                Ok(SelfTest::run(cpus.as_deref(), stop).map_err(load_meter_failed)?)
            };
            return measure_and_show(show, test).await;
        }
        show_intervals(cpus, interval, count, show).await
    }
}

/// Shows the load of each interval, `count` times or until a signal arrives.
async fn show_intervals(
    cpus: Option<Vec<usize>>,
    interval: Duration,
    count: Option<u64>,
    show: Show<'_>,
) -> anyhow::Result<()> {
    // Installed before the meter starts: a signal must stop the meter, so that it removes its control group.
    let mut signals = Signals::install()?;
    let mut meter = Meter::start(cpus.as_deref()).map_err(load_meter_failed)?;
    let mut next = Instant::now();
    for _ in 0..count.unwrap_or(u64::MAX) {
        next += interval;
        select! {
            () = sleep_until(next) => {}
            signal = signals.next() => return count.map_or(Ok(()), |_| Err(cut_short(signal).into())),
        }
        show(&meter.read().map_err(load_meter_failed)?)?;
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests {
    use super::{super::arguments::parse_args, *};
    use clap::error::ErrorKind;

    #[test]
    fn load_takes_intervals_or_a_self_test_but_not_both() {
        let parse = |words: &str| parse_args::<LoadArgs>(words);
        let typed = parse("--interval 2s --count 3 --cpu 0 --cpu 2").unwrap();
        assert_eq!((typed.interval, typed.count, typed.cpus), (Duration::from_secs(2), Some(3), vec![0, 2]));
        assert!(parse("--self-test --cpu 1").unwrap().self_test);
        let refusal = |words: &str| parse(words).unwrap_err().kind();
        assert_eq!(refusal("--interval 99ms"), ErrorKind::ValueValidation);
        assert_eq!(refusal("--count 0"), ErrorKind::ValueValidation);
        assert_eq!(refusal("--self-test --count 1"), ErrorKind::ArgumentConflict);
    }
}
