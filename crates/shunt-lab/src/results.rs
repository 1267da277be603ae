//! The file of results: rewritten after each run, readable by every Shunt that has the same format version.

use crate::{
    Conditions, Doubt, Labels, Limit, MachineSample, Nic, Position, Reading, Run,
    labels::earlier_names,
    machine::{MachineMeter, rfc3339_now},
};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};
use std::{
    collections::BTreeMap,
    fs::{self, Permissions},
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::SystemTime,
};
use tempfile::Builder;

const FORMAT: &str = "shunt-result";
/// The format version. Raised when an existing field changes its meaning; not raised for new fields and doubts.
const VERSION: u32 = 1;
/// The measurement whose readings had only names.
const EARLIER_MATRIX: &str = "goodput matrix";

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

/// Results that are written to disk after each run by [`ResultsFile::save`], or kept in memory only. Dropping this
/// writes what is not on disk yet.
#[derive(Debug)]
pub struct ResultsFile {
    path: Option<PathBuf>,
    results: Results,
    extra: Map<String, Value>,
    /// Whether the file on disk lacks something.
    changed: bool,
    meter: Option<MachineMeter>,
    /// Whether the state of the machine is recorded for the current run.
    sampled: bool,
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
    /// The file is JSON but not a file of results.
    #[error("not a Shunt result file: `format` is missing")]
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
    #[error("not a regular file: results are rewritten after each run")]
    NoFile,
    /// A field is missing or has the wrong type.
    #[error("damaged file of results: {0}")]
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
        results.readings.values_mut().for_each(Reading::correct_interval);
        Ok(results)
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

impl ResultsFile {
    fn new(path: Option<PathBuf>, results: Results) -> Self {
        Self { path, results, extra: Map::new(), changed: true, meter: None, sampled: false }
    }

    /// Creates the file before the first run, so that a wrong directory shows at once and not after an hour of
    /// measuring.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn begin(path: PathBuf, results: Results) -> io::Result<Self> {
        let mut results_file = Self::new(Some(path), results);
        if let Err(error) = results_file.save() {
            results_file.changed = false;
            return Err(error);
        }
        Ok(results_file)
    }

    /// Results that are not written to disk.
    pub fn in_memory(results: Results) -> Self {
        Self::new(None, results)
    }

