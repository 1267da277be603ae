//! Failures of measurements.

use super::{bad_file, unreadable};
use shunt_api::{Failure, FailureCode};
use shunt_lab::{ReadError, load::LoadError, traffic};
use std::path::Path;

/// A file of results cannot be read.
pub(crate) fn unreadable_results(path: &Path, error: ReadError) -> Failure {
    match error {
        // The error's own text begins with the path.
        ReadError::File { source, .. } => unreadable(path, &source),
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
