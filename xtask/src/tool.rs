//! Other programs, run for what they say.

use anyhow::{Context, bail};
use std::{
    path::Path,
    process::{Command, Stdio},
};

/// What a program says on its standard output.
pub fn tool(program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    tool_in(Path::new("."), program, arguments)
}

/// The same, in this directory.
pub fn tool_in(directory: &Path, program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory).env("LC_ALL", "C").stdin(Stdio::null());
    let said = command
        .output()
        .with_context(|| format!("{program} (`packaging/deps.sh --vm` installs what is missing)"))?;
    let errors = String::from_utf8_lossy(&said.stderr);
    if !said.status.success() {
        bail!("{program} {}: {}: {}", arguments.join(" "), said.status, errors.trim());
    }
    Ok(String::from_utf8_lossy(&said.stdout).into_owned())
}
