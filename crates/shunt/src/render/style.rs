//! Colours of words. A text always has them; [`plain`] takes them away where they would not be seen.

use anstyle::{AnsiColor, Style};

const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default();
const WARNING: Style = AnsiColor::Yellow.on_default();

/// Something that works as it should.
pub(crate) fn good(text: impl AsRef<str>) -> String {
    styled(GOOD, text.as_ref())
}

/// Something that failed.
pub(crate) fn bad(text: impl AsRef<str>) -> String {
    styled(BAD, text.as_ref())
}

/// Something to look at: a cause, a doubt.
pub(crate) fn warning(text: impl AsRef<str>) -> String {
    styled(WARNING, text.as_ref())
}

/// The text, with the word that begins each doubt in the colour of a warning.
pub(crate) fn doubts(text: &str) -> String {
    let line = |line: &str| match line.strip_prefix("doubt:") {
        Some(rest) => warning("doubt:") + rest,
        None => line.to_owned(),
    };
    text.split_inclusive('\n').map(line).collect()
}

fn styled(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

/// The text without colours.
pub(crate) fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}
