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
    let typed = text.get(span).unwrap_or_default();
    let why = wrong_type(&why, typed).unwrap_or(why);
    let line = before.matches('\n').count() + 1;
    match key_at(before, text) {
        Some(key) if !why.contains(&format!("`{key}`")) => format!("line {line}: {key}: {why}"),
        _ => format!("line {line}: {why}"),
    }
}

/// What was expected and what was typed, in words of TOML, if the message is about a type.
fn wrong_type(why: &str, typed: &str) -> Option<String> {
    let (got, expected) = why.strip_prefix("invalid type: ")?.rsplit_once(", expected ")?;
    let expected = match expected {
        "a boolean" => "true or false",
        "a string" => "a string in quotes",
        "a sequence" => "a list such as [\"eth0\"]",
        "u8" | "u16" | "u32" | "u64" => "a number",
        other => other,
    };
    let got = if got == "map" || typed.contains('\n') || typed.is_empty() { "a table" } else { typed };
    Some(format!("expected {expected}, got {got}"))
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
