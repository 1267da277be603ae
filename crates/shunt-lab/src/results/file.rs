//! Writes a file of results again after each run.

use super::{ReadError, Results};
use crate::{
    Conditions, Doubt, Labels, Limit, Nic, Position, Reading, Run,
    machine::{MachineMeter, rfc3339_now},
};
use serde_json::{Map, Value};
use std::{
    fs::Permissions,
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};
use tempfile::Builder;

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
        // Runs at different places of a series have none together.
        let position = match self.results.readings.get(name) {
            Some(known) if known.position != of.position => None,
            _ => of.position.clone(),
        };
        of.runs.iter().try_for_each(|run| self.add(name, &of.unit, run.clone()))?;
        if let Some(known) = self.results.readings.get_mut(name) {
            known.position = position;
        }
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

    /// Sets a top-level field that the format does not define, for programs that read this measurement's own tables.
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
