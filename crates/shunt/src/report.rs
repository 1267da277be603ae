//! `shunt report`: any number of files of results, and in which form to show them.

use crate::{
    cli::{ReportArgs, ReportForm},
    plan::bad_file,
};
use serde::Serialize;
use serde_json::value::RawValue;
use shunt_api::{Failure, FailureCode};
use shunt_lab::{ReadError, Results};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Raised when what is there changes its meaning.
const VERSION: u32 = 1;

/// What files of results say, as they say it.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    format: &'static str,
    version: u32,
    /// In the order in which they were named; never none.
    pub(crate) files: Vec<Source>,
}

/// One file.
#[derive(Debug, Serialize)]
pub(crate) struct Source {
    /// A, B, ... Z, AA, ...: short enough for a plot.
    pub(crate) label: String,
    pub(crate) file: String,
    /// The file itself, so that nothing is lost that this version has no name for.
    #[serde(rename = "results")]
    raw: Box<RawValue>,
    #[serde(skip)]
    pub(crate) results: Results,
}

/// What will be done.
#[derive(Debug)]
pub(crate) struct Reporting {
    pub(crate) report: Report,
    pub(crate) form: ReportForm,
    pub(crate) to: Option<PathBuf>,
}

impl Reporting {
    pub(crate) fn resolve(typed: ReportArgs, json: bool) -> Result<Self, Failure> {
        // With a file, --json is of what is printed, which is that it was written.
        let form = match (typed.format, json && typed.output.is_none()) {
            (None, false) => ReportForm::Html,
            (None | Some(ReportForm::Json), true) => ReportForm::Json,
            (Some(form), false) => form,
            (Some(_), true) => return Err(wrong("--json is --format json: give one of them".to_owned())),
        };
        let report = Report::read(&typed.files)?;
        if let Some(to) = &typed.output {
            // The runs themselves would be gone.
            let real = |path: &Path| fs::canonicalize(path).ok();
            if typed.files.iter().any(|file| real(file).is_some_and(|file| Some(file) == real(to))) {
                return Err(wrong(format!("{}: it is one of the files to report on", to.display())));
            }
        }
        Ok(Self { report, form, to: typed.output })
    }
}

impl Report {
    pub(crate) fn read(paths: &[PathBuf]) -> Result<Self, Failure> {
        let files = paths.iter().enumerate().map(|(nth, path)| {
            let text = fs::read_to_string(path).map_err(|error| bad_file(path, &error.to_string()))?;
            Source::parse(nth, path.display().to_string(), text).map_err(|why| bad_file(path, &why))
        });
        Ok(Self::of(files.collect::<Result<_, _>>()?))
    }

    pub(crate) fn of(files: Vec<Source>) -> Self {
        Self { format: "shunt-report", version: VERSION, files }
    }

    /// As it is printed, and as it stands in a page.
    pub(crate) fn to_json(&self) -> serde_json::Result<String> {
        Ok(serde_json::to_string(self)? + "\n")
    }
}

impl Source {
    pub(crate) fn parse(nth: usize, file: String, text: String) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Err("it is empty: measure again".to_owned());
        }
        let results = Results::parse(&text).map_err(|why| why.to_string())?;
        if results.readings.is_empty() && results.missing.is_empty() {
            return Err("it has no reading: the measurement ended before its first run".to_owned());
        }
        if let Some((name, _)) = results.readings.iter().find(|(_, reading)| reading.runs.is_empty()) {
            return Err(format!("it is damaged: `{name}` has no runs"));
        }
        let raw = RawValue::from_string(text).map_err(|error| ReadError::Damaged(error).to_string())?;
        Ok(Self { label: label(nth), file, raw, results })
    }
}

fn wrong(why: String) -> Failure {
    Failure::new(FailureCode::Usage, why)
}

/// As a spreadsheet names its columns.
fn label(nth: usize) -> String {
    let letter = char::from(b'A' + (nth % 26) as u8);
    match nth / 26 {
        0 => letter.to_string(),
        before => label(before - 1) + &letter.to_string(),
    }
}

#[cfg(test)]
mod tests;
