//! The document of `shunt report`: a self-contained page, or the same data as JSON or CSV.

mod axis;
mod comparison;
mod course;
mod csv;
mod engine;
mod files;
mod grid;
mod inspection;
mod inspection_file;
mod model;
mod model_file;
mod page;
mod plot;
mod reading;
mod section;
mod summary;

use crate::render::{Answer, Format};
use askama::Template;
use clap::ValueEnum;
pub(crate) use files::{Report, ResultFile};
pub(crate) use inspection_file::InspectionSource;
pub(crate) use model_file::ModelSource;
use page::Page;
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
        self.report.to_json()
    }

    fn render(&self, _: Format) -> io::Result<Vec<u8>> {
        document(&self.report, self.form)
    }
}

/// The whole document, in this form.
pub(crate) fn document(report: &Report, form: ReportForm) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    match form {
        ReportForm::Html => Page::new(report).write_into(&mut out)?,
        ReportForm::Json => out.extend(report.to_json()?.into_bytes()),
        ReportForm::Csv => csv::write(report, &mut out)?,
    }
    Ok(out)
}

#[cfg(test)]
mod tests;
