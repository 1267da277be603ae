//! Files of what was seen at ports, as `shunt link`, `shunt doctor`, `shunt check` and `shunt trace` print it with
//! `--json`.

use crate::commands::{doctor::view::Diagnosis, link::view::LinkScreen};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use shunt_inspect::{check, trace};

/// A file that one of these commands printed.
#[derive(Debug, Serialize)]
pub(crate) struct InspectionSource {
    /// As for a file of results.
    pub(crate) label: String,
    /// The path, as it was typed.
    pub(crate) file: String,
    /// The contents of the file.
    #[serde(rename = "inspection")]
    raw: Box<RawValue>,
    #[serde(skip)]
    pub(super) inspection: Inspection,
}

/// What these commands print.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Inspection {
    Links(Vec<LinkScreen>),
    Diagnoses(Vec<Diagnosis>),
    Check(check::Report),
    Trace(Box<trace::Report>),
}

impl InspectionSource {
    /// Reads a file; None if it is not one that these commands printed.
    pub(crate) fn parse(label: &str, file: &str, text: &str) -> Option<Self> {
        let inspection = serde_json::from_str(text).ok()?;
        if matches!(&inspection, Inspection::Links(links) if links.is_empty()) {
            return None;
        }
        let raw = RawValue::from_string(text.trim().to_owned()).ok()?;
        Some(Self { label: label.to_owned(), file: file.to_owned(), raw, inspection })
    }
}
