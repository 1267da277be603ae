//! The file of a measurement: written after each run, read back by any Shunt of the same version of the format.

use crate::{Conditions, Doubt, Limit, Nic, Position, Reading, Run};
use serde::{Deserialize, Serialize, Serializer};
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
/// Raised when what is there changes its meaning; new fields and doubts do not raise it.
const VERSION: u32 = 1;

/// What was measured, under which conditions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// The measurement: `load`, `throughput`.
    pub what: String,
    /// In UTC, by RFC 3339.
    pub began: String,
    /// It was not interrupted.
    pub complete: bool,
    /// Where and how.
    pub conditions: Conditions,
    /// By name.
    pub readings: BTreeMap<String, Reading>,
    /// What could not be measured, and why.
    #[serde(default)]
    pub missing: BTreeMap<String, String>,
}

/// Results that are on disk as far as they go, where they have a file.
#[derive(Debug)]
pub struct Kept {
    path: Option<PathBuf>,
    results: Results,
}

/// Why a file of results cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// There is no such file, or it may not be read.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It ends in the middle.
    #[error("it ends in the middle, after {lines} lines: copy it again, or measure again")]
    Truncated {
        /// How much there is.
        lines: usize,
    },
    /// Something else.
    #[error("it is no result of Shunt: \"format\": \"{FORMAT}\" is missing")]
    Format,
    /// Of a Shunt that is older or newer.
    #[error(
        "its format is version {found}, and this Shunt reads {VERSION}: read it with the Shunt that wrote it"
    )]
    Version {
        /// What it says.
        found: u64,
    },
    /// Runs of another measurement cannot go there.
    #[error("it has runs of `{found}`, not of `{wanted}`: give another file")]
    Other {
        /// What it says.
        found: String,
        /// What was to be added.
        wanted: String,
    },
    /// A device or a pipe, of which there is no end.
    #[error("it is no file: results are written again after each run")]
    NoFile,
    /// It is not as the format has it.
    #[error("it is damaged: {0}")]
    Damaged(#[source] serde_json::Error),
}

/// What stands in front.
#[derive(Serialize)]
struct Envelope<'r> {
    format: &'static str,
    version: u32,
    #[serde(flatten)]
    results: &'r Results,
}

impl Results {
    /// Of a measurement that begins now.
    pub fn new(what: &str, conditions: Conditions) -> Self {
        Self {
            what: what.to_owned(),
            began: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            complete: false,
            conditions,
            readings: BTreeMap::new(),
            missing: BTreeMap::new(),
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// When it is not a whole file of results of this version.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let text = fs::read_to_string(path);
        Self::parse(&text.map_err(|source| ReadError::File { path: path.to_owned(), source })?)
    }

    /// Reads what [`to_json`](Self::to_json) wrote.
    ///
    /// # Errors
    /// When it is not a whole file of results of this version.
    pub fn parse(text: &str) -> Result<Self, ReadError> {
        let value: serde_json::Value = serde_json::from_str(text).map_err(|error| match error.is_eof() {
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
        serde_json::from_value(value).map_err(ReadError::Damaged)
    }

    /// For a report that is a file of results and more: `#[serde(flatten, serialize_with = "Results::serialize_file")]`.
    ///
    /// # Errors
    /// Those of the serializer.
    pub(crate) fn serialize_file<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.envelope().serialize(serializer)
    }

    fn envelope(&self) -> Envelope<'_> {
        Envelope { format: FORMAT, version: VERSION, results: self }
    }

    /// As it stands in the file.
    ///
    /// # Errors
    /// None that is known: every value has a form in JSON.
    pub fn to_json(&self) -> serde_json::Result<String> {
        Ok(serde_json::to_string_pretty(&self.envelope())? + "\n")
    }
}

impl Kept {
    /// Writes what is known before the first run, so that a wrong directory shows before an hour of measuring.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn begin(path: PathBuf, results: Results) -> io::Result<Self> {
        let kept = Self { path: Some(path), results };
        kept.save()?;
        Ok(kept)
    }

    /// Without a file: what there is is only here.
    pub fn nowhere(results: Results) -> Self {
        Self { path: None, results }
    }

