//! Does what `shunt load` asks for.

use crate::{
    ends::{Ends, cut_short},
    perform::Show,
    render::Answer,
};
use shunt_api::{Failure, FailureCode};
use shunt_lab::load::{LoadError, Meter, SelfTest};
use std::{sync::atomic::AtomicBool, time::Duration};
use tokio::{
    select,
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
    let mut ends = Ends::new()?;
    let mut meter = Meter::start(cpus.as_deref()).map_err(failure)?;
    let mut next = Instant::now();
    for _ in 0..count.unwrap_or(u64::MAX) {
        next += interval;
        select! {
            () = sleep_until(next) => {}
            by = ends.next() => return count.map_or(Ok(()), |_| Err(cut_short(by).into())),
        }
        show(&Answer::Load(meter.read().map_err(failure)?))?;
    }
    Ok(())
}

pub(crate) fn self_test(cpus: Option<&[usize]>, stop: &AtomicBool) -> Result<SelfTest, Failure> {
    SelfTest::run(cpus, stop).map_err(failure)
}

pub(crate) fn failure(error: LoadError) -> Failure {
    let code = match error {
        LoadError::NotAllowed { .. } | LoadError::Busy { .. } | LoadError::Interrupted => FailureCode::Usage,
        _ => FailureCode::Internal,
    };
    Failure::new(code, error.to_string())
}
