//! Reads a TOML document, and says in one line what is wrong with it: where, which key, why.

use serde::de::DeserializeOwned;

/// The value that a TOML text describes.
///
/// # Errors
/// When it is no TOML, or not of that type: the line, the key and why.
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

/// The key whose value begins or goes on where `before` ends: the nearest `key =` at or above it.
fn key_at<'a>(before: &str, text: &'a str) -> Option<&'a str> {
    let here = before.matches('\n').count();
    text.lines().take(here + 1).collect::<Vec<_>>().into_iter().rev().find_map(|line| {
        let (key, _) = line.split_once('=')?;
        let key = key.trim();
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        (!key.is_empty() && key.chars().all(plain)).then_some(key)
    })
}
