//! Answers without a daemon: from the files that the last one has kept.

use crate::{
    history::{self, History, Range},
    kept_file::KeptFile,
    start::state_directory,
    usage,
};
use serde::de::DeserializeOwned;
use shunt_api::{Failure, FailureCode, HistoryTable, Instance, Usage, UsageQuery};

/// What hosts had used when the last daemon wrote its file. `query` is a [`UsageQuery`] in JSON.
///
/// # Errors
/// As [`KeptFile::peek`], or if the query is wrong.
pub(crate) fn usage(instance: &Instance, query: &str) -> Result<Usage, Failure> {
    let query: UsageQuery = parse(query)?;
    let file = KeptFile::new(instance.usage_path(&state_directory()), usage::FILE_BYTES_MAX);
    usage::answer_from(&file, &query)
}

/// The history when the last daemon wrote its file; its end is the present of the answer. `range` is a [`Range`] in
/// JSON.
///
/// # Errors
/// As [`KeptFile::peek`], or if the range is wrong.
pub(crate) fn history(instance: &Instance, range: &str) -> Result<HistoryTable, Failure> {
    let range: Range = parse(range)?;
    let file = KeptFile::new(instance.history_path(&state_directory()), history::FILE_BYTES_MAX);
    History::answer_from(&file, range)
}

fn parse<T: DeserializeOwned>(query: &str) -> Result<T, Failure> {
    serde_json::from_str(query).map_err(|error| Failure::new(FailureCode::Usage, error.to_string()))
}
