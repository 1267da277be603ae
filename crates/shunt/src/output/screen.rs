//! The terminal that standard output may be.

use rustix::termios::tcgetwinsize;
use std::{
    env,
    io::{self, IsTerminal},
};

/// A terminal that can move its cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Screen {
    pub(crate) columns: u16,
    pub(crate) rows: u16,
}

impl Screen {
    /// The terminal of standard output; none if standard output is something else, or if the terminal cannot move its
    /// cursor.
    pub(crate) fn of_stdout() -> Option<Self> {
        if !io::stdout().is_terminal() || is_dumb() {
            return None;
        }
        let (columns, rows) = size()?;
        // A serial line does not know its size.
        let known = |size, default| if size == 0 { default } else { size };
        Some(Self { columns: known(columns, 80), rows: known(rows, 24) })
    }
}

/// The columns of the terminal of standard output, also of one that cannot move its cursor. If standard output is
/// something else, the environment variable COLUMNS; none if it is not set.
pub(crate) fn width() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return env::var("COLUMNS").ok()?.parse().ok().filter(|columns| *columns > 0);
    }
    let columns = size().map_or(0, |(columns, _)| columns);
    Some(if columns == 0 { 80 } else { columns.into() })
}

/// The columns and rows that the terminal of standard output reports; 0 for a serial line.
fn size() -> Option<(u16, u16)> {
    tcgetwinsize(io::stdout()).ok().map(|size| (size.ws_col, size.ws_row))
}

/// Whether standard output is a terminal that shows colours, and nobody objects: NO_COLOR, CLICOLOR, TERM.
pub(crate) fn has_colour() -> bool {
    anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never
}

/// Whether the environment says that the terminal understands no escape sequences.
pub(crate) fn is_dumb() -> bool {
    env::var("TERM").map_or(true, |term| matches!(term.as_str(), "" | "dumb" | "unknown"))
}
