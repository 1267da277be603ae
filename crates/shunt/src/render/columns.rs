//! Tables of aligned columns.

/// Aligns rows in columns, with two blanks between columns and none at the end of a line. Each character of `sides` is the alignment
/// of one column, `<` for left and `>` for right; the last one applies to all further columns.
pub(super) fn align(sides: &str, rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|field| field.chars().count()).max().unwrap_or(0)
    };
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let sides = sides.chars().chain(sides.chars().next_back().into_iter().cycle());
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for ((field, &width), side) in row.iter().zip(&widths).zip(sides.clone()) {
            line += &match side {
                '<' => format!("{field:<width$}  "),
                _ => format!("{field:>width$}  "),
            };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}
