//! Files of results that `--keep` writes, and that `shunt compare` and `shunt report` read.

use crate::failure::{bad_file, unreadable_results};
use shunt_api::Failure;
use shunt_lab::{ReadError, Results, ResultsFile};
use std::{
    io,
    path::{Path, PathBuf},
};

/// Reads a whole file of results.
pub(crate) fn read(path: &Path) -> Result<Results, Failure> {
    Results::read(path).map_err(|error| unreadable_results(path, error))
}

/// Opens a file for new runs; runs that the file has already are kept.
pub(crate) fn open(path: PathBuf, results: Results) -> Result<ResultsFile, Failure> {
    let name = path.clone();
    ResultsFile::resume(path, results).map_err(|error| match error {
        ReadError::File { .. } => crate::failure::bad_config(error.to_string()),
        other => bad_file(&name, other),
    })
}

/// Writes what is still missing from the file, and marks the file as complete unless the measurement was cut short.
pub(crate) fn close(file: Option<ResultsFile>, complete: bool) -> io::Result<()> {
    match file {
        Some(file) if complete => file.finish().map(drop),
        Some(file) => file.save_incomplete(),
        None => Ok(()),
    }
}
