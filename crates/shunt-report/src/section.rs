//! The section of a file that is no file of results: tables with notes and plots. Other tables have the same heads and
//! figures.

use super::plot::Plot;

/// A section of the page.
#[derive(Debug)]
pub struct Section {
    /// Its heading, and its line in the contents.
    pub title: String,
    /// A sentence that says where the file comes from.
    pub about: String,
    /// The tables, from top to bottom.
    pub tables: Vec<SectionTable>,
}

/// A table, with its plots.
#[derive(Debug)]
pub struct SectionTable {
    /// Its heading.
    pub name: String,
    /// The heads of its columns.
    pub heads: Vec<Line>,
    /// Its rows, with a text for each column.
    pub rows: Vec<Vec<String>>,
    /// Lines below the table.
    pub notes: Vec<String>,
    /// Plots next to the table.
    pub plots: Vec<Figure>,
}

/// The head of a column.
#[derive(Debug)]
pub struct Line {
    /// The text.
    pub name: String,
    /// The colour of its key, in CSS notation.
    pub colour: String,
}

/// A plot with its caption.
#[derive(Debug)]
pub struct Figure {
    pub(crate) caption: String,
    pub(crate) svg: String,
}

/// The colour of a head that is not that of a line.
pub(crate) const NO_COLOUR: &str = "transparent";

/// Heads of columns that no plot has a line for.
pub fn heads<'n>(names: impl IntoIterator<Item = &'n str>) -> Vec<Line> {
    names.into_iter().map(|name| Line { name: name.to_owned(), colour: NO_COLOUR.to_owned() }).collect()
}

/// A plot with its name and a remark.
pub fn figure(name: &str, plot: Option<Plot>, remark: &str) -> Option<Figure> {
    plot.map(|Plot { svg, unit }| Figure { caption: format!("{name}, {unit}: {remark}"), svg })
}
