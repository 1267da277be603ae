//! The section of a file that is no file of results: tables with notes and plots.

use super::{grid::Line, plot::Plot, reading::Figure};

/// A section of the page.
pub(super) struct Section {
    /// Its anchor.
    pub(super) id: String,
    pub(super) title: String,
    /// What the file is.
    pub(super) about: String,
    pub(super) tables: Vec<SectionTable>,
}

/// A table, with its plots.
pub(super) struct SectionTable {
    pub(super) name: String,
    pub(super) heads: Vec<Line>,
    pub(super) rows: Vec<Vec<String>>,
    pub(super) notes: Vec<String>,
    pub(super) plots: Vec<Figure>,
}

/// The colour of a head that is not that of a line.
pub(super) const NO_COLOUR: &str = "transparent";

/// Heads of columns that no plot has a line for.
pub(super) fn heads<'n>(names: impl IntoIterator<Item = &'n str>) -> Vec<Line> {
    names.into_iter().map(|name| Line { name: name.to_owned(), colour: NO_COLOUR.to_owned() }).collect()
}

/// A plot with its name and a remark.
pub(super) fn figure(name: &str, plot: Option<Plot>, remark: &str) -> Option<Figure> {
    plot.map(|Plot { svg, unit }| Figure { caption: format!("{name}, {unit}: {remark}"), svg })
}
