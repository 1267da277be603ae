//! Reads TOML documents. An error is one line: the line number, the key, and what is wrong.

use serde::de::DeserializeOwned;

/// Reads a value from a TOML text.
///
/// # Errors
/// The text is not TOML, or its value has another type. The message has no newline.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    toml::from_str(text).map_err(|error| describe(text, &error))
}

fn describe(text: &str, error: &toml::de::Error) -> String {
    let why = error.message().replace('\n', " ");
    let Some(span) = error.span() else { return why };
    let before = text.get(..span.start).unwrap_or(text);
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
        let (key, _) = line.split_once('=')?;
        let key = key.trim();
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        (!key.is_empty() && key.chars().all(plain)).then_some(key)
    })
}
