//! The files of the guide, as a reader would copy them.

use shunt_testkit::tree::root;
use std::fs;

/// The text of a file that docs/guide/two-routers.md shows, by the comment with its path in the first or second line.
pub fn file(path: &str) -> String {
    let guide = root().join("docs/guide/two-routers.md");
    let text = fs::read_to_string(&guide).unwrap_or_else(|e| panic!("{}: {e}", guide.display()));
    let comment = format!("# {path}");
    let blocks = text.split("\n```").map(|block| block.split_once('\n').unwrap_or_default().1);
    let found = blocks.into_iter().find(|block| block.lines().take(2).any(|line| line == comment));
    format!("{}\n", found.unwrap_or_else(|| panic!("{}: no block has `{comment}`", guide.display())))
}

/// Replaces a part of a file, which must be there.
pub fn with(text: &str, part: &str, by: &str) -> String {
    assert!(text.contains(part), "the guide has no `{part}` in:\n{text}");
    text.replace(part, by)
}
