//! The rows of a measurement: kept in target/bench, and printed.

use anyhow::Context;
use serde::Serialize;
use shunt_testkit::tree::target;
use std::fs;

/// Writes the rows to target/bench/FILE, and prints them as JSON or with `print`.
pub fn show<T: Serialize>(
    file: &str,
    rows: &[T],
    json: bool,
    print: impl FnOnce(&[T]),
) -> anyhow::Result<()> {
    let directory = target().join("bench");
    fs::create_dir_all(&directory)?;
    let path = directory.join(file);
    let text = serde_json::to_string_pretty(rows)?;
    fs::write(&path, &text).with_context(|| path.display().to_string())?;
    if json {
        println!("{text}");
    } else {
        print(rows);
        println!("{}", path.display());
    }
    Ok(())
}
