//! Errors in files of definitions, by line.

use serde::Serialize;
use std::fmt;

/// Number of problems of a file that are printed.
const SHOWN_MAX: usize = 10;

/// A line that breaks a grammar, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Number of the line, from 1; 0 for the whole file.
    pub line: usize,
    /// The error, and the expected form.
    pub reason: String,
}

/// Every problem of a file, in the order of its lines. There is at least one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problems(pub Vec<Problem>);

impl Problem {
    pub(super) fn new(line: usize, reason: impl Into<String>) -> Self {
        Self { line, reason: reason.into() }
    }

    pub(super) fn of_file(reason: impl Into<String>) -> Self {
        Self::new(0, reason)
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}", self.reason),
            line => write!(f, "line {line}: {}", self.reason),
        }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<String> = self.0.iter().take(SHOWN_MAX).map(Problem::to_string).collect();
        write!(f, "{}", shown.join("\n  "))?;
        match self.0.len().saturating_sub(SHOWN_MAX) {
            0 => Ok(()),
            more => write!(f, "\n  and {more} more lines"),
        }
    }
}

impl std::error::Error for Problems {}

/// Number of the line that contains this byte.
pub(super) fn line_of(text: &str, byte: usize) -> usize {
    let end = byte.min(text.len());
    text.as_bytes()[..end].iter().filter(|byte| **byte == b'\n').count() + 1
}
