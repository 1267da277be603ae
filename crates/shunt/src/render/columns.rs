//! Tables, as rows of cells until the width of the terminal is known.

/// Starts the line before a table; the sides of its columns follow.
pub(crate) const TABLE: char = '\u{1d}';
/// Starts each cell, and so each line of a table.
pub(crate) const CELL: char = '\u{1f}';

/// A table, which [`fit`](super::layout::fit) aligns. Each character of `sides` is the alignment of one column, `<` for
/// left and `>` for right; the last one applies to all further columns.
pub(crate) fn align(sides: &str, rows: &[Vec<String>]) -> String {
    let mut text = format!("{TABLE}{sides}\n");
    for row in rows {
        row.iter().for_each(|cell| text.extend([&CELL.to_string(), cell.as_str()]));
        text.push('\n');
    }
    text
}
