//! Turns errors of files and of the lab into the [`Failure`] that the operator sees: an exit code and one line.

use shunt_api::{Failure, FailureCode, reword_json};
use shunt_lab::{ReadError, load::LoadError, traffic};
use std::path::Path;

/// The command line contradicts itself or asks for something impossible.
pub(crate) fn usage(message: impl Into<String>) -> Failure {
    Failure::new(FailureCode::Usage, message)
}

/// A file that was named on the command line is wrong; the message names the file.
pub(crate) fn bad_config(message: impl Into<String>) -> Failure {
    Failure::new(FailureCode::BadConfig, message)
}

/// A file cannot be read, written or understood.
pub(crate) fn bad_file(path: &Path, why: impl std::fmt::Display) -> Failure {
    bad_config(format!("{}: {why}", path.display()))
}

/// A JSON file is not `wanted`; the message has the line, and what is wrong there.
pub(crate) fn bad_json(path: &Path, wanted: &str, error: &serde_json::Error) -> Failure {
    let why = reword_json(&error.to_string());
    let place = if error.line() == 0 { String::new() } else { format!("line {}: ", error.line()) };
    bad_file(path, format!("not {wanted}: {place}{why}"))
}

/// No network device of this namespace has this name.
pub(crate) fn no_device(name: &str) -> Failure {
    let why = format!("{name}: no such device in this network namespace; see `ip link`");
    Failure::new(FailureCode::PortMissing, why)
}

/// A file of results cannot be read.
pub(crate) fn unreadable_results(path: &Path, error: ReadError) -> Failure {
    match error {
        // The error's own text begins with the path.
        ReadError::File { source, .. } => bad_file(path, source),
        other => bad_file(path, other),
    }
}

/// A measurement with traffic failed.
pub(crate) fn traffic_failed(error: traffic::Error) -> Failure {
    let code = match &error {
        traffic::Error::Dut(failure) => return failure.clone(),
        traffic::Error::NotRoot => FailureCode::NotRoot,
        traffic::Error::NoDevice(_) => FailureCode::PortMissing,
        traffic::Error::Busy(_) => FailureCode::PortBusy,
        traffic::Error::Asked(_) => FailureCode::Usage,
        _ => FailureCode::Internal,
    };
    Failure::new(code, error.to_string())
}

/// The CPU load meter failed.
pub(crate) fn load_meter_failed(error: LoadError) -> Failure {
    let code = match error {
        LoadError::NotAllowed { .. } | LoadError::Busy { .. } | LoadError::Interrupted => FailureCode::Usage,
        _ => FailureCode::Internal,
    };
    Failure::new(code, error.to_string())
}

/// A signal ended a measurement early, and its results so far were shown.
pub(crate) fn cut_short(signal: FailureCode) -> Failure {
    Failure::new(signal, format!("{signal}: the results above cover only the time until the signal"))
}
