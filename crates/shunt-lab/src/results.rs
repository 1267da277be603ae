//! The file of results: readable by every Shunt that has the same format version.

mod earlier_rates;
mod file;

use crate::{Conditions, MachineSample, MachineState, Reading, labels::earlier_names};
pub use file::ResultsFile;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

const FORMAT: &str = "shunt-result";
/// The format version. Raised when an existing field changes its meaning; not raised for new fields and doubts.
const VERSION: u32 = 1;
/// The measurement whose readings had only names.
const EARLIER_MATRIX: &str = "goodput matrix";
/// The measurement whose readings had no positions.
const EARLIER_TRAFFIC: &str = "traffic";

/// The results of a measurement, with their conditions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// The name of the measurement: `load`, `throughput`.
    pub what: String,
    /// The start of the measurement, in UTC by RFC 3339.
    pub began: String,
    /// Whether the measurement ran to its end; false if it was interrupted.
    pub complete: bool,
    /// Machine and settings.
    pub conditions: Conditions,
    /// The readings, by name.
    pub readings: BTreeMap<String, Reading>,
    /// For each reading that could not be measured, the reason.
    #[serde(default)]
    pub missing: BTreeMap<String, String>,
    /// The state of this machine during the runs, in the order of time; empty if nothing recorded it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machine: Vec<MachineSample>,
}

/// An error of reading or opening a file of results.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The JSON ends early.
    #[error("the file ends early, after {lines} lines: copy it again, or measure again")]
    Truncated {
        /// Number of lines in the file.
        lines: usize,
    },
    /// The file is something else, such as a text.
    #[error(
        "not a Shunt result file: it is not JSON, as `--keep` of a measurement writes it; name another file"
    )]
    NotJson,
    /// The file is JSON but not a file of results.
    #[error(
        "not a Shunt result file, but other JSON: `format` is missing or has another value; name a file that `--keep` of \
         a measurement wrote"
    )]
    Format,
    /// The file has another format version.
    #[error("format version {found}; this Shunt reads version {VERSION}: use the Shunt that wrote the file")]
    Version {
        /// The version in the file.
        found: u64,
    },
    /// The file has results of another measurement, so runs cannot be added.
    #[error("the file has runs of `{found}`, not of `{wanted}`: name another file")]
    Other {
        /// The measurement in the file.
        found: String,
        /// The measurement whose runs were to be added.
        wanted: String,
    },
    /// The path is a device or a pipe, which cannot be rewritten.
    #[error("not a regular file: results are rewritten after each run; name another file")]
    NoFile,
    /// A field is missing or has the wrong type.
    #[error("not a file of results, which `--keep` of a measurement writes, or a damaged one: {0}")]
    Damaged(#[source] serde_json::Error),
}

/// The file's content: the format's name and version, the results, and extra fields.
#[derive(Serialize)]
struct Envelope<'r> {
    format: &'static str,
    version: u32,
    #[serde(flatten)]
    results: &'r Results,
    #[serde(flatten)]
    extra: &'r Map<String, Value>,
}

impl Results {
    /// Empty results of a measurement that begins now.
    pub fn new(what: &str, conditions: Conditions) -> Self {
        Self {
            what: what.to_owned(),
            began: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            complete: false,
            conditions,
            readings: BTreeMap::new(),
            missing: BTreeMap::new(),
            machine: Vec::new(),
        }
    }

    /// Reads a file of results.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or as [`parse`](Self::parse).
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let text = fs::read_to_string(path);
        Self::parse(&text.map_err(|source| ReadError::File { path: path.to_owned(), source })?)
    }

    /// Parses the text of a file of results.
    ///
    /// # Errors
    /// Fails if the text is not a complete file of results of this version.
    pub fn parse(text: &str) -> Result<Self, ReadError> {
        let value: Value = serde_json::from_str(text).map_err(|error| match error.is_eof() {
            true => ReadError::Truncated { lines: text.lines().count() },
            false if !text.trim_start().starts_with('{') => ReadError::NotJson,
            false => ReadError::Damaged(error),
        })?;
        if value["format"] != FORMAT {
            return Err(ReadError::Format);
        }
        match value["version"].as_u64() {
            Some(found) if found == u64::from(VERSION) => {}
            Some(found) => return Err(ReadError::Version { found }),
            None => return Err(ReadError::Format),
        }
        let mut results: Self = serde_json::from_value(value).map_err(ReadError::Damaged)?;
        results.label_earlier_names();
        if results.what == EARLIER_TRAFFIC && results.readings.values().all(|one| one.position.is_none()) {
            earlier_rates::set_positions(&mut results.readings);
        }
        results.readings.values_mut().for_each(Reading::correct_interval);
        Ok(results)
    }

    /// The state of the machine during all runs; None if nothing recorded it.
    pub fn machine_state(&self) -> Option<MachineState> {
        MachineState::of_samples(self.machine.iter())
    }

    /// Labels the readings of a goodput matrix of a version without labels.
    fn label_earlier_names(&mut self) {
        if self.what != EARLIER_MATRIX || self.readings.values().any(|reading| !reading.labels.is_empty()) {
            return;
        }
        for (name, reading) in &mut self.readings {
            reading.labels = earlier_names::labels(name).unwrap_or_default();
        }
    }

    /// Serializes a report that has a file of results and further fields: `#[serde(flatten, serialize_with =
    /// "Results::serialize_file")]`.
    ///
    /// # Errors
    /// Returns the serializer's errors.
    pub(crate) fn serialize_file<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.envelope(&Map::new()).serialize(serializer)
    }

    fn envelope<'r>(&'r self, extra: &'r Map<String, Value>) -> Envelope<'r> {
        Envelope { format: FORMAT, version: VERSION, results: self, extra }
    }

    /// The text of a file of results.
    ///
    /// # Errors
    /// Does not fail for values of these types: each has a JSON form.
    pub fn to_json(&self) -> serde_json::Result<String> {
        self.to_json_with(&Map::new())
    }

    fn to_json_with(&self, extra: &Map<String, Value>) -> serde_json::Result<String> {
        Ok(serde_json::to_string_pretty(&self.envelope(extra))? + "\n")
    }
}

#[cfg(test)]
mod tests;
