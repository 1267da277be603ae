//! Other programs, run for their output.

use anyhow::{Context, bail};
use std::{
    path::Path,
    process::{Command, Stdio},
};

/// Runs a program and returns its standard output.
///
/// # Errors
/// If the program cannot be started or fails; the error has its standard error.
pub fn tool(program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    tool_in(Path::new("."), program, arguments)
}

/// Like [`tool`], in this directory.
pub fn tool_in(directory: &Path, program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory).env("LC_ALL", "C").stdin(Stdio::null());
    let output = command.output().with_context(|| {
        format!("cannot run {program} (`packaging/deps.sh --vm` installs missing programs)")
    })?;
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("{program} {}: {}: {}", arguments.join(" "), output.status, errors.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
