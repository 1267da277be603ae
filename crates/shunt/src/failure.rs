//! Turns errors of files and of the lab into the [`Failure`] that the operator sees: an exit code and one line.

#[cfg(feature = "full")]
mod measurement;

#[cfg(feature = "full")]
pub(crate) use measurement::{cut_short, load_meter_failed, traffic_failed, unreadable_results};
use shunt_api::{Failure, FailureCode, cannot_read, cannot_write, reword_json};
use std::{io, path::Path};

/// The command line contradicts itself or asks for something impossible.
pub(crate) fn usage(message: impl Into<String>) -> Failure {
    Failure::new(FailureCode::Usage, message)
}

/// A file that was named on the command line is wrong; the message names the file.
pub(crate) fn bad_config(message: impl Into<String>) -> Failure {
    Failure::new(FailureCode::BadConfig, message)
}

/// A file cannot be read; the message says what to do.
pub(crate) fn unreadable(path: &Path, error: &io::Error) -> Failure {
    bad_file(path, cannot_read(error))
}

/// A file cannot be written; the message says what to do.
pub(crate) fn unwritable(path: &Path, error: &io::Error) -> Failure {
    let directory = path.parent().filter(|_| error.kind() == io::ErrorKind::NotFound);
    if directory.is_some_and(Path::is_dir) {
        // As in /proc, or if the path is a symbolic link to nowhere.
        return bad_file(path, "no file can be made here: name a file in another directory");
    }
    bad_file(path, cannot_write(path, error))
}

/// A file is not what it should be.
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
    Failure::new(FailureCode::PortMissing, shunt_api::no_device(name))
}
