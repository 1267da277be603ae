//! Draws the state again and again at the same place of a terminal.

use crate::{
    commands::status::view::describe,
    render::{Answer, Format, json_line},
};
use shunt_api::Status;
use std::io;

/// Escape sequences of ECMA-48: the cursor to the first line, the rest of the line cleared, and the rest of the screen
/// cleared.
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

/// The state, cut to the size of a terminal.
#[derive(Debug)]
pub(crate) struct Screenful {
    pub(crate) status: Status,
    /// Why the state is not up to date; none if it is.
    pub(crate) failure: Option<String>,
    pub(crate) columns: u16,
    pub(crate) rows: u16,
    /// Whether to clear the terminal first.
    pub(crate) clear: bool,
}

impl Answer for Screenful {
    fn text(&self, format: Format) -> String {
        let Self { status, failure, columns, rows, clear } = self;
        let fit = Format { width: Some((*columns).into()), colour: false, ..format };
        let text = fit.finish(&describe(status, format.verbose));
        draw(&text, failure.as_deref(), (*columns, *rows), *clear)
    }

    fn json(&self) -> serde_json::Result<String> {
        match &self.failure {
            Some(why) => json_line(&serde_json::json!({"failure": why})),
            None => json_line(&self.status),
        }
    }

    // The text is cut already, and moves the cursor.
    fn render(&self, format: Format) -> io::Result<Vec<u8>> {
        let printed = if format.json { self.json()? } else { self.text(format) };
        Ok(printed.into_bytes())
    }
}

/// The text, cut to a terminal of this many columns and rows. A failure stands above it.
fn draw(text: &str, failure: Option<&str>, (columns, rows): (u16, u16), clear: bool) -> String {
    // The last row stays empty: a newline in it would move the screen up.
    let (columns, rows) = (usize::from(columns), usize::from(rows).saturating_sub(1));
    let head = failure.map(|why| format!("no answer: {why}; trying again"));
    let lines: Vec<&str> = head.as_deref().into_iter().chain(text.lines()).collect();
    let mut shown = HOME.to_owned();
    if clear {
        shown += CLEAR_BELOW;
    }
    let mut line = |text: &str| {
        shown.extend(text.chars().take(columns));
        shown += CLEAR_LINE;
        shown.push('\n');
    };
    if lines.len() <= rows {
        lines.iter().for_each(|text| line(text));
    } else if let Some(fit) = rows.checked_sub(1) {
        lines.iter().take(fit).for_each(|text| line(text));
        line(&format!("{} more lines", lines.len() - fit));
    }
    shown + CLEAR_BELOW
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_to_the_terminal_and_the_last_row_stays_empty() {
        let text = "first line\nsecond line\nthird line\n";
        assert_eq!(draw("abc\n", None, (80, 24), true), "\x1b[H\x1b[Jabc\x1b[K\n\x1b[J");
        assert_eq!(draw(text, None, (5, 3), false), "\x1b[Hfirst\x1b[K\n2 mor\x1b[K\n\x1b[J");
        assert_eq!(draw(text, None, (80, 4), false).matches('\n').count(), 3);
        assert_eq!(draw(text, None, (80, 1), false), "\x1b[H\x1b[J");
        assert_eq!(draw(text, None, (0, 0), false), "\x1b[H\x1b[J");
    }

    #[test]
    fn a_failure_stands_above_the_last_state() {
        let drawn = draw("old\n", Some("not running; start it with `shunt up`"), (80, 24), false);
        assert!(drawn.contains("no answer: not running; start it with `shunt up`; trying again\x1b[K\nold"));
    }
}
