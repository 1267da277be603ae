//! Golden files: what commands print, kept beside them.

use crate::render::{
    Answer, Format,
    columns::{CELL, TABLE},
    style, units,
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::{
    collections::BTreeSet,
    env, fs,
    panic::Location,
    path::{Path, PathBuf},
};
use textwrap::core::display_width;

/// The width of a terminal that every text fits.
const NARROW: usize = 80;
/// The width of golden files of JSON.
const WIDTH: usize = 110;
/// Objects and arrays that are indented this far, such as the readings of a file of results, take one line each.
const ONE_LINE: usize = 4;

pub(crate) const TEXT: Format =
    Format { json: false, brief: false, verbose: false, width: None, colour: false };
pub(crate) const VERBOSE: Format = Format { verbose: true, ..TEXT };
pub(crate) const BRIEF: Format = Format { brief: true, ..TEXT };
pub(crate) const JSON: Format = Format { json: true, ..TEXT };

pub(crate) fn show(answer: &dyn Answer, format: Format) -> String {
    String::from_utf8(answer.render(format).unwrap()).unwrap()
}

/// The value of a golden file of JSON. A test compares the file with what the value prints, so that nothing is lost
/// between them.
pub(crate) fn sample<T: DeserializeOwned>(json: &str) -> T {
    serde_json::from_str(json).unwrap()
}

/// Compares an answer with a file, whose name is relative to the folder of the calling test; with SHUNT_BLESS=1,
/// rewrites the file.
#[track_caller]
pub(crate) fn assert_golden(name: &str, answer: &dyn Answer, format: Format) {
    let text = show(answer, format);
    assert_golden_text(name, &if name.ends_with(".json") { folded(&text) } else { text.clone() });
    assert!(text.lines().all(|line| line.trim_end() == line), "blanks at the end of a line of {name}");
    if !format.json {
        assert_fits(name, answer, format);
    }
}

/// At 80 columns, no line is longer, and each part of a table keeps the columns that name its rows.
pub(crate) fn assert_fits(name: &str, answer: &dyn Answer, format: Format) {
    let narrow = Format { width: Some(NARROW), ..format };
    let fitted = show(answer, narrow);
    let longest = fitted.lines().map(display_width).max().unwrap_or(0);
    assert!(longest <= NARROW, "{name} has {longest} columns:\n{fitted}");
    let text = style::plain(&answer.text(narrow));
    for (sides, rows) in tables(&text) {
        let lines: String =
            rows.iter().map(|row| format!("{CELL}{}\n", row.join(&CELL.to_string()))).collect();
        let alone = narrow.finish(&format!("{TABLE}{sides}\n{lines}"));
        let has = |text: &str, cell: &str| cell.split_whitespace().all(|word| text.contains(word));
        let keys = keys(&rows);
        for row in &rows {
            let is_whole = row.iter().all(|cell| has(&alone, cell));
            let is_named = |part: &str| part.lines().any(|line| row[..keys].iter().all(|key| has(line, key)));
            assert!(is_whole && alone.split("\n\n").all(is_named), "{name}: {row:?} is not whole:\n{alone}");
        }
    }
}

/// The tables of an answer: the sides of the columns, and the rows.
fn tables(text: &str) -> Vec<(&str, Vec<Vec<&str>>)> {
    let mut tables: Vec<(&str, Vec<Vec<&str>>)> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix(TABLE), line.strip_prefix(CELL), tables.last_mut()) {
            (Some(sides), ..) => tables.push((sides, Vec::new())),
            (None, Some(cells), Some((_, rows))) => rows.push(cells.split(CELL).collect()),
            _ => {}
        }
    }
    tables
}

/// The number of columns that name the rows: the fewest that tell them apart.
fn keys(rows: &[Vec<&str>]) -> usize {
    let columns = rows.iter().map(Vec::len).min().unwrap_or(0);
    let names = |count: usize| rows.iter().map(|row| &row[..count]).collect::<BTreeSet<_>>();
    (1..columns).find(|count| names(*count).len() == rows.len()).unwrap_or(columns.min(1))
}

