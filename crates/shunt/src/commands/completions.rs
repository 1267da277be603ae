//! `shunt completions`.

use crate::render::Answer;
use clap_complete::{Shell, generate};

/// The completion script of `command` for this shell.
pub(crate) fn run(mut command: clap::Command, shell: Shell) -> anyhow::Result<Answer> {
    let mut script = Vec::new();
    generate(shell, &mut command, "shunt", &mut script);
    Ok(Answer::Completions(String::from_utf8(script)?))
}
