//! What commands print: text for people and JSON for programs, from the same value. Modules have what these texts
//! share.

pub(crate) mod clock;
pub(crate) mod columns;
mod layout;
pub(crate) mod style;
pub(crate) mod units;

use serde::Serialize;
use shunt_api::{Count, Failure};
use std::{fmt::Debug, io};

/// What a command prints, or a part of it.
pub(crate) trait Answer: Debug {
    /// The text for people. It is fitted to the terminal afterwards.
    fn text(&self, format: Format) -> String;

    /// The same values for programs.
    fn json(&self) -> serde_json::Result<String>;

    /// Why the results are incomplete, though they can be shown; none if they are complete. Its code is the exit code.
    fn failure(&self) -> Option<Failure> {
        None
    }

    /// The bytes for standard output.
    fn render(&self, format: Format) -> io::Result<Vec<u8>> {
        let printed = if format.json { self.json()? } else { format.finish(&self.text(format)) };
        Ok(printed.into_bytes())
    }
}

/// The output of a command. Its JSON has all values, in several lines.
pub(crate) trait Text: Debug + Serialize {
    /// As [`Answer::text`].
    fn text(&self, format: Format) -> String;

    /// As [`Answer::failure`].
    fn failure(&self) -> Option<Failure> {
        None
    }
}

impl<T: Text> Answer for T {
    fn text(&self, format: Format) -> String {
        Text::text(self, format)
    }

    fn json(&self) -> serde_json::Result<String> {
        json(self)
    }

    fn failure(&self) -> Option<Failure> {
        Text::failure(self)
    }
}

impl Answer for Box<dyn Answer + Send> {
    fn text(&self, format: Format) -> String {
        (**self).text(format)
    }

    fn json(&self) -> serde_json::Result<String> {
        (**self).json()
    }

    fn failure(&self) -> Option<Failure> {
        (**self).failure()
    }

    fn render(&self, format: Format) -> io::Result<Vec<u8>> {
        (**self).render(format)
    }
}

/// Several lines of JSON.
pub(crate) fn json(value: &impl Serialize) -> serde_json::Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

/// One value in one line, for programs that read values as they arrive.
pub(crate) fn json_line(value: &impl Serialize) -> serde_json::Result<String> {
    Ok(serde_json::to_string(value)? + "\n")
}

/// How many things a command changed.
#[derive(Debug)]
pub(crate) struct Counted {
    count: Count,
    text: String,
}

impl Counted {
    /// `said` puts the number of these things into a sentence.
    pub(crate) fn new(count: Count, noun: &str, said: impl FnOnce(String) -> String) -> Self {
        Self { count, text: said(units::count(count.count, noun)) + "\n" }
    }
}

impl Answer for Counted {
    fn text(&self, _: Format) -> String {
        self.text.clone()
    }

    fn json(&self) -> serde_json::Result<String> {
        json(&self.count)
    }
}

/// The format of the output: the global options --json, --brief and --verbose, and the terminal.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Format {
    pub(crate) json: bool,
    /// One line for each object.
    pub(crate) brief: bool,
    pub(crate) verbose: bool,
    /// The width of the terminal in columns, or COLUMNS; none if standard output is no terminal and COLUMNS is not set.
    pub(crate) width: Option<usize>,
    /// Whether colours are wanted.
    pub(crate) colour: bool,
}

impl Format {
    /// The text, fitted to the terminal.
    pub(crate) fn finish(self, text: &str) -> String {
        let fitted = layout::fit(text, self.width);
        if self.colour { style::doubts(&fitted) } else { style::plain(&fitted) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_a_sentence_and_a_number() {
        let answer = Counted::new(Count { count: 9 }, "flow", |flows| format!("{flows} sent back"));
        assert_eq!(answer.text(Format::default()), "9 flows sent back\n");
        let value: serde_json::Value = serde_json::from_str(&answer.json().unwrap()).unwrap();
        assert_eq!(value, serde_json::json!({"count": 9}));
    }
}
