//! The document of `shunt report`, which the crate `shunt-report` draws; the sections of files that other commands
//! print with `--json` are made here.

mod inspection;
mod model;

use crate::render::{Answer, Format};
use clap::ValueEnum;
use shunt_report::{OtherFile, Report, to_csv, to_html, to_json};
use std::io;

/// The form of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportForm {
    Html,
    Json,
    Csv,
}

/// A report on standard output.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) report: Report,
    pub(crate) form: ReportForm,
}

impl Answer for Document {
    fn text(&self, _: Format) -> String {
        String::new()
    }

    fn json(&self) -> serde_json::Result<String> {
        to_json(&self.report)
    }

    fn render(&self, _: Format) -> io::Result<Vec<u8>> {
        document(&self.report, self.form)
    }
}

/// The whole document, in this form.
pub(crate) fn document(report: &Report, form: ReportForm) -> io::Result<Vec<u8>> {
    match form {
        ReportForm::Html => to_html(report),
        ReportForm::Json => Ok(to_json(report)?.into_bytes()),
        ReportForm::Csv => to_csv(report),
    }
}

/// Reads a file that has no measured runs; None if it is not one that a command printed.
pub(crate) fn other_file(label: &str, file: &str, text: &str) -> Option<OtherFile> {
    model::parse(label, file, text).or_else(|| inspection::parse(label, file, text))
}

#[cfg(test)]
mod tests;
