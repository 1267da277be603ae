//! A measurement in target/bench: its file of results, and its rows, which are kept and printed.

use anyhow::{Context, ensure};
use serde::Serialize;
use shunt_lab::{Conditions, Results, ResultsFile};
use shunt_testkit::tree::target;
use std::{fs, path::PathBuf};

/// Begins target/bench/COMMAND-results.json, which says `what` is measured by this command of xtask.
pub fn begin(command: &str, what: &str) -> anyhow::Result<ResultsFile> {
    ensure!(nix::unistd::geteuid().is_root(), "network namespaces need root: sudo cargo xtask {command}");
    let results = Results::new(what, Conditions::of_this_machine());
    Ok(ResultsFile::begin(directory()?.join(format!("{command}-results.json")), results)?)
}

fn directory() -> anyhow::Result<PathBuf> {
    let directory = target().join("bench");
    fs::create_dir_all(&directory)?;
    Ok(directory)
}

/// Writes the rows to target/bench/FILE, and prints them as JSON or with `print`.
pub fn show<T: Serialize>(
    file: &str,
    rows: &[T],
    json: bool,
    print: impl FnOnce(&[T]),
) -> anyhow::Result<()> {
    let path = directory()?.join(file);
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