/// As [`assert_golden`], for a text.
#[track_caller]
pub(crate) fn assert_golden_text(name: &str, text: &str) {
    let file = Path::new(Location::caller().file()).with_file_name(name);
    let package = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap());
    let path = package.join("../..").join(file);
    if env::var_os("SHUNT_BLESS").is_some_and(|v| v == "1") {
        fs::write(&path, text).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    assert!(golden == text, "{} differs; SHUNT_BLESS=1 accepts this:\n{text}", path.display());
}

/// JSON of several lines, with each object and array on one line that fits there or is [`ONE_LINE`]. Golden files have
/// it in this form.
pub(crate) fn folded(json: &str) -> String {
    let lines: Vec<&str> = json.lines().collect();
    let mut depth = 0;
    for line in &lines {
        depth -= usize::from(line.trim_start().starts_with(['}', ']']));
        // What is folded must be indented as serde_json does; otherwise folding would hide a difference.
        assert_eq!(indent(line), 2 * depth, "{line}");
        depth += usize::from(line.ends_with(['{', '[']));
    }
    fold(&lines).join("\n") + "\n"
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

fn fold(mut lines: &[&str]) -> Vec<String> {
    let mut folded: Vec<String> = Vec::new();
    while let Some((first, rest)) = lines.split_first() {
        let end = match first.ends_with(['{', '[']) {
            true => rest.iter().position(|line| indent(line) == indent(first)).expect("a closing bracket"),
            false => {
                let is_scalar = |line: &str| !line.ends_with(['{', '[', '}', ']']);
                match folded.last_mut() {
                    // Numbers and words share a line, too.
                    Some(last)
                        if is_scalar(last.trim_end_matches(','))
                            && last.len() + first.trim().len() < WIDTH =>
                    {
                        *last += " ";
                        *last += first.trim();
                    }
                    _ => folded.push((*first).to_owned()),
                }
                lines = rest;
                continue;
            }
        };
        let (inner, close) = (&rest[..end], rest[end]);
        let words: Vec<&str> = inner.iter().map(|line| line.trim()).collect();
        let one = format!("{first}{}{}", words.join(" "), close.trim());
        if one.len() <= WIDTH || indent(first) >= ONE_LINE {
            folded.push(one);
        } else {
            folded.push((*first).to_owned());
            folded.extend(fold(inner));
            folded.push(close.to_owned());
        }
        lines = &rest[end + 1..];
    }
    folded
}

/// Every number and text of a JSON value, with its path.
fn leaves(at: &str, value: &Value, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, field)| {
            leaves(&format!("{at}.{name}"), field, found);
        }),
        Value::Array(items) => items.iter().for_each(|item| leaves(at, item, found)),
        Value::String(text) => found.push((at.to_owned(), text.clone())),
        other => found.push((at.to_owned(), other.to_string())),
    }
}

/// The values of the JSON that the text lacks. Values whose paths end as one of `scaled` have other units or words
/// there.
pub(crate) fn text_lacks(answer: &dyn Answer, scaled: &[&str]) -> Vec<(String, String)> {
    let value: Value = serde_json::from_str(&show(answer, JSON)).unwrap();
    let text = show(answer, VERBOSE);
    let words: Vec<&str> = text
        .split(|c: char| c.is_whitespace() || ",()".contains(c))
        .map(|w| w.trim_end_matches(':'))
        .collect();
    let has = |leaf: &str| words.contains(&leaf) || (leaf.contains([' ', ':']) && text.contains(leaf));
    let has_bytes = |at: &str, leaf: &str| {
        let is_bytes = at.ends_with(".bytes") || at.contains(".bytes.");
        is_bytes && leaf.parse().is_ok_and(|bytes| text.contains(&units::bytes(bytes)))
    };
    let mut found = Vec::new();
    leaves("", &value, &mut found);
    assert!(found.len() > 20);
    found.retain(|(at, leaf)| {
        !has(leaf) && !has_bytes(at, leaf) && !scaled.iter().any(|end| at.ends_with(end))
    });
    found
}