    /// Opens a file of the same measurement to add runs to it, or creates the file. Runs of two files can so be made in
    /// turn.
    ///
    /// # Errors
    /// Fails if the file holds another measurement, or cannot be read or written.
    pub fn resume(path: PathBuf, results: Results) -> Result<Self, ReadError> {
        let file = |source| ReadError::File { path: path.clone(), source };
        let metadata = match path.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut results_file = Self::new(Some(path.clone()), results);
                results_file.changed = false;
                results_file.write(&path).map_err(file)?;
                return Ok(results_file);
            }
            metadata => metadata.map_err(file)?,
        };
        if !metadata.is_file() {
            return Err(ReadError::NoFile);
        }
        // The file is replaced at each write. A link must stay a link, so the file that it points to is replaced.
        let path = path.canonicalize().map_err(file)?;
        let mut existing = Results::read(&path)?;
        if existing.what != results.what {
            return Err(ReadError::Other { found: existing.what, wanted: results.what });
        }
        existing.complete = false;
        Ok(Self::new(Some(path), existing))
    }

    /// Records the state of this machine with each run, so that files can be compared that were not made in turn. It
    /// takes some milliseconds of all CPUs after each run.
    pub fn record_machine(&mut self) {
        self.meter = Some(MachineMeter::start());
    }

    /// Samples the state once a run, when its first value is added.
    fn sample_machine(&mut self) {
        if !self.sampled {
            let sample = self.meter.as_mut().and_then(MachineMeter::sample);
            self.results.machine.extend(sample);
            self.sampled = true;
        }
    }

    /// Adds a value to a reading.
    ///
    /// # Errors
    /// Fails if the value is not finite, or if the unit differs from that of earlier runs.
    pub fn add(&mut self, name: &str, unit: &str, run: impl Into<Run>) -> io::Result<()> {
        self.sample_machine();
        let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidInput, format!("{name}: {why}"));
        let before = self.results.readings.get(name);
        if let Some(other) = before.filter(|reading| reading.unit != unit) {
            return Err(wrong(format!("a run in {unit} after runs in {}", other.unit)));
        }
        let mut runs = before.map_or_else(Vec::new, |reading| reading.runs.clone());
        let mut run = run.into();
        run.at.get_or_insert_with(rfc3339_now);
        runs.push(run);
        let mut reading = Reading::from_runs(unit, runs).ok_or_else(|| wrong("not a number".to_owned()))?;
        if let Some(Reading { doubts, limit, position, labels, .. }) = before.cloned() {
            (reading.doubts, reading.position, reading.labels) = (doubts, position, labels);
            reading.set_limit(limit);
        }
        self.results.readings.insert(name.to_owned(), reading);
        self.changed = true;
        Ok(())
    }

    /// Adds the runs, doubts and limit of a reading to the reading of this name.
    ///
    /// # Errors
    /// Fails as [`add`](Self::add).
    pub fn add_all(&mut self, name: &str, of: &Reading) -> io::Result<()> {
        of.runs.iter().try_for_each(|run| self.add(name, &of.unit, run.clone()))?;
        of.doubts.iter().for_each(|doubt| self.add_doubt(name, doubt.clone()));
        of.limit.iter().for_each(|limit| self.set_limit(name, limit.clone()));
        Ok(())
    }

    /// Replaces a whole reading, such as a ratio.
    pub fn insert(&mut self, name: &str, reading: Reading) {
        self.results.readings.insert(name.to_owned(), reading);
        self.changed = true;
    }

    /// Sets the network devices that take part.
    pub fn set_nics(&mut self, nics: &[Nic]) {
        self.results.conditions.nics = nics.to_vec();
    }

    /// Adds a doubt to a reading, if the reading exists.
    pub fn add_doubt(&mut self, name: &str, doubt: Doubt) {
        if let Some(reading) = self.results.readings.get_mut(name) {
            reading.add_doubt(doubt);
        }
    }

    /// Sets the most that the line can carry, if the reading exists.
    pub fn set_limit(&mut self, name: &str, limit: Limit) {
        if let Some(reading) = self.results.readings.get_mut(name) {
            reading.set_limit(Some(limit));
        }
    }

    /// Sets the position of a reading in its series, if the reading exists.
    pub fn set_position(&mut self, name: &str, position: Position) {
        if let Some(reading) = self.results.readings.get_mut(name) {
            reading.position = Some(position);
        }
    }

    /// Sets what a reading is of, if the reading exists.
    pub fn set_labels(&mut self, name: &str, labels: Labels) {
        if let Some(reading) = self.results.readings.get_mut(name) {
            reading.labels = labels;
        }
    }

    /// Records why a reading could not be measured.
    pub fn add_missing(&mut self, name: &str, why: String) {
        self.changed = true;
        self.results.missing.insert(name.to_owned(), why);
    }

    /// Sets a top-level field beside those of the format, for programs that read this measurement's own tables.
    pub fn set_extra(&mut self, name: &str, value: Value) {
        self.extra.insert(name.to_owned(), value);
    }

    /// The conditions, for those that become known after the beginning.
    pub fn conditions_mut(&mut self) -> &mut Conditions {
        &mut self.results.conditions
    }

    /// The results so far.
    pub fn results(&self) -> &Results {
        &self.results
    }

    /// Writes the file as incomplete.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn save_incomplete(mut self) -> io::Result<()> {
        self.save()
    }

    /// Marks the results as complete, and writes the file.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn finish(self) -> io::Result<Results> {
        self.end(true)
    }

    /// Writes the file; the results are complete unless the measurement was cut short.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn end(mut self, complete: bool) -> io::Result<Results> {
        self.results.complete = complete;
        self.save()?;
        Ok(self.results.clone())
    }

    /// Writes the file. A measurement calls this once a run, when all values of the run have been added: each write
    /// waits for the disk.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn save(&mut self) -> io::Result<()> {
        if let Some(path) = &self.path {
            self.write(path).map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
        }
        self.changed = false;
        self.sampled = false;
        Ok(())
    }

    // The file is replaced atomically: a reader, or the next boot after a power loss, finds the old file or the new
    // file.
    fn write(&self, path: &Path) -> io::Result<()> {
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        // Check the directory first: the error of tempfile would name a file that the user does not know.
        directory.metadata()?;
        // tempfile's default mode is 0600, which only root could read. Use 0666 less the umask, as for other files.
        let mut file = Builder::new().permissions(Permissions::from_mode(0o666)).tempfile_in(directory)?;
        if let Ok(metadata) = path.metadata() {
            file.as_file().set_permissions(metadata.permissions())?;
        }
        // Write through the plain file: an error of the tempfile would contain the temporary name.
        file.as_file_mut().write_all(self.results.to_json_with(&self.extra)?.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    }
}

impl Drop for ResultsFile {
    fn drop(&mut self) {
        // A measurement that fails keeps the values of its last run.
        if self.changed
            && self.path.is_some()
            && let Err(error) = self.save()
        {
            eprintln!("{error}");
        }
    }
}

#[cfg(test)]
mod tests;
