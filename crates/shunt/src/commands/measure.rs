//! How a measurement is run: interruptible, with a progress bar, and with its results kept in a file.

use super::result_files;
use crate::{
    failure::cut_short,
    output::{Bar, Show},
    render::Answer,
    signals::Interruptible,
};
use shunt_api::Failure;
use shunt_lab::{Conditions, Progress, Results, ResultsFile};
use std::{
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
};

/// Callbacks and options that a measurement gets from its caller.
pub(crate) struct MeasureContext<'s> {
    /// Once set, the measurement must return soon, with the results that it has.
    pub(crate) stop: &'s Arc<AtomicBool>,
    pub(crate) conditions: Conditions,
    pub(crate) show: &'s mut dyn FnMut(Progress),
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

/// The results of a measurement that begins: those of the file to keep them in, or in memory.
pub(crate) fn begin(
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
