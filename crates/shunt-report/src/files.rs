//! The data of a report: files of results and others, with the label that each gets.

use crate::{
    Section,
    doubt_kind::{self, DoubtKind},
};
use serde::Serialize;
use serde_json::value::RawValue;
use shunt_lab::{ReadError, Reading, Results};
use std::collections::BTreeMap;

/// Version of the JSON format. It rises when the meaning of a field changes.
const VERSION: u32 = 1;

/// The number of a file, the file, and a reading in it.
pub(crate) type FileReading<'r> = (usize, &'r ResultFile, &'r Reading);

/// Files of results, with their contents unchanged.
#[derive(Debug, Serialize)]
pub struct Report {
    format: &'static str,
    version: u32,
    /// In the order of the command line.
    pub files: Vec<ResultFile>,
    /// Files of predictions, in the same order. A report has at least one file of some kind.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) models: Vec<OtherFile>,
    /// Files of what was seen at ports, in the same order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) inspections: Vec<OtherFile>,
}

/// One file of results.
#[derive(Debug, Serialize)]
pub struct ResultFile {
    /// A, B, ... Z, AA, ...; for a file of a campaign, the step's name, after the campaign's letter if there are
    /// several.
    pub label: String,
    /// The path, as it was typed.
    pub file: String,
    /// The contents of the file, including fields that this version does not know.
    #[serde(rename = "results")]
    raw: Box<RawValue>,
    /// The letter of the campaign that the file belongs to, if it does; empty if the report has only one campaign.
    #[serde(skip)]
    pub(crate) campaign: Option<String>,
    #[serde(skip)]
    pub(crate) results: Results,
    /// The doubts that each of several readings has, such as that the machine is virtual.
    #[serde(skip)]
    pub(crate) shared_doubts: Vec<DoubtKind>,
}

/// A file without measured runs.
#[derive(Debug, Serialize)]
pub struct OtherFile {
    /// As for a file of results.
    label: String,
    /// The path, as it was typed.
    file: String,
    #[serde(flatten)]
    contents: Contents,
    #[serde(skip)]
    pub(crate) section: Section,
}

/// What a file without measured runs holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Predictions of a model.
    Model,
    /// What was seen at ports.
    Inspection,
}

/// The contents of a file, unchanged. The name of the variant is that of the field.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Contents {
    Predictions(Box<RawValue>),
    Inspection(Box<RawValue>),
}

impl OtherFile {
    /// A file with this text, and its section of the page. Fails if the text is no JSON.
    pub fn new(
        kind: Kind,
        label: &str,
        file: &str,
        text: &str,
        section: Section,
    ) -> serde_json::Result<Self> {
        let raw = RawValue::from_string(text.trim().to_owned())?;
        let contents = match kind {
            Kind::Model => Contents::Predictions(raw),
            Kind::Inspection => Contents::Inspection(raw),
        };
        Ok(Self { label: label.to_owned(), file: file.to_owned(), contents, section })
    }
}

/// The labels of these files, by number; the campaign's letter is enough for its only file.
pub(crate) fn short_labels<'r>(
    files: impl Iterator<Item = (usize, &'r ResultFile)>,
) -> BTreeMap<usize, &'r str> {
    let files: BTreeMap<usize, &ResultFile> = files.collect();
    let label = |(nth, source): (&usize, &&'r ResultFile)| {
        let letter = source.campaign.as_deref().filter(|letter| !letter.is_empty());
        let is_only = files.values().filter(|other| other.campaign == source.campaign).count() == 1;
        (*nth, letter.filter(|_| is_only).unwrap_or(&source.label))
    };
    files.iter().map(label).collect()
}

/// The reading of an earlier file that another one is compared with: of another campaign, and there of the same step,
/// if the files belong to campaigns; otherwise of the first file.
pub(crate) fn earlier<'r>(
    (nth, source, _): &FileReading,
    same: impl Iterator<Item = FileReading<'r>>,
) -> Option<FileReading<'r>> {
    let campaign = |of: &ResultFile| of.campaign.clone().filter(|letter| !letter.is_empty());
    let own = campaign(source);
    let is_of_another = |other: &ResultFile| own.is_none() || campaign(other) != own;
    same.filter(|(of, other, _)| of < nth && is_of_another(other))
        .min_by_key(|(of, other, _)| (other.step() != source.step(), *of))
}

