//! Turns errors of files and of the lab into the [`Failure`] that the operator sees: an exit code and one line.

#[cfg(feature = "full")]
mod measurement;

#[cfg(feature = "full")]
pub(crate) use measurement::{cut_short, load_meter_failed, traffic_failed, unreadable_results};
use shunt_api::{Failure, FailureCode, reword_json};
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
