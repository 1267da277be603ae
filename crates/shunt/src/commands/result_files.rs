//! Files of results that `--keep` writes, and that `shunt compare` and `shunt report` read.

use super::doctor::record::is_record;
use crate::failure::{bad_file, unreadable_results, unwritable};
use shunt_api::Failure;
use shunt_lab::{ReadError, Results, ResultsFile};
use std::path::{Path, PathBuf};

/// Reads a whole file of results.
pub(crate) fn read(path: &Path) -> Result<Results, Failure> {
    Results::read(path)
        .map_err(|error| record_of_doctor(path).unwrap_or_else(|| unreadable_results(path, error)))
}

/// What to do with a file that `shunt doctor --record` wrote; `None` if it is none.
pub(crate) fn record_of_doctor(path: &Path) -> Option<Failure> {
    let shows = format!("`shunt doctor --recorded {}` shows it", path.display());
    let why = format!("a record of `shunt doctor`, not a Shunt result file: {shows}");
    is_record(path).then(|| bad_file(path, why))
}

/// Opens a file for new runs; runs that the file has already are kept.
pub(crate) fn open(path: PathBuf, results: Results) -> Result<ResultsFile, Failure> {
    let name = path.clone();
    ResultsFile::resume(path, results).map_err(|error| match error {
        ReadError::File { path, source } => unwritable(&path, &source),
        other => bad_file(&name, other),
    })
}
