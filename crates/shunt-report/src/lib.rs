//! Draws results of the lab as a self-contained page with plots, or gives the same data as JSON or CSV. Performs no
//! system call.
//!
//! A [`Report`] has [`ResultFile`]s, and [`OtherFile`]s without measured runs, whose
//! [`Section`] of the page the caller makes.

mod axis;
mod card;
mod comparison;
mod course;
mod csv;
mod doubt_kind;
mod doubts;
mod engine;
mod files;
mod grid;
mod offered;
mod page;
pub mod plot;
mod reading;
mod section;
mod summary;
mod variants;

pub use files::{Kind, OtherFile, Report, ResultFile};
pub use grid::percent;
pub use section::{Figure, Line, Section, SectionTable, figure, heads};

use askama::Template;
use std::io;

/// The report as a page, which loads nothing from elsewhere.
pub fn to_html(report: &Report) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    page::Page::new(report).write_into(&mut page)?;
    Ok(page)
}

/// The report as one line of JSON, which the page contains too.
pub fn to_json(report: &Report) -> serde_json::Result<String> {
    Ok(serde_json::to_string(report)? + "\n")
}

/// The measured runs of a report as CSV, a line for each.
pub fn to_csv(report: &Report) -> io::Result<Vec<u8>> {
    let mut lines = Vec::new();
    csv::write(report, &mut lines)?;
    Ok(lines)
}

#[cfg(test)]
mod sample;
#[cfg(test)]
mod tests;
