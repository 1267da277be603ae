//! Reads TOML documents. An error is one line: the line number, the key, and what is wrong.

use crate::wording::{reword_toml, reword_toml_value};
use serde::de::DeserializeOwned;

/// Reads a value from a TOML text.
///
/// # Errors
/// The text is not TOML, or its value has another type. The message has no newline.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    toml::from_str(text).map_err(|error| describe(text, &error))
}

/// An error of the `toml` crate about this text, as one line.
#[must_use]
pub fn describe(text: &str, error: &toml::de::Error) -> String {
    let Some(span) = error.span() else { return reword_toml(error.message()) };
    let before = text.get(..span.start).unwrap_or(text);
    let why = reword_toml_value(error.message(), text.get(span).unwrap_or_default());
    let line = before.matches('\n').count() + 1;
    match key_at(before, text) {
        Some(key) if !why.contains(&format!("`{key}`")) => format!("line {line}: {key}: {why}"),
        _ => format!("line {line}: {why}"),
    }
}

/// The key of the value at the end of `before`: that of the nearest line `key = ...` at or above it.
fn key_at<'a>(before: &str, text: &'a str) -> Option<&'a str> {
    let here = before.matches('\n').count();
    text.lines().take(here + 1).collect::<Vec<_>>().into_iter().rev().find_map(|line| {
        let table = line.trim().strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let (key, _) = table.or_else(|| line.split_once('='))?;
        let key = key.trim_start_matches('[').trim();
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        (!key.is_empty() && key.chars().all(plain)).then_some(key)
    })
}
