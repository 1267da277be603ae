//! How a measurement is run: interruptible, with a progress bar, and with its results kept in a file.

use super::result_files;
use crate::{
    failure::{cut_short, traffic_failed},
    output::{Bar, Show},
    render::Answer,
    signals::Interruptible,
};
use shunt_api::Failure;
use shunt_lab::{Conditions, Progress, Results, ResultsFile, traffic::require_root};
use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

/// Callbacks and options that a measurement gets from its caller.
pub(crate) struct MeasureContext<'s> {
    /// Once set, the measurement must return soon, with the results that it has.
    pub(crate) stop: &'s Arc<AtomicBool>,
    pub(crate) conditions: Conditions,
    pub(crate) show: &'s mut dyn FnMut(Progress),
}

/// A measurement that was resolved: what a subcommand of `shunt bench`, or a step of a campaign, runs.
pub(crate) trait Measurement: fmt::Debug + Send {
    /// Estimated duration; zero for simulated routers.
    fn expected_duration(&self) -> Duration;

    /// Whether only root can measure.
    fn needs_root(&self) -> bool {
        true
    }

    /// Measures, until the end or until the context says to stop. What the answer prints with --json is a file of
    /// results.
    fn measure(self: Box<Self>, context: MeasureContext) -> anyhow::Result<Box<dyn Answer + Send>>;
}

/// Measures on another thread and shows the results, or those obtained until a signal arrived.
pub(crate) async fn measure_and_show<A: Answer + Send + 'static>(
    show: Show<'_>,
    measure: impl FnOnce(&Arc<AtomicBool>) -> anyhow::Result<A> + Send + 'static,
) -> anyhow::Result<()> {
    let mut interruptible = Interruptible::new()?;
    let measured = interruptible.run(measure).await;
    let answer = measured.map_err(|error| match interruptible.signal() {
        Some(signal) => Failure::new(signal, error.to_string()).into(),
        None => error,
    })?;
    show(&answer)?;
    let failure = interruptible.signal().map(cut_short).or_else(|| answer.failure());
    failure.map_or(Ok(()), |failure| Err(failure.into()))
}

/// Measures under the conditions of this machine, with a progress bar.
pub(crate) fn with_progress_bar<T>(
    stop: &Arc<AtomicBool>,
    measure: impl FnOnce(MeasureContext) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let bar = Bar::new();
    let conditions = Conditions::of_this_machine();
    measure(MeasureContext { stop, conditions, show: &mut |progress| bar.show(&progress) })
}

/// The results of a measurement that begins: those of the file to keep them in, or in memory. The state of this machine
/// is recorded with each run.
pub(crate) fn begin(
    what: &str,
    keep: Option<PathBuf>,
    conditions: Conditions,
) -> Result<ResultsFile, Failure> {
    let mut file = begin_simulated(what, keep, conditions)?;
    file.record_machine();
    Ok(file)
}

/// As [`begin`], for results that do not depend on this machine.
pub(crate) fn begin_simulated(
    what: &str,
    keep: Option<PathBuf>,
    conditions: Conditions,
) -> Result<ResultsFile, Failure> {
    let results = Results::new(what, conditions);
    match keep {
        Some(path) => result_files::open(path, results),
        None => Ok(ResultsFile::in_memory(results)),
    }
}

/// Measures on another thread, with a progress bar, and shows the results.
pub(crate) async fn run_measurement(measurement: Box<dyn Measurement>, show: Show<'_>) -> anyhow::Result<()> {
    measure_and_show(show, move |stop| with_progress_bar(stop, |context| measurement.measure(context))).await
}

/// Fails if the measurement needs root and this process is not root.
pub(crate) fn check_root(measurement: &dyn Measurement) -> Result<(), Failure> {
    if measurement.needs_root() { require_root().map_err(traffic_failed) } else { Ok(()) }
}
