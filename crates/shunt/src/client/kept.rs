//! Answers of a daemon, or, while none runs, from the files that the last one has kept.

use super::control::{Client, is_not_running};
use crate::{daemon::Program, render::clock};
use serde::{Serialize, de::DeserializeOwned};
use shunt_api::{Failure, FailureCode, Instance};

/// An answer, and whether a daemon gave it.
pub(crate) struct Answered<T> {
    pub(crate) answer: T,
    /// Whether it comes from a file, because no daemon runs.
    pub(crate) is_kept: bool,
}

/// Asks the daemon at this path; if none runs, asks `shuntd` with this option for what the last one has kept.
///
/// # Errors
/// If no daemon runs, and none has kept anything that this user may read.
pub(crate) async fn get_or_kept<T: DeserializeOwned>(
    client: &Client,
    path: &str,
    (option, query): (&str, &impl Serialize),
) -> anyhow::Result<Answered<T>> {
    let error = match client.get(path).await {
        Ok(answer) => return Ok(Answered { answer, is_kept: false }),
        Err(error) if is_not_running(&error) => error,
        Err(error) => return Err(error),
    };
    let words = [serde_json::to_string(query)?, format!("--instance={}", client.instance())];
    let kept = Program::find()
        .map_err(anyhow::Error::from)
        .and_then(|program| program.ask(option, &words.map(Into::into)));
    match kept {
        Ok(answer) => Ok(Answered { answer, is_kept: true }),
        // Nothing was kept.
        Err(none) if is_not_running(&none) => Err(error),
        Err(why) => {
            let why = format!("{error}; what it kept cannot be shown: {why}");
            Err(error.context(Failure::new(FailureCode::NotRunning, why)))
        }
    }
}

/// The failure of a command that has shown what was kept until this time, in seconds since 1970.
pub(crate) fn kept_until(instance: &Instance, at: u64) -> Failure {
    let (which, how) = if *instance == Instance::default() {
        ("shuntd".to_owned(), String::new())
    } else {
        (format!("shuntd of instance `{instance}`"), format!(" --instance {instance}"))
    };
    let until = clock::second(at);
    let why =
        format!("{which} is not running; this is what it kept until {until}; start it with `shunt up{how}`");
    Failure::new(FailureCode::NotRunning, why)
}
