//! `shunt report`: one page that needs nothing beside it, or the same data for programs.

mod axis;
mod course;
mod csv;
mod plot;
mod view;

use crate::{cli::ReportForm, report::Report};
use askama::Template;
use std::io;
use view::Page;

pub(crate) fn write(report: &Report, form: ReportForm) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    match form {
        ReportForm::Html => Page::of(report).write_into(&mut out)?,
        ReportForm::Json => out.extend(report.to_json()?.into_bytes()),
        ReportForm::Csv => csv::write(report, &mut out)?,
    }
    Ok(out)
}