    /// Goes on with a file of the same measurement, or begins it: so runs of two files can be made in turn.
    ///
    /// # Errors
    /// When there is a file that is of something else, or cannot be read or written.
    pub fn go_on(path: PathBuf, results: Results) -> Result<Self, ReadError> {
        let file = |source| ReadError::File { path: path.clone(), source };
        let metadata = match path.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let kept = Self { path: Some(path.clone()), results };
                kept.write(&path).map_err(file)?;
                return Ok(kept);
            }
            metadata => metadata.map_err(file)?,
        };
        if !metadata.is_file() {
            return Err(ReadError::NoFile);
        }
        // It is written anew and put in the place of the old one, which a link only leads to.
        let path = path.canonicalize().map_err(file)?;
        let mut there = Results::read(&path)?;
        if there.what != results.what {
            return Err(ReadError::Other { found: there.what, wanted: results.what });
        }
        there.complete = false;
        Ok(Self { path: Some(path), results: there })
    }

    /// Adds a run to the reading of this name, and writes.
    ///
    /// # Errors
    /// When it is not a number, is in another unit than the runs before it, or the file cannot be written.
    pub fn add(&mut self, name: &str, unit: &str, run: impl Into<Run>) -> io::Result<()> {
        let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidInput, format!("{name}: {why}"));
        let before = self.results.readings.get(name);
        if let Some(other) = before.filter(|reading| reading.unit != unit) {
            return Err(wrong(format!("a run in {unit} after runs in {}", other.unit)));
        }
        let mut runs = before.map_or_else(Vec::new, |reading| reading.runs.clone());
        let mut run = run.into();
        run.at.get_or_insert_with(|| humantime::format_rfc3339_millis(SystemTime::now()).to_string());
        runs.push(run);
        let mut reading = Reading::of_runs(unit, runs).ok_or_else(|| wrong("not a number".to_owned()))?;
        if let Some(Reading { doubts, limit, position, .. }) = before.cloned() {
            (reading.doubts, reading.position) = (doubts, position);
            reading.set_limit(limit);
        }
        self.results.readings.insert(name.to_owned(), reading);
        self.save()
    }

    /// Adds the runs and the doubts of another reading to that of this name, and writes.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn add_all(&mut self, name: &str, of: &Reading) -> io::Result<()> {
        of.runs.iter().try_for_each(|run| self.add(name, &of.unit, run.clone()))?;
        of.doubts.iter().for_each(|doubt| self.doubt(name, doubt.clone()));
        of.limit.iter().for_each(|limit| self.limit(name, limit.clone()));
        self.save()
    }

    /// Puts in a whole reading, such as a ratio, and writes.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn put(&mut self, name: &str, reading: Reading) -> io::Result<()> {
        self.results.readings.insert(name.to_owned(), reading);
        self.save()
    }

    /// Says which devices took part; written with the next run.
    pub fn took_part(&mut self, nics: &[Nic]) {
        self.results.conditions.nics = nics.to_vec();
    }

    /// Doubts the reading of this name, if there is one; written with the next run.
    pub fn doubt(&mut self, name: &str, doubt: Doubt) {
        if let Some(reading) = self.results.readings.get_mut(name) {
            reading.add_doubt(doubt);
        }
    }

    /// As [`doubt`](Self::doubt), unless it has one of this kind.
    pub fn doubt_kind(&mut self, name: &str, doubt: Doubt) {
        if let Some(reading) = self.results.readings.get_mut(name) {
            doubt.add_kind(&mut reading.doubts);
        }
    }

    /// Says what the line could have carried at most, if there is a reading of this name; written with the next run.
    pub fn limit(&mut self, name: &str, limit: Limit) {
        if let Some(reading) = self.results.readings.get_mut(name) {
            reading.set_limit(Some(limit));
        }
    }

    /// Says where on its course the reading of this name stands, if there is one; written with the next run.
    pub fn place(&mut self, name: &str, position: Position) {
        if let Some(reading) = self.results.readings.get_mut(name) {
            reading.position = Some(position);
        }
    }

    /// Says that something could not be measured; written with the next run.
    pub fn lacks(&mut self, name: &str, why: String) {
        self.results.missing.insert(name.to_owned(), why);
    }

    /// Where and how, as far as it became known after the beginning; written with the next run.
    pub fn conditions(&mut self) -> &mut Conditions {
        &mut self.results.conditions
    }

    /// What there is so far.
    pub fn results(&self) -> &Results {
        &self.results
    }

    /// Writes what there is, which is not all.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn leave(self) -> io::Result<()> {
        self.save()
    }

    /// Writes that all is there.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn finish(mut self) -> io::Result<Results> {
        self.results.complete = true;
        self.save()?;
        Ok(self.results)
    }

    fn save(&self) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        self.write(path).map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
    }

    // Whoever reads it meanwhile, or pulls the plug, finds the old file or the new one.
    fn write(&self, path: &Path) -> io::Result<()> {
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        // What tempfile says of it has a name that nobody has given.
        directory.metadata()?;
        // Not for its owner alone, who is root where it was measured: the umask says for whom.
        let mut file = Builder::new().permissions(Permissions::from_mode(0o666)).tempfile_in(directory)?;
        if let Ok(there) = path.metadata() {
            file.as_file().set_permissions(there.permissions())?;
        }
        // Without the name of the temporary file, which it would be told with.
        file.as_file_mut().write_all(self.results.to_json()?.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