impl Report {
    /// Each kind of files is in the order of the command line.
    pub fn new(files: Vec<ResultFile>, others: Vec<OtherFile>) -> Self {
        let (models, inspections) =
            others.into_iter().partition(|other| matches!(other.contents, Contents::Predictions(_)));
        Self { format: "shunt-report", version: VERSION, files, models, inspections }
    }

    /// The number of files, whatever they hold.
    pub fn count(&self) -> usize {
        self.files.len() + self.models.len() + self.inspections.len()
    }

    /// The files without measured runs.
    pub fn further_files(&self) -> impl Iterator<Item = &str> {
        self.models.iter().chain(&self.inspections).map(|other| other.file.as_str())
    }
}

impl ResultFile {
    /// The label of the `nth` file or directory, counted from 0, as spreadsheets name their columns.
    pub fn letter(nth: usize) -> String {
        let letter = char::from(b'A' + (nth % 26) as u8);
        match nth / 26 {
            0 => letter.to_string(),
            before => Self::letter(before - 1) + &letter.to_string(),
        }
    }

    /// Reads a file. Fails if the text is no file of results, or one without a single run.
    pub fn parse(label: String, file: String, text: String) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Err("the file is empty; measure again".to_owned());
        }
        let results = Results::parse(&text).map_err(|error| error.to_string())?;
        if results.readings.is_empty() && results.missing.is_empty() {
            return Err("no reading: the measurement ended before its first run; measure again".to_owned());
        }
        if let Some((name, _)) = results.readings.iter().find(|(_, reading)| reading.runs.is_empty()) {
            return Err(format!("damaged: the reading `{name}` has no runs; measure again"));
        }
        let raw = RawValue::from_string(text).map_err(|error| ReadError::Damaged(error).to_string())?;
        let shared_doubts = doubt_kind::shared(&results);
        Ok(Self { label, file, raw, campaign: None, results, shared_doubts })
    }

    /// The file of a step in a campaign, which has a letter if the report has several.
    pub fn in_campaign(self, letter: &str) -> Self {
        let label = format!("{letter} {}", self.label).trim_start().to_owned();
        Self { label, campaign: Some(letter.to_owned()), ..self }
    }

    /// What another file's comparison calls this file: the campaign's letter, if both are of the same step.
    pub(crate) fn name_for(&self, other: &Self) -> &str {
        match self.campaign.as_deref() {
            Some(letter) if !letter.is_empty() && self.step() == other.step() => letter,
            _ => &self.label,
        }
    }

    /// The step's name, without the campaign's letter.
    fn step(&self) -> &str {
        let letter = self.campaign.as_deref().unwrap_or_default();
        self.label.strip_prefix(letter).unwrap_or(&self.label).trim_start()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn refusal(text: &str) -> String {
        ResultFile::parse("A".to_owned(), "a.json".to_owned(), text.to_owned())
            .map(|source| source.label)
            .unwrap_err()
    }

    #[test]
    fn a_file_without_results_is_refused_with_the_reason() {
        let whole = sample::result_file();
        for nothing in ["", " \n"] {
            assert_eq!(refusal(nothing), "the file is empty; measure again");
        }
        for text in [&whole[..whole.len() / 2], &whole.replace("\"version\": 1", "\"version\": 2"), "{}"] {
            assert_eq!(refusal(text), Results::parse(text).unwrap_err().to_string());
        }
        let none = Results::new("throughput", shunt_lab::Conditions::default()).to_json().unwrap();
        assert!(refusal(&none).starts_with("no reading: "));
        let mut value: serde_json::Value = serde_json::from_str(&whole).unwrap();
        value["readings"]["ndr router"]["runs"] = serde_json::json!([]);
        assert_eq!(
            refusal(&value.to_string()),
            "damaged: the reading `ndr router` has no runs; measure again"
        );
    }

    #[test]
    fn labels_continue_with_two_letters_after_z() {
        let labels = [0, 25, 26, 51, 52, 701, 702].map(ResultFile::letter);
        assert_eq!(labels, ["A", "Z", "AA", "AZ", "BA", "ZZ", "AAA"]);
    }
}
