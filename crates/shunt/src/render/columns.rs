//! Lines whose fields stand below each other.

/// Which side of its column a field keeps to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
}

/// Two blanks between columns, and none at the end of a line.
pub(super) fn align(sides: &[Side], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|field| field.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..sides.len()).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for ((field, &width), side) in row.iter().zip(&widths).zip(sides) {
            line += &match side {
                Side::Left => format!("{field:<width$}  "),
                Side::Right => format!("{field:>width$}  "),
            };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}
