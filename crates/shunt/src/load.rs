//! Does what `shunt load` asks for.

use crate::{perform::Show, render::Answer};
use shunt_api::{Failure, FailureCode};
use shunt_lab::load::{LoadError, Meter, SelfTest};
use std::time::Duration;
use tokio::{
    select,
    signal::unix::{SignalKind, signal},
    time::{Instant, sleep_until},
};

/// Shows the load of each interval, so many times or until a signal ends it.
pub(crate) async fn watch(
    cpus: Option<Vec<usize>>,
    interval: Duration,
    count: Option<u64>,
    show: Show<'_>,
) -> anyhow::Result<()> {
    // Before the meter: it must be stopped, not cut off, so that it takes its control group along.
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    let mut meter = Meter::start(cpus.as_deref()).map_err(failure)?;
    let mut next = Instant::now();
    for _ in 0..count.unwrap_or(u64::MAX) {
        next += interval;
        select! {
            () = sleep_until(next) => {}
            _ = interrupted.recv() => return Ok(()),
            _ = terminated.recv() => return Ok(()),
        }
        show(&Answer::Load(meter.read().map_err(failure)?))?;
    }
    Ok(())
}

pub(crate) fn self_test(cpus: Option<Vec<usize>>) -> Result<SelfTest, Failure> {
    SelfTest::run(cpus.as_deref()).map_err(failure)
}

pub(crate) fn failure(error: LoadError) -> Failure {
    let code = match error {
        LoadError::NotAllowed { .. } | LoadError::Busy { .. } => FailureCode::Usage,
        _ => FailureCode::Internal,
    };
    Failure::new(code, error.to_string())
}
