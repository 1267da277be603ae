//! Reads TOML documents. An error is one line: the line number, the key, and what is wrong.

use crate::wording::{reword_toml, reword_toml_value};
use serde::de::DeserializeOwned;
use std::ops::Range;

/// Reads a value from a TOML text.
///
/// # Errors
/// The text is not TOML, or its value has another type. The message has no newline.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    toml::from_str(text).map_err(|error| match bare_word(text, &error) {
        _ if is_json(text) => describe(text, &error),
        Some(word) => at_place(text, word.start, &wrong_word::<T>(text, &word)),
        None => describe(text, &error),
    })
}

/// An error of the `toml` crate about this text, as one line.
#[must_use]
pub fn describe(text: &str, error: &toml::de::Error) -> String {
    if is_json(text) {
        return "line 1: this is JSON; expected TOML: lines such as `key = value`".to_owned();
    }
    let Some(span) = error.span() else { return reword_toml(error.message()) };
    if let Some(word) = bare_word(text, error) {
        return at_place(text, word.start, &in_quotes(&text[word]));
    }
    let start = span.start;
    at_place(text, start, &reword_toml_value(error.message(), text.get(span).unwrap_or_default()))
}

/// Whether the text begins like an object of JSON, as no TOML does.
fn is_json(text: &str) -> bool {
    text.trim_start().starts_with('{')
}

/// With the line and the key of this byte of the text.
fn at_place(text: &str, start: usize, why: &str) -> String {
    let before = text.get(..start).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    match key_at(before, text) {
        Some(key) if !why.contains(&format!("`{key}`")) => format!("line {line}: {key}: {why}"),
        _ => format!("line {line}: {why}"),
    }
}

/// The word that is a value although no word can be one, such as `yes` or `lan0`.
fn bare_word(text: &str, error: &toml::de::Error) -> Option<Range<usize>> {
    let is_about_word = ["string values must be quoted", "invalid boolean", "invalid float"];
    if !is_about_word.iter().any(|part| error.message().starts_with(part)) {
        return None;
    }
    let at = error.span()?.start;
    let ends_word = |c: char| c.is_whitespace() || "=,[]{}#\"'".contains(c);
    let start = text.get(..at)?.rfind(ends_word).map_or(0, |end| end + 1);
    let end = start + text.get(start..)?.find(ends_word).unwrap_or(text.len() - start);
    (start < end).then_some(start..end)
}

fn in_quotes(word: &str) -> String {
    format!("`{word}`: put it in quotes: \"{word}\"")
}

/// What is wrong with a bare word: the quotes, or the type. In quotes, the word shows which.
fn wrong_word<T: DeserializeOwned>(text: &str, word: &Range<usize>) -> String {
    let (before, typed, after) = (&text[..word.start], &text[word.clone()], &text[word.end..]);
    match toml::from_str::<T>(&format!("{before}\"{typed}\"{after}")) {
        Err(error) if error.span().is_some_and(|span| span.start == word.start) => {
            match reword_toml_value(error.message(), typed) {
                why if why.starts_with("expected true or false") => format!("`{typed}`: use true or false"),
                why if why.starts_with("expected a list") => {
                    reword_toml_value(error.message(), &format!("\"{typed}\""))
                }
                why => why,
            }
        }
        Err(_) if after.trim_start_matches([' ', '\t']).starts_with(|c| !",]}#\r\n".contains(c)) => {
            let all = text[word.start..].lines().next().unwrap_or(typed).trim_end();
            format!("`{all}`: a value is a number, true, false, or a text in quotes")
        }
        _ => in_quotes(typed),
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Engine {
        Tc,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    struct Document {
        savings: bool,
        engine: Option<Engine>,
        ports: Vec<String>,
        flows: u32,
    }

    #[test]
    fn a_bare_word_is_answered_with_quotes_or_with_the_values_of_its_key() {
        for (text, why) in [
            ("savings = yes", "line 1: savings: `yes`: use true or false"),
            ("savings = on", "line 1: savings: `on`: use true or false"),
            ("savings = True # comment", "line 1: savings: `True`: use true or false"),
            ("flows = 1\nengine = tc", "line 2: engine: `tc`: put it in quotes: \"tc\""),
            ("ports = [lan0, wan0]", "line 1: ports: `lan0`: put it in quotes: \"lan0\""),
            ("ports = [\"lan0\", wan0]", "line 1: ports: `wan0`: put it in quotes: \"wan0\""),
            ("ports = lan0", "line 1: ports: expected a list in [ ], such as [\"lan0\"], got \"lan0\""),
            ("savings = true, flows = 1", "line 1: savings: one line has one key: begin a line for the next"),
            (
                "flows = 4 packets",
                "line 1: flows: `4 packets`: a value is a number, true, false, or a text in quotes",
            ),
            ("flows = 10k", "line 1: flows: expected a number, got 10k"),
            ("flows = 1_000x", "line 1: flows: expected a number, got 1_000x"),
            ("engine = fast", "line 1: engine: unknown value `fast`; known are tc"),
            ("engine tc", "line 1: expected a line such as `key = value`"),
            ("engine = \"tc", "line 1: engine: the closing `\"` is missing"),
        ] {
            assert_eq!(read::<Document>(text).map(|read| format!("{read:?}")).unwrap_err(), why);
        }
        let Document { savings, engine, ports, flows } =
            read("savings = true\nengine = \"tc\"\nports = []\nflows = 5").unwrap();
        assert!(savings && matches!(engine, Some(Engine::Tc)) && ports.is_empty() && flows == 5);
    }
}
